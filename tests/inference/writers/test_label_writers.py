"""Formats for classes of pixels, read back by somebody else's reader."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from test_depth_writers import output

from densevit.data.labels.class_lists import read_classes
from densevit.errors import ConfigError, DataError
from densevit.inference.predictor import Predictor
from densevit.inference.writers import PredictedMap
from densevit.inference.writers.labels import CLASSES, LEGEND
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.colors import BACKGROUND, usual_palette
from densevit.structures import IGNORE

NAMES = ("wall", "floor", "box")
SPEC = HeadSpec(kind="labels", unit="", classes=NAMES)
IDS = np.array([[0, 1, 1, 2], [2, 2, 0, 1]])


def frame(ids: np.ndarray = IDS, spec: HeadSpec = SPEC) -> PredictedMap:
    """Logits 2 for the class and 0 for the others; NaN in the first pixel where `ids` is -1."""
    logits = 2.0 * (np.arange(len(spec.classes))[:, None, None] == ids).astype(np.float32)
    logits[:, ids < 0] = np.nan
    return PredictedMap(values=logits, image=np.full((*ids.shape, 3), 100, np.uint8), spec=spec)


def test_ids_are_a_gray_or_a_palette_png_that_opencv_and_pillow_read_alike(tmp_path: Path) -> None:
    output("labels").write(tmp_path / "a.png", frame())
    stored = cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint8
    np.testing.assert_array_equal(stored, IDS)
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), IDS)
    output("labels", palette=True).write(tmp_path / "a.png", frame())
    with Image.open(tmp_path / "a.png") as picture:
        np.testing.assert_array_equal(np.asarray(picture), IDS)
        np.testing.assert_array_equal(np.asarray(picture.convert("RGB")), np.array(usual_palette(3))[IDS])
    many = HeadSpec(kind="labels", unit="", classes=tuple(map(str, range(300))))  # in 16 bits
    output("labels").write(tmp_path / "a.png", frame(np.array([[0, 256, 299, -1]]), many))
    stored = cv2.imread(str(tmp_path / "a.png"), cv2.IMREAD_UNCHANGED)
    assert stored.dtype == np.uint16 and stored.tolist() == [[0, 256, 299, 65535]]


def test_pixels_without_finite_logits_have_no_class(tmp_path: Path) -> None:
    lost = frame(np.array([[-1, 1, 1, 2]]))
    for name, palette in (("gray", False), ("palette", True)):
        output("labels", palette=palette).write(tmp_path / name, lost)
        assert np.asarray(Image.open(tmp_path / name)).tolist() == [[IGNORE, 1, 1, 2]]
    output("overlay").write(tmp_path / "overlay", lost)
    assert np.asarray(Image.open(tmp_path / "overlay"))[0, 0].tolist() == [100, 100, 100]
    assert tuple(Image.open(tmp_path / "palette").convert("RGB").getpixel((0, 0))) == BACKGROUND  # type: ignore[arg-type]


def test_an_overlay_mixes_colours_and_image_as_asked(tmp_path: Path) -> None:
    output("overlay", opacity=0.25).write(tmp_path / "a.png", frame())
    by_hand = np.rint(0.75 * 100 + 0.25 * np.array(usual_palette(3))[IDS])
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "a.png")), by_hand)


def test_probabilities_are_the_softmax_in_half_precision(tmp_path: Path) -> None:
    output("probabilities").write(tmp_path / "a.npz", frame())
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


KINDS = {"near": "metric", "far": "metric", "things": "labels"}


def test_a_format_finds_its_head_and_asks_where_several_fit() -> None:
    card = ModelCard(outputs={name: HeadSpec(kind=kind) for name, kind in KINDS.items()}, multiple=1)
    assert card.head_for(("labels",)) == "things" and card.head_for(("metric",), ["far"]) == "far"
    assert card.label_head(None, "eval") == card.label_head("things", "eval") == "things"
    with pytest.raises(ConfigError, match="several heads fit, near, far; choose one by --head"):
        card.head_for(("metric",))
    with pytest.raises(ConfigError, match="needs disparity; near gives metric depth, .* things gives classes of pix"):
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
