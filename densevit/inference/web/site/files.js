// Files that the visitor saves.

const TYPES = [[Float32Array, "<f4"], [Uint8Array, "|u1"], [BigInt64Array, "<i8"]];

/** NumPy's file of an array. */
export function npy(data, shape) {
  const type = TYPES.find(([array]) => data instanceof array)[1];
  let header = `{'descr': '${type}', 'fortran_order': False, 'shape': (${shape.join(", ")},), }`;
  header += " ".repeat(63 - (10 + header.length) % 64) + "\n";
  const start = Uint8Array.of(0x93, ...new TextEncoder().encode("NUMPY"), 1, 0, header.length & 255, header.length >> 8);
  return new Blob([start, header, data]);
}

export function save(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}
