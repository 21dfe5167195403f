"""Point clouds, meshes, normals and the viewer, read back by trimesh, from the page's own text, and by a browser."""

import base64
import json
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import trimesh
from PIL import Image
from test_depth_and_label_writers import output

from densevit.data.io.normals import read_normals
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import Intrinsics
from densevit.inference.writers import DEPTH_FORMATS, PredictedMap
from densevit.model_card import HeadSpec
from densevit.ops.geometry import backproject, pinhole

SIZE = (24, 32)
CAMERA = Intrinsics(30.0, 31.0, 15.0, 12.0)
K = pinhole(30.0, 31.0, 15.0, 12.0)
NORMAL = np.array([0.3, -0.2, -1]) / np.linalg.norm([0.3, -0.2, -1])
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def frame(kind: str = "metric") -> PredictedMap:
    """A plane, its first rows unknown, the right half uncertain."""
    values = -2 / (backproject(np.ones(SIZE), K) @ NORMAL)
    values[:2] = np.nan
    return PredictedMap(
        values=values.astype(np.float32),
        image=np.random.default_rng(0).integers(0, 256, (*SIZE, 3), np.uint8),
        spec=HeadSpec(kind=kind),  # type: ignore[arg-type]
        camera=CAMERA,
        uncertainty=np.where(np.arange(32) < 16, 0.01, 1.0).astype(np.float32) * np.ones(SIZE, np.float32),
    )


def test_a_cloud_has_normals_and_leaves_out_what_is_uncertain(tmp_path: Path) -> None:
    output("ply", normals=True, min_confidence=0.5).write(tmp_path / "a.ply", frame())
    cloud = trimesh.load(tmp_path / "a.ply")
    assert len(cloud.vertices) == 22 * 16
    raw = (tmp_path / "a.ply").read_bytes()
    header, _, body = raw.partition(b"end_header\n")
    assert b"property float nx" in header and b"comment metres" in header
    rows = np.frombuffer(body, [(name, "<f4") for name in ("x", "y", "z", "nx", "ny", "nz")] + [("rgb", "u1", 3)])
    np.testing.assert_allclose(np.stack([rows["nx"], rows["ny"], rows["nz"]], 1), np.tile(NORMAL, (352, 1)), atol=1e-4)
    np.testing.assert_array_equal(rows["rgb"], frame().image[2:, :16].reshape(-1, 3))


@pytest.mark.parametrize("name", ["glb", "obj"])
def test_a_mesh_opens_elsewhere_with_its_colours_facing_the_viewer(tmp_path: Path, name: str) -> None:
    output(name).write(tmp_path / f"a.{name}", frame())
    mesh = trimesh.load(tmp_path / f"a.{name}", force="mesh", process=False)
    assert len(mesh.vertices) == 22 * 32 and len(mesh.faces) == 2 * 21 * 31
    expected = backproject(frame().values, K)[2:].reshape(-1, 3) * [1, -1, -1]  # right, up, back
    np.testing.assert_allclose(mesh.vertices, expected, atol=1e-5)
    np.testing.assert_allclose(mesh.face_normals, np.tile(NORMAL * [1, -1, -1], (len(mesh.faces), 1)), atol=1e-3)
    if name == "glb":  # a texture is sRGB; a colour per vertex would be linear, and shown pale
        texture, uv = mesh.visual.material.baseColorTexture, mesh.visual.uv
        columns, rows = (uv * [1, -1] + [0, 1]).T * np.array(texture.size)[:, None] - 0.5
        colours = np.asarray(texture.convert("RGB"))[np.rint(rows).astype(int), np.rint(columns).astype(int)]
        assert np.abs(rows - np.rint(rows)).max() < 1e-4 and mesh.visual.material.metallicFactor == 0
        content = (tmp_path / "a.glb").read_bytes()  # JSON from byte 20 on; its length stands at byte 12
        tree = json.loads(content[20 : 20 + int.from_bytes(content[12:16], "little")])
        assert tree["extensionsUsed"] == ["KHR_materials_unlit"] == list(tree["materials"][0]["extensions"])
    else:
        colours = mesh.visual.vertex_colors[:, :3]
    np.testing.assert_array_equal(colours, frame().image[2:].reshape(-1, 3))
    unknown = output(name).encode(replace(frame(), values=np.full(SIZE, np.nan, np.float32)))  # ended a whole export
    assert len(unknown) < 1000


@pytest.mark.parametrize("kind", ["affine", "disparity"])
def test_maps_without_unit_need_an_assumption_and_the_file_says_it(tmp_path: Path, kind: str) -> None:
    for name in ("ply", "glb", "obj", "viewer"):
        with pytest.raises(ConfigError, match=f"format {name}: needs metric depth.*--assume-depth NEAR,FAR"):
            output(name).check(HeadSpec(kind=kind))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="this model gives metres"):
        output("ply", assume_depth=(1, 8)).check(HeadSpec(kind="metric"))
    values = np.tile(np.linspace(0, 1, 32, dtype=np.float32), (24, 1))
    given = replace(frame(kind), values=values)
    output("ply", assume_depth=(1, 8)).write(tmp_path / "a.ply", given)
    raw = (tmp_path / "a.ply").read_bytes()
    assert b"comment metres if the depth runs from 1 to 8 m, which was assumed" in raw
    depth = np.sort(trimesh.load(tmp_path / "a.ply").vertices[:, 2])
    # The ends are the 2nd and 98th percentile, between which depth or inverse depth is linear.
    middle = 4.5 if kind == "affine" else 2 / (1 + 1 / 8)
    assert np.interp(0.5, np.linspace(0, 1, len(depth)), depth) == pytest.approx(middle, rel=0.05)
    assert 0.7 < depth.min() < 1.1 and depth.max() > 7.9


def test_confidence_is_stored_as_a_share_of_65535(tmp_path: Path) -> None:
    scale = np.full(SIZE, np.log(1.25), np.float32)
    scale[0] = np.nan
    output("confidence").write(tmp_path / "c.png", replace(frame(), values=scale, spec=HeadSpec(kind="uncertainty")))
    with Image.open(tmp_path / "c.png") as image:
        stored = np.asarray(image)
    assert (stored[0] == 0).all() and (stored[1:] == round((1 - np.exp(-1)) * 65535)).all()


def read_viewer(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Points and colours in a page."""
    text = path.read_text()
    stored, colors = (base64.b64decode(found) for found in re.findall(r'bytes\("([^"]*)"\)', text))
    low, scale = (json.loads(re.search(rf"{name} = (\[[^\]]*\])", text)[1]) for name in ("LOW", "SCALE"))  # type: ignore[index]
    points = np.frombuffer(stored, "<u2").reshape(-1, 3) * np.array(scale) + low
    return points, np.frombuffer(colors, np.uint8).reshape(-1, 3)


def test_the_viewer_is_one_file_that_holds_the_cloud_and_fetches_nothing(tmp_path: Path) -> None:
    output("viewer").write(tmp_path / "a.viewer.html", frame())
    points, colors = read_viewer(tmp_path / "a.viewer.html")
    expected = backproject(frame().values, K)[2:].reshape(-1, 3)
    np.testing.assert_allclose(points, expected, atol=np.ptp(expected) / 65535)
    np.testing.assert_array_equal(colors, frame().image[2:].reshape(-1, 3))
    text = (tmp_path / "a.viewer.html").read_text()
    assert not re.search(r"https?:|src=|href=|import\s|fetch\(|XMLHttpRequest|@import|url\(", text)


def test_page_and_mesh_of_a_large_image_are_thinned_to_5_mb(tmp_path: Path) -> None:
    h, w = 1500, 2000
    large = replace(
        frame(),
        values=np.full((h, w), 2.0, np.float32),
        image=np.random.default_rng(0).integers(0, 256, (h, w, 3), np.uint8),
        uncertainty=None,
        camera=Intrinsics(1500.0, 1500.0, 1000.0, 750.0),
    )
    output("viewer").write(tmp_path / "a.viewer.html", large)
    assert 3e6 < (tmp_path / "a.viewer.html").stat().st_size < 5e6
    assert "every 3. pixel" in (tmp_path / "a.viewer.html").read_text()
    output("glb").write(tmp_path / "a.glb", large)
    assert 3e6 < (tmp_path / "a.glb").stat().st_size < 5e6
    corner = backproject(large.values, np.array([[1500.0, 0, 1000], [0, 1500, 750], [0, 0, 1]]))[6, 12] * [1, -1, -1]
    assert np.abs(trimesh.load(tmp_path / "a.glb", force="mesh").vertices - corner).sum(1).min() < 1e-5


DRIVE = """
<script>
function shown() {
  draw();
  const drawn = pixels.filter(pixel => pixel !== 0xff1f1814);
  return [drawn.length, drawn.reduce((sum, pixel) => sum + pixel % 997, 0)];
}
const send = (type, options) => canvas.dispatchEvent(new PointerEvent(type, { pointerId: 1, ...options }));
canvas.setPointerCapture = () => {};
const found = { first: shown(), folded: !document.getElementById("panel").open };
share = view => { found.shared = view; };
send("pointerdown", { clientX: 100, clientY: 100, buttons: 1 });
send("pointermove", { clientX: 180, clientY: 120, buttons: 1 });
send("pointerup", {});
found.orbit = [...shown(), yaw, pitch];
document.getElementById("reset").click();
found.reset = shown();
canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: 700, cancelable: true }));
found.away = [...shown(), distance / MIDDLE];
canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
found.keyed = [found.shared[0], yaw];
dispatchEvent(new MessageEvent("message", { data: { view: [0.5, 0.25, 2, 0, 0, 1] } }));
found.linked = [yaw, pitch, distance / MIDDLE, target[2] / MIDDLE];
depths.fill(Infinity);
depths[0] = 2; depths[3] = 5; pixels[0] = 7; pixels[3] = 9; // a gap of two pixels beside 9, which is farther
closeGaps(1, 0, 60, 1);
found.closed = Array.from(pixels.subarray(0, 4));
const result = document.createElement("pre");
result.id = "found";
result.textContent = JSON.stringify(found);
document.body.append(result);
</script>
</body>
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_browser_shows_the_cloud_orbits_and_zooms(tmp_path: Path) -> None:
    page = tmp_path / "a.viewer.html"
    output("viewer").write(page, frame())
    page.write_text(page.read_text().replace("</body>", DRIVE))
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=390,700", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', done.stdout)[1])  # type: ignore[index]
    assert found["first"][0] > 50_000 and found["reset"] == found["first"]
    assert found["orbit"][1] != found["first"][1] and found["orbit"][2] == pytest.approx(0.18)
    assert found["orbit"][3] == pytest.approx(-0.24)
    assert found["away"][2] == pytest.approx(np.exp(0.7)) and found["away"][0] < 0.5 * found["first"][0]
    assert found["folded"] and found["closed"] == [7, 9, 9, 9]
    assert found["keyed"] == pytest.approx([-0.18, -0.18])  # by an arrow key, and told the other clouds of the page
    assert found["linked"] == [0.5, 0.25, 2, 1]


def with_gap(values: np.ndarray, spec: HeadSpec) -> PredictedMap:
    values[..., :2, :] = np.nan
    image = np.zeros((*SIZE, 3), np.uint8)
    return PredictedMap(values=values.astype(np.float32), image=image, spec=spec, camera=CAMERA)


def depth() -> PredictedMap:
    rays = backproject(np.ones(SIZE), pinhole(30.0, 31.0, 15.0, 12.0))
    return with_gap(-2 / (rays @ NORMAL), HeadSpec(kind="metric"))


def normals() -> PredictedMap:
    return with_gap(np.tile(NORMAL[:, None, None], (1, *SIZE)), HeadSpec(kind="normals", unit=""))


@pytest.mark.parametrize("name", ["normals", "normals_npy", "normals_exr"])
def test_normals_come_back(tmp_path: Path, name: str) -> None:
    for map_, axes in product((depth(), normals()), ("opencv", "dsine")):
        writer = DEPTH_FORMATS.check({"type": name, "axes": axes}, "format").build()
        path = tmp_path / f"a{writer.suffix}"
        writer.write(path, map_)
        read = read_normals(path, axes)
        assert not read[:2].any()
        np.testing.assert_allclose(read[2:].reshape(-1, 3), np.tile(NORMAL, (22 * 32, 1)), atol=2e-4)
        if axes == "dsine":
            with pytest.raises(DataError, match="point away from the camera if its axes are opencv"):
                read_normals(path)
