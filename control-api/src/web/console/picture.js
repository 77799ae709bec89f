// Pictures that are scaled down in the browser before they are sent.

/** Quality of the JPEG, 0 … 1. A picture of the maximum size is then far below 9 MiB. */
const QUALITY = 0.92;

export const NOT_A_PICTURE =
  "This browser cannot read the file as a picture. Save it as JPEG or PNG, and choose it again.";

/** Width and height of a picture whose longer side has at most `maxSide` pixels. */
export function scaledSize(width, height, maxSide) {
  const scale = Math.min(1, maxSide / Math.max(width, height));
  return [width, height].map((side) => Math.max(1, Math.round(side * scale)));
}

/**
 * A picture as a JPEG without metadata, scaled down if it is large: `{uri, width, height}`.
 * @param {CanvasImageSource} source
 * @param {number} width
 * @param {number} height
 * @param {number} maxSide
 */
export function encodePicture(source, width, height, maxSide) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = scaledSize(width, height, maxSide);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  // JPEG has no transparency.
  context.fillStyle = "white";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(source, 0, 0, canvas.width, canvas.height);
  const uri = canvas.toDataURL("image/jpeg", QUALITY);
  return { uri, width: canvas.width, height: canvas.height };
}

/** Reads a file as a picture, upright. Null if the browser cannot decode it. */
export async function readPicture(file, maxSide) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { imageOrientation: "from-image" });
  } catch {
    return null;
  }
  const picture = encodePicture(bitmap, bitmap.width, bitmap.height, maxSide);
  bitmap.close();
  return picture;
}
