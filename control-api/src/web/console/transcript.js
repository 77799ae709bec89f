// What was said, folded from a conversation's events: words heard, words that were cut, tools, warnings. No DOM here, so that it can be tested alone.
//
// The record holds only what was heard of an interrupted reply. What the agent had meant to say is in the events before: the words of the
// language model, the pieces given to the voice, the text known as the first sample left. The longest of them that begins as what was heard wins.

const words = (text) => text.split(/\s+/).filter(Boolean);
const bare = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");

/** What is left of `meant` behind the words of `heard`; null if it does not begin with them. */
export function rest(meant, heard) {
  const [all, said] = [words(meant), words(heard)];
  let n = 0;
  for (; n < said.length && n < all.length; n++) if (bare(all[n]) !== bare(said[n])) break;
  // The last word may have been cut in two.
  if (n < said.length && !(n === said.length - 1 && n < all.length && bare(all[n]).startsWith(bare(said[n])))) return null;
  return all.slice(n).join(" ");
}

export class Transcript {
  /** In the order of their beginning: `{who: "user"|"agent"|"tool"|"note", at, open, spoken, partial, ahead, cut, …}`. */
  lines = [];
  state = "";
  ended = null;
  #user = null;
  #agent = null;
  #llm = "";
  #pieces = [];

  /** @returns {object | null} the line that changed. */
  handle(event) {
    const { what, at } = event;
    switch (what) {
      case "user.started_speaking": return null;
      case "user.transcript": return this.#partial(event);
      case "utterance_committed": {
        const line = this.#user ?? this.#line("user", at);
        Object.assign(line, { spoken: event.text, partial: "", open: false });
        this.#user = null;
        return line;
      }
      case "llm.started":
        this.#llm = "";
        this.#pieces = [];
        return null;
      case "llm.text": {
        this.#llm += event.text;
        return this.#ahead();
      }
      case "tts.started": {
        if (event.text) this.#pieces.push(event.text);
        return this.#ahead();
      }
      case "agent.started_speaking": {
        if (this.#agent) this.#agent.open = false;
        this.#agent = this.#line("agent", at);
        this.#agent.known = event.text ?? "";
        return this.#ahead();
      }
      case "agent.heard": {
        if (!this.#agent) return null;
        this.#agent.spoken = event.text;
        return this.#ahead();
      }
      case "agent.stopped_speaking": {
        const line = this.#agent ?? this.#line("agent", at);
        line.spoken = event.text;
        line.cut = this.#left(line);
        line.ahead = "";
        line.open = false;
        this.#agent = null;
        this.#pieces = [];
        return line.spoken || line.cut ? line : this.#drop(line);
      }
      case "history": return this.#history(event);
      case "agent.state": {
        this.state = event.state;
        return null;
      }
      case "warning": return Object.assign(this.#line("note", at), { spoken: event.text, open: false });
      case "error": return Object.assign(this.#line("note", at), { spoken: `${event.stage} failed: ${event.reason}`, open: false, bad: true });
      case "guardrail.triggered": return Object.assign(this.#line("note", at), { spoken: `Guardrail “${event.key}” applied.`, open: false });
      case "ended": {
        this.ended = event.reason;
        for (const line of [this.#user, this.#agent]) if (line) line.open = false;
        if (this.#user) this.#user.spoken ||= this.#user.partial;
        this.#user = this.#agent = null;
        return this.lines.at(-1) ?? null;
      }
      default: return null;
    }
  }

  #line(who, at) {
    const line = { id: this.lines.length, who, at, open: true, spoken: "", partial: "", ahead: "", cut: "" };
    this.lines.push(line);
    return line;
  }

  #drop(line) {
    line.gone = true;
    return line;
  }

  #partial({ text, is_final: final, at }) {
    if (!this.#user && !text.trim()) return null;
    const line = (this.#user ??= this.#line("user", at));
    if (final) line.spoken = [line.spoken, text].filter(Boolean).join(" ");
    line.partial = final ? "" : text;
    return line;
  }

  #left(line) {
    const known = [line.known ?? "", this.#pieces.join(" "), this.#llm];
    const left = known.map((meant) => rest(meant, line.spoken)).filter((text) => text !== null);
    return left.sort((a, b) => b.length - a.length)[0] ?? "";
  }

  #ahead() {
    const line = this.#agent;
    if (!line) return null;
    line.ahead = this.#left(line);
    return line;
  }

  #history(event) {
    if (event.role === "tool") return Object.assign(this.#line("tool", event.at), { name: event.name, arguments: event.arguments, spoken: event.text, open: false });
    if (event.role === "system") return Object.assign(this.#line("note", event.at), { spoken: `Context: ${event.text}`, open: false });
    if (event.role === "user") return null;
    const line = this.lines.findLast((other) => other.who === "agent" && !other.open);
    // Only what was really interrupted is struck; a reply that ended by itself may have been worded otherwise by the model.
    if (line && !event.interrupted) line.cut = "";
    if (line) line.interrupted = Boolean(event.interrupted);
    return line ?? null;
  }
}

/** A transcript of a record whose events are gone. */
export function ofRecord(record) {
  const messages = record.chat_history?.messages ?? [];
  return messages.map((message, id) => ({
    id, at: message.seconds_from_start, open: false, partial: "", ahead: "", cut: "", spoken: message.content, interrupted: message.interrupted,
    who: { user: "user", assistant: "agent", tool: "tool" }[message.role] ?? "note", name: message.tool_call?.name, arguments: message.tool_call?.arguments,
  }));
}
