// Captions: what both sides said, folded from the messages of the data channel. No DOM here, so that it can be tested alone.
//
// An agent's line knows the words that are meant (`said`) and how many of them were heard; on a cut the server tells the heard text,
// and what is left of the line was never said aloud.

/** Words, each with the blanks before it: put together again they are the text to the letter. */
const words = (text) => text.trim().match(/\s*\S+/g) ?? [];
/** The text of words; what was told piece by piece is parted by a blank. */
const joined = (list) => list.map((word, at) => (at > 0 && !/^\s/.test(word) ? ` ${word}` : word)).join("").trim();

export class Captions {
  /** Lines in the order in which they began: `{id, who, open, said, heard}` (agent: words; user: `said` = final, `heard` = partial). */
  lines = [];
  #user = null;
  #agent = null;
  #next = 0;

  /** @param {{lines?: object[]}} [kept] what an earlier page of the same call kept (see `keep`). */
  constructor(kept) {
    for (const line of kept?.lines ?? []) {
      if (line?.who !== "user" && line?.who !== "agent") continue;
      this.lines.push({ ...line, id: this.#next++, open: false });
    }
  }

  /** Plain data for `sessionStorage`: the closed lines. */
  keep() {
    return { lines: this.lines.filter((line) => !line.open).slice(-200).map(({ who, said, heard }) => ({ who, said, heard })) };
  }

  /** @returns {object | null} the line that changed. */
  handle(message) {
    const { type, data } = message;
    switch (type) {
      case "user-transcription": return this.#transcription(data);
      case "bot-output": return this.#output(data);
      case "server-message": return data?.event ? this.#event(data.event.event ?? data.event) : null;
      default: return null;
    }
  }

  #open(who) {
    const line = { id: this.#next++, who, open: true, said: [], heard: who === "agent" ? 0 : [], segments: new Map(), began: false };
    this.lines.push(line);
    return line;
  }

  #transcription(data) {
    if (typeof data?.text !== "string") return null;
    if (!this.#user && !data.text.trim()) return null;
    const line = (this.#user ??= this.#open("user"));
    if (data.final) {
      line.said.push(...words(data.text));
      line.heard = [];
    } else {
      line.heard = words(data.text);
    }
    return line;
  }

  #output(data) {
    if (typeof data?.text !== "string" || data.will_be_spoken === false) return null;
    const line = (this.#agent ??= this.#open("agent"));
    const key = data.segment_id ?? data.text;
    const progress = data.spoken_progress?.accumulated_text;
    const all = words(data.text);
    const known = line.segments.get(key);
    let heard = known?.heard ?? 0;
    if (data.spoken_status === "completed") heard = all.length;
    else if (typeof progress === "string") heard = Math.max(heard, words(progress).length);
    line.segments.set(key, { all, heard });
    const said = [...line.segments.values()].flatMap((segment) => segment.all);
    if (said.length >= line.said.length) line.said = said;
    line.heard = Math.max(line.heard, [...line.segments.values()].reduce((sum, segment) => sum + segment.heard, 0));
    return line;
  }

  #event(event) {
    const payload = event.payload ?? {};
    const text = typeof payload.text === "string" ? payload.text : "";
    switch (event.name) {
      case "utterance_committed": {
        const line = this.#user ?? this.#open("user");
        line.said = words(text);
        line.heard = [];
        line.open = false;
        this.#user = null;
        return line;
      }
      case "agent.started_speaking": {
        if (this.#agent?.began) this.#close(this.#agent);
        const line = (this.#agent ??= this.#open("agent"));
        line.began = true;
        const said = words(text);
        if (said.length > line.said.length) line.said = said;
        return line;
      }
      case "agent.stopped_speaking": {
        const line = this.#agent ?? this.#open("agent");
        const heard = words(text);
        if (heard.length > line.said.length) line.said = heard;
        line.heard = heard.length;
        this.#close(line);
        return line;
      }
      case "call_ended": {
        const line = this.#agent ?? this.#user;
        if (this.#agent) this.#close(this.#agent);
        if (this.#user) this.#user.open = false;
        this.#user = null;
        return line;
      }
      default: return null;
    }
  }

  #close(line) {
    line.open = false;
    if (this.#agent === line) this.#agent = null;
  }
}

/**
 * How a line reads: `spoken` as it was said, `partial` what may still change, `ahead` what is yet to be said, `cut` what never was.
 * @returns {{spoken: string, partial: string, ahead: string, cut: string}}
 */
export function reading(line) {
  const text = { spoken: "", partial: "", ahead: "", cut: "" };
  if (line.who === "user") {
    text.spoken = joined(line.said);
    text.partial = line.open ? joined(line.heard) : "";
    return text;
  }
  // A server that tells no progress: everything counts as said until the end of the utterance says otherwise.
  const heard = line.open && line.heard === 0 && (line.segments?.size ?? 0) === 0 ? line.said.length : line.heard;
  text.spoken = joined(line.said.slice(0, heard));
  text[line.open ? "ahead" : "cut"] = joined(line.said.slice(heard));
  return text;
}
