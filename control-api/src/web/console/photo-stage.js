// The photo with its landmarks: lines, and points that can be dragged or moved with the arrow keys.

import { button, h } from "./dom.js";
import { getPath } from "./paths.js";
import {
  HANDLES,
  MESH_HANDLES,
  meshLines,
  meshPlace,
  moveMeshHandle,
  moveOutline,
  moveOutlineHandle,
  outlineLines,
} from "./photo-landmarks.js";

const SVG = "http://www.w3.org/2000/svg";
/** A pointer takes the nearest point within so many CSS pixels. */
const GRAB_DISTANCE = 28;
/** Pixels of the photo per arrow key, and with Shift. */
const STEP = 1;
const LARGE_STEP = 10;
/** Limits of the width of the stage, as a multiple of its height. */
const [MIN_ASPECT, MAX_ASPECT] = [0.8, 1.4];
/** The handle that moves all named points. */
const ALL_POINTS = { path: "", index: -1, label: "All points", reach: 0 };

/** The views: the handles that are visible, and the margin around them as a share of their size. */
const VIEWS = {
  photo: ["Photo", null],
  face: ["Face", [() => true, 0.25]],
  eyes: ["Eyes", [({ path }) => path.includes("_eye."), 0.2]],
  mouth: ["Mouth", [({ path, pair }) => path.startsWith("mouth.") || pair, 0.35]],
};

const ARROWS = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

/** The SVG path of lines and circles, in pixels of the photo. */
function pathOf({ lines, circles }, { width, height }) {
  const at = ([x, y]) => [x * width, y * height];
  const text = (point) => point.map((value) => value.toFixed(2)).join(" ");
  const parts = lines.map(({ points, closed, smooth }) => {
    const pixels = points.map(at);
    return smooth ? curve(pixels, text) : `M${pixels.map(text).join("L")}${closed ? "Z" : ""}`;
  });
  for (const { centre, edge } of circles) {
    const [x, y] = at(centre);
    const distances = edge.map(at).map(([ex, ey]) => Math.hypot(ex - x, ey - y));
    const r = distances.reduce((sum, distance) => sum + distance, 0) / distances.length;
    parts.push(`M${text([x - r, y])}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`);
  }
  return parts.join("");
}

/** A closed curve through points: Catmull and Rom's, as Bézier curves. */
function curve(points, text) {
  const around = (i) => points[(i + points.length) % points.length];
  const control = (i, sign) =>
    [0, 1].map(
      (axis) => around(i)[axis] + (sign * (around(i + 1)[axis] - around(i - 1)[axis])) / 6,
    );
  const parts = points.map(
    (_, i) => `C${text(control(i, 1))} ${text(control(i + 1, -1))} ${text(around(i + 1))}`,
  );
  return `M${text(points[0])}${parts.join("")}Z`;
}

export class PhotoStage {
  #photo = { uri: "", width: 1, height: 1 };
  /** Points of the mesh, or an object of named points. */
  #landmarks = null;
  #handles = [];
  #view = "photo";
  /** The visible rectangle. It stays while points move. */
  #shown = [0, 0, 1, 1];
  #dragged = null;
  #onChange;

  /** `onChange()`: the person moved a point. */
  constructor(onChange) {
    this.#onChange = onChange;
    this.#image = h("img", { alt: "The chosen photo", draggable: "false" });
    this.#svg = document.createElementNS(SVG, "svg");
    this.#svg.setAttribute("preserveAspectRatio", "none");
    this.#svg.setAttribute("aria-hidden", "true");
    // A dark line below a light one is visible on any skin.
    this.#paths = ["line-below", "line"].map((name) => {
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("class", name);
      return path;
    });
    this.#svg.append(...this.#paths);
    this.#layer = h("div", { class: "photo-layer" }, this.#image, this.#svg);
    this.#stage = h(
      "div",
      { class: "photo-stage", role: "group", "aria-label": "Photo with points", tabindex: "-1" },
      this.#layer,
    );
    this.#stage.addEventListener("pointerdown", (event) => this.#onPointerDown(event));
    this.#stage.addEventListener("pointermove", (event) => this.#onPointerMove(event));
    for (const end of ["pointerup", "pointercancel"])
      this.#stage.addEventListener(end, () => this.#endDrag());
    this.#chips = Object.entries(VIEWS).map(([name, [label]]) =>
      button(label, {
        class: "chip",
        "aria-pressed": "false",
        data: { view: name },
        onclick: () => this.#show(name),
      }),
    );
    this.#chipGroup = h(
      "div",
      { class: "chips", role: "group", "aria-label": "View", hidden: true },
      this.#chips,
    );
    this.node = h("div", { class: "photo-view" }, this.#stage, this.#chipGroup);
  }

  #image;
  #svg;
  #paths;
  #layer;
  #stage;
  #chips;
  #chipGroup;

  /** Shows a photo without points. */
  setPhoto(photo) {
    this.#photo = photo;
    this.#image.src = photo.uri;
    this.#svg.setAttribute("viewBox", `0 0 ${photo.width} ${photo.height}`);
    this.setLandmarks(null);
    this.#show("photo");
  }

  /** Moves the focus to the photo. Tab then leads to the first point. */
  focus() {
    this.#stage.focus({ preventScroll: true });
  }

  get landmarks() {
    return this.#landmarks;
  }

  /** Shows landmarks: an array of the mesh, an object of named points, or null. */
  setLandmarks(landmarks) {
    const kind = (value) => value && (Array.isArray(value) ? "mesh" : "outline");
    const isNewKind = kind(landmarks) !== kind(this.#landmarks);
    this.#landmarks = landmarks;
    if (isNewKind) this.#createHandles(kind(landmarks));
    this.markInvalid([]);
    this.#draw();
    // Points that are not at a face yet are moved over the whole photo.
    if (isNewKind) this.#show(Array.isArray(landmarks) ? "face" : "photo");
  }

  /** Marks handles as wrong. */
  markInvalid(wrong) {
    for (const { handle, node } of this.#handles) {
      if (wrong.some(({ index }) => index === handle.index))
        node.setAttribute("aria-invalid", "true");
      else node.removeAttribute("aria-invalid");
    }
  }

  #createHandles(kind) {
    for (const { node } of this.#handles) node.remove();
    const handles = { mesh: MESH_HANDLES, outline: [ALL_POINTS, ...HANDLES] }[kind] ?? [];
    this.#handles = handles.map((handle) => {
      const node = h("div", {
        class: handle === ALL_POINTS ? "photo-point all" : "photo-point",
        role: "slider",
        tabindex: "0",
        "aria-label": handle.label,
        "aria-describedby": "points-hint",
        "aria-valuemin": 0,
        "aria-valuemax": this.#photo.width,
        data: { point: handle.index },
        onkeydown: (event) => this.#onKeyDown(event, handle),
        onfocus: () => this.#reveal(handle),
      });
      return { handle, node };
    });
    this.#layer.append(...this.#handles.map(({ node }) => node));
    this.#chipGroup.hidden = !kind;
  }

  /** The place of a handle, as fractions of the photo. */
  #place(handle) {
    if (Array.isArray(this.#landmarks)) return meshPlace(this.#landmarks, handle);
    if (handle !== ALL_POINTS) return getPath(this.#landmarks, handle.path);
    const brows = ["left_eye.brow", "right_eye.brow"].map((path) => getPath(this.#landmarks, path));
    return [0, 1].map((axis) => (brows[0][axis] + brows[1][axis]) / 2);
  }

  #move(handle, place) {
    const from = this.#place(handle);
    if (Array.isArray(this.#landmarks))
      this.#landmarks = moveMeshHandle(this.#landmarks, handle, place, this.#photo);
    else if (handle === ALL_POINTS)
      this.#landmarks = moveOutline(this.#landmarks, [place[0] - from[0], place[1] - from[1]]);
    else this.#landmarks = moveOutlineHandle(this.#landmarks, handle, place);
    this.markInvalid([]);
    this.#draw();
    this.#onChange();
  }

  #draw() {
    const shapes = !this.#landmarks
      ? { lines: [], circles: [] }
      : Array.isArray(this.#landmarks)
        ? meshLines(this.#landmarks)
        : outlineLines(this.#landmarks);
    for (const path of this.#paths) path.setAttribute("d", pathOf(shapes, this.#photo));
    for (const { handle, node } of this.#handles) {
      const [x, y] = this.#place(handle);
      node.style.left = `${x * 100}%`;
      node.style.top = `${y * 100}%`;
      const [left, top] = [Math.round(x * this.#photo.width), Math.round(y * this.#photo.height)];
      node.setAttribute("aria-valuenow", String(left));
      node.setAttribute("aria-valuetext", `${left} pixels from the left, ${top} from the top`);
    }
  }

  /** What a view shows now: `[left, top, width, height]` in pixels of the photo, and its aspect. */
  #rectangle() {
    const { width, height } = this.#photo;
    const aspect = Math.min(MAX_ASPECT, Math.max(MIN_ASPECT, width / height));
    const [, close] = VIEWS[this.#view];
    let box = [0, 0, width, height];
    if (close && this.#landmarks) {
      const [isVisible, margin] = close;
      const places = this.#handles
        .filter(({ handle }) => isVisible(handle))
        .map(({ handle }) => this.#place(handle));
      const side = (axis, pixels) => {
        const values = places.map((place) => place[axis] * pixels);
        const [low, high] = [Math.min(...values), Math.max(...values)];
        return [low, high - low];
      };
      const [left, wide] = side(0, width);
      const [top, tall] = side(1, height);
      const extra = margin * Math.max(wide, tall);
      box = [left - extra, top - extra, wide + 2 * extra, tall + 2 * extra];
    }
    const [left, top, wide, tall] = box;
    const shownWidth = Math.max(wide, tall * aspect);
    const shownHeight = shownWidth / aspect;
    return {
      aspect,
      rectangle: [
        left + (wide - shownWidth) / 2,
        top + (tall - shownHeight) / 2,
        shownWidth,
        shownHeight,
      ],
    };
  }

  /** Shows a view. The layer is moved and scaled, so the points keep their size. */
  #show(name) {
    this.#view = name;
    for (const chip of this.#chips)
      chip.setAttribute("aria-pressed", String(chip.dataset.view === name));
    const { aspect, rectangle } = this.#rectangle();
    this.#shown = rectangle;
    const [left, top, width, height] = rectangle;
    const percent = (value) => `${value * 100}%`;
    this.#stage.style.setProperty("--aspect", String(aspect));
    this.#layer.style.left = percent(-left / width);
    this.#layer.style.top = percent(-top / height);
    this.#layer.style.width = percent(this.#photo.width / width);
    this.#layer.style.height = percent(this.#photo.height / height);
  }

  /** Changes the view if a focused or moved point is outside of it. */
  #reveal(handle) {
    const [x, y] = this.#place(handle);
    const isOutside = () => {
      const [left, top, width, height] = this.#shown;
      const [right, down] = [x * this.#photo.width - left, y * this.#photo.height - top];
      return right < 0 || right > width || down < 0 || down > height;
    };
    for (const name of ["face", "photo"]) if (isOutside()) this.#show(name);
  }

  #onKeyDown(event, handle) {
    const direction = ARROWS[event.key];
    if (!direction || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const step = event.shiftKey ? LARGE_STEP : STEP;
    const [x, y] = this.#place(handle);
    this.#move(handle, [
      x + (direction[0] * step) / this.#photo.width,
      y + (direction[1] * step) / this.#photo.height,
    ]);
    this.#reveal(handle);
  }

  #onPointerDown(event) {
    if (event.button || this.#dragged) return;
    const layer = this.#layer.getBoundingClientRect();
    const nearest = this.#handles
      .map(({ handle, node }) => {
        const [x, y] = this.#place(handle);
        const offset = [
          layer.left + x * layer.width - event.clientX,
          layer.top + y * layer.height - event.clientY,
        ];
        return { handle, node, offset, distance: Math.hypot(...offset) };
      })
      .sort((a, b) => a.distance - b.distance)[0];
    if (!nearest || nearest.distance > GRAB_DISTANCE) return;
    event.preventDefault();
    nearest.node.focus({ preventScroll: true });
    nearest.node.classList.add("dragged");
    this.#stage.setPointerCapture(event.pointerId);
    this.#dragged = { ...nearest, pointer: event.pointerId };
  }

  #onPointerMove(event) {
    if (this.#dragged?.pointer !== event.pointerId) return;
    const layer = this.#layer.getBoundingClientRect();
    // The point keeps its distance from the pointer, so it does not jump when it is taken.
    const [dx, dy] = this.#dragged.offset;
    const fraction = (position, start, length) =>
      Math.min(1, Math.max(0, (position - start) / length));
    this.#move(this.#dragged.handle, [
      fraction(event.clientX + dx, layer.left, layer.width),
      fraction(event.clientY + dy, layer.top, layer.height),
    ]);
  }

  #endDrag() {
    this.#dragged?.node.classList.remove("dragged");
    this.#dragged = null;
  }
}
