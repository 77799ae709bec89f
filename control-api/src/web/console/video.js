// One video: its progress, then the player, download and deletion. Links to its files expire, so a
// link that failed is replaced by that of a new record, once.

import * as api from "./api.js";
import { button, formatBytes, formatDuration, h, link, timeElement } from "./dom.js";
import { selectableAvatars } from "./selectable-avatars.js";
import {
  backLink,
  card,
  pageHeader,
  pollWhileVisible,
  replaceKeepingFocus,
  runBusy,
  toast,
} from "./ui.js";
import {
  isInProgress,
  isOwnOrigin,
  progressText,
  shapeOf,
  sizeText,
  videoName,
} from "./video-values.js";
import { confirmAndDelete, progressBar, statusPill } from "./videos.js";

const POLL_SECONDS = 1;
const CAPTIONS = {
  none: "None",
  vtt: "In a file beside it",
  burned: "Part of the picture",
};

export async function videoPage({ id, signal, navigate }) {
  const path = `/v1/ext/video/${encodeURIComponent(id)}`;
  const [video, avatars] = await Promise.all([api.get(path, signal), selectableAvatars(signal)]);
  const names = new Map(avatars.map((avatar) => [avatar.avatar_key_id, avatar.avatar_name]));
  const name = videoName(video, names);
  const panel = h("div", { class: "card async-panel" });
  const about = h("dl", { class: "facts" });
  const bar = progressBar(video, name);
  // The same node for all updates: a screen reader announces changes inside it.
  const progress = h("p", { class: "soft", role: "status" });
  let latest = video;
  let lastShape = "";
  const render = () => {
    bar.value = latest.progress;
    const text = progressText(latest);
    if (isInProgress(latest) && progress.textContent !== text) progress.textContent = text;
    if (shapeOf(latest) === lastShape) return;
    lastShape = shapeOf(latest);
    replaceKeepingFocus(
      panel,
      [
        h("p", { class: "tags" }, statusPill(latest)),
        isInProgress(latest) && h("div", { class: "field" }, bar, progress),
        latest.error && h("p", { class: "problem", role: "alert" }, api.toSentence(latest.error)),
        latest.warnings.map((warning) => h("p", { class: "note" }, warning)),
        latest.url && player(latest, name, path, signal),
        latest.url &&
          h(
            "div",
            { class: "actions" },
            downloadLink("Download", "url", path, signal, { class: "button primary" }),
            latest.captions_url &&
              downloadLink("Download captions", "captions_url", path, signal, { class: "button" }),
          ),
      ]
        .flat()
        .filter(Boolean),
    );
    about.replaceChildren(...description(latest, names).flatMap(row));
  };
  render();
  pollWhileVisible(POLL_SECONDS, signal, async () => {
    if (!isInProgress(latest)) return;
    try {
      latest = await api.get(path, signal);
    } catch (error) {
      if (error.status !== 404) throw error;
      // The video was deleted elsewhere.
      latest = { ...latest, status: "" };
      panel.replaceChildren(h("p", { class: "problem", role: "alert" }, `${name} was deleted.`));
      return;
    }
    render();
    if (latest.status === "COMPLETED") toast(`${name} is ready.`);
  });
  return [
    backLink("Videos", "/console/videos"),
    pageHeader(name),
    panel,
    card("About", about),
    video.text !== null && card("Text", h("p", { class: "video-text" }, video.text)),
    card(
      "More",
      h(
        "div",
        { class: "actions" },
        link(
          "Make a similar one",
          `/console/videos/new?from=${encodeURIComponent(id)}`,
          { needs: "operate", class: "button" },
          "again",
        ),
        button(
          "Delete",
          {
            needs: "operate",
            class: "risky",
            onclick: async ({ currentTarget }) =>
              (await confirmAndDelete(latest, name, currentTarget)) && navigate("/console/videos"),
          },
          "bin",
        ),
      ),
    ),
  ].filter(Boolean);
}

const row = ([term, value]) => [h("dt", {}, term), h("dd", {}, value)];

/** The properties of a video: `[term, value]`. */
function description(video, names) {
  const voice = [video.tts?.provider, video.tts?.model_id, video.tts?.voice_id].filter(Boolean);
  /** @type {[string, any][]} */
  const rows = [
    ["Avatar", names.get(video.avatar_key_id) ?? "deleted"],
    ["Speech", video.tts ? voice.join(" · ") : "A sound file"],
    ["Picture", `${sizeText(video)}, ${video.frame_rate} pictures per second`],
    ["Background", video.background && [h("code", {}, video.background)]],
    ["Captions", video.tts && CAPTIONS[video.captions]],
    ["File", video.format === "mp4" ? "MP4" : "WebM"],
    ["Length", video.duration !== null && formatDuration(video.duration)],
    ["Size", video.bytes !== null && formatBytes(video.bytes)],
    ["Webhook", video.callback_url],
    ["Created", timeElement(video.created_at)],
    ["Finished", video.finished_at && timeElement(video.finished_at)],
  ];
  return rows.filter(([, value]) => value);
}

/** The player of a finished video. */
function player(video, name, path, signal) {
  const message = h("p", { class: "problem", role: "alert", hidden: true });
  const node = h("video", {
    controls: true,
    playsinline: true,
    preload: "metadata",
    "aria-label": name,
  });
  node.style.setProperty("--width", `${video.width}px`);
  node.style.setProperty("--ratio", String(video.width / video.height));
  let isSecondLink = false;
  const show = (record) => {
    node.replaceChildren();
    // Pictures and captions of other origins are blocked: by the policy of the page, or by object
    // storage that allows no scripts.
    if (isOwnOrigin(record.poster_url, location.origin)) node.poster = record.poster_url;
    if (isOwnOrigin(record.captions_url, location.origin))
      node.append(h("track", { kind: "captions", label: "Captions", src: record.captions_url }));
    node.src = record.url;
  };
  node.addEventListener("loadedmetadata", () => {
    isSecondLink = false;
    message.hidden = true;
  });
  node.addEventListener("error", async () => {
    if (signal.aborted || !node.hasAttribute("src")) return;
    if (!isSecondLink) {
      isSecondLink = true;
      const seconds = node.currentTime;
      try {
        const record = await api.get(path, signal);
        if (record.url) {
          show(record);
          node.currentTime = seconds;
          return;
        }
        message.textContent = api.toSentence(
          record.error ?? "The video is not available any more.",
        );
      } catch (error) {
        if (signal.aborted) return;
        message.textContent =
          error instanceof api.ApiError ? error.userMessage : "The video cannot be played.";
      }
    } else message.textContent = "The video cannot be played.";
    message.hidden = false;
  });
  signal.addEventListener("abort", () => {
    node.removeAttribute("src");
    node.load();
  });
  show(video);
  return h("div", { class: "video-player" }, node, message);
}

/** A link that downloads a file with a new link, because the one of the page may have expired. */
function downloadLink(label, field, path, signal, attributes) {
  const node = link(label, "", {
    ...attributes,
    download: true,
    onclick: async (event) => {
      event.preventDefault();
      await runBusy(node, async () => {
        const { [field]: url } = await api.get(path, signal);
        if (url) h("a", { href: url, download: true, rel: "noopener", target: "_blank" }).click();
        else toast("The file is not available any more.", true);
      });
    },
  });
  return node;
}
