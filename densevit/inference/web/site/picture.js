// Images and camera frames as the model takes them: the middle part of the model's aspect ratio, resized to its size.

export const MAX_PIXELS = 100e6; // an image is decoded to 4 bytes a pixel
const MAX_BYTES = 200e6;

/** A problem that the visitor can solve; its message is shown as it is. */
export class PictureError extends Error {}

/** Decodes a file, turned as its EXIF orientation says. Throws PictureError. */
export async function decode(file) {
  const name = file.name || "This image";
  if (file.size === 0) throw new PictureError(`${name} is empty. Choose a JPEG, PNG, WebP or AVIF image.`);
  if (file.size > MAX_BYTES) {
    throw new PictureError(`${name} has ${Math.round(file.size / 1e6)} MB, over ${MAX_BYTES / 1e6}. Save a smaller copy of it.`);
  }
  const url = URL.createObjectURL(file);
  try {
    const image = new Image();
    await new Promise((resolve, reject) => {
      image.onload = resolve; // the size is known; pixels are decoded when they are first drawn
      image.onerror = () => reject(new PictureError(
        `${name} is no image that this browser reads${file.type ? ` (${file.type})` : ""}. Choose a JPEG, PNG, WebP or AVIF image.`));
      image.src = url;
    });
    const width = image.naturalWidth, height = image.naturalHeight;
    if (!width || !height) throw new PictureError(`${name} has no size in pixels. Choose a JPEG, PNG, WebP or AVIF image.`);
    if (width * height > MAX_PIXELS) {
      throw new PictureError(`${name} has ${width} x ${height} pixels, ${Math.round(width * height / 1e6)} megapixels; `
        + `at most ${MAX_PIXELS / 1e6} are read. Save a smaller copy of it.`);
    }
    await image.decode().catch(() => {
      throw new PictureError(`${name} is damaged and cannot be read to its end. Choose another image.`);
    });
    return await createImageBitmap(image);
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** Draws the middle part of `source` (image, canvas or video) on `canvas`; returns that part and the pixels. */
export function fitTo([height, width], source, canvas) {
  const w = source.videoWidth || source.width, h = source.videoHeight || source.height;
  const scale = Math.min(w / width, h / height);
  const part = { w: Math.round(width * scale), h: Math.round(height * scale), of: [h, w] };
  const x = Math.round((w - part.w) / 2), y = Math.round((h - part.h) / 2);
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // behind transparent pixels
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(source, x, y, part.w, part.h, 0, 0, width, height);
  return { part, rgba: context.getImageData(0, 0, width, height).data };
}

/** Focal length in pixels of the image that the model sees; `fov`: degrees, across the whole image's width. */
export function focalLength(part, width, fov) {
  const whole = part.of[1] / 2 / Math.tan(fov * Math.PI / 360);
  return whole * width / part.w;
}
