// Everything that the page says when something is wrong or over. Short, and always with a way on.

import { Blocked, Refused } from "./link.js";

/** @returns {{words: string, final?: boolean}} `final`: trying again cannot help. */
export function whyNoCall(error) {
  if (error instanceof Refused) {
    switch (error.status) {
      case 401: return { words: "This link has expired or is not valid. Ask for a new one.", final: true };
      case 403: return { words: "The page around this one may not use this agent.", final: true };
      case 404: return { words: "There is nobody to talk with under this address.", final: true };
      case 409: return { words: "This conversation is over. A link works for one conversation only.", final: true };
      case 429: return { words: "Too many tries from your network. Wait a minute, then try again." };
      case 503: return { words: "The server has no free place for a call right now. Try again in a moment." };
      case 406: return { words: "Your browser does not offer the Opus sound that this call needs. Use a current browser.", final: true };
      default: return { words: "The server could not take the call. Try again in a moment." };
    }
  }
  if (error instanceof Blocked) {
    return { words: "Your network blocks the call: the server answered, but neither UDP nor TCP media gets through. Try another network, or turn a VPN or firewall off." };
  }
  return { words: "The server cannot be reached. Check your connection and try again." };
}

const BLOCKED_MICROPHONE = "You can type, and the agent still speaks.";

/** @param {string} why of NoMicrophone */
export function whyNoMicrophone(why) {
  switch (why) {
    case "refused": return `The microphone is blocked. Allow it in the browser's address bar, then try again. ${BLOCKED_MICROPHONE}`;
    case "none": return `No microphone was found. Plug one in, then try again. ${BLOCKED_MICROPHONE}`;
    case "busy": return `Another program holds the microphone. Close it, then try again. ${BLOCKED_MICROPHONE}`;
    case "insecure": return `Browsers give the microphone to https pages only. ${BLOCKED_MICROPHONE}`;
    case "framed": return `The page around this one does not allow the microphone. ${BLOCKED_MICROPHONE}`;
    default: return `The microphone did not start. ${BLOCKED_MICROPHONE}`;
  }
}

export const OVER = {
  hungUp: ["You hung up", "Thank you for talking."],
  ended: ["The conversation is over", "Thank you for talking."],
  limit: ["Time is up", "The conversation reached its longest allowed length."],
  elsewhere: ["The call goes on elsewhere", "This conversation was opened in another window."],
  useless: ["No conversation here", ""],
  stalled: ["The connection is lost", "The server could not be reached for a while."],
};

export const STATE = {
  connecting: "Connecting",
  lost: "Reconnecting",
  listening: "Listening",
  thinking: "Thinking",
  speaking: "Speaking",
};
