// Maps as images. The rules are those of densevit.ops.colors.

const UNKNOWN = [128, 128, 128];

/** The 2nd and 98th percentile of the finite values; 0 and 1 of none. */
export function spread(values) {
  const sorted = Float32Array.from(values).filter(Number.isFinite).sort();
  if (!sorted.length) return [0, 1];
  const at = (share) => {
    const place = share * (sorted.length - 1), below = Math.floor(place);
    const above = Math.min(below + 1, sorted.length - 1);
    return sorted[below] + (sorted[above] - sorted[below]) * (place - below);
  };
  return [at(0.02), at(0.98)];
}

export function colorize(values, [low, high], table) {
  const span = high > low ? high - low : 1;
  return paint(values.length, (i) => {
    if (!Number.isFinite(values[i])) return UNKNOWN;
    const k = 3 * Math.round(255 * Math.min(1, Math.max(0, (values[i] - low) / span)));
    return [table[k], table[k + 1], table[k + 2]];
  });
}

/** Unit vectors in camera axes (right, down, forward), all x first, then y, then z. */
export function colorizeNormals(values) {
  const n = values.length / 3, byte = (v) => Math.round(255 * Math.min(1, Math.max(0, (v + 1) / 2)));
  return paint(n, (i) => {
    const [x, y, z] = [values[i], values[n + i], values[2 * n + i]];
    const known = Number.isFinite(x + y + z) && (x || y || z);
    return known ? [byte(x), byte(-y), byte(-z)] : UNKNOWN;
  });
}

/** Colours of classes over the image; pixels without a class show the image alone. */
export function overlay(labels, palette, rgba, opacity) {
  return paint(labels.length, (i) => {
    const under = [rgba[4 * i], rgba[4 * i + 1], rgba[4 * i + 2]], color = palette[Number(labels[i])];
    return color ? under.map((value, c) => Math.round((1 - opacity) * value + opacity * color[c])) : under;
  });
}

function paint(count, color) {
  const rgba = new Uint8ClampedArray(4 * count).fill(255);
  for (let i = 0; i < count; i++) rgba.set(color(i), 4 * i);
  return rgba;
}

/** Draws RGBA pixels on a canvas of that size. */
export function show(canvas, rgba, width, height) {
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(new ImageData(rgba, width, height), 0, 0);
}
