"""Formats for depth and classes, read back by Pillow, OpenCV, h5py and trimesh, or by the readers of data sets."""

import json
from dataclasses import replace
from pathlib import Path

import cv2
import h5py
import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from densevit.api.prediction import build_writer
from densevit.data.io.readers import read_depth, read_values
from densevit.data.labels.class_lists import read_classes
from densevit.depth_corrections import Interval
from densevit.errors import ConfigError, DataError, StorageError
from densevit.inference.camera import Intrinsics, Lens
from densevit.inference.predictor import Predictor
from densevit.inference.writers import DEPTH_FORMATS, LABEL_FORMATS, MapWriter, PredictedMap
from densevit.inference.writers.labels import CLASSES, LEGEND
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.colors import BACKGROUND, usual_palette
from densevit.structures import IGNORE

METRIC = HeadSpec(kind="metric", range=(1e-3, 10.0))
DISPARITY = HeadSpec(kind="disparity", unit="")


def output(name: str, **options: object) -> MapWriter:
    return build_writer(name, options)


def frame(values: np.ndarray | None = None, spec: HeadSpec = METRIC) -> PredictedMap:
    rng = np.random.default_rng(0)
    values = rng.uniform(0.01, 10, (24, 31)).astype(np.float32) if values is None else values.astype(np.float32)
    return PredictedMap(values=values, image=rng.integers(0, 256, (*values.shape, 3), dtype=np.uint8), spec=spec)


def test_png16_holds_metres_to_half_a_unit_for_every_reader(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    assert output("png16").write(path, frame()) == 0
    assert np.abs(read_depth(path) - frame().values).max() <= 0.5 / 1000 + 1e-6  # float32 at 10 m
    output("png16", scale=256).write(path, frame(np.array([[1.0, 2.5], [0.25, 255.0]])))
    stored = [[256, 640], [64, 65280]]  # by hand: x 256
    np.testing.assert_array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), stored)
    with Image.open(path) as image:
        np.testing.assert_array_equal(np.asarray(image), stored)
        assert image.text == {"depth_kind": "metric", "depth_scale": "256", "depth_unit": "m"}
    # Rounded to the nearest; what 16 bits do not hold is counted and not valid.
    values = np.array([[0.0014, 0.0016, 65.6, 1e-5, np.nan, np.inf, 0.0, -1.0, 65.535]])
    assert output("png16", scale=1000).write(path, frame(values)) == 2  # 65.6 m and 0.01 mm
    np.testing.assert_array_equal(cv2.imread(str(path), cv2.IMREAD_UNCHANGED), [[1, 2, 0, 0, 0, 0, 0, 0, 65535]])


SCALES = {10.0: "1000", 65.0: "1000", 80.0: "256", 255.0: "256", 1000.0: "65.534999999999997", np.inf: "256"}


def test_the_scale_of_png16_follows_the_range_of_the_model(tmp_path: Path) -> None:
    for furthest, scale in SCALES.items():
        spec = HeadSpec(kind="metric", range=(1e-3, furthest))
        output("png16").write(tmp_path / "a.png", frame(np.array([[1.0]]), spec))
        with Image.open(tmp_path / "a.png") as image:
            assert image.text["depth_scale"] == scale


def test_png16_of_disparity_spreads_over_16_bits_and_nobody_reads_it_or_h5_as_metres(tmp_path: Path) -> None:
    values = np.array([[-3.0, 0.0, 5.0, np.nan]])
    output("png16").write(tmp_path / "a.png", frame(values, DISPARITY))
    with Image.open(tmp_path / "a.png") as image:
        stored = np.asarray(image).astype(np.float64)
        scale, offset = (float(image.text[f"value_{key}"]) for key in ("scale", "offset"))
        assert image.text["depth_kind"] == "disparity" and "depth_scale" not in image.text
    assert stored.tolist()[0][0] == 1 and stored.tolist()[0][2:] == [65535, 0]
    np.testing.assert_allclose(stored[0, :3] / scale + offset, values[0, :3], atol=0.5 * 8 / 65534)
    np.testing.assert_allclose(read_values(tmp_path / "a.png"), values, atol=0.5 * 8 / 65534)  # as evaluations do
    output("h5").write(tmp_path / "a.h5", frame(values, DISPARITY))
    np.testing.assert_array_equal(read_values(tmp_path / "a.h5"), values.astype(np.float32))
    for name in ("a.png", "a.h5"):
        with pytest.raises(DataError, match="no metres, .*--prediction-type affine or disparity"):
            read_depth(tmp_path / name)
    assert read_depth(tmp_path / "a.h5", 1).tolist() == [[0, 0, 5, 0]]  # of a source whose `truth` is disparity


def test_png16_of_a_flat_or_empty_relative_map_is_no_division_by_zero(tmp_path: Path) -> None:
    for values in (np.full((2, 2), 4.0), np.full((2, 2), np.nan)):
        output("png16").write(tmp_path / "a.png", frame(values, DISPARITY))
        stored = cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_UNCHANGED)
        assert (stored == (1 if np.isfinite(values).all() else 0)).all()


def test_npy_npz_and_pfm_hold_the_very_floats(tmp_path: Path) -> None:
    given = frame(np.array([[1.5, np.nan], [0.0, 9.25]]))
    for name in ("npy", "npz", "pfm"):
        output(name).write(tmp_path / f"a.{name}", given)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), given.values)
    with np.load(tmp_path / "a.npz") as archive:
        np.testing.assert_array_equal(archive["depth"], given.values)
    np.testing.assert_array_equal(cv2.imread(str(tmp_path / "a.pfm"), cv2.IMREAD_UNCHANGED), given.values)
    np.testing.assert_array_equal(read_depth(tmp_path / "a.pfm"), np.nan_to_num(given.values))


def test_h5_is_compressed_checked_and_says_what_it_holds(tmp_path: Path) -> None:
    given = frame()
    output("h5").write(tmp_path / "a.h5", given)
    with h5py.File(tmp_path / "a.h5") as file:
        depth = file["depth"]
        np.testing.assert_array_equal(depth[()], given.values)
        assert (depth.compression, depth.fletcher32) == ("gzip", True)
        assert (depth.attrs["kind"], depth.attrs["unit"]) == ("metric", "m")
        np.testing.assert_array_equal(depth.attrs["range"], [1e-3, 10])
    np.testing.assert_array_equal(read_depth(tmp_path / "a.h5"), given.values)


def test_color_gives_an_rgb_picture_where_near_differs_from_far(tmp_path: Path) -> None:
    path, ramp = tmp_path / "a.color.png", np.linspace(1, 9, 64).reshape(8, 8)
    output("color", range=(0, 10)).write(path, frame(ramp))
    with Image.open(path) as image:
        assert (image.mode, image.size) == ("RGB", (8, 8))
        assert image.getpixel((0, 0)) != image.getpixel((7, 7))
    for values in (np.full((3, 3), 2.0), np.full((3, 3), np.nan)):
        output("color").write(path, frame(values))
        assert cv2.imread(str(path)).shape == (3, 3, 3)


def test_ply_loads_in_trimesh_with_the_points_and_colours_of_the_pinhole_camera(tmp_path: Path) -> None:
    values = np.array([[2.0, np.nan, 4.0], [0.0, 1.0, 3.0]])
    given = replace(frame(values), camera=Intrinsics(2, 4, 1, 0.5))
    output("ply").write(tmp_path / "a.ply", given)
    cloud = trimesh.load(tmp_path / "a.ply")
    # By hand: x = (column - 1) / 2 z, y = (row - 0.5) / 4 z; row by row, invalid ones left out.
    points = [[-1, -0.25, 2], [2, -0.5, 4], [0, 0.125, 1], [1.5, 0.375, 3]]
    np.testing.assert_allclose(cloud.vertices, points, atol=1e-6)
    np.testing.assert_array_equal(cloud.colors[:, :3], given.image[[0, 0, 1, 1], [0, 2, 1, 2]])


def test_ply_of_a_field_of_view_of_90_degrees_is_as_wide_as_twice_its_distance(tmp_path: Path) -> None:
    wide = replace(frame(np.full((3, 101), 5.0)), camera=Lens(fov=90))
    output("ply").write(tmp_path / "a.ply", wide)
    x = trimesh.load(tmp_path / "a.ply").vertices[:, 0]
    # Outer pixel edges lie at +-5 m; pixel centres half a pixel (0.5 / 101 of 10 m) inside.
    np.testing.assert_allclose([x.min(), x.max()], [-5 + 5 / 101, 5 - 5 / 101], atol=1e-5)


def test_ply_refuses_images_without_a_camera_of_their_size_and_models_without_metres(tmp_path: Path) -> None:
    for camera, fault in (
        (None, "no camera is known of this image; give fov or intrinsics"),
        (Intrinsics(500, 500, 320, 240), r"principal point \(320, 240\) lies outside this image of 24x31"),
        (Intrinsics(20, 20, 15, 12, (24, 32)), "intrinsics: given for images of 24x32, this one is 24x31; a CSV"),
    ):
        with pytest.raises(DataError, match=fault):
            output("ply").write(tmp_path / "a.ply", replace(frame(), camera=camera))
    with pytest.raises(ConfigError, match="needs metric depth, but this model gives disparity"):
        output("ply").check(DISPARITY)


def test_wrong_options_are_named() -> None:
    for name, options, told in (
        ("png16", {"scale": -1}, "scale: input should be greater than 0"),
        ("color", {"range": (5, 1)}, "range is low, high"),
        ("png", {}, "no format 'png'. Did you mean 'png16'"),
    ):
        with pytest.raises(ConfigError, match=told):
            output(name, **options)


OF_SEGMENTS = {"panoptic", "instances"}
FORMATS = {name for name, writer in DEPTH_FORMATS.components.items() if not OF_SEGMENTS & {*writer.kinds}}
OF_PIXELS = HeadSpec(kind="labels", unit="", classes=("wall", "floor", "box"))


@pytest.mark.parametrize("name", sorted({*FORMATS, *LABEL_FORMATS.components}))
def test_every_format_is_whole_or_absent(tmp_path: Path, name: str) -> None:
    spec = replace(METRIC, interval=Interval(level=0.9, depths=(1.0,), factors=(2.0,), images=8, data="rooms"))
    given = replace(frame(spec=spec), camera=Lens(fov=60), uncertainty=np.full((24, 31), 0.1, np.float32))
    if name not in FORMATS:
        given = replace(given, values=np.stack([given.values] * 3), spec=OF_PIXELS)
    made = output(name)
    with pytest.raises(StorageError, match="its folder does not exist"):
        made.write(tmp_path / "none" / "a", given)
    made.write(tmp_path / "a", given)
    first = (tmp_path / "a").read_bytes()
    made.write(tmp_path / "a", given)
    assert (tmp_path / "a").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


NAMES = ("wall", "floor", "box")
SPEC = HeadSpec(kind="labels", unit="", classes=NAMES)
IDS = np.array([[0, 1, 1, 2], [2, 2, 0, 1]])


def labelled(ids: np.ndarray = IDS, spec: HeadSpec = SPEC) -> PredictedMap:
    """Logits 2 for the class and 0 for the others; NaN in the first pixel where `ids` is -1."""
    logits = 2.0 * (np.arange(len(spec.classes))[:, None, None] == ids).astype(np.float32)
    logits[:, ids < 0] = np.nan
    return PredictedMap(values=logits, image=np.full((*ids.shape, 3), 100, np.uint8), spec=spec)


def test_ids_are_a_gray_or_a_palette_png_that_opencv_and_pillow_read_alike(tmp_path: Path) -> None:
    output("labels").write(tmp_path / "a.png", labelled())
    stored = cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint8
    np.testing.assert_array_equal(stored, IDS)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), IDS)
    output("labels", palette=True).write(tmp_path / "a.png", labelled())
    with Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), IDS)
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), np.array(usual_palette(3))[IDS])
    many = HeadSpec(kind="labels", unit="", classes=tuple(map(str, range(300))))  # in 16 bits
    output("labels").write(tmp_path / "a.png", labelled(np.array([[0, 256, 299, -1]]), many))
    stored = cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint16 and stored.tolist() == [[0, 256, 299, 65535]]


def test_pixels_without_finite_logits_have_no_class(tmp_path: Path) -> None:
    lost = labelled(np.array([[-1, 1, 1, 2]]))
    for name, palette in (("gray", False), ("palette", True)):
        output("labels", palette=palette).write(tmp_path / name, lost)
        assert np.asarray(Image.open(tmp_path / name)).tolist() == [[IGNORE, 1, 1, 2]]
    output("overlay").write(tmp_path / "overlay", lost)
    assert np.asarray(Image.open(tmp_path / "overlay"))[0, 0].tolist() == [100, 100, 100]
    assert tuple(Image.open(tmp_path / "palette").convert("RGB").getpixel((0, 0))) == BACKGROUND  # type: ignore[arg-type]


def test_an_overlay_mixes_colours_and_image_as_asked(tmp_path: Path) -> None:
    output("overlay", opacity=0.25).write(tmp_path / "a.png", labelled())
    by_hand = np.rint(0.75 * 100 + 0.25 * np.array(usual_palette(3))[IDS])
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), by_hand)


def test_probabilities_are_the_softmax_in_half_precision(tmp_path: Path) -> None:
    output("probabilities").write(tmp_path / "a.npz", labelled())
    with np.load(tmp_path / "a.npz") as file:
        assert file["classes"].tolist() == list(NAMES)
        shares = file["probabilities"]
    assert shares.dtype == np.float16 and shares.shape == (3, 2, 4)
    likely, others = np.e**2 / (np.e**2 + 2), 1 / (np.e**2 + 2)
    np.testing.assert_allclose(shares, np.where(np.arange(3)[:, None, None] == IDS, likely, others), atol=5e-4)


def test_the_legend_is_a_list_of_classes_that_the_folder_data_set_reads(tmp_path: Path) -> None:
    output("overlay").write_shared(tmp_path, SPEC)
    table = read_classes(tmp_path / CLASSES)
    assert (tuple(table.names), table.palette) == (NAMES, usual_palette(3))
    np.testing.assert_array_equal(table.map_ids(Path("x"), np.array([[2, IGNORE]])), [[2, IGNORE]])
    picture = np.asarray(Image.open(tmp_path / LEGEND))
    for colour in usual_palette(3):
        assert (picture == colour).all(-1).any()


def test_a_long_legend_stands_in_columns(tmp_path: Path) -> None:
    classes = tuple(f"class number {i}" for i in range(150))
    output("labels").write_shared(tmp_path, HeadSpec(kind="labels", unit="", classes=classes))
    h, w = np.asarray(Image.open(tmp_path / LEGEND)).shape[:2]
    assert w > 400 and h < 1000
    assert len(json.loads((tmp_path / CLASSES).read_text())) == 151  # and what stands for none


def test_the_list_of_more_than_255_classes_leaves_out_255_and_is_read_back(tmp_path: Path) -> None:
    names = tuple("(no class)" if i == IGNORE else f"class {i}" for i in range(300))
    output("labels").write_shared(tmp_path, HeadSpec(kind="labels", unit="", classes=names))
    written = [row["id"] for row in json.loads((tmp_path / CLASSES).read_text())]
    assert written == [*range(255), *range(256, 300), 65535]
    table = read_classes(tmp_path / CLASSES)
    assert tuple(table.names) == names
    stored = np.array([[0, 254, 255, 256, 299, 65535]])
    np.testing.assert_array_equal(table.map_ids(Path("x"), stored), [[0, 254, IGNORE, 256, 299, IGNORE]])
    assert (np.asarray(Image.open(tmp_path / LEGEND)) == table.palette[299]).all(-1).any()


def test_what_a_format_cannot_hold_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs classes of pixels, but this model gives metric"):
        output("labels").check(HeadSpec(kind="metric"))
    with pytest.raises(ConfigError, match="256 colours at most, this model 300 classes"):
        output("labels", palette=True).check(HeadSpec(kind="labels", classes=tuple(map(str, range(300)))))
    with pytest.raises(ConfigError, match="opacity: input should be less than or equal to 1"):
        output("overlay", opacity=2)


HEADS = {"near": "metric", "far": "metric", "things": "labels"}


def test_a_format_finds_its_head_and_asks_where_several_fit() -> None:
    card = ModelCard(outputs={name: HeadSpec(kind=kind) for name, kind in HEADS.items()}, multiple=1)
    assert card.head_for(("labels",)) == "things" and card.head_for(("metric",), ["far"]) == "far"
    assert card.label_head(None, "eval") == card.label_head("things", "eval") == "things"
    with pytest.raises(ConfigError, match="several heads fit, near, far; choose one by --head"):
        card.head_for(("metric",))
    with pytest.raises(
        ConfigError, match="head of this model gives disparity; near gives metric depth, .* things gives classes of pix"
    ):
        card.head_for(("disparity",), what="format x")
    with pytest.raises(DataError, match="no head 'sky'"):
        card.head("sky")
    with pytest.raises(ConfigError, match="format x: this model has no head 'sky'. It has: near, far, things"):
        card.head_for(("labels",), ["sky"], "format x")
    with pytest.raises(
        ConfigError,
        match="segmentation: head 'far' gives metric depth; this needs classes of pixels, which 'things' gives",
    ):
        card.label_head("far", "segmentation")
    with pytest.raises(DataError, match="name a head; this model has several: near, far, things"):
        card.head()


def test_the_only_head_for_depth_is_the_one_that_is_meant_whatever_its_name() -> None:
    kinds = {"normals": "normals", "far": "affine", "far/uncertainty": "uncertainty"}
    assert ModelCard(outputs={name: HeadSpec(kind=kind) for name, kind in kinds.items()}, multiple=1).head() == "far"


def test_a_picture_of_one_pixel_has_a_map_of_one_pixel() -> None:
    kinds = {"things": "labels", "depth": "metric", "what": "class"}
    card = ModelCard(outputs={name: HeadSpec(kind=kind) for name, kind in kinds.items()}, multiple=1)

    class Three(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"things": image + 1, "depth": image[:, :1] + 1, "what": image.mean((2, 3), keepdim=True)}

    answers = Predictor(Three(), card, device="cpu").predict_all(np.zeros((1, 1, 3), np.uint8))
    shapes = {name: answer.shape for name, answer in answers.items()}
    assert shapes == {"things": (3, 1, 1), "depth": (1, 1), "what": (3,)}
