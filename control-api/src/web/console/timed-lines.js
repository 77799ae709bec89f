// The times of a recorded conversation's words: joins the lines of the transcript with the messages
// of the record, which have the times. No DOM here, so it can be tested without a browser.

const SPEAKERS = { user: "user", visitor: "user", assistant: "agent" };

/** A browser may report a position slightly before the one that was sought, for example 8.042999. */
const POSITION_TOLERANCE = 0.0005;

const normalize = (text) => text.split(/\s+/).filter(Boolean).join(" ");

/**
 * A part of a line that is highlighted and sought as one: a word, or the whole text.
 * @typedef {{before: string, text: string, start: number, end: number, node?: HTMLElement}} Unit
 */

/**
 * The units of a message: its words if it has their times, otherwise its whole text. `before` is
 * the text between the previous unit and this one.
 * @returns {{units: Unit[], after: string}}
 */
export function unitsOf(message) {
  const text = message.content;
  const start = message.seconds_from_start;
  const whole = {
    units: [{ before: "", text, start, end: start + Math.max(0, message.duration || 0) }],
    after: "",
  };
  if (!message.words?.length) return whole;
  const units = [];
  let position = 0;
  for (const word of message.words) {
    const at = text.indexOf(word.text, position);
    if (!word.text || at < 0) return whole;
    units.push({
      before: text.slice(position, at),
      text: word.text,
      start: word.start,
      end: word.end,
    });
    position = at + word.text.length;
  }
  return { units, after: text.slice(position) };
}

/**
 * Sets `units`, `after` and `start` of each line that a message of the record times. The lines are
 * in the order of their starts and the messages in that of their ends, so each speaker's are
 * compared separately: a line belongs to the first message left that has its text.
 */
export function addTimes(lines, messages) {
  const left = { user: [], agent: [] };
  for (const message of messages) left[SPEAKERS[message.role]]?.push(message);
  for (const line of lines) {
    const candidates = left[line.who];
    if (!candidates || line.removed || !line.spoken) continue;
    const text = normalize(line.spoken);
    const index = candidates.findIndex((message) => normalize(message.content) === text);
    if (index < 0) continue;
    const [message] = candidates.splice(index, 1);
    Object.assign(line, unitsOf(message), { start: message.seconds_from_start });
  }
}

/**
 * Removes the units from `end` on, in seconds, because the file ends there: they cannot be played.
 * Their text remains.
 * @returns {any[]} the lines that have changed
 */
export function removeUnitsFrom(lines, end) {
  return lines.filter((line) => {
    if (!line.units) return false;
    const count = line.units.filter(({ start }) => start < end).length;
    if (count === line.units.length) return false;
    const removed = line.units.slice(count).map(({ before, text }) => before + text);
    line.after = removed.join("") + line.after;
    line.units = count ? line.units.slice(0, count) : undefined;
    return true;
  });
}

/** The units of each speaker in the order of time. Those of two speakers may overlap. */
export class UnitTracks {
  #tracks;

  constructor(lines) {
    this.#tracks = ["user", "agent"].map((who) =>
      lines
        .filter((line) => line.who === who)
        .flatMap((line) => (line.units ?? []).map((unit) => ({ line, unit })))
        .sort((a, b) => a.unit.start - b.unit.start),
    );
  }

  /**
   * What is said at a time in seconds.
   * @returns {{line: any, unit: Unit}[]} at most one of each speaker
   */
  at(seconds) {
    const position = seconds + POSITION_TOLERANCE;
    const found = [];
    for (const track of this.#tracks) {
      let [low, high] = [0, track.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (track[middle].unit.start <= position) low = middle + 1;
        else high = middle;
      }
      if (low && position < track[low - 1].unit.end) found.push(track[low - 1]);
    }
    return found;
  }
}
