// The page: an image or a camera in; depth, classes, normals and a point cloud out.

import { backproject, CloudView, ply } from "./cloud.js";
import { colorize, colorizeNormals, overlay, show, spread } from "./colors.js";
import { exifFocal } from "./exif.js";
import { Model } from "./model.js";
import { npy, save } from "./files.js";
import { decode, draw, fieldAcross, focalLength, ImageError } from "./image.js";

const $ = (id) => document.getElementById(id);
const DEPTH = ["metric", "affine", "disparity"], VALUES = [...DEPTH, "uncertainty"];
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const WIDE = 2.5; // width over height of an image whose map stands below it, not beside it

let settings, model, cloud;
let shown; // the result on view: {name, of, size, rgba, maps}
let next = null; // the image to predict for: {name, exif, fit: () => {of, size, rgba}}
let exif = null, typed = null; // fields of view in degrees: by the EXIF of the image on view, and the visitor's
let busy = false, stream = null;
let place = null; // shares of width and height, whose value is told

async function start() {
  try {
    const response = await fetch("model.json");
    if (!response.ok) throw new Error(`the server has no model.json (${response.status}); upload the whole folder`);
    settings = await response.json();
    describe();
    const began = performance.now();
    model = new Model((share, bytes) => {
      $("progress").hidden = false;
      $("progress").value = share;
      say(`Loading the model: ${(bytes / 1e6).toFixed(0)} of ${(settings.modelBytes / 1e6).toFixed(0)} MB`);
    });
    const { device, threads } = await model.load(new URLSearchParams(location.search).get("device") ?? "", settings.modelBytes);
    $("progress").hidden = true;
    const place = device === "webgpu" ? "the GPU" : `the CPU, ${threads} thread${threads > 1 ? "s" : ""}`;
    say(`Ready after ${((performance.now() - began) / 1000).toFixed(1)} s, on ${place}. Choose an image.`);
    document.body.dataset.ready = device;
    $("webcam").disabled = false;
    if (next) predict();
  } catch (error) {
    $("progress").hidden = true;
    say(`The model could not be loaded: ${error.message}`, true);
  }
}

function describe() {
  document.title = $("title").textContent = settings.title;
  const heads = settings.outputs.map(({ name, meaning, unit }) => `${name} (${meaning}${unit && ` in ${unit}`})`).join(", ");
  const [height, width] = settings.size;
  const { data, limitation, details } = settings;
  const join = (...sentences) => sentences.filter(Boolean).join(" ");
  $("limitations").textContent = join(data && `Trained on ${data}.`, limitation, "Images stay on this device.");
  $("about").textContent = join(
    `Predicts ${heads}; sees images at ${width} x ${height} pixels and gives maps at theirs, in this browser.`,
    `The model and what runs it are ${(settings.download / 1e6).toFixed(0)} MB.`, details);
  $("footer").textContent = `densevit ${settings.densevit}; weights: ${settings.source}, licence ${settings.licence}; `
    + "computed by ONNX Runtime Web (MIT licence).";
  for (const { name } of settings.outputs) $("head").append(new Option(name));
  for (const name of Object.keys(settings.colormaps)) $("cmap").append(new Option(name));
  $("head-label").hidden = settings.outputs.length < 2;
  $("fov").value = settings.fov;
  $("webcam").disabled = true;
}

function say(text, error = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", error);
}

async function take(file) {
  if (!settings) return;
  stopCamera();
  try {
    if (!file) throw new ImageError("There is no file in what was dropped. Drop an image file, or choose one.");
    const image = await decode(file);
    const { width, height } = image, focal = await exifFocal(file, width, height);
    next = { name: file.name || "image", exif: focal && possible(fieldAcross(width, focal), 0.5), fit: () => fitted(image) };
    if (document.body.dataset.ready) await predict();
  } catch (error) {
    if (!(error instanceof ImageError)) console.error(error);
    $("result").hidden = true; // it is of the image before
    say(error instanceof ImageError ? error.message : `${file.name} could not be read (${error.message}).`, true);
  }
}

function fitted(source) {
  const image = draw(source, $("image"));
  source.close?.(); // a decoded file's memory
  return image;
}

/** Predicts for the newest image; those that came meanwhile but the last are left out. */
async function predict() {
  if (busy) return;
  busy = true;
  try {
    while (next) {
      const { name, fit } = next;
      exif = next.exif ?? null;
      next = null;
      $("fov").value = exif?.toFixed(1) ?? typed ?? settings.fov;
      if (!stream) say(`Predicting ${name} ...`);
      const { of, size, rgba } = fit();
      const { maps, ms } = await model.run(rgba, size, focal(size));
      shown = { name, of, size, rgba, maps };
      render();
      say(`${name}: ${ms < 1000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`}`);
    }
  } catch (error) {
    console.error(error);
    say(`The model could not run on this image: ${error.message}. Close other tabs and try again, or take a smaller model.`, true);
  } finally {
    busy = false;
  }
}

function fieldOfView() {
  return exif ?? possible(Number(typed)) ?? settings.fov;
}

function possible(fov, least = 5) {
  return fov >= least && fov <= 170 ? fov : null;
}

function focal(size) {
  return focalLength(size[1], fieldOfView());
}

function chosen() {
  const head = settings.outputs.find(({ name }) => name === $("head").value);
  return { ...head, data: shown.maps[head.name].data };
}

function render() {
  const { of, size: [height, width], rgba } = shown, head = chosen();
  $("result").hidden = false;
  $("pair").classList.toggle("wide", width > WIDE * height);
  $("pair").style.setProperty("--tall", height / width);
  $("source").textContent = `${of[1]} x ${of[0]} pixels${of[1] === width ? "" : `, reduced to ${width} x ${height}`}`;
  const values = VALUES.includes(head.kind), labels = head.kind === "labels";
  $("map-figure").hidden = $("save-image").hidden = head.kind === "class";
  $("cmap-label").hidden = $("scale").hidden = !values;
  $("opacity-label").hidden = !labels;
  $("legend").replaceChildren();
  if (values) renderValues(head, width, height);
  else if (head.kind === "normals") show($("map"), colorizeNormals(head.data), width, height);
  else if (labels) {
    show($("map"), overlay(head.data, head.palette, rgba, $("opacity").value / 100), width, height);
    legend(head);
  } else probabilities(head);
  if (place) tell();
  else $("readout").textContent = "Point at the map for its values, or use the arrow keys on it.";
  renderCloud();
}

function renderValues(head, width, height) {
  const range = spread(head.data), table = settings.colormaps[$("cmap").value];
  show($("map"), colorize(head.data, range, table), width, height);
  show($("bar"), colorize(Float32Array.from({ length: 256 }, (_, i) => i), [0, 255], table), 256, 1);
  [$("low").textContent, $("high").textContent] = range.map((value) => text(value, head.unit));
}

function text(value, unit) {
  return `${Number.isFinite(value) ? value.toPrecision(3) : "unknown"}${unit && ` ${unit}`}`;
}

function legend({ data, classes, palette }) {
  const counts = new Map();
  for (const label of data) counts.set(Number(label), (counts.get(Number(label)) ?? 0) + 1);
  for (const [label, count] of [...counts].sort((a, b) => b[1] - a[1])) {
    const swatch = item("span", "", "swatch");
    swatch.style.background = palette[label] ? `rgb(${palette[label]})` : "white";
    legendLine(swatch, classes[label] ?? "none", count / data.length);
  }
}

function probabilities({ data, classes }) {
  const logits = Array.from(data), top = Math.max(...logits), powers = logits.map((x) => Math.exp(x - top));
  const sum = powers.reduce((a, b) => a + b);
  const order = powers.map((power, i) => [power / sum, classes[i] ?? `class ${i}`]).sort((a, b) => b[0] - a[0]);
  for (const [share, name] of order.slice(0, 5)) legendLine("", name, share);
}

function legendLine(swatch, name, share) {
  const line = item("div");
  line.append(swatch, item("span", name), item("span", `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`));
  $("legend").append(line);
}

function item(tag, content = "", className = "") {
  const element = Object.assign(document.createElement(tag), { textContent: content });
  if (className) element.className = className;
  return element;
}

/** The depth that the cloud shows: of the head on view, else of the first that gives depth. */
function depthHead() {
  const heads = [chosen(), ...settings.outputs].filter(({ kind }) => DEPTH.includes(kind));
  return heads.length ? { ...heads[0], data: shown.maps[heads[0].name].data } : null;
}

function points(head) {
  return backproject(head.kind === "metric" ? head.data : relief(head), shown.rgba, shown.size, focal(shown.size));
}

/** Depth from 1 to 3 for values that are known only up to scale and shift. */
function relief({ kind, data }) {
  const [low, high] = spread(data), share = (value) => Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
  return data.map((value) => (kind === "disparity" ? 1 / (1 / 3 + 2 / 3 * share(value)) : 1 + 2 * share(value)));
}

function renderCloud() {
  const head = depthHead();
  $("cloud-part").hidden = $("fov-label").hidden = head === null;
  $("save-cloud").hidden = head?.kind !== "metric";
  if (!head) return;
  try {
    cloud ??= new CloudView($("cloud"));
    cloud.set(points(head), focal(shown.size), shown.size);
    const scale = head.kind === "metric" ? "" : " The model's values are known only up to scale and shift: shapes are distorted.";
    $("cloud-note").textContent = `For a camera with a horizontal field of view of ${+fieldOfView().toFixed(1)}°${exif ? " (EXIF)" : ""}. Drag or arrow keys turn it; scroll, pinch, + and - zoom.${scale}`;
  } catch (error) {
    $("cloud").hidden = true;
    $("cloud-note").textContent = `The point cloud cannot be shown: ${error.message}.`;
  }
}

/** Tells the value at the place. */
function tell() {
  const { size: [height, width] } = shown, head = chosen();
  if (head.kind === "class") return;
  const x = Math.floor(place[0] * width), y = Math.floor(place[1] * height);
  const i = y * width + x, n = width * height;
  const value = VALUES.includes(head.kind) ? text(head.data[i], head.unit)
    : head.kind === "labels" ? head.classes[Number(head.data[i])] ?? "none"
    : [0, 1, 2].map((k) => head.data[k * n + i].toFixed(2)).join(", ");
  $("readout").textContent = `${value} at x ${x}, y ${y}`;
  $("pair").style.setProperty("--x", `${100 * place[0]}%`);
  $("pair").style.setProperty("--y", `${100 * place[1]}%`);
}

function moveTo(...shares) {
  if (!shown) return;
  place = shares.map((share) => Math.min(1 - 1e-9, Math.max(0, share)));
  tell();
}

function pointAt(event) {
  const box = $("map").getBoundingClientRect();
  moveTo((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
}

function stepBy(event) {
  const step = KEYS[event.key], far = event.shiftKey ? 1 : 10; // pixels
  if (!step || !shown) return;
  event.preventDefault();
  const [height, width] = shown.size, [x, y] = place ?? [0.5, 0.5];
  moveTo(x + step[0] * far / width, y + step[1] * far / height);
}

async function toggleCamera() {
  if (stream) return stopCamera();
  if (!navigator.mediaDevices) {
    return say("Browsers give pages a camera only over https or from localhost. Open this page there, or choose an image.", true);
  }
  try {
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  } catch (error) {
    return say(error.name === "NotFoundError" ? "No camera was found. Connect one, or choose an image."
      : `The camera was not given to this page (${error.message}). Allow it in the browser's address bar, or choose an image.`, true);
  }
  const video = Object.assign(document.createElement("video"), { srcObject: stream, muted: true, playsInline: true });
  $("webcam").textContent = "Stop the camera";
  try {
    await video.play();
    while (stream) {
      next = { name: "camera", fit: () => fitted(video) };
      await predict();
      if ($("status").classList.contains("error")) break;
      await new Promise(requestAnimationFrame);
    }
  } finally {
    stopCamera();
  }
}

function stopCamera() {
  stream?.getTracks().forEach((track) => track.stop());
  stream = null;
  $("webcam").textContent = "Use the camera";
}

function stem(head) {
  return `${shown.name.replace(/\.[^.]*$/, "")}_${head.name.replace(/\W+/g, "_")}`;
}

$("file").onchange = (event) => {
  if (event.target.files.length) take(event.target.files[0]);
  event.target.value = ""; // the same file may be chosen again
};
$("webcam").onclick = toggleCamera;
$("head").onchange = $("cmap").onchange = $("opacity").oninput = () => shown && render();
$("fov").onchange = () => {
  [exif, typed] = [null, $("fov").value];
  if (!shown) return;
  if (!settings.needsFocal) return renderCloud();
  const { name, ...image } = shown;
  next ??= { name, fit: () => image }; // metres depend on the focal length
  predict();
};
$("map").onpointermove = $("map").onpointerdown = pointAt;
$("map").onkeydown = stepBy;
$("save-image").onclick = () => $("map").toBlob((blob) => save(blob, `${stem(chosen())}.png`));
$("save-values").onclick = () => {
  const head = chosen();
  save(npy(head.data, shown.maps[head.name].dims.slice(1)), `${stem(head)}.npy`);
};
$("save-cloud").onclick = () => save(ply(points(depthHead())), `${stem(depthHead())}.ply`);
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  $("drop").classList.add("over");
});
document.addEventListener("dragleave", (event) => event.relatedTarget || $("drop").classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  take(event.dataTransfer.files[0]);
});
document.addEventListener("paste", (event) => event.clipboardData.files.length && take(event.clipboardData.files[0]));
start();
