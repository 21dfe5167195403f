// Runs the model beside the page, so that the page stays responsive. In: {kind: "load", device, bytes} and
// {kind: "run", id, rgba, size, focal}; out: {kind: "progress" | "ready" | "result" | "error", ...}.

const here = (path) => new URL(path, import.meta.url).href;
let ort, session, providers;

onmessage = async ({ data }) => {
  try {
    await (data.kind === "load" ? load(data) : run(data));
  } catch (error) {
    postMessage({ kind: "error", id: data.id, text: String(error?.message ?? error) });
  }
};

async function load({ id, device, bytes }) {
  const model = await download("model.onnx", bytes);
  if (await gpuUsable(device)) {
    try {
      await open("webgpu", model);
      await warmUp();
    } catch (error) {
      if (device === "webgpu") throw error;
      console.warn("WebGPU cannot run this model, the CPU does:", error);
      await session?.release().catch(() => {});
      session = undefined;
    }
  } else if (device === "webgpu") throw new Error("this browser has no WebGPU adapter.");
  if (!session) await open("wasm", model);
  postMessage({ kind: "ready", id, device: providers, threads: ort.env.wasm.numThreads });
}

async function download(name, bytes) {
  const response = await fetch(here(name));
  if (!response.ok) throw new Error(`the server has no ${name} (${response.status}); upload the whole folder.`);
  const parts = [], reader = response.body.getReader();
  let loaded = 0;
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    parts.push(value);
    loaded += value.length;
    postMessage({ kind: "progress", share: Math.min(1, loaded / bytes), loaded });
  }
  if (loaded !== bytes) throw new Error(`${name} has ${loaded} bytes in place of ${bytes}; reload, or upload the folder anew.`);
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Software adapters are slower than the CPU's own code. */
async function gpuUsable(device) {
  if (device === "wasm" || !navigator.gpu) return false;
  const adapter = await navigator.gpu.requestAdapter({ powerPreference: "high-performance" }).catch(() => null);
  const software = adapter?.info?.isFallbackAdapter || adapter?.isFallbackAdapter || adapter?.info?.architecture === "swiftshader";
  return adapter !== null && (device === "webgpu" || !software);
}

async function open(provider, model) {
  ort = await import(here(`ort/ort.${provider}.js`));
  ort.env.wasm.wasmPaths = { mjs: here(`ort/${provider}.js`), wasm: here(`ort/${provider}.wasm`) };
  ort.env.wasm.numThreads = self.crossOriginIsolated ? Math.min(8, navigator.hardwareConcurrency || 1) : 1;
  ort.env.logLevel = "error";
  const executionProviders = provider === "webgpu" ? ["webgpu", "wasm"] : ["wasm"];
  session = await ort.InferenceSession.create(model, { executionProviders, logSeverityLevel: 3 });
  providers = provider;
}

/** Compiles the GPU's programs and shows whether it can run them all. */
async function warmUp() {
  const side = 64;
  await infer(new Uint8Array(side * side * 3), [side, side], side);
}

async function infer(rgb, [height, width], focal) {
  const inputs = { image: new ort.Tensor("uint8", rgb, [1, height, width, 3]) };
  if (session.inputNames.includes("focal")) inputs.focal = new ort.Tensor("float32", Float32Array.of(focal), [1]);
  return session.run(inputs);
}

async function run({ id, rgba, size, focal }) {
  const rgb = new Uint8Array(rgba.length / 4 * 3);
  for (let i = 0, k = 0; i < rgba.length; i += 4) {
    rgb[k++] = rgba[i];
    rgb[k++] = rgba[i + 1];
    rgb[k++] = rgba[i + 2];
  }
  const start = performance.now();
  const outputs = await infer(rgb, size, focal);
  const maps = {};
  for (const name of session.outputNames) maps[name] = { data: outputs[name].data, dims: outputs[name].dims };
  postMessage({ kind: "result", id, maps, ms: performance.now() - start });
}
