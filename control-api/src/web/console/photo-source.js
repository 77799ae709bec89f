// Where a photo comes from: a file that is chosen, dropped or pasted, or the camera.

import { button, h, icon } from "./dom.js";
import { encodePicture, NOT_A_PICTURE, readPicture } from "./picture.js";
import { toast } from "./ui.js";

/** Maximum length of the longer side of an uploaded photo, in pixels. */
const MAX_SIDE = 2048;
const CAMERA_ERRORS = {
  NotAllowedError:
    "The browser may not use the camera. Permit it beside the address of this page, or choose a file.",
  NotFoundError: "This device has no camera. Choose a file.",
  OverconstrainedError: "This device has no camera. Choose a file.",
  NotReadableError: "Another program uses the camera. Close it, or choose a file.",
};
const NO_SECURE_CONTEXT = "The camera needs a page with https. Choose a file.";

/**
 * The source of a photo. Calls `onPhoto({uri, width, height})` for each photo. `signal` ends the
 * camera and listens no more for pasted pictures.
 * @param {AbortSignal} signal
 * @param {(photo: {uri: string, width: number, height: number}) => void} onPhoto
 */
export function photoSource(signal, onPhoto) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const showProblem = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };
  let newest = 0;
  const take = async (file) => {
    newest += 1;
    const mine = newest;
    showProblem("");
    const photo = file && (await readPicture(file, MAX_SIDE));
    if (signal.aborted || mine !== newest) return;
    if (photo) accept(photo);
    else if (node.hidden) toast(NOT_A_PICTURE, true);
    else showProblem(NOT_A_PICTURE);
  };
  const accept = (photo) => {
    camera.stop();
    onPhoto(photo);
  };

  const fileInput = h("input", {
    type: "file",
    id: "photo-file",
    accept: "image/*",
    class: "visually-hidden",
    "aria-describedby": "photo-hint",
    onchange: () => {
      const [file] = fileInput.files;
      // The same file can be chosen again.
      fileInput.value = "";
      if (file) take(file);
    },
  });
  const dropZone = h(
    "div",
    { class: "drop" },
    icon("avatars"),
    h(
      "p",
      {},
      h("label", { for: "photo-file" }, "Choose a photo"),
      ", drop it here, or paste it (Ctrl+V)",
    ),
    fileInput,
    h(
      "p",
      { class: "hint", id: "photo-hint" },
      "One uncovered face from the front, in even light, with closed lips. Any size: a large " +
        "photo is scaled down before it is sent.",
    ),
  );
  const onDrag = (isOver) => (event) => {
    event.preventDefault();
    dropZone.classList.toggle("drag-over", isOver);
  };
  dropZone.addEventListener("dragover", onDrag(true));
  dropZone.addEventListener("dragleave", onDrag(false));
  dropZone.addEventListener("drop", (event) => {
    onDrag(false)(event);
    take(event.dataTransfer.files[0]);
  });
  document.addEventListener(
    "paste",
    (event) => {
      const [file] = event.clipboardData?.files ?? [];
      if (!file || document.querySelector("dialog[open]")) return;
      event.preventDefault();
      take(file);
    },
    { signal },
  );

  const camera = cameraView(signal, accept, showProblem);
  const node = h(
    "section",
    { class: "card photo-source", "aria-label": "Photo" },
    dropZone,
    camera.node,
    problem,
  );
  return { node, focus: () => fileInput.focus() };
}

/** The camera: a button, then its picture with a button that takes the photo. */
function cameraView(signal, onPhoto, showProblem) {
  let stream = null;
  const video = h("video", { "aria-label": "Picture of the camera", playsinline: true });
  video.muted = true;
  const stop = () => {
    for (const track of stream?.getTracks() ?? []) track.stop();
    stream = null;
    video.srcObject = null;
    view.hidden = true;
    startButton.hidden = false;
  };
  const start = async () => {
    showProblem("");
    if (!navigator.mediaDevices) return showProblem(NO_SECURE_CONTEXT);
    startButton.disabled = true;
    try {
      stream = await navigator.mediaDevices.getUserMedia({
        video: { facingMode: "user", width: { ideal: 1280 }, height: { ideal: 960 } },
      });
    } catch (error) {
      return showProblem(CAMERA_ERRORS[error.name] ?? "The camera did not start. Choose a file.");
    } finally {
      startButton.disabled = false;
    }
    if (signal.aborted) return stop();
    video.srcObject = stream;
    view.hidden = false;
    startButton.hidden = true;
    takeButton.focus();
    // Rejects if the camera is stopped before its first picture.
    video.play().catch(() => {});
  };
  const takePhoto = () => {
    // Before the first picture there is nothing to take.
    if (!video.videoWidth) return;
    onPhoto(encodePicture(video, video.videoWidth, video.videoHeight, MAX_SIDE));
  };
  const startButton = button("Use the camera", { id: "camera", onclick: start });
  const takeButton = button("Take the photo", { class: "primary", onclick: takePhoto });
  const cancelButton = button("Cancel", {
    onclick: () => {
      stop();
      startButton.focus();
    },
  });
  const view = h(
    "div",
    { class: "camera", hidden: true },
    video,
    h("div", { class: "actions" }, takeButton, cancelButton),
  );
  signal.addEventListener("abort", stop);
  return { node: h("div", {}, h("div", { class: "actions" }, startButton), view), stop };
}
