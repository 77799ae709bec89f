// The list of videos, with their progress.

import * as api from "./api.js";
import { button, formatBytes, formatDuration, h, link, pill, timeElement } from "./dom.js";
import { selectableAvatars } from "./selectable-avatars.js";
import {
  confirmDialog,
  emptyState,
  pageHeader,
  pager,
  pollWhileVisible,
  replaceKeepingFocus,
  runBusy,
  searchBox,
} from "./ui.js";
import { isInProgress, shapeOf, sizeText, statusLabel, videoName } from "./video-values.js";

const PAGE_SIZE = 20;
const POLL_SECONDS = 2;
const STATUSES = [
  ["", "All"],
  ["queued", "Waiting"],
  ["processing", "In progress"],
  ["completed", "Ready"],
  ["failed", "Failed"],
];

export const statusPill = (video) => pill(...statusLabel(video));

/** The progress bar of a video. */
export const progressBar = (video, name) =>
  h("progress", {
    max: 1,
    value: video.progress,
    "data-of": video.id,
    "aria-label": `Progress of ${name}`,
  });

/** Asks, and deletes a video. Returns whether it was deleted. */
export async function confirmAndDelete(video, name, control) {
  const text = isInProgress(video)
    ? "It is not made any further. This cannot be undone."
    : "Every copy of the video is deleted permanently.";
  if (!(await confirmDialog(`Delete ${name}?`, text, "Delete"))) return false;
  return runBusy(control, async () => {
    await api.remove(`/v1/ext/video/${encodeURIComponent(video.id)}`);
    return true;
  });
}

/** Length, size and format of a finished video, as far as they are known. */
const details = (video) =>
  [
    video.duration !== null && formatDuration(video.duration),
    sizeText(video),
    video.format === "mp4" ? "MP4" : "WebM",
    video.bytes !== null && formatBytes(video.bytes),
  ]
    .filter(Boolean)
    .join(" · ");

const newVideoLink = (attributes) =>
  link("New video", "/console/videos/new", { needs: "operate", ...attributes }, "plus");

export async function videosPage({ query, signal, navigate }) {
  const offset = Number(query.get("offset")) || 0;
  const search = query.get("search") ?? "";
  const type = query.get("type") ?? "";
  const load = () =>
    api.list("/v1/ext/videos", { offset, perpage: PAGE_SIZE, search, type }, signal);
  const [first, avatars] = await Promise.all([load(), selectableAvatars(signal)]);
  const known = new Map(avatars.map((avatar) => [avatar.avatar_key_id, avatar]));
  const names = new Map(avatars.map((avatar) => [avatar.avatar_key_id, avatar.avatar_name]));
  const applyQuery = (change) => {
    const next = Object.entries({ search, type, ...change }).filter(([, value]) => value);
    return navigate(`/console/videos${next.length ? `?${new URLSearchParams(next)}` : ""}`, {
      replace: true,
    });
  };

  const item = (video) => {
    const name = videoName(video, names);
    const picture = known.get(video.avatar_key_id)?.display_picture;
    const problem = video.error ?? video.waiting;
    return h(
      "li",
      { data: { id: video.id, status: video.status } },
      picture &&
        h("img", { class: "avatar-image small", src: picture, alt: "", width: 44, height: 44 }),
      h(
        "div",
        { class: "item-text" },
        h("h2", {}, h("a", { id: `see-${video.id}`, href: `/console/videos/${video.id}` }, name)),
        problem
          ? h("p", { class: video.error ? "fault" : "soft" }, api.toSentence(problem))
          : h("p", { class: "soft" }, details(video)),
      ),
      isInProgress(video) && progressBar(video, name),
      h("p", { class: "tags" }, statusPill(video), timeElement(video.created_at)),
      button(
        "",
        {
          needs: "operate",
          class: "plain",
          id: `delete-${video.id}`,
          "aria-label": `Delete ${name}`,
          onclick: async ({ currentTarget }) => {
            if (await confirmAndDelete(video, name, currentTarget)) await refresh();
          },
        },
        "bin",
      ),
    );
  };
  const results = h("div", { class: "results" });
  let inProgress = false;
  let lastShape = "";
  const render = ({ items, total }) => {
    inProgress = items.some(isInProgress);
    for (const video of items) {
      const progress = results.querySelector(`progress[data-of="${video.id}"]`);
      if (progress) progress.value = video.progress;
    }
    const shape = `${total}${items.map(shapeOf).join()}`;
    if (shape === lastShape) return;
    lastShape = shape;
    replaceKeepingFocus(
      results,
      [
        items.length
          ? h("ul", { class: "list videos", "aria-label": "Videos" }, items.map(item))
          : search || type || offset
            ? emptyState("videos", "Nothing matches", "No video matches the search.")
            : emptyState(
                "videos",
                "No videos yet",
                "Write a text, choose an avatar and a voice, and download the video.",
                newVideoLink({ class: "button" }),
              ),
        pager({ offset, perpage: PAGE_SIZE, total }, (next) => applyQuery({ offset: next })),
      ].filter(Boolean),
    );
  };
  const refresh = async () => render(await load());
  render(first);
  pollWhileVisible(POLL_SECONDS, signal, () => inProgress && refresh());
  return [
    pageHeader(
      "Videos",
      "Files in which an avatar speaks a text or a sound.",
      newVideoLink({ class: "button primary" }),
    ),
    (first.total > PAGE_SIZE || search || type) &&
      h(
        "div",
        { class: "filters" },
        searchBox("Search videos", search, (text) => applyQuery({ search: text })),
        h(
          "div",
          { class: "field" },
          h("label", { for: "video-status" }, "State"),
          h(
            "select",
            {
              id: "video-status",
              onchange: ({ currentTarget }) => applyQuery({ type: currentTarget.value }),
            },
            STATUSES.map(([value, label]) =>
              h("option", { value, selected: value === type }, label),
            ),
          ),
        ),
      ),
    results,
  ].filter(Boolean);
}
