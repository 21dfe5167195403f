// Images and camera frames at their own size; the model's file resizes them as PyTorch does.

export const MAX_PIXELS = 100e6; // an image is decoded to 4 bytes a pixel
const MAX_SHOWN = 2e6; // pixels of the image that is predicted; a larger one is reduced
const MAX_BYTES = 200e6;

/** A problem that the visitor can solve; its message is shown as it is. */
export class ImageError extends Error {}

/** Decodes a file, turned as its EXIF orientation says. Throws ImageError. */
export async function decode(file) {
  const name = file.name || "This image";
  if (file.size === 0) throw new ImageError(`${name} is empty. Choose a JPEG, PNG, WebP or AVIF image.`);
  if (file.size > MAX_BYTES) {
    throw new ImageError(`${name} has ${Math.round(file.size / 1e6)} MB, over ${MAX_BYTES / 1e6}. Save a smaller copy of it.`);
  }
  const url = URL.createObjectURL(file);
  try {
    const image = new Image();
    await new Promise((resolve, reject) => {
      image.onload = resolve; // the size is known; pixels are decoded when they are first drawn
      image.onerror = () => reject(new ImageError(
        `${name} is no image that this browser reads${file.type ? ` (${file.type})` : ""}. Choose a JPEG, PNG, WebP or AVIF image.`));
      image.src = url;
    });
    const width = image.naturalWidth, height = image.naturalHeight;
    if (!width || !height) throw new ImageError(`${name} has no size in pixels. Choose a JPEG, PNG, WebP or AVIF image.`);
    if (width * height > MAX_PIXELS) {
      throw new ImageError(`${name} has ${width} x ${height} pixels, ${Math.round(width * height / 1e6)} megapixels; `
        + `at most ${MAX_PIXELS / 1e6} are read. Save a smaller copy of it.`);
    }
    try {
      await image.decode();
      return await createImageBitmap(image); // where some browsers find a damaged file only
    } catch {
      throw new ImageError(`${name} is damaged, or too large for this browser's memory. Choose another image.`);
    }
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Draws `source` (image, canvas or video) on `canvas`; returns its own size, that of the drawing, and the pixels. */
export function draw(source, canvas) {
  const of = [source.videoHeight || source.height, source.videoWidth || source.width];
  const scale = Math.min(1, Math.sqrt(MAX_SHOWN / (of[0] * of[1])));
  const [height, width] = of.map((side) => Math.max(1, Math.floor(side * scale)));
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // behind transparent pixels
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(source, 0, 0, width, height);
  return { of, size: [height, width], rgba: context.getImageData(0, 0, width, height).data };
}

/** Focal length in pixels of an image of this width; `fov`: degrees across it. */
export function focalLength(width, fov) {
  return width / 2 / Math.tan(fov * Math.PI / 360);
}

/** The inverse of `focalLength`. */
export function fieldAcross(width, focal) {
  return 360 / Math.PI * Math.atan(width / 2 / focal);
}
