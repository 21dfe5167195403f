"""`densevit predict`: arguments, exit codes and messages. The checkpoint is a stand-in that loads at once."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh
from PIL import Image
from shell import Shell
from torch import nn
from toy_models import MeanColour

from densevit import api
from densevit.api.checkpoint import predictor_options
from densevit.data.io.readers import read_depth
from densevit.errors import DataError
from densevit.inference.predictor import Predictor
from densevit.inference.writers import DEPTH_FORMATS
from densevit.model_card import HeadSpec, ModelCard


def stand_in(monkeypatch: pytest.MonkeyPatch, model: nn.Module, spec: HeadSpec) -> None:
    def load(path: str, family: object = None, family_options: object = None, **options: Any) -> Predictor:
        return Predictor(model, ModelCard(outputs={"depth": spec}, multiple=1), **predictor_options(**options))

    monkeypatch.setattr(api, "load", load)


@pytest.fixture(autouse=True)
def loads(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, MeanColour(), HeadSpec(kind="metric"))


def command(given: Path, output: Path, *words: object) -> list[object]:
    return ["predict", "checkpoint", given, "--output", output, *words]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i, name in enumerate(("a.jpg", "sub/b.png")):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 8, 3), 40 * i, np.uint8)).save(path)
    return tmp_path / "in"


def test_all_formats_in_one_go(photos: Path, tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "out"
    others = {"confidence", "interval"}  # of which this model has none
    others |= {name for name, writer in DEPTH_FORMATS.components.items() if {"panoptic", "instances"} & {*writer.kinds}}
    names = sorted(DEPTH_FORMATS.components.keys() - others)
    words = ["--formats", ",".join(names), "--fov", 60, "--range", "0,2", "--cmap", "magma", "--scale", 500]
    assert "2 images in" in shell(*command(photos, out, *words)).out
    made = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    suffixes = [".png", ".npy", ".npz", ".pfm", ".h5", ".color.png", ".ply"]
    suffixes += [".normals.png", ".normals.npy", ".normals.exr", ".glb", ".obj", ".viewer.html"]
    assert made == {name + suffix for name in ("a", "sub/b") for suffix in suffixes} | {"export.json", "outputs.jsonl"}
    np.testing.assert_allclose(read_depth(out / "a.png"), 1.0, atol=1e-6)


@pytest.mark.slow
def test_another_program_writes_the_same_maps_and_is_named(photos: Path, tmp_path: Path, shell: Shell) -> None:
    for runtime in ("torch", "openvino"):
        told = shell(*command(photos, tmp_path / runtime, "--runtime", runtime, "--precision", "fp32")).err
    np.testing.assert_array_equal(read_depth(tmp_path / "openvino/sub/b.png"), read_depth(tmp_path / "torch/sub/b.png"))
    assert "2 images on cpu in fp32 by openvino" in told


ONE_CAMERA = "one of --focal, --fov and --intrinsics"
WRONG = [
    (["--formats", "png"], "--formats: no format 'png'. Did you mean 'png16'"),
    (["--formats", "yollo"], "--formats: no format 'yollo'. Did you mean 'yolo'"),
    (["--fov", "60", "--range", "0,1"], "--range is for color or mp4, which --formats does not name."),
    (["--formats", "ply"], "no focal length is known"),
    (["--formats", "normals"], "no focal length is known"),
    (["--axes", "dsine"], "--axes is for normals or normals_npy or normals_exr"),
    (["--formats", "color", "--cmap", "jet"], "cmap: input should be 'turbo'"),
    (["--device", "cuda:99"], "device"),
    (["--intrinsics", "1,2"], "'1,2', which is neither fx,fy,cx,cy in pixels nor a file"),
    (["--intrinsics", "0,1,1,1"], "--intrinsics: fx, fy, cx, cy in pixels above 0"),
    (["--intrinsics", "1,1,1,nan"], "--intrinsics: fx, fy, cx, cy in pixels above 0"),
    (["--heads", "sky"], "no head 'sky'"),
    (["--tile-overlap", "0.3"], "belongs to --tile-size"),
    (["--formats", "ply", "--fov", "60", "--intrinsics", "1,1,1,1"], ONE_CAMERA),
    (["--focal", "60", "--intrinsics", "1,1,1,1"], ONE_CAMERA),
    (["--formats", "ply", "--intrinsics", "nowhere.csv"], "nowhere.csv"),
    (["--focal", "0.1"], "a.jpg: a focal length of 0.1 pixels is a field of view of 177 degrees across 8 pixels"),
    (["--fov", "177"], "--fov: 177; would fit: degrees between 0.5 and 170"),
    (["--intrinsics", "0.1,0.1,4,3"], "a.jpg: a focal length of 0.1 pixels"),
    (["--fuse"], "--fuse: belongs to --stabilize."),
    (["--no-fuse"], "--fuse: belongs to --stabilize."),
    (["--lookahead", "0"], "--lookahead: belongs to --stabilize."),
    (["--fps", "0"], "make no video"),
    (["--stabilize", "--lookahead", "-1"], "--lookahead: -1 frames"),
    (["--start", "3", "--end", "1"], "seconds are 0 <= start <= end"),
    (["--formats", "mp4", "--fps", "0"], "make no video"),
]


def test_wrong_arguments_end_with_exit_code_2_and_nothing_written(photos: Path, tmp_path: Path, shell: Shell) -> None:
    for words, message in WRONG:
        assert message in shell.refused(*command(photos, tmp_path / "out", *words))
        assert not (tmp_path / "out").exists()
    for words in (["--batch-size", "0"], ["--batch", "2"], ["--formats", ","], ["--range", "a,b"]):  # never guessed
        shell.refused(*command(photos, tmp_path / "out", *words))


def test_tiles_are_an_option_and_noted_in_the_record(photos: Path, tmp_path: Path, shell: Shell) -> None:
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "large.png")
    out = tmp_path / "out"
    shell(*command(tmp_path / "large.png", out, "--tile-size", 32))
    np.testing.assert_allclose(read_depth(out / "large.png"), 1 + image.mean(-1) / 255, atol=0.1)
    assert '"side": 32' in (out / "export.json").read_text()


def photo(path: Path, size: tuple[int, int] = (6, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((*size, 3), 90, np.uint8)).save(path, "PNG")
    return path


def test_names_that_are_not_utf8_are_exported_and_their_faults_can_be_printed(
    photos: Path, tmp_path: Path, shell: Shell
) -> None:
    photo(photos / os.fsdecode(b"caf\xe9.png"))
    (photos / os.fsdecode(b"bad\xff.png")).write_bytes(b"no image")
    said = shell(*command(photos, tmp_path / "out", "--formats", "npy"), code=3).out
    assert "bad?.png: " in said and said.encode()
    made = {os.fsencode(path.name) for path in (tmp_path / "out").rglob("*.npy")}
    assert made == {b"a.npy", b"b.npy", b"caf\xe9.npy"}
    (failed,) = json.loads((tmp_path / "out/failed.json").read_bytes())["failed"]
    assert os.fsencode(failed["image"]) == os.fsencode(photos / os.fsdecode(b"bad\xff.png"))


def test_videos_and_images_of_formats_that_are_not_read_are_counted(photos: Path, tmp_path: Path, shell: Shell) -> None:
    for name in ("x.jxl", "sub/y.jxl", "z.psd", "film.mp4", "notes.txt"):
        (photos / name).write_bytes(b"")
    said = shell(*command(photos, tmp_path / "out")).out
    assert "left out, not read as images: 2 .jxl, 1 .mp4, 1 .psd." in said
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.jxl").write_bytes(b"")
    said = shell.refused(*command(tmp_path / "other", tmp_path / "none"))
    assert "holds no image" in said and "1 .jxl" in said


def test_intrinsics_hold_for_images_of_the_size_of_the_first(photos: Path, tmp_path: Path, shell: Shell) -> None:
    photo(photos / "c.png", (12, 16))
    arguments = ["--formats", "ply", "--intrinsics", "8,8,4,3"]
    told = shell(*command(photos, tmp_path / "out", *arguments), code=3).out
    assert "c.png: intrinsics: given for images of 6x8, this one is 12x16; a CSV" in told
    assert {path.name for path in (tmp_path / "out").rglob("*.ply")} == {"a.ply", "b.ply"}
    camera = json.loads((tmp_path / "out/export.json").read_text())["intrinsics"]
    given = {name: value for name, value in camera.items() if value}
    assert given == {"fx": 8, "fy": 8, "cx": 4, "cy": 3, "size": [6, 8]}


def test_a_table_gives_each_image_its_own_camera(photos: Path, tmp_path: Path, shell: Shell) -> None:
    table = tmp_path / "cameras.csv"
    table.write_text("image,name,fx,fy,cx,cy\nin/a.jpg,,8,8,4,3\n,sub/b,16,16,4,3\n")
    words = ["--formats", "ply", "--intrinsics", table]
    shell(*command(photos, tmp_path / "out", *words))
    near, far = (trimesh.load(tmp_path / "out" / name).vertices for name in ("a.ply", "sub/b.ply"))
    # By hand: the first pixel lies at column -4, row -3 of the principal point, at a depth of 1 (the image is black).
    np.testing.assert_allclose(near[0], [-4 / 8, -3 / 8, 1], atol=1e-2)
    np.testing.assert_allclose(far[0] / far[0][2], [-4 / 16, -3 / 16, 1], atol=1e-6)
    photo(photos / "c.png")
    assert "no camera for 1 of 3 images" in shell.refused(*command(photos, tmp_path / "none", *words))
    assert not (tmp_path / "none").exists()
    table.write_text("image,fx,fy\nin/a.jpg,8,8\n")
    told = shell.refused(*command(photos, tmp_path / "none", *words))
    assert "cameras.csv:2: intrinsics need four numbers" in told


def test_focal_lengths_of_a_table_reach_models_whose_metres_depend_on_them(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    stand_in(monkeypatch, MeanColour(gain=0.0), HeadSpec(kind="metric", focal=100.0))  # depth is 1 everywhere
    (tmp_path / "cameras.csv").write_text("image,fx,fy,cx,cy\nin/a.jpg,200,200,4,3\nin/sub/b.png,50,50,4,3\n")
    words = ["--formats", "npy", "--intrinsics", tmp_path / "cameras.csv", "--batch-size", 2]
    shell(*command(photos, tmp_path / "out", *words))
    assert np.load(tmp_path / "out/a.npy").mean() == pytest.approx(2.0)  # depth times focal length over 100
    assert np.load(tmp_path / "out/sub/b.npy").mean() == pytest.approx(0.5)


def test_of_an_animation_the_first_image_is_exported_and_the_summary_says_so(
    photos: Path, tmp_path: Path, shell: Shell
) -> None:
    frames = [Image.fromarray(np.full((6, 8), value, np.uint8)) for value in (0, 255)]
    frames[0].save(photos / "moving.gif", save_all=True, append_images=frames[1:])
    said = shell(*command(photos, tmp_path / "out"))
    assert f"{photos / 'moving.gif'}: holds several images (an animation, or pages); the first is read" in said.out
    assert "several images" not in said.err  # once
    np.testing.assert_allclose(read_depth(tmp_path / "out/moving.png"), 1.0, atol=1e-6)


def test_a_fifo_is_a_fault_of_one_image_and_never_waited_for(photos: Path, tmp_path: Path, shell: Shell) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "list.txt").write_text("in/a.jpg\npipe.jpg\n")
    os.mkfifo(photos / "pipe.jpg")  # in a list and in a folder alike
    for given in (tmp_path / "list.txt", photos):
        told = shell(*command(given, tmp_path / "out" / given.name), code=3).out
        assert "pipe.jpg: is a FIFO" in told.replace("'", "")
    with pytest.raises(DataError, match="not a regular file"):
        api.load("checkpoint")(tmp_path / "pipe.jpg")


def test_a_folder_of_frames_becomes_a_clip_when_asked(tmp_path: Path, shell: Shell) -> None:
    for i in range(5):
        photo(tmp_path / f"walk/{i}.png", (48, 64))
    words = ["--formats", "npz_clip", "--stabilize", "--fov", 70]
    assert "5 frames of 1 clip" in shell(*command(tmp_path / "walk", tmp_path / "out", *words)).out
    assert np.load(tmp_path / "out/walk.depth.npz")["depth"].shape == (5, 48, 64)
