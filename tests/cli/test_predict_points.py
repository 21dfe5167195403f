"""`predict --points`: measured points in files of three kinds."""

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from jaxtyping import Float
from PIL import Image
from shell import Shell
from toy_models import MeanColour, toy_predictor

from densevit import api
from densevit.errors import DataError
from densevit.inference.predict.point_files import read_ply_points

H, W = 24, 32


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Images whose brightness is the disparity that the model gives."""
    monkeypatch.setattr(api, "load", lambda path, **options: toy_predictor(MeanColour(nearest=0.0), "disparity"))
    (tmp_path / "in").mkdir()
    for name in "ab":
        Image.fromarray(np.tile(np.linspace(50, 250, W).astype(np.uint8), (H, 1))).save(tmp_path / f"in/{name}.png")
    return tmp_path


def truth() -> Float[np.ndarray, "h w"]:
    """Depth of which the image shows the disparity: 1 / (0.5 brightness + 0.1)."""
    brightness = np.linspace(50, 250, W).astype(np.uint8) / 255
    return np.broadcast_to(1 / (0.5 * brightness + 0.1), (H, W)).copy()


def some(count: int = 30) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    u, v = draw.integers(0, W, count), draw.integers(0, H, count)
    return u, v, truth()[v, u]


def rows(prefix: str = "") -> str:
    return "".join(f"{prefix}{u},{v},{depth:.6f}\n" for u, v, depth in zip(*some(), strict=True))


def ply(path: Path, points: np.ndarray, binary: bool = True) -> None:
    layout = "binary_little_endian" if binary else "ascii"
    lines = [
        f"property {kind} {name}" for kind, name in (("float", "x"), ("double", "y"), ("float", "z"), ("uchar", "r"))
    ]
    head = "\n".join(["ply", f"format {layout} 1.0", f"element vertex {len(points)}", *lines, "end_header", ""])
    fields = np.dtype([("x", "<f4"), ("y", "<f8"), ("z", "<f4"), ("r", "u1")])
    table = np.zeros(len(points), fields)
    for i, axis in enumerate("xyz"):
        table[axis] = points[:, i]
    text = "".join(f"{x} {y} {z} 7\n" for x, y, z in points).encode()
    path.write_bytes(head.encode() + (table.tobytes() if binary else text))


def command(photos: Path, *words: object) -> list[object]:
    return ["predict", "checkpoint", *words, "--formats", "npy", "--output", photos / "out"]


def test_a_relative_map_becomes_metres_by_a_table(photos: Path, shell: Shell) -> None:
    (photos / "p.csv").write_text("u,v,depth\n" + rows())
    said = shell(*command(photos, photos / "in/a.png", "--points", photos / "p.csv")).out
    np.testing.assert_allclose(np.load(photos / "out/a.npy"), truth(), rtol=1e-3)
    assert "points an image; off by 0.0% at points that are left out" in said


def test_of_few_points_no_error_is_claimed(photos: Path, shell: Shell) -> None:
    (photos / "p.csv").write_text("u,v,depth\n" + "".join(rows().splitlines(keepends=True)[:4]))
    said = shell(*command(photos, photos / "in/a.png", "--points", photos / "p.csv")).out
    assert "4 points an image, too few to tell how far off the maps are" in said


def test_points_are_refused_where_nothing_is_made_of_depth(
    photos: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were left out without a word."""
    monkeypatch.setattr(api, "load", lambda path, **options: toy_predictor(kind="normals"))
    (photos / "p.csv").write_text("u,v,depth\n" + rows())
    words = ["predict", "checkpoint", photos / "in/a.png", "--formats", "normals", "--output", photos / "out"]
    told = shell.refused(*words, "--points", photos / "p.csv")
    assert "--points: brings depth to metres; normals are not made of depth" in told


def test_one_table_serves_several_images_by_path_or_name(photos: Path, shell: Shell) -> None:
    (photos / "p.csv").write_text("image,name,u,v,depth\n" + rows("in/a.png,,") + rows(",b,"))
    shell(*command(photos, photos / "in", "--points", photos / "p.csv"))
    for name in "ab":
        np.testing.assert_allclose(np.load(photos / f"out/{name}.npy"), truth(), rtol=1e-3)


def test_a_folder_holds_lidar_maps_and_clouds(photos: Path, shell: Shell) -> None:
    u, v, depth = some()
    lidar = np.full((H, W), 65535, np.uint16)  # not measured, as 0 is
    lidar[::2] = 0
    lidar[v, u] = np.round(depth * 5000)
    (photos / "points").mkdir()
    cv2.imwrite(str(photos / "points/a.png"), lidar)
    camera = np.array([[30.0, 0, 15.5], [0, 30, 11.5], [0, 0, 1]])
    seen = np.linalg.inv(camera) @ np.stack([u * depth, v * depth, depth])
    # The LiDAR looks along its x axis: its x, y, z are the camera's z, -x, -y; and it sits 0.2 m above.
    pose = np.array([[0, -1, 0, 0], [0, 0, -1, 0.2], [1, 0, 0, 0], [0, 0, 0, 1.0]])
    np.savetxt(photos / "pose.txt", pose)
    behind = seen[:, :3] * [[1], [1], [-1]]
    hidden = seen * 1.5  # on the same rays, further away
    cloud = np.linalg.inv(pose) @ np.concatenate([np.concatenate([seen, behind, hidden], 1), np.ones((1, 63))])
    ply(photos / "points/b.ply", cloud[:3].T)
    words = ["--points", photos / "points", "--points-scale", 5000, "--points-pose", photos / "pose.txt"]
    shell(*command(photos, photos / "in", *words, "--intrinsics", "30,30,15.5,11.5"))
    for name in "ab":
        np.testing.assert_allclose(np.load(photos / f"out/{name}.npy"), truth(), rtol=5e-3)


@pytest.mark.parametrize("binary", [True, False])
def test_points_of_a_ply_file_are_read_whatever_else_it_holds(tmp_path: Path, binary: bool) -> None:
    points = np.array([[1.0, 2.0, 3.0], [-4.0, 5.5, 6.25]])
    ply(tmp_path / "a.ply", points, binary)
    np.testing.assert_array_equal(read_ply_points(tmp_path / "a.ply"), points)
    content = (tmp_path / "a.ply").read_bytes()
    (tmp_path / "b.ply").write_bytes(content[: -9 if binary else content[:-1].rindex(b"\n")])  # one vertex is missing
    (tmp_path / "c.ply").write_bytes(b"nothing")
    for name, fault in (("b", "is damaged"), ("c", "no PLY file"), ("d", "no such file")):
        with pytest.raises(DataError, match=rf"{name}.ply: {fault}"):
            read_ply_points(tmp_path / f"{name}.ply")


@pytest.mark.parametrize(
    "element",
    ["element", "element vertex", "element vertex three", "element vertex 9" + 30 * "0", "element vertex 1\nproperty"],
)
def test_a_ply_whose_header_is_damaged_is_refused(element: str, tmp_path: Path) -> None:
    """It ended with a traceback."""
    axes = "\n".join(f"property float {axis}" for axis in "xyz")
    (tmp_path / "a.ply").write_text(f"ply\nformat binary_little_endian 1.0\n{element}\n{axes}\nend_header\n1 2 3\n")
    with pytest.raises(DataError, match="a.ply: is damaged"):
        read_ply_points(tmp_path / "a.ply")


def test_a_ply_may_have_lines_that_end_as_on_windows(tmp_path: Path) -> None:
    ply(tmp_path / "a.ply", np.array([[1.0, 2, 3]]), binary=False)
    content = (tmp_path / "a.ply").read_bytes()
    (tmp_path / "a.ply").write_bytes(content.replace(b"\n", b"\r\n"))
    np.testing.assert_array_equal(read_ply_points(tmp_path / "a.ply"), [[1, 2, 3]])


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("u,v,depth\n1,2,nan\n", "p.csv:2: u 1, v 2, depth nan: a point has a depth over 0"),
        ("u,v,depth\n1,2,0\n", "p.csv:2: u 1, v 2, depth 0: a point has a depth over 0"),
        ("u,v,depth\n40,2,1\n", "p.csv:2: u 40, v 2 lies outside"),
        ("u,v\n1,2\n", "p.csv:2: needs numbers u, v and depth"),
        ("u,v,depth\n", "p.csv: no points of"),
    ],
)
def test_points_that_cannot_be_are_refused_before_anything_is_written(
    photos: Path, table: str, fault: str, shell: Shell
) -> None:
    (photos / "p.csv").write_text(table)
    assert fault in shell.refused(*command(photos, photos / "in/a.png", "--points", photos / "p.csv"))
    assert not (photos / "out").exists()


def test_missing_files_and_cameras_are_named(photos: Path, shell: Shell) -> None:
    def refused(*words: object) -> str:
        return shell.refused(*command(photos, *words))

    image = photos / "in/a.png"
    assert "no.csv: no such file" in refused(image, "--points", photos / "no.csv")
    assert "belong to --points" in refused(image, "--points-scale", 1000)
    assert "a.png: no points; looked for" in refused(image, "--points", photos / "in" / "..")
    (photos / "in/p.csv").write_text("name,u,v,depth\nb,1,2,1\n")
    (photos / "in/c.png").write_bytes(image.read_bytes())
    told = refused(photos / "in", "--points", photos / "in/p.csv")
    assert "a.png. Its rows are of b. A row has an `image`, as a path" in told
    ply(photos / "p.ply", np.ones((3, 3)))
    assert "points of a cloud need the camera" in refused(image, "--points", photos / "p.ply")
    assert not (photos / "out").exists() and torch.is_grad_enabled()
