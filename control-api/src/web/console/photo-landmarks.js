// The landmarks of a photo: the 478 points of MediaPipe's face mesh, or 18 named points that a
// person sets. Positions are fractions of the picture. No DOM here, so it can be tested without a
// browser.

import { getPath, setPath } from "./paths.js";

/** Number of points of the mesh without the irises, and of an iris. */
const MESH_POINTS = 468;
const IRIS_POINTS = 5;

const eyeHandles = (side, [outer, inner, upper, lower, brow, iris]) => [
  { path: `${side}_eye.brow`, index: brow, label: `${side} brow`, reach: 0.4 },
  { path: `${side}_eye.outer`, index: outer, label: `Outer corner of the ${side} eye`, reach: 0.2 },
  { path: `${side}_eye.upper`, index: upper, label: `Upper lid of the ${side} eye`, reach: 0.2 },
  { path: `${side}_eye.iris`, index: iris, label: `Iris of the ${side} eye`, reach: 0 },
  { path: `${side}_eye.lower`, index: lower, label: `Lower lid of the ${side} eye`, reach: 0.2 },
  { path: `${side}_eye.inner`, index: inner, label: `Inner corner of the ${side} eye`, reach: 0.2 },
];
const upperCaseFirst = (handle) => ({
  ...handle,
  label: handle.label[0].toUpperCase() + handle.label.slice(1),
});

/**
 * The points that a person can move, in the order of the Tab key. `path`: the field of the object
 * form. `index`: the point of the mesh. `reach`: how far it moves the points around it, in distances
 * of the outer corners of the eyes. Left and right are those of the picture.
 */
export const HANDLES = [
  ...eyeHandles("left", [33, 133, 159, 145, 52, 468]),
  ...eyeHandles("right", [263, 362, 386, 374, 282, 473]),
  { path: "nose.base", index: 2, label: "Base of the nose", reach: 0.25 },
  { path: "mouth.left", index: 61, label: "Left corner of the mouth", reach: 0.3 },
  { path: "mouth.upper", index: 0, label: "Upper edge of the upper lip", reach: 0.3 },
  { path: "mouth.lower", index: 17, label: "Lower edge of the lower lip", reach: 0.3 },
  { path: "mouth.right", index: 291, label: "Right corner of the mouth", reach: 0.3 },
  { path: "chin", index: 152, label: "Tip of the chin", reach: 0.9 },
].map(upperCaseFirst);

/** The line between the lips. Only the mesh has it: the middle of the edges of both lips. */
export const LIP_LINE = {
  path: "",
  index: 13,
  pair: 14,
  label: "Line between the lips",
  reach: 0.3,
};
/** The handles of the mesh: those of the object form, and the lip line between both lips. */
export const MESH_HANDLES = HANDLES.flatMap((handle) =>
  handle.path === "mouth.upper" ? [handle, LIP_LINE] : [handle],
);

const numbers = (text) => text.split(" ").map(Number);
const BETWEEN_LIPS = [
  numbers("61 78 191 80 81 82 13 312 311 310 415 308 291"),
  numbers("61 78 95 88 178 87 14 317 402 318 324 308 291"),
];
/** The lines from one handle to the next through another, by the index of the one between. */
const HANDLE_LINES = {
  159: [numbers("33 246 161 160 159 158 157 173 133")],
  145: [numbers("33 7 163 144 145 153 154 155 133")],
  386: [numbers("263 466 388 387 386 385 384 398 362")],
  374: [numbers("263 249 390 373 374 380 381 382 362")],
  0: [numbers("61 185 40 39 37 0 267 269 270 409 291")],
  13: BETWEEN_LIPS,
  17: [numbers("61 146 91 181 84 17 314 405 321 375 291")],
};
/** The drawn lines of the mesh. */
const MESH_LINES = [
  {
    points: numbers("61 185 40 39 37 0 267 269 270 409 291 375 321 405 314 17 84 181 91 146"),
    closed: true,
  },
  { points: numbers("33 246 161 160 159 158 157 173 133") },
  { points: numbers("33 7 163 144 145 153 154 155 133") },
  { points: numbers("263 466 388 387 386 385 384 398 362") },
  { points: numbers("263 249 390 373 374 380 381 382 362") },
  { points: numbers("70 63 105 66 107 55 65 52 53 46"), closed: true },
  { points: numbers("300 293 334 296 336 285 295 282 283 276"), closed: true },
  { points: numbers("168 6 197 195 5 4") },
  { points: numbers("64 98 97 2 326 327 294") },
  { points: numbers("172 136 150 149 176 148 152 377 400 378 379 365 397") },
];

const middle = (a, b) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];

/**
 * The place of a handle in the mesh.
 * @param {number[][]} points
 * @param {{index: number, pair?: number}} handle
 */
export const meshPlace = (points, { index, pair }) =>
  pair ? middle(points[index], points[pair]) : points[index];

/**
 * The lines over the photo, `{points, closed, smooth}`, and circles `{centre, edge}` of the irises.
 * `closed`: the last point is joined to the first one. `smooth`: the line is a curve.
 */
export function meshLines(points) {
  const lines = MESH_LINES.map(({ points: line, closed = false }) => ({
    points: line.map((i) => points[i]),
    closed,
    smooth: false,
  }));
  const [upper, lower] = BETWEEN_LIPS;
  const betweenLips = upper.map((i, at) => middle(points[i], points[lower[at]]));
  lines.push({ points: betweenLips, closed: false, smooth: false });
  const circles = [MESH_POINTS, MESH_POINTS + IRIS_POINTS].map((iris) => ({
    centre: points[iris],
    edge: points.slice(iris + 1, iris + IRIS_POINTS),
  }));
  return { lines, circles };
}

/**
 * Moves a handle of the mesh to `place`, and the points around it smoothly. All other handles stay.
 * An iris moves as a whole, and moves nothing else. Distances are measured in pixels of a picture of
 * `size`.
 * @param {number[][]} points
 * @param {{index: number, pair?: number, reach: number}} handle
 * @param {number[]} place
 * @param {{width: number, height: number}} size
 */
export function moveMeshHandle(points, handle, place, { width, height }) {
  const from = meshPlace(points, handle);
  const shift = [place[0] - from[0], place[1] - from[1]];
  const moved = (point, weight) => [
    clamp(point[0] + shift[0] * weight),
    clamp(point[1] + shift[1] * weight),
  ];
  if (handle.index >= MESH_POINTS)
    return points.map((point, i) =>
      i >= handle.index && i < handle.index + IRIS_POINTS ? moved(point, 1) : point,
    );
  const squareDistance = (a, b) => ((a[0] - b[0]) * width) ** 2 + ((a[1] - b[1]) * height) ** 2;
  const radius = squareDistance(points[33], points[263]) * handle.reach ** 2;
  const others = MESH_HANDLES.filter(
    (other) => other.index !== handle.index && other.index < MESH_POINTS,
  );
  const fixed = others.flatMap(({ index, pair }) => (pair ? [index, pair] : [index]));
  const distance = (i, j) => Math.sqrt(squareDistance(points[i], points[j]));
  const ofLine = lineWeights(handle, distance);
  return points.map((point, i) => {
    if (i === handle.index || i === handle.pair) return moved(point, 1);
    if (ofLine.has(i)) return moved(point, ofLine.get(i));
    if (i >= MESH_POINTS || fixed.includes(i)) return point;
    const own = squareDistance(point, from);
    if (own >= radius) return point;
    // Shepard's weight: 1 at this handle, 0 at the others; smoothly 0 at the radius.
    const inverse = 1 / Math.max(own, 1e-9);
    const sum = fixed.reduce(
      (total, index) => total + 1 / Math.max(squareDistance(point, points[index]), 1e-9),
      inverse,
    );
    return moved(point, (inverse / sum) * (1 - own / radius) ** 2);
  });
}

/**
 * How far the points of a handle's line move with it: 1 at the handle, 0 at the ends of the line,
 * and a parabola of the distance along the line between. A lid or a lip thus stays a curve.
 * @param {{index: number, pair?: number}} handle
 * @param {(i: number, j: number) => number} distance between two points of the mesh
 */
function lineWeights({ index, pair }, distance) {
  const weights = new Map();
  for (const line of HANDLE_LINES[index] ?? []) {
    const at = line.findIndex((i) => i === index || i === pair);
    for (const half of [line.slice(0, at + 1).reverse(), line.slice(at)]) {
      const along = [0];
      for (let i = 1; i < half.length; i++)
        along.push(along[i - 1] + distance(half[i - 1], half[i]));
      const length = Math.max(along.at(-1), 1e-9);
      half.slice(1, -1).forEach((i, n) => {
        weights.set(i, 1 - (along[n + 1] / length) ** 2);
      });
    }
  }
  return weights;
}

const clamp = (fraction) => Math.min(1, Math.max(0, fraction));

/** Named points of an average face: units of the distance of the outer corners of the eyes. */
const AVERAGE = {
  mouth: { left: [-0.31, 0.73], right: [0.31, 0.73], upper: [0, 0.65], lower: [0, 0.87] },
  nose: { base: [0, 0.48] },
  chin: [0, 1.12],
  left_eye: averageEye(-1),
  right_eye: averageEye(1),
};

function averageEye(side) {
  return {
    outer: [side * 0.5, 0],
    inner: [side * 0.2, 0.04],
    upper: [side * 0.35, -0.06],
    lower: [side * 0.35, 0.07],
    brow: [side * 0.4, -0.2],
    iris: [side * 0.35, 0.01],
  };
}

/** Named points in the middle of a picture of this size, upright and level. */
export function defaultOutline({ width, height }) {
  const unit = Math.min(width, height) * 0.3;
  const outline = {};
  for (const { path } of HANDLES) {
    const [x, y] = getPath(AVERAGE, path);
    setPath(outline, path, [0.5 + (x * unit) / width, 0.5 + ((y - 0.35) * unit) / height]);
  }
  return outline;
}

/** Maps all points of an outline. */
function mapOutline(outline, map) {
  const mapped = {};
  for (const { path } of HANDLES) setPath(mapped, path, map(getPath(outline, path), path));
  return mapped;
}

const outlinePoints = (outline) => HANDLES.map(({ path }) => getPath(outline, path));

/** The middle of all points of an outline. */
export function outlineCentre(outline) {
  const points = outlinePoints(outline);
  return [0, 1].map((axis) => points.reduce((sum, point) => sum + point[axis], 0) / points.length);
}

/** Moves an outline, at most to the edge of the picture. */
export function moveOutline(outline, shift) {
  const points = outlinePoints(outline);
  const [dx, dy] = shift.map((wanted, axis) => {
    const places = points.map((point) => point[axis]);
    return Math.min(1 - Math.max(...places), Math.max(-Math.min(...places), wanted));
  });
  return mapOutline(outline, ([x, y]) => [x + dx, y + dy]);
}

/** An outline, larger or smaller by `factor` around its middle. It stays as it is at an edge. */
export function scaleOutline(outline, factor) {
  const [cx, cy] = outlineCentre(outline);
  const scaled = mapOutline(outline, ([x, y]) => [cx + (x - cx) * factor, cy + (y - cy) * factor]);
  return outlinePoints(scaled)
    .flat()
    .every((fraction) => fraction >= 0 && fraction <= 1)
    ? scaled
    : outline;
}

export const moveOutlineHandle = (outline, handle, place) =>
  mapOutline(outline, (point, path) => (path === handle.path ? place.map(clamp) : point));

/** The lines of an outline, through its points. */
export function outlineLines({ mouth, nose, chin, left_eye: left, right_eye: right }) {
  const loop = (...points) => ({ points, closed: true, smooth: true });
  const line = (...points) => ({ points, closed: false, smooth: false });
  return {
    lines: [
      loop(mouth.left, mouth.upper, mouth.right, mouth.lower),
      loop(left.outer, left.upper, left.inner, left.lower),
      loop(right.outer, right.upper, right.inner, right.lower),
      line(left.brow, left.upper),
      line(right.brow, right.upper),
      line(nose.base, mouth.upper),
      line(mouth.lower, chin),
    ],
    circles: [left, right].map(({ iris: [x, y], inner, outer }) => ({
      centre: [x, y],
      edge: [[x + 0.2 * (inner[0] - outer[0]), y]],
    })),
  };
}

/** The handle that a rejected field names, such as `landmarks.left_eye.iris` or `landmarks[468]`. */
export function handleOfField(field) {
  const path = field.replace(/^landmarks\.?/, "").replace(/\[[01]\]$/, "");
  const number = /^\[(\d+)\]/.exec(field.replace(/^landmarks/, ""));
  return number
    ? MESH_HANDLES.find(({ index, pair }) => [index, pair].includes(Number(number[1])))
    : HANDLES.find((handle) => handle.path === path);
}

/** Relations that a rejected order names, and what is wrong then. */
const ORDERS = {
  "to the right of": (point, other) => `The ${other} and the ${point} are crossed`,
  below: (point, other) => `The ${point} lies above the ${other}`,
  "at the height of": (point, other) => `The ${point} lies far above or below the ${other}`,
};

/**
 * Explains a rejection such as `must be to the right of the left corner of the mouth
 * (landmarks[61])`, which names two points: `{handles, text}`. Either of them may be the wrong one.
 * Null for all other rejections.
 * @param {{field: string, reason: string}} rejection
 */
export function explainOrder({ field, reason }) {
  const relations = Object.keys(ORDERS).join("|");
  const pattern = new RegExp(`^must be (${relations}) the .* \\((landmarks\\S+)\\)$`);
  const [, relation, path] = pattern.exec(reason) ?? [];
  const handles = path ? [field, path].map(handleOfField) : [];
  if (!path || !handles.every(Boolean)) return null;
  const names = handles.map(({ label }) => label[0].toLowerCase() + label.slice(1));
  return { handles, text: `${ORDERS[relation](...names)}: move one of them back.` };
}
