// The texts of the call page for errors, the end of a call, and its states. Each error text names
// what the user can do next.

import { ConnectionFailedError, RejectedError } from "./call-client.js";

/** When to try again. `retryAfter` is the server's Retry-After in seconds, or 0. */
function retryHint({ retryAfter }) {
  if (!(retryAfter > 5)) return "Try again in a moment.";
  return retryAfter > 90
    ? `Try again in ${Math.ceil(retryAfter / 60)} minutes.`
    : `Try again in ${Math.ceil(retryAfter)} seconds.`;
}

/**
 * The text for a 503. The server's `reason` is written for its operator, so it only selects the
 * text.
 */
function unavailableText(error) {
  if (/shutting down|draining/.test(error.reason))
    return "The server is about to restart. Try again in a minute.";
  if (/loading/.test(error.reason)) return `The server is still getting ready. ${retryHint(error)}`;
  if (/too many|too busy|too fast/.test(error.reason))
    return `The server is too busy to answer right now. ${retryHint(error)}`;
  if (/full|decoder/.test(error.reason)) return `All lines are busy right now. ${retryHint(error)}`;
  return `The server cannot accept calls right now. ${retryHint(error)}`;
}

/**
 * Why the call did not start. `final`: another attempt cannot succeed.
 * @returns {{text: string, final?: boolean}}
 */
export function callErrorText(error) {
  if (error instanceof RejectedError) {
    switch (error.status) {
      case 400:
        return {
          text: "The server cannot process the offer of your browser. Use a current browser.",
          final: true,
        };
      case 401:
        return {
          text: "This link has expired or is not valid. Ask the person who sent it for a new one.",
          final: true,
        };
      case 403:
        return { text: "The page that embeds this one may not use this agent.", final: true };
      case 404:
        return { text: "There is no agent at this address.", final: true };
      case 409:
        return {
          text:
            "This conversation is over. A link works for one conversation only: ask for a new one " +
            "to talk again.",
          final: true,
        };
      case 408:
        return { text: "Your connection was too slow to start the call. Try again." };
      case 421:
        return {
          text: "The server is not configured for this address. Ask for another link.",
          final: true,
        };
      case 429:
        return {
          text: `${
            /^Workspace limit/.test(error.message)
              ? "This agent takes no more calls for now."
              : "Too many attempts from your network."
          } ${retryHint(error)}`,
        };
      case 503:
        return { text: unavailableText(error) };
      case 406:
        return {
          text:
            "Your browser does not offer the Opus codec, which this call requires. " +
            "Use a current browser.",
          final: true,
        };
      default:
        return { text: "The server could not accept the call. Try again in a moment." };
    }
  }
  if (error instanceof ConnectionFailedError) {
    return {
      text:
        "Your network blocks the call: the server answered, but neither UDP nor TCP media gets " +
        "through. Try another network, or turn a VPN or firewall off.",
    };
  }
  return { text: "The server cannot be reached. Check your connection and try again." };
}

const TYPING_HINT = "You can type, and the agent still speaks.";

/** @param {string} reason of a MicrophoneError */
export function microphoneErrorText(reason) {
  switch (reason) {
    case "denied":
      return (
        "The microphone is blocked. Allow it in the browser's address bar, then try again. " +
        TYPING_HINT
      );
    case "notFound":
      return `No microphone was found. Plug one in, then try again. ${TYPING_HINT}`;
    case "busy":
      return `Another program uses the microphone. Close it, then try again. ${TYPING_HINT}`;
    case "insecure":
      return `Browsers allow the microphone on https pages only. ${TYPING_HINT}`;
    case "blockedByFrame":
      return `The page that embeds this one does not allow the microphone. ${TYPING_HINT}`;
    default:
      return `The microphone did not start. ${TYPING_HINT}`;
  }
}

/** The reason on the end screen if the server rejects a call for good. */
export function endReason(status) {
  if (status === 401) return "invalidLink";
  return status === 409 ? "ended" : "unavailable";
}

/** Title and text of the end screen, by the reason of the end. */
export const END_TEXTS = {
  hungUp: ["You hung up", "Thank you for talking."],
  ended: ["The conversation is over", "Thank you for talking."],
  timeLimit: ["Time is up", "The conversation reached its maximum duration."],
  elsewhere: ["The call continues elsewhere", "This conversation was opened in another window."],
  invalidLink: ["This link does not work", ""],
  unavailable: ["No conversation here", ""],
  connectionLost: ["The connection is lost", "The server could not be reached for a while."],
  full: ["All lines are busy", "Try again in a moment."],
};

/** Texts about the recording of the call. */
export const RECORDING_TEXTS = {
  before: "This call is recorded.",
  beforeOptional: "This call is recorded. You can turn the recording off during the call.",
  recorded: "Being recorded",
  off: "Nothing is recorded",
  stopped: "The start is stored",
  refuse: "Do not record",
  discard: "Discard it",
  failed: "The recording could not be turned off. Try again, or hang up.",
};

/** Labels of the call's states. */
export const STATE_LABELS = {
  connecting: "Connecting",
  reconnecting: "Reconnecting",
  listening: "Listening",
  thinking: "Thinking",
  speaking: "Speaking",
};
