// The recording of an ended conversation: the player beside the transcript, its timeline, download
// and deletion. Links to the file expire, so each use starts with a new record if the last link
// failed.

import * as api from "./api.js";
import { parseUsage } from "./conversations.js";
import { button, h, link } from "./dom.js";
import { MediaPlayer } from "./media-player.js";
import { RecordingTimeline } from "./recording-timeline.js";
import { addTimes, removeUnitsFrom } from "./timed-lines.js";
import { TranscriptFollower } from "./transcript-follower.js";
import { confirmDialog, pollWhileVisible, runBusy, toast } from "./ui.js";

/** How often the record is read again until the file is stored. */
const POLL_SECONDS = 5;

/**
 * @typedef {{
 *   path: string,
 *   record: any,
 *   lines: any[],
 *   view: import("./transcript-view.js").TranscriptView,
 *   signal: AbortSignal,
 * }} RecordedConversation `path`: of the conversation in the REST API
 */

export class RecordingPanel {
  #path;
  #signal;
  #player;
  #timeline;
  #follower;
  #lines;
  #view;
  #message = h("p", { class: "recording-state", role: "status" });
  #retryButton = button("Try again", { class: "small", hidden: true });
  #downloadLink;
  #deleteButton;
  #polling = new AbortController();
  /** Whether the current link replaced one that failed and was not readable since. */
  #isSecondLink = false;

  /** @param {RecordedConversation} conversation */
  constructor({ path, record, lines, view, signal }) {
    this.#path = path;
    this.#signal = signal;
    const messages = record.chat_history?.messages ?? [];
    addTimes(lines, messages);
    for (const line of lines) if (line.units) view.render(line);
    this.#lines = lines;
    this.#view = view;

    const seek = (seconds) => this.#player.seek(seconds);
    this.#timeline = new RecordingTimeline(messages, seek);
    this.pane = h(
      "section",
      { class: "card transcript-pane", "aria-label": "What was said" },
      view.node,
    );
    this.#follower = new TranscriptFollower(this.pane, lines, seek);
    requestAnimationFrame(() => this.#follower.start());
    this.#player = new MediaPlayer({
      track: this.#timeline.track,
      marks: this.#timeline.marks,
      duration: lengthOf(record, messages),
      onPosition: (seconds, playing) => {
        this.#timeline.show(seconds);
        this.#follower?.show(seconds, playing);
      },
      onError: () => this.#onMediaError(),
    });
    this.#player.media.addEventListener("loadedmetadata", () => {
      this.#isSecondLink = false;
      this.#timeline.setDuration(this.#player.duration);
      this.#endAt(this.#player.duration);
      this.#say("");
    });

    this.#player.node.append(this.#timeline.text);
    this.#retryButton.addEventListener("click", () =>
      runBusy(this.#retryButton, async () => {
        this.#isSecondLink = true;
        this.#show(await api.get(path, signal));
      }),
    );
    this.#downloadLink = link("Download", "", {
      class: "button small",
      download: true,
      onclick: (event) => this.#download(event),
    });
    this.#deleteButton = button(
      "Delete recording",
      {
        needs: "operate",
        class: "small risky",
        onclick: () => this.#delete(),
      },
      "bin",
    );
    /** The whole panel: the player, and the transcript beside it. */
    this.node = h(
      "div",
      { class: "recorded" },
      h(
        "section",
        { class: "recording", "aria-label": "Recording" },
        this.#message,
        this.#retryButton,
        this.#player.node,
        h("div", { class: "actions" }, this.#downloadLink, this.#deleteButton),
      ),
      this.pane,
    );
    signal.addEventListener("abort", () => {
      this.#polling.abort();
      this.#player.unload();
    });
    this.#show(record);
    this.#loadTurns();
  }

  async #loadTurns() {
    try {
      this.#timeline.setTurns(await api.get(`${this.#path}/turns`, this.#signal));
    } catch {
      // The times of turns are an addition; the tab "Times" reports the error.
    }
  }

  /** Shows the state of the recording according to a record. */
  #show(record) {
    const url = record.is_recorded ? record.recording_url : "";
    const error = record.is_recorded ? record.recording_error : undefined;
    this.#retryButton.hidden = true;
    this.#player.node.hidden = !record.is_recorded || Boolean(error);
    this.#player.node.classList.toggle("unavailable", !url);
    this.#downloadLink.hidden = !url;
    // A recording that is being prepared can be deleted, too.
    this.#deleteButton.hidden = !record.is_recorded;
    if (url) {
      this.#polling.abort();
      this.#say("");
      this.#downloadLink.href = url;
      this.#player.load(url);
    } else if (error) {
      this.#polling.abort();
      this.#player.unload();
      this.#endAt(0);
      this.#say(`The recording has failed: ${error}.`);
    } else if (record.is_recorded) {
      this.#say("The recording is being prepared.");
      this.#poll();
    } else {
      this.#polling.abort();
      this.#player.unload();
      this.#endAt(0);
      this.#say("The recording was deleted.");
    }
  }

  /** The words from this time on, in seconds, cannot be played. */
  #endAt(seconds) {
    const changed = removeUnitsFrom(this.#lines, seconds);
    if (!changed.length) return;
    for (const line of changed) this.#view.render(line);
    this.#follower.setLines(this.#lines);
    requestAnimationFrame(() => this.#follower.start());
  }

  #say(text) {
    this.#message.hidden = !text;
    if (this.#message.textContent !== text) this.#message.textContent = text;
  }

  /** Reads the record again now and then, and when the user returns to the page. */
  #poll() {
    this.#polling.abort();
    this.#polling = new AbortController();
    const { signal } = this.#polling;
    const look = async () => {
      const record = await api.get(this.#path, this.#signal);
      const isPending = record.is_recorded && !record.recording_url && !record.recording_error;
      if (!signal.aborted && !isPending) this.#show(record);
    };
    pollWhileVisible(POLL_SECONDS, signal, look);
    document.addEventListener(
      "visibilitychange",
      () => {
        if (!document.hidden) look().catch(() => {});
      },
      { signal },
    );
  }

  /** The link expired, or the file is gone or damaged. A new record tells which. */
  async #onMediaError() {
    if (this.#signal.aborted) return;
    if (!this.#isSecondLink) {
      this.#isSecondLink = true;
      try {
        this.#show(await api.get(this.#path, this.#signal));
        return;
      } catch (error) {
        if (this.#signal.aborted || !(error instanceof api.ApiError)) throw error;
      }
    }
    this.#say("The recording cannot be played.");
    this.#retryButton.hidden = false;
  }

  /** Downloads with a new link, because the one of the page may have expired. */
  async #download(event) {
    event.preventDefault();
    await runBusy(this.#downloadLink, async () => {
      const { recording_url: url } = await api.get(this.#path, this.#signal);
      if (url) h("a", { href: url, download: true, rel: "noopener", target: "_blank" }).click();
      else toast("The recording is not available any more.", true);
    });
  }

  async #delete() {
    if (
      !(await confirmDialog(
        "Delete the recording?",
        "Every copy of the recording is deleted permanently. The transcript is kept.",
        "Delete recording",
      ))
    )
      return;
    await runBusy(this.#deleteButton, async () => {
      await api.remove(`${this.#path}/recording`);
      this.#show({ is_recorded: false, recording_url: "" });
      // The button that had the focus is gone.
      this.#message.tabIndex = -1;
      this.#message.focus();
    });
  }
}

/** The length in seconds that is expected of the file. */
function lengthOf(record, messages) {
  const ends = messages.map(({ seconds_from_start: from, duration }) => from + (duration || 0));
  return Math.max(0, Number(parseUsage(record).duration_seconds) || 0, ...ends);
}
