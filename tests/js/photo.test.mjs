// Tests of the landmarks of a photo: `node --test`.
import assert from "node:assert/strict";
import test from "node:test";

import { getPath } from "../../control-api/src/web/console/paths.js";
import {
  defaultOutline,
  explainOrder,
  HANDLES,
  handleOfField,
  LIP_LINE,
  MESH_HANDLES,
  meshPlace,
  moveMeshHandle,
  moveOutline,
  moveOutlineHandle,
  outlineCentre,
  scaleOutline,
} from "../../control-api/src/web/console/photo-landmarks.js";

const SIZE = { width: 800, height: 600 };
const NAMED = new Map(
  HANDLES.map(({ path, index }) => [index, getPath(defaultOutline(SIZE), path)]),
);
/** A mesh with the named points at their places, and the others around the mouth. */
const MESH = Array.from({ length: 478 }, (_, i) => {
  const [x, y] = NAMED.get(61);
  return NAMED.get(i) ?? [x + ((i % 20) - 10) * 0.004, y + (Math.floor(i / 20) - 12) * 0.004];
});
const corner = HANDLES.find(({ path }) => path === "mouth.left");
const iris = HANDLES.find(({ path }) => path === "left_eye.iris");
const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);

test("a moved handle takes the points around it along and leaves the other handles", () => {
  const [x, y] = MESH[61];
  const moved = moveMeshHandle(MESH, corner, [x - 0.03, y + 0.01], SIZE);
  assert.deepEqual(moved[61], [x - 0.03, y + 0.01]);
  for (const { index, pair } of MESH_HANDLES)
    for (const other of [index, pair])
      if (other !== undefined && other !== 61) assert.deepEqual(moved[other], MESH[other]);
  const shifts = MESH.map((point, i) => distance(point, moved[i]));
  const whole = shifts[61];
  assert.ok(shifts.every((shift) => shift <= whole + 1e-9));
  const near = MESH.map((_, i) => i).filter(
    (i) => !NAMED.has(i) && i < 468 && ![13, 14].includes(i) && distance(MESH[i], MESH[61]) < 0.01,
  );
  assert.ok(near.length > 0 && near.every((i) => shifts[i] > 0.5 * whole && shifts[i] < whole));
  assert.ok(shifts.slice(468).every((shift) => shift === 0));
});

test("an iris moves as a whole and moves nothing else", () => {
  const [x, y] = MESH[468];
  const moved = moveMeshHandle(MESH, iris, [x + 0.02, y], SIZE);
  MESH.forEach((point, i) => {
    const shift = i >= 468 && i < 473 ? 0.02 : 0;
    assert.ok(distance(moved[i], [point[0] + shift, point[1]]) < 1e-9, `point ${i}`);
  });
});

test("the line between the lips moves the inner edges of both lips", () => {
  const [x, y] = meshPlace(MESH, LIP_LINE);
  const moved = moveMeshHandle(MESH, LIP_LINE, [x, y + 0.01], SIZE);
  assert.ok(distance(meshPlace(moved, LIP_LINE), [x, y + 0.01]) < 1e-9);
  for (const i of [13, 14]) assert.ok(distance(moved[i], [MESH[i][0], MESH[i][1] + 0.01]) < 1e-9);
  assert.deepEqual([moved[0], moved[17]], [MESH[0], MESH[17]]);
});

test("a moved lid stays a curve from corner to corner", () => {
  const lid = [33, 246, 161, 160, 159, 158, 157, 173, 133];
  const [from, to] = [MESH[33], MESH[133]];
  const mesh = [...MESH];
  lid.forEach((i, n) => {
    const t = n / (lid.length - 1);
    mesh[i] = [from[0] + (to[0] - from[0]) * t, from[1] - 0.04 * t * (1 - t)];
  });
  const handle = { ...HANDLES.find(({ path }) => path === "left_eye.upper"), index: 159 };
  const moved = moveMeshHandle(mesh, handle, [mesh[159][0], mesh[159][1] - 0.03], SIZE);
  const rise = (i) => mesh[i][1] - moved[i][1];
  assert.ok(Math.abs(rise(159) - 0.03) < 1e-9 && rise(33) === 0 && rise(133) === 0);
  assert.ok(rise(160) > 0.02 && rise(158) > 0.02, "no kink at the handle");
  assert.ok(rise(161) < rise(160) && rise(246) < rise(161) && rise(246) > 0);
});

test("no point leaves the picture", () => {
  const inside = (points) => points.flat().every((value) => value >= 0 && value <= 1);
  assert.ok(inside(moveMeshHandle(MESH, corner, [-1, 2], SIZE)));
  const outline = defaultOutline(SIZE);
  const points = (named) => HANDLES.map(({ path }) => getPath(named, path));
  const moved = moveOutline(outline, [2, -2]);
  assert.ok(inside(points(moved)));
  // The shape stays.
  const [before, after] = [points(outline), points(moved)];
  const shift = [after[0][0] - before[0][0], after[0][1] - before[0][1]];
  assert.ok(
    after.every(
      (point, i) => distance(point, [before[i][0] + shift[0], before[i][1] + shift[1]]) < 1e-9,
    ),
  );
  assert.ok(inside(points(moveOutlineHandle(outline, corner, [-3, 0.5]))));
  assert.equal(scaleOutline(outline, 10), outline, "too large for the picture");
});

test("an outline is scaled around its middle", () => {
  const outline = defaultOutline(SIZE);
  const larger = scaleOutline(outline, 1.1);
  assert.ok(distance(outlineCentre(outline), outlineCentre(larger)) < 1e-9);
  const width = ({ mouth }) => mouth.right[0] - mouth.left[0];
  assert.ok(Math.abs(width(larger) / width(outline) - 1.1) < 1e-9);
});

test("a rejected field names its handle", () => {
  const label = (field) => handleOfField(field)?.label;
  assert.equal(label("landmarks.left_eye.iris"), "Iris of the left eye");
  assert.equal(label("landmarks.mouth.left[0]"), "Left corner of the mouth");
  assert.equal(label("landmarks[152]"), "Tip of the chin");
  assert.equal(label("landmarks[14][1]"), "Line between the lips");
  assert.equal(label("landmarks"), undefined);
});

test("a rejected order names both points", () => {
  const explain = (field, reason) => explainOrder({ field, reason });
  const crossed =
    "The left corner of the mouth and the right corner of the mouth are crossed: move one of " +
    "them back.";
  const name = "must be to the right of the left corner of the mouth";
  for (const [field, other] of [
    ["landmarks[291]", "landmarks[61]"],
    ["landmarks.mouth.right", "landmarks.mouth.left"],
  ]) {
    const { handles, text } = explain(field, `${name} (${other})`);
    assert.equal(text, crossed);
    assert.deepEqual(
      handles.map(({ index }) => index),
      [291, 61],
    );
  }
  assert.equal(
    explain("landmarks.chin", "must be below the lower lip (landmarks.mouth.lower)").text,
    "The tip of the chin lies above the lower edge of the lower lip: move one of them back.",
  );
  const height = "must be at the height of the inner corner of the right eye (landmarks[362])";
  assert.equal(
    explain("landmarks[263]", height).text,
    "The outer corner of the right eye lies far above or below the inner corner of the right " +
      "eye: move one of them back.",
  );
  for (const reason of ["must be [x, y]", "is too far from the face", `${name} (landmarks[9])`])
    assert.equal(explain("landmarks[291]", reason), null);
});
