// The model, in a worker: promises in place of messages.

export class Model {
  /** `onProgress(share, bytes)` while the model is fetched. */
  constructor(onProgress) {
    this.pending = new Map();
    this.count = 0;
    this.worker = new Worker(new URL("worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data }) => {
      if (data.kind === "progress") return onProgress(data.share, data.loaded);
      const { resolve, reject } = this.pending.get(data.id);
      this.pending.delete(data.id);
      if (data.kind === "error") reject(new Error(data.text));
      else resolve(data);
    };
    this.worker.onerror = (event) => {
      for (const { reject } of this.pending.values()) reject(new Error(event.message || "worker.js could not be started."));
      this.pending.clear();
    };
  }

  /** `device`: "webgpu", "wasm", or "" for the faster one; -> {device, threads}. */
  load(device, bytes) {
    return this.ask({ kind: "load", device, bytes });
  }

  /** -> {maps: {head: {data, dims}}, ms}; `rgba` of the model's size. */
  run(rgba, size, focal) {
    return this.ask({ kind: "run", rgba, size, focal });
  }

  ask(message) {
    const id = this.count++;
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.worker.postMessage({ ...message, id });
    });
  }
}
