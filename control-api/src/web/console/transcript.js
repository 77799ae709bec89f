// The transcript of a conversation, built from its events: heard text, text cut by an interruption,
// tool calls, warnings. No DOM here, so it can be tested without a browser.
//
// The record holds only the heard text of an interrupted reply. Earlier events hold the intended
// text: the output of the language model, the segments given to the TTS, and the text known when
// the first sample was sent. Of those that start with the heard text, the longest remainder is
// used.

const splitWords = (text) => text.split(/\s+/).filter(Boolean);
const normalize = (word) => word.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");

/** The part of `intended` after the words of `heard`; null if it does not start with them. */
export function remainingText(intended, heard) {
  const [intendedWords, heardWords] = [splitWords(intended), splitWords(heard)];
  let n = 0;
  for (; n < heardWords.length && n < intendedWords.length; n++)
    if (normalize(intendedWords[n]) !== normalize(heardWords[n])) break;
  // The last heard word may be incomplete.
  if (
    n < heardWords.length &&
    !(
      n === heardWords.length - 1 &&
      n < intendedWords.length &&
      normalize(intendedWords[n]).startsWith(normalize(heardWords[n]))
    )
  )
    return null;
  return intendedWords.slice(n).join(" ");
}

export class Transcript {
  /**
   * Lines in the order of their start:
   * `{who: "user"|"agent"|"tool"|"note", at, open, spoken, partial, ahead, cut, …}`. `speaker`:
   * the name of the person, if several people take part and it is known.
   */
  lines = [];
  state = "";
  ended = null;
  #userLine = null;
  #agentLine = null;
  #generatedText = "";
  #segments = [];
  /** The line of each turn. */
  #turns = [];

  /** Takes the next event. @returns {object | null} the line that changed. */
  handle(event) {
    const { what, at } = event;
    switch (what) {
      case "user.started_speaking":
        return null;
      case "user.transcript":
        return this.#onTranscript(event);
      case "utterance_committed": {
        const line = this.#userLine ?? this.#addLine("user", at);
        Object.assign(line, { spoken: event.text, partial: "", open: false });
        if (event.speaker) line.speaker = event.speaker;
        this.#turns.push(line);
        this.#userLine = null;
        return line;
      }
      case "utterance.speaker": {
        const line = this.#turns[event.turn];
        return line ? Object.assign(line, { speaker: event.speaker }) : null;
      }
      case "llm.started":
        this.#generatedText = "";
        this.#segments = [];
        return null;
      case "llm.text": {
        this.#generatedText += event.text;
        return this.#updateAhead();
      }
      case "tts.started": {
        if (event.text) this.#segments.push(event.text);
        return this.#updateAhead();
      }
      case "agent.started_speaking": {
        if (this.#agentLine) this.#agentLine.open = false;
        this.#agentLine = this.#addLine("agent", at);
        this.#agentLine.startText = event.text ?? "";
        return this.#updateAhead();
      }
      case "agent.heard": {
        if (!this.#agentLine) return null;
        this.#agentLine.spoken = event.text;
        return this.#updateAhead();
      }
      case "agent.stopped_speaking": {
        const line = this.#agentLine ?? this.#addLine("agent", at);
        line.spoken = event.text;
        line.cut = this.#unheardText(line);
        line.ahead = "";
        line.open = false;
        this.#agentLine = null;
        this.#segments = [];
        return line.spoken || line.cut ? line : this.#remove(line);
      }
      case "history":
        return this.#onHistory(event);
      case "agent.state": {
        this.state = event.state;
        return null;
      }
      case "warning":
        return Object.assign(this.#addLine("note", at), { spoken: event.text, open: false });
      case "error":
        return Object.assign(this.#addLine("note", at), {
          spoken: `${event.stage} failed: ${event.reason}`,
          open: false,
          bad: true,
        });
      case "guardrail.triggered":
        return Object.assign(this.#addLine("note", at), {
          spoken: `Guardrail “${event.key}” applied.`,
          open: false,
        });
      case "ended": {
        this.ended = event.reason;
        for (const line of [this.#userLine, this.#agentLine]) if (line) line.open = false;
        if (this.#userLine) this.#userLine.spoken ||= this.#userLine.partial;
        this.#userLine = this.#agentLine = null;
        return this.lines.at(-1) ?? null;
      }
      default:
        return null;
    }
  }

  #addLine(who, at) {
    const line = {
      id: this.lines.length,
      who,
      at,
      open: true,
      spoken: "",
      partial: "",
      ahead: "",
      cut: "",
    };
    this.lines.push(line);
    return line;
  }

  #remove(line) {
    line.removed = true;
    return line;
  }

  #onTranscript({ text, is_final: final, at }) {
    if (!this.#userLine && !text.trim()) return null;
    this.#userLine ??= this.#addLine("user", at);
    const line = this.#userLine;
    if (final) line.spoken = [line.spoken, text].filter(Boolean).join(" ");
    line.partial = final ? "" : text;
    return line;
  }

  #unheardText(line) {
    const candidates = [line.startText ?? "", this.#segments.join(" "), this.#generatedText];
    const remaining = candidates
      .map((intended) => remainingText(intended, line.spoken))
      .filter((text) => text !== null);
    return remaining.sort((a, b) => b.length - a.length)[0] ?? "";
  }

  #updateAhead() {
    const line = this.#agentLine;
    if (!line) return null;
    line.ahead = this.#unheardText(line);
    return line;
  }

  #onHistory(event) {
    if (event.role === "tool")
      return Object.assign(this.#addLine("tool", event.at), {
        name: event.name,
        arguments: event.arguments,
        spoken: event.text,
        open: false,
      });
    if (event.role === "system")
      return Object.assign(this.#addLine("note", event.at), {
        spoken: `Context: ${event.text}`,
        open: false,
      });
    if (event.role === "user") return null;
    const line = this.lines.findLast((other) => other.who === "agent" && !other.open);
    // Only an interrupted reply has cut text. The text of a complete reply may differ from the
    // model's.
    if (line && !event.interrupted) line.cut = "";
    if (line) line.interrupted = Boolean(event.interrupted);
    return line ?? null;
  }
}

/** The transcript lines of a record whose events no longer exist. */
export function linesFromRecord(record) {
  const messages = record.chat_history?.messages ?? [];
  return messages.map((message, id) => ({
    id,
    at: message.seconds_from_start,
    open: false,
    partial: "",
    ahead: "",
    cut: "",
    spoken: message.content,
    interrupted: message.interrupted,
    who: { user: "user", assistant: "agent", tool: "tool" }[message.role] ?? "note",
    speaker: message.speaker,
    name: message.tool_call?.name,
    arguments: message.tool_call?.arguments,
  }));
}
