// A new avatar from a photo: the photo with its points, previews of the animated face, and the form.

import * as api from "./api.js";
import { button, h, link } from "./dom.js";
import { form } from "./form.js";
import { PhotoCheck } from "./photo-check.js";
import { defaultOutline, explainOrder, handleOfField, scaleOutline } from "./photo-landmarks.js";
import { photoSource } from "./photo-source.js";
import { PhotoStage } from "./photo-stage.js";
import { backLink, pageHeader } from "./ui.js";

/** The pictures beside the photo: pose, caption, text for screen readers; whole, or only the face. */
const PREVIEWS = [
  ["rest", "In a call", "The whole picture of a call", true],
  ["rest", "At rest", "The face at rest", false],
  ["blink", "Eyes shut", "The face with shut eyes", false],
  ["aa", "“a”", "The face with the mouth of a", false],
  ["PP", "“p, b, m”", "The face with closed lips, as for p, b and m", false],
  ["ou", "“u”", "The face with the mouth of u", false],
];
const POSES = [...new Set(PREVIEWS.map(([pose]) => pose))];
/** Refusals of the file itself: points that are set by hand do not help. */
const UNREADABLE = ["not readable", "too complex"];
const SCALE_STEP = 1.08;

const field = (path, label, more = {}) => ({ path, label, ...more });
const FIELDS = [
  field("avatar_name", "Name", { required: true, max: 200 }),
  field("gender", "Gender", {
    kind: "select",
    options: [
      ["female", "Female"],
      ["male", "Male"],
    ],
    hint: "Agents get a voice that suits it.",
  }),
  field("resolution", "Size of the video", {
    kind: "select",
    options: [
      ["512x512", "512 × 512, square"],
      ["1280x720", "1280 × 720, wide"],
    ],
  }),
  field("is_private", "Private", { kind: "check" }),
  field("keep_source", "Keep the crop of the face", {
    kind: "check",
    class: "wide",
    hint:
      "The levelled crop stays stored, encrypted, so that the avatar can be drawn again and its " +
      "background can change. The uploaded photo itself is not stored.",
  }),
  field("consent", "I have the right to use this person's face", {
    kind: "check",
    required: true,
    hint: "Stored with the time and your API key.",
  }),
];
const NO_CONSENT = {
  error: "Invalid request body",
  details: [
    { field: "consent", reason: "Confirm it, or choose the photo of a person who has agreed." },
  ],
};

const isAboutPoints = ({ field: name }) => name.startsWith("landmarks");

/**
 * What a person can do about an error: `{text, handles, byHand, again}`. `handles`: the points that
 * may be wrong.
 * `byHand`: the points can be set by hand. `again`: the same request may succeed later.
 */
function explain(error) {
  const rejected = error.details.find(isAboutPoints);
  if (rejected) {
    const order = explainOrder(rejected);
    if (order) return order;
    const handle = handleOfField(rejected.field);
    const handles = handle ? [handle] : [];
    return {
      handles,
      text: `${handle?.label ?? "The points"}: ${api.toSentence(rejected.reason)}`,
    };
  }
  if (error.details.length)
    return { text: error.details.map(({ reason }) => api.toSentence(reason)).join(" ") };
  // The networks are not installed: `userMessage` asks to try again, which does not help.
  if (error.status === 503) return { text: api.toSentence(error.reason), byHand: true };
  const isRefusal = error.status === 400 && error.reason && !UNREADABLE.includes(error.reason);
  return {
    text: error.userMessage,
    byHand: Boolean(isRefusal),
    again: error.status === 0 || error.status >= 500,
  };
}

/** The previews. They are dimmed while they show other points than the photo. */
function previewGrid() {
  const images = PREVIEWS.map(([pose, , alt, isWhole]) =>
    h("img", { alt, class: isWhole ? "whole" : "face", data: { pose }, width: 256, height: 256 }),
  );
  const node = h(
    "div",
    { class: "photo-previews", "aria-busy": "false" },
    PREVIEWS.map(([, caption], i) =>
      h("figure", {}, h("div", {}, images[i]), h("figcaption", {}, caption)),
    ),
  );
  return {
    node,
    show: (pictures) => {
      node.classList.remove("outdated");
      for (const image of images) image.src = pictures[image.dataset.pose];
    },
    markOutdated: () => node.classList.add("outdated"),
    setBusy: (isBusy) => node.setAttribute("aria-busy", String(isBusy)),
  };
}

export async function photoPage({ signal, navigate, setUnsavedCheck }) {
  let photo = null;
  /** The landmarks to which "Reset points" returns. */
  let initialLandmarks = null;
  /** Whether the last response accepted the photo. */
  let accepted = false;
  let problemText = "";
  const previews = previewGrid();
  const status = h("p", { class: "soft", role: "status" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const warnings = h("ul", { class: "note photo-warnings", hidden: true });
  const pointsHint = h(
    "p",
    { class: "hint", id: "points-hint", hidden: true },
    "Drag a point to where it belongs. With the keyboard: Tab selects a point, the arrow keys " +
      "move it by a pixel, with Shift by ten. Left and right are those of the picture.",
  );

  const body = () => ({
    input_image: photo.uri,
    landmarks: stage.landmarks ?? undefined,
    resolution: formView.get("resolution"),
  });
  const requestPreviews = (isChange) => {
    accepted = false;
    if (isChange) previews.markOutdated();
    check.request({ ...body(), show: POSES }, isChange);
  };
  const stage = new PhotoStage(() => {
    resetButton.disabled = false;
    requestPreviews(true);
  });
  const showProblem = ({ text, handles = [], byHand = false, again = false }) => {
    problemText = text;
    problem.textContent = text;
    problem.hidden = !text;
    stage.markInvalid(handles);
    handButton.hidden = !byHand || Boolean(stage.landmarks);
    againButton.hidden = !again;
  };
  const check = new PhotoCheck(signal, {
    onBusy: (isBusy) => {
      previews.setBusy(isBusy);
      if (isBusy)
        status.textContent = stage.landmarks ? "Drawing the face …" : "Looking for the face …";
    },
    onAccepted: (response, request) => {
      accepted = true;
      showProblem({ text: "" });
      warnings.replaceChildren(
        ...response.warnings.map((text) => h("li", {}, api.toSentence(text))),
      );
      warnings.hidden = !response.warnings.length;
      if (!request.landmarks) setPoints(response.landmarks);
      previews.show(response.pictures);
      previewCard.hidden = false;
      status.textContent = request.landmarks
        ? "The previews show the face with these points."
        : "The face is found. Are the points right?";
    },
    onRefused: (error) => {
      previews.markOutdated();
      warnings.hidden = true;
      status.textContent = "";
      showProblem(explain(error));
    },
  });

  const setPoints = (landmarks) => {
    initialLandmarks = landmarks;
    stage.setLandmarks(landmarks);
    pointsHint.hidden = !landmarks;
    resetButton.hidden = !landmarks;
    resetButton.disabled = true;
    for (const control of scaleButtons) control.hidden = !landmarks || Array.isArray(landmarks);
  };
  const resetButton = button(
    "Reset points",
    {
      hidden: true,
      onclick: () => {
        setPoints(initialLandmarks);
        requestPreviews(true);
        // A disabled button loses the focus.
        stage.node.querySelector(".photo-point").focus();
      },
    },
    "again",
  );
  const scaleButton = (label, factor) =>
    button(label, {
      hidden: true,
      onclick: () => {
        stage.setLandmarks(scaleOutline(stage.landmarks, factor));
        resetButton.disabled = false;
        requestPreviews(true);
      },
    });
  const scaleButtons = [scaleButton("Smaller", 1 / SCALE_STEP), scaleButton("Larger", SCALE_STEP)];
  const handButton = button("Set the points by hand", {
    hidden: true,
    class: "primary",
    onclick: () => {
      setPoints(defaultOutline(photo));
      showProblem({ text: "" });
      status.textContent =
        "Drag all points over the face with the round handle between the brows, then each point " +
        "to its place.";
      stage.node.querySelector(".photo-point").focus();
    },
  });
  const againButton = button("Try again", {
    hidden: true,
    onclick: () => {
      stage.focus();
      showProblem({ text: "" });
      requestPreviews(false);
    },
  });
  const otherPhotoButton = button(
    "Another photo",
    {
      onclick: () => {
        check.cancel();
        photo = null;
        editor.hidden = true;
        source.node.hidden = false;
        source.focus();
      },
    },
    "file",
  );

  const source = photoSource(signal, (taken) => {
    photo = taken;
    source.node.hidden = true;
    editor.hidden = false;
    previewCard.hidden = true;
    warnings.hidden = true;
    stage.setPhoto(photo);
    setPoints(null);
    showProblem({ text: "" });
    requestPreviews(false);
    stage.focus();
  });

  const save = async (fields) => {
    if (!fields.consent) throw new api.ApiError(400, NO_CONSENT);
    // Whatever is saved has been shown.
    await check.settled();
    if (!accepted)
      throw new api.ApiError(400, { error: problemText || "Set the points of the face first" });
    try {
      return await api.post("/v2/custom-avatar", { ...fields, ...body() });
    } catch (error) {
      const isAboutPhoto =
        error.status === 400 && (error.reason || error.details.some(isAboutPoints));
      if (!isAboutPhoto) throw error;
      const explanation = explain(error);
      showProblem(explanation);
      throw new api.ApiError(400, { error: explanation.text });
    }
  };
  const formView = form({
    setUnsavedCheck: (isDirty) =>
      setUnsavedCheck(() => isDirty() || (Boolean(photo) && editor.isConnected)),
    value: {
      avatar_name: "",
      gender: "female",
      resolution: "512x512",
      is_private: false,
      keep_source: true,
      consent: false,
    },
    label: "Create avatar",
    sections: [{ title: "The avatar", fields: FIELDS }],
    extra: [link("Cancel", "/console/avatars", { class: "button quiet" })],
    save,
    onSaved: ({ id }) => navigate(`/console/avatars/${id}`, { force: true }),
  });
  formView.field("resolution").node.addEventListener("change", () => {
    if (photo) requestPreviews(true);
  });

  const previewCard = h(
    "section",
    { class: "card", "aria-label": "Previews", hidden: true },
    h("h2", {}, "Previews"),
    h("p", { class: "hint" }, "Drawn by the server, which animates the face in calls."),
    previews.node,
  );
  const editor = h(
    "div",
    { class: "photo-editor", hidden: true },
    h(
      "section",
      { class: "card photo-card", "aria-label": "Photo and points" },
      stage.node,
      problem,
      warnings,
      status,
      pointsHint,
      h(
        "div",
        { class: "actions" },
        againButton,
        handButton,
        scaleButtons,
        resetButton,
        otherPhotoButton,
      ),
    ),
    h("div", { class: "photo-side" }, previewCard, formView.node),
  );
  return [
    backLink("Avatars", "/console/avatars"),
    pageHeader(
      "New avatar from a photo",
      "A talking avatar of a person from one photo, animated by the server.",
    ),
    source.node,
    editor,
  ];
}
