// Runs in each map of the page (template map_view.html): slider, values under the pointer, clicks.
// Gradio gives `element`, `trigger` and `watch`.
const decoded = new WeakMap();

function mapOf(stack) {
  if (!decoded.has(stack)) {
    const bytes = Uint8Array.from(atob(stack.dataset.values), (letter) => letter.charCodeAt(0));
    decoded.set(stack, { ...JSON.parse(stack.dataset.about), data: new Float32Array(bytes.buffer) });
  }
  return decoded.get(stack);
}

/** The pixel of the image under the pointer, and that of the values that came with the page. */
function placeOf(event) {
  const stack = event.target.closest?.(".stack");
  if (!stack) return null;
  const map = mapOf(stack), box = stack.getBoundingClientRect();
  const across = (event.clientX - box.left) / box.width, down = (event.clientY - box.top) / box.height;
  if (across < 0 || across >= 1 || down < 0 || down >= 1) return null;
  const at = (share, count) => Math.min(count - 1, Math.floor(share * count));
  return {
    map, figure: stack.closest("figure"), x: at(across, map.size[1]), y: at(down, map.size[0]),
    column: at(across, map.shape[1]), row: at(down, map.shape[0]),
  };
}

function valueText({ map, row, column }) {
  const start = (row * map.shape[1] + column) * map.shape[2];
  const values = Array.from(map.data.subarray(start, start + map.shape[2]));
  if (map.classes) return map.classes[values[0]] ?? "no class";
  if (!values.every(Number.isFinite)) return "no value";
  if (values.length > 1) return `(${values.map((value) => value.toFixed(2)).join(", ")})`;
  return map.unit ? `${values[0].toFixed(3)} ${map.unit}` : values[0].toPrecision(4);
}

let share = 0;
function applyShare() {
  element.style.setProperty("--share", `${share}%`);
  for (const slider of element.querySelectorAll(".slide input")) slider.value = share;
}

element.addEventListener("input", (event) => {
  if (!event.target.closest(".slide")) return;
  share = event.target.value;
  applyShare();
});
element.addEventListener("pointermove", (event) => {
  const place = placeOf(event);
  if (place) place.figure.querySelector(".readout").textContent = `${valueText(place)} at x ${place.x}, y ${place.y}`;
});
element.addEventListener("click", (event) => {
  const place = placeOf(event);
  if (place) trigger("click", { x: place.x, y: place.y });
});
watch("value", applyShare);
