// The focal length that a camera wrote into its JPEG, read as densevit/data/io/exif.py does.

const [FOCAL, UNIT, PER_UNIT, WIDTH, HEIGHT, ZOOM, EQUIVALENT] = [0x920a, 0xa210, 0xa20e, 0xa002, 0xa003, 0xa404, 0xa405];
const MM = { 2: 25.4, 3: 10, 4: 1, 5: 0.001 }; // FocalPlaneResolutionUnit: inch, cm, mm, um
const FULL_FRAME = Math.hypot(36, 24); // mm, the diagonal of 35 mm film
const LARGEST_ASPECT_CHANGE = 1.02; // beyond, the file shows a part of what the camera took

/** In pixels of the whole image; null where EXIF does not tell, or cannot be true of this image. */
export async function exifFocal(file, width, height) {
  try {
    const tags = cameraTags(new DataView(await file.slice(0, 2 ** 18).arrayBuffer()));
    const [taken, size] = [[tags[WIDTH], tags[HEIGHT]], [width, height]].map((sides) => sides.sort((a, b) => b - a));
    const change = taken[0] && taken[1] ? taken[0] / taken[1] / (size[0] / size[1]) : 1;
    if (Math.max(change, 1 / change) > LARGEST_ASPECT_CHANGE) return null;
    const resized = taken[0] && taken[1] ? size[0] / taken[0] : tags[WIDTH] || tags[HEIGHT] ? NaN : 1;
    const focal = tags[EQUIVALENT] ? tags[EQUIVALENT] * Math.hypot(...size) / FULL_FRAME
      : tags[FOCAL] * tags[PER_UNIT] / MM[tags[UNIT] || 2] * (tags[ZOOM] || 1) * resized;
    return focal > 0 && focal < Infinity ? focal : null;
  } catch { // damaged
    return null;
  }
}

function cameraTags(view) {
  for (let at = 2; view.getUint16(0) === 0xffd8 && view.getUint8(at) === 0xff; at += 2 + view.getUint16(at + 2)) {
    if (view.getUint8(at + 1) === 0xe1 && view.getUint32(at + 4) === 0x45786966) return readTags(view, at + 10); // "Exif"
  }
  return {};
}

function readTags(view, start) {
  const little = view.getUint16(start) === 0x4949;
  const short = (at) => view.getUint16(start + at, little), long = (at) => view.getUint32(start + at, little);
  const readers = { 3: short, 4: long, 5: (at) => long(long(at)) / long(long(at) + 4) }; // by type; 5: a fraction elsewhere
  const find = (directory, tag) => {
    for (let i = 0, at = directory + 2; i < short(directory); i++, at += 12) {
      if (short(at) === tag) return readers[short(at + 2)]?.(at + 8);
    }
  };
  const directory = find(long(4), 0x8769);
  const names = directory ? [FOCAL, UNIT, PER_UNIT, WIDTH, HEIGHT, ZOOM, EQUIVALENT] : [];
  return Object.fromEntries(names.map((tag) => [tag, find(directory, tag)]).filter(([, value]) => Number.isFinite(value)));
}
