// Runs in each map of the page (template map_view.html): values under the pointer or by arrow keys, clicks.
// Gradio gives `element` and `trigger`.
const decoded = new WeakMap();
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
let place = [0.5, 0.5]; // shares of width and height

function mapOf(stack) {
  if (!decoded.has(stack)) {
    const bytes = Uint8Array.from(atob(stack.dataset.values), (letter) => letter.charCodeAt(0));
    decoded.set(stack, { ...JSON.parse(stack.dataset.about), data: new Float32Array(bytes.buffer) });
  }
  return decoded.get(stack);
}

/** The pixel of the image at the place. */
function pixel(stack) {
  const [h, w] = mapOf(stack).size;
  return { x: Math.min(w - 1, Math.floor(place[0] * w)), y: Math.min(h - 1, Math.floor(place[1] * h)) };
}

function valueText(map) {
  const [rows, columns, channels] = map.shape;
  const at = (share, count) => Math.min(count - 1, Math.floor(share * count));
  const start = (at(place[1], rows) * columns + at(place[0], columns)) * channels;
  const values = Array.from(map.data.subarray(start, start + channels));
  if (map.classes) return map.classes[values[0]] ?? "no class";
  if (!values.every(Number.isFinite)) return "no value";
  if (values.length > 1) return `(${values.map((value) => value.toFixed(2)).join(", ")})`;
  return map.unit ? `${values[0].toFixed(3)} ${map.unit}` : values[0].toPrecision(4);
}

function tell(stack) {
  const figure = stack.closest("figure"), { x, y } = pixel(stack);
  figure.style.setProperty("--x", `${100 * place[0]}%`);
  figure.style.setProperty("--y", `${100 * place[1]}%`);
  figure.querySelector(".readout").textContent = `${valueText(mapOf(stack))} at x ${x}, y ${y}`;
}

/** The map under the pointer, whose place becomes the place. */
function under(event) {
  const stack = event.target.closest?.(".stack");
  if (!stack) return null;
  const box = stack.getBoundingClientRect();
  const found = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  if (found.some((share) => share < 0 || share >= 1)) return null;
  place = found;
  return stack;
}

element.addEventListener("pointermove", (event) => {
  const stack = under(event);
  if (stack) tell(stack);
});
element.addEventListener("click", (event) => {
  const stack = under(event);
  if (!stack) return;
  tell(stack); // a finger's tap moves no pointer
  trigger("click", pixel(stack));
});
element.addEventListener("keydown", (event) => {
  const stack = event.target.closest?.(".stack"), step = KEYS[event.key];
  if (!stack || !(step || event.key === "Enter")) return;
  event.preventDefault();
  if (!step) return trigger("click", pixel(stack));
  const size = mapOf(stack).size.toReversed(), far = event.shiftKey ? 1 : 10; // pixels
  place = place.map((share, axis) => Math.max(0, Math.min(1 - 1e-9, share + (step[axis] * far) / size[axis])));
  tell(stack);
});
