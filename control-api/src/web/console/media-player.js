// A player of a recording with its own controls, so that they work alike for video and for audio,
// and the keys are known. Below the picture are the track of the timeline, with the position slider
// over it, and the marks of the timeline.
//
// Keys while the player has the focus: space and K play and pause, the left and right arrows seek
// by 5 s, J and L by 10 s.

import { button, formatDuration, h, icon } from "./dom.js";

const ARROW_SECONDS = 5;
const LETTER_SECONDS = 10;
const SPEEDS = [0.75, 1, 1.25, 1.5, 2];

export class MediaPlayer {
  /** Whether the browser could read the current source. */
  isLoaded = false;
  #resume = null;
  /** The last position of a readable file. An error of the browser may reset its own. */
  #position = 0;
  #fallbackDuration;
  #onPosition;
  #playButton;
  #muteButton;
  #fullscreenButton;
  #speed;
  #time;
  #slider;

  /**
   * @param {{
   *   track: HTMLElement,
   *   marks: HTMLElement,
   *   duration: number,
   *   onPosition: (seconds: number, playing: boolean) => void,
   *   onError: () => void,
   * }} options `duration`: in seconds, until the file's own is known. `onError`: the source cannot
   * be loaded.
   */
  constructor({ track, marks, duration, onPosition, onError }) {
    this.#fallbackDuration = duration;
    this.#onPosition = onPosition;
    this.media = h("video", {
      preload: "metadata",
      playsinline: true,
      tabindex: "0",
      "aria-label": "Picture of the recording",
      onclick: () => this.toggle(),
      onplay: () => this.#onPlay(),
      onpause: () => this.#onPause(),
      onseeked: () => this.#update(),
      ontimeupdate: () => this.#update(),
      onratechange: () => {
        this.#speed.value = String(this.media.playbackRate);
      },
      onvolumechange: () => this.#showVolume(),
      onloadedmetadata: () => this.#onMetadata(),
      ondurationchange: () => this.#showDuration(),
      onerror: () => this.media.hasAttribute("src") && onError(),
      onfullscreenchange: () => {
        this.media.controls = document.fullscreenElement === this.media;
      },
    });
    this.#playButton = button("Play", { class: "primary small", onclick: () => this.toggle() });
    this.#muteButton = button(
      "",
      {
        class: "plain",
        "aria-label": "Mute",
        title: "Mute",
        "aria-pressed": "false",
        onclick: () => {
          this.media.muted = !this.media.muted;
        },
      },
      "sound",
    );
    this.#fullscreenButton = button(
      "",
      {
        class: "plain",
        "aria-label": "Full screen",
        title: "Full screen",
        hidden: !this.media.requestFullscreen,
        onclick: () => this.media.requestFullscreen().catch(() => {}),
      },
      "fullscreen",
    );
    this.#speed = h(
      "select",
      {
        "aria-label": "Speed",
        onchange: () => {
          this.media.playbackRate = Number(this.#speed.value);
        },
      },
      SPEEDS.map((speed) => h("option", { value: String(speed) }, `${speed}×`)),
    );
    this.#speed.value = "1";
    this.#time = h("span", { class: "time" });
    // The browser may round the values of a slider to its step.
    this.#slider = h("input", {
      type: "range",
      min: "0",
      step: "any",
      value: "0",
      "aria-label": "Position",
      oninput: () => this.seek(Number(this.#slider.value)),
      onfocus: () => this.#syncSlider(),
      onpointerdown: () => this.#syncSlider(),
    });
    this.node = h(
      "div",
      { class: "player", role: "group", "aria-label": "Player" },
      this.media,
      h("div", { class: "position" }, track, this.#slider),
      marks,
      h(
        "div",
        { class: "player-controls" },
        this.#playButton,
        this.#time,
        this.#speed,
        this.#muteButton,
        this.#fullscreenButton,
      ),
    );
    this.node.addEventListener("keydown", (event) => this.#onKeyDown(event));
    this.#showDuration();
    this.#update();
  }

  get duration() {
    const { duration } = this.media;
    return Number.isFinite(duration) && duration > 0 ? duration : this.#fallbackDuration;
  }

  /** Loads a file. Position, and whether it plays, are as with the previous one. */
  load(url) {
    this.#resume ??= { seconds: this.#position, playing: !this.media.paused };
    this.isLoaded = false;
    this.media.src = url;
  }

  /** Stops, and lets the browser free the file. */
  unload() {
    this.media.pause();
    this.media.removeAttribute("src");
    this.media.load();
  }

  toggle() {
    if (this.media.paused) this.media.play().catch(() => {});
    else this.media.pause();
  }

  seek(seconds) {
    const target = Math.min(Math.max(0, seconds), this.duration);
    // Before the file is readable the browser forgets the position.
    if (!this.isLoaded) this.#resume = { playing: false, ...this.#resume, seconds: target };
    this.media.currentTime = target;
    this.#update(target);
    this.#syncSlider();
  }

  #onMetadata() {
    this.isLoaded = true;
    this.node.dataset.picture = String(this.media.videoWidth > 0);
    if (!this.media.videoWidth) this.#fullscreenButton.hidden = true;
    const resume = this.#resume;
    this.#resume = null;
    if (resume?.seconds) this.media.currentTime = resume.seconds;
    if (resume?.playing) this.media.play().catch(() => {});
    this.media.playbackRate = Number(this.#speed.value);
  }

  #onPlay() {
    this.#label(this.#playButton, "Pause");
    const follow = () => {
      if (this.media.paused) return;
      this.#update();
      requestAnimationFrame(follow);
    };
    requestAnimationFrame(follow);
  }

  #onPause() {
    this.#label(this.#playButton, "Play");
    this.#update();
    this.#syncSlider();
  }

  #showVolume() {
    const { muted } = this.media;
    this.#muteButton.setAttribute("aria-pressed", String(muted));
    this.#muteButton.firstElementChild.replaceWith(icon(muted ? "muted" : "sound"));
  }

  #label(control, text) {
    control.querySelector("span").textContent = text;
  }

  #showDuration() {
    this.#slider.max = String(this.duration);
    this.node.style.setProperty("--duration", String(this.duration || 1));
    this.#update();
  }

  #update(seconds = this.media.currentTime) {
    if (this.isLoaded && this.media.readyState) this.#position = seconds;
    const text = `${formatDuration(Math.floor(seconds))} / ${formatDuration(this.duration)}`;
    if (this.#time.textContent !== text) this.#time.textContent = text;
    this.node.style.setProperty("--now", String(seconds));
    // A screen reader announces each change of a slider that has the focus, so the slider stands
    // still while the recording plays. What moves is the mark of the position.
    if (this.media.paused && !this.media.seeking) this.#syncSlider();
    this.#onPosition(seconds, !this.media.paused);
  }

  #syncSlider() {
    this.#slider.value = String(this.media.currentTime);
    this.#slider.setAttribute(
      "aria-valuetext",
      `${formatDuration(Math.floor(this.media.currentTime))} of ${formatDuration(this.duration)}`,
    );
  }

  #onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const { target } = event;
    if (target === this.#speed) return;
    if (target === this.#slider) this.#syncSlider();
    const isButton = Boolean(target.closest("button, a"));
    const seekBy = (offset) => () => this.seek(this.media.currentTime + offset);
    const actions = {
      j: seekBy(-LETTER_SECONDS),
      l: seekBy(LETTER_SECONDS),
      k: () => this.toggle(),
      arrowleft: seekBy(-ARROW_SECONDS),
      arrowright: seekBy(ARROW_SECONDS),
      // A button takes the space key itself.
      ...(isButton ? {} : { " ": () => this.toggle() }),
    };
    const action = actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    // A held key must not play and pause in turn.
    if (!event.repeat || action !== actions.k) action();
  }
}
