// A point cloud in WebGL: drag turns it, wheel or pinch zooms, arrow keys and + - do both.

const VERTEX = `attribute vec3 place; attribute vec3 color; uniform vec3 middle; uniform vec4 turn; uniform vec2 zoom;
uniform float aspect; uniform float dotSize; varying vec3 shade;
void main() {
  vec3 p = place - middle;
  p = vec3(turn.x * p.x + turn.y * p.z, p.y, turn.x * p.z - turn.y * p.x);
  p = vec3(p.x, turn.z * p.y - turn.w * p.z, turn.z * p.z + turn.w * p.y);
  float z = p.z + zoom.x;
  gl_Position = vec4(p.x * zoom.y / aspect, -p.y * zoom.y, z - 0.01 * zoom.x, z);
  gl_PointSize = max(1.0, dotSize * place.z / max(z, 0.05 * zoom.x));
  shade = color;
}`;
const FRAGMENT = "precision mediump float; varying vec3 shade; void main() { gl_FragColor = vec4(shade, 1.0); }";

/** Points x right, y down, z forward and their colours, of the finite depths above 0. */
export function backproject(depth, rgba, [height, width], focal) {
  const xyz = new Float32Array(3 * depth.length), rgb = new Uint8Array(3 * depth.length);
  let n = 0;
  for (let i = 0; i < depth.length; i++) {
    const z = depth[i];
    if (!(Number.isFinite(z) && z > 0)) continue;
    const x = i % width, y = (i - x) / width;
    xyz.set([(x - (width - 1) / 2) / focal * z, (y - (height - 1) / 2) / focal * z, z], 3 * n);
    rgb.set([rgba[4 * i], rgba[4 * i + 1], rgba[4 * i + 2]], 3 * n);
    n++;
  }
  return { xyz: xyz.subarray(0, 3 * n), rgb: rgb.subarray(0, 3 * n), count: n };
}

/** Binary PLY, as `densevit predict --formats ply` writes it. */
export function ply({ xyz, rgb, count }) {
  const colors = ["red", "green", "blue"].map((name) => `property uchar ${name}\n`).join("");
  const header = new TextEncoder().encode("ply\nformat binary_little_endian 1.0\ncomment metres; x right, y down, z forward\n"
    + `element vertex ${count}\nproperty float x\nproperty float y\nproperty float z\n${colors}end_header\n`);
  const body = new DataView(new ArrayBuffer(15 * count));
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < 3; k++) {
      body.setFloat32(15 * i + 4 * k, xyz[3 * i + k], true);
      body.setUint8(15 * i + 12 + k, rgb[3 * i + k]);
    }
  }
  return new Blob([header, body]);
}

export class CloudView {
  /** Throws where the browser has no WebGL. */
  constructor(canvas) {
    this.canvas = canvas;
    this.gl = canvas.getContext("webgl", { preserveDrawingBuffer: true });
    if (!this.gl) throw new Error("this browser has no WebGL");
    this.program = link(this.gl);
    [this.yaw, this.pitch, this.distance] = [0.3, 0.1, 1.2]; // from aside, so that depth shows
    this.count = 0;
    this.pointers = new Map();
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, [event.clientX, event.clientY]);
    });
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(event.deltaY / 600));
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = [event.clientX, event.clientY], others = [...this.pointers].filter(([id]) => id !== event.pointerId);
    if (others.length === 1) {
      const apart = ([x, y]) => Math.hypot(x - others[0][1][0], y - others[0][1][1]);
      this.zoom(Math.max(1, apart(before)) / Math.max(1, apart(now)));
    } else this.turn((now[0] - before[0]) / 200, (now[1] - before[1]) / 200);
    this.pointers.set(event.pointerId, now);
  }

  key(event) {
    const turns = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
    const zooms = { "+": 0.9, "-": 1.1 };
    if (turns[event.key]) this.turn(...turns[event.key]);
    else if (zooms[event.key]) this.zoom(zooms[event.key]);
    else return;
    event.preventDefault();
  }

  turn(yaw, pitch) {
    this.yaw += yaw;
    this.pitch = Math.min(1.5, Math.max(-1.5, this.pitch + pitch));
    this.draw();
  }

  zoom(factor) {
    this.distance = Math.min(8, Math.max(0.1, this.distance * factor));
    this.draw();
  }

  /** `focal` in pixels of the image that the points are from. */
  set({ xyz, rgb, count }, focal, [height, width]) {
    const gl = this.gl;
    const depths = Float32Array.from({ length: count }, (_, i) => xyz[3 * i + 2]).sort();
    this.depth = depths[count >> 1] || 1;
    Object.assign(this, { focal, height, width, count });
    for (const [name, data, type, normalized] of [["place", xyz, gl.FLOAT, false], ["color", rgb, gl.UNSIGNED_BYTE, true]]) {
      this[name] ??= gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, this[name]);
      gl.bufferData(gl.ARRAY_BUFFER, data, gl.STATIC_DRAW);
      const at = gl.getAttribLocation(this.program, name);
      gl.enableVertexAttribArray(at);
      gl.vertexAttribPointer(at, 3, type, normalized, 0, 0);
    }
    this.draw();
  }

  draw() {
    const { gl, canvas } = this, ratio = Math.min(2, devicePixelRatio || 1);
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.clearColor(0.08, 0.095, 0.12, 1);
    gl.enable(gl.DEPTH_TEST);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    if (!this.count) return;
    const aspect = canvas.width / canvas.height, zoom = Math.min(1, aspect * this.height / this.width); // all of it is seen
    const uniform = (name) => gl.getUniformLocation(this.program, name);
    gl.uniform3f(uniform("middle"), 0, 0, this.depth);
    gl.uniform4f(uniform("turn"), Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.pitch), Math.sin(this.pitch));
    gl.uniform2f(uniform("zoom"), this.depth * this.distance, zoom * 2 * this.focal / this.height);
    gl.uniform1f(uniform("aspect"), aspect);
    gl.uniform1f(uniform("dotSize"), 1.4 * zoom * canvas.height / this.height);
    gl.drawArrays(gl.POINTS, 0, this.count);
  }
}

function link(gl) {
  const program = gl.createProgram();
  for (const [type, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(type);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  gl.useProgram(program);
  return program;
}
