// Captions: what both sides said, built from the messages of the data channel. No DOM here, so it
// can be tested without a browser.
//
// An agent's line holds all words of the utterance (`said`) and how many of them were heard. After
// an interruption the server reports the heard text; the other words of the line were never spoken.

/**
 * The words of a text, each with the whitespace before it. Joined again they give the exact text.
 */
const splitWords = (text) => text.trim().match(/\s*\S+/g) ?? [];
/** The text of words. Words of different messages are separated by a space. */
const joinWords = (list) =>
  list
    .map((word, at) => (at > 0 && !/^\s/.test(word) ? ` ${word}` : word))
    .join("")
    .trim();

/**
 * A line. Agent: `said` holds the words, `heard` how many of them were heard. User: `said` holds
 * the words of final transcripts, `heard` those of the interim transcript.
 * @typedef {{id: number, who: string, open: boolean, said: string[], heard: any,
 *   segments?: Map<any, {words: string[], heard: number}>, started?: boolean}} Line
 */

export class Captions {
  /** Lines in the order of their start. @type {Line[]} */
  lines = [];
  /** @type {Line | null} */
  #userLine = null;
  /** @type {Line | null} */
  #agentLine = null;
  #nextId = 0;

  /**
   * @param {{lines?: any[]}} [saved] the result of `serialize` in an earlier page of this call.
   */
  constructor(saved) {
    for (const line of saved?.lines ?? []) {
      if (line?.who !== "user" && line?.who !== "agent") continue;
      this.lines.push({ ...line, id: this.#nextId++, open: false });
    }
  }

  /** Plain data for `sessionStorage`: the last 200 closed lines. */
  serialize() {
    return {
      lines: this.lines
        .filter((line) => !line.open)
        .slice(-200)
        .map(({ who, said, heard }) => ({ who, said, heard })),
    };
  }

  /** Takes a message of the data channel. @returns {Line | null} the line that changed. */
  handle(message) {
    const { type, data } = message;
    switch (type) {
      case "user-transcription":
        return this.#onTranscription(data);
      case "bot-output":
        return this.#onBotOutput(data);
      case "server-message":
        return data?.event ? this.#onEvent(data.event.event ?? data.event) : null;
      default:
        return null;
    }
  }

  #openLine(who) {
    const line = {
      id: this.#nextId++,
      who,
      open: true,
      said: [],
      heard: who === "agent" ? 0 : [],
      segments: new Map(),
      started: false,
    };
    this.lines.push(line);
    return line;
  }

  #onTranscription(data) {
    if (typeof data?.text !== "string") return null;
    if (!this.#userLine && !data.text.trim()) return null;
    this.#userLine ??= this.#openLine("user");
    const line = this.#userLine;
    if (data.final) {
      line.said.push(...splitWords(data.text));
      line.heard = [];
    } else {
      line.heard = splitWords(data.text);
    }
    return line;
  }

  #onBotOutput(data) {
    if (typeof data?.text !== "string" || data.will_be_spoken === false) return null;
    this.#agentLine ??= this.#openLine("agent");
    const line = this.#agentLine;
    const key = data.segment_id ?? data.text;
    const spokenText = data.spoken_progress?.accumulated_text;
    const segmentWords = splitWords(data.text);
    const previous = line.segments.get(key);
    let heard = previous?.heard ?? 0;
    if (data.spoken_status === "completed") heard = segmentWords.length;
    else if (typeof spokenText === "string") heard = Math.max(heard, splitWords(spokenText).length);
    line.segments.set(key, { words: segmentWords, heard });
    const said = [...line.segments.values()].flatMap((segment) => segment.words);
    if (said.length >= line.said.length) line.said = said;
    line.heard = Math.max(
      line.heard,
      [...line.segments.values()].reduce((sum, segment) => sum + segment.heard, 0),
    );
    return line;
  }

  #onEvent(event) {
    const payload = event.payload ?? {};
    const text = typeof payload.text === "string" ? payload.text : "";
    switch (event.name) {
      case "utterance_committed": {
        const line = this.#userLine ?? this.#openLine("user");
        line.said = splitWords(text);
        line.heard = [];
        line.open = false;
        this.#userLine = null;
        return line;
      }
      case "agent.started_speaking": {
        if (this.#agentLine?.started) this.#closeLine(this.#agentLine);
        this.#agentLine ??= this.#openLine("agent");
        const line = this.#agentLine;
        line.started = true;
        const said = splitWords(text);
        if (said.length > line.said.length) line.said = said;
        return line;
      }
      case "agent.stopped_speaking": {
        const line = this.#agentLine ?? this.#openLine("agent");
        const heard = splitWords(text);
        if (heard.length > line.said.length) line.said = heard;
        line.heard = heard.length;
        this.#closeLine(line);
        return line;
      }
      case "call_ended": {
        const line = this.#agentLine ?? this.#userLine;
        if (this.#agentLine) this.#closeLine(this.#agentLine);
        if (this.#userLine) this.#userLine.open = false;
        this.#userLine = null;
        return line;
      }
      default:
        return null;
    }
  }

  #closeLine(line) {
    line.open = false;
    if (this.#agentLine === line) this.#agentLine = null;
  }
}

/**
 * The parts of a line: `spoken` was said, `partial` is an interim transcript that may still change,
 * `ahead` is not spoken yet, `cut` was never spoken because of an interruption.
 * @returns {{spoken: string, partial: string, ahead: string, cut: string}}
 */
export function lineParts(line) {
  const text = { spoken: "", partial: "", ahead: "", cut: "" };
  if (line.who === "user") {
    text.spoken = joinWords(line.said);
    text.partial = line.open ? joinWords(line.heard) : "";
    return text;
  }
  // A server without progress reports: the whole line counts as spoken until the utterance ends.
  const heard =
    line.open && line.heard === 0 && (line.segments?.size ?? 0) === 0
      ? line.said.length
      : line.heard;
  text.spoken = joinWords(line.said.slice(0, heard));
  text[line.open ? "ahead" : "cut"] = joinWords(line.said.slice(heard));
  return text;
}
