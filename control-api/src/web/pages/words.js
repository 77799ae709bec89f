// Everything that the page says when something is wrong or over. Short, and always with a way on.

import { Blocked, Refused } from "./link.js";

/** When to try again, as far as the server tells. */
function later({ retryAfter }) {
  if (!(retryAfter > 5)) return "Try again in a moment.";
  return retryAfter > 90 ? `Try again in ${Math.ceil(retryAfter / 60)} minutes.` : `Try again in ${Math.ceil(retryAfter)} seconds.`;
}

/** 503: what is missing decides what to say; the server's own words are for its operator. */
function whyNoPlace(error) {
  if (/shutting down|draining/.test(error.reason)) return "The server is about to restart. Try again in a minute.";
  if (/loading/.test(error.reason)) return `The server is still getting ready. ${later(error)}`;
  if (/too many|too busy|too fast/.test(error.reason)) return `The server is too busy to answer right now. ${later(error)}`;
  if (/full|decoder/.test(error.reason)) return `All lines are busy right now. ${later(error)}`;
  return `The server cannot take calls right now. ${later(error)}`;
}

/** @returns {{words: string, final?: boolean}} `final`: trying again cannot help. */
export function whyNoCall(error) {
  if (error instanceof Refused) {
    switch (error.status) {
      case 400: return { words: "The server did not understand what your browser offers. Use a current browser.", final: true };
      case 401: return { words: "This link has expired or is not valid. Ask for a new one.", final: true };
      case 403: return { words: "The page around this one may not use this agent.", final: true };
      case 404: return { words: "There is nobody to talk with under this address.", final: true };
      case 409: return { words: "This conversation is over. A link works for one conversation only.", final: true };
      case 408: return { words: "Your connection was too slow to ask for the call. Try again." };
      case 421: return { words: "The server does not know itself by this address. Ask for another link.", final: true };
      case 429: return { words: `${/^Workspace limit/.test(error.message) ? "This agent takes no more calls for now." : "Too many tries from your network."} ${later(error)}` };
      case 503: return { words: whyNoPlace(error) };
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
  full: ["All lines are busy", "Try again in a moment."],
};

export const STATE = {
  connecting: "Connecting",
  lost: "Reconnecting",
  listening: "Listening",
  thinking: "Thinking",
  speaking: "Speaking",
};
