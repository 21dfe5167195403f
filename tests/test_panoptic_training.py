"""Squares on a ground: trained, resumed, predicted, refused where it cannot be right, and with depth beside it."""

import csv
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from PIL.ExifTags import IFD, Base
from small import small_config

import densevit
from densevit.builder.checkpoint import restore
from densevit.data.datasets.base import Dataset
from densevit.data.io.exif import exif_fov
from densevit.errors import ConfigError
from densevit.inference.predictor import Predictor
from densevit.ops.segments import InstancePrediction, PanopticPrediction
from densevit.structures import Sample

CLASSES = ("sky", "ground", "square")
EOMT = {"type": "eomt", "queries": 6, "blocks": 1, "segments": True}


class Squares(Dataset):
    """Six images: sky, ground, and two squares of their own colours; a crowd in the corner."""

    classes, things = CLASSES, (2,)

    def __init__(self) -> None:
        self.names = [str(i) for i in range(6)]

    def read(self, index: int) -> Sample:
        segments = np.ones((48, 64), np.int32)
        segments[24:] = 2
        segments[10 + index : 22 + index, 8:24] = 3
        segments[28:44, 34 : 46 + index] = 4
        segments[:6, -6:] = 5
        colours = np.array([[0, 0, 0], [90, 120, 230], [80, 70, 60], [230, 40, 40], [40, 230, 40], [255, 255, 255]])
        depth = np.where(segments == 1, 0, 1 + segments).astype(np.float32)
        return Sample(
            name=self.names[index], image=colours[segments].astype(np.uint8), segments=segments,
            segment_classes=np.array([0, 1, 2, 2, 2]), segment_crowd=np.array([False] * 4 + [True]),
            depth=depth, valid=depth > 0,
        )  # fmt: skip


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    config, data = small_config(folder), Squares()
    densevit.train(
        config, output=str(folder / "run"), data={"train": data, "val": data},
        model={"decoders": {"panoptic": EOMT}, "heads": {"panoptic": {"type": "panoptic", "threshold": 0.5}}},
        tasks={"panoptic": {"type": "panoptic", "losses": [{"type": "set_criterion", "points": 400}]}},
        optim={"lr": 3e-3}, steps=60, validate_every=30, save_every=30, keep_last=0, batch_size=6, log_every=10,
    )  # fmt: skip
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run: Path) -> Predictor:
    return densevit.load(run, device="cpu", precision="fp32")


def test_what_was_learned_is_scored_and_predicted_beside_depth(run: Path, predictor: Predictor) -> None:
    assert densevit.Run(run).val_log[-1]["panoptic/pq_stuff"] > 0.5
    spec = predictor.card.outputs["panoptic"]
    assert (spec.classes, spec.things, spec.threshold) == (CLASSES, (2,), 0.5)
    sample = Squares().read(2)
    found = predictor(sample.image, head="panoptic")
    assert isinstance(found, PanopticPrediction) and found.segments.shape == (48, 64)
    assert len(found.classes) == found.segments.max() and (found.is_thing == (found.classes == 2)).all()
    assert predictor(sample.image).shape == (48, 64)  # depth


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit(run: Path) -> None:
    folder, data = run / "checkpoints", Squares()
    densevit.train(
        run / "config.yaml", resume=folder / "step-00000030", output=str(run.with_name("again")),
        data={"train": data, "val": data},
    )  # fmt: skip
    (whole, _), (again, _) = restore(folder / "step-00000060"), restore(run.with_name("again"))
    assert all(np.array_equal(again.state_dict()[k], x) for k, x in whole.state_dict().items())


def test_flips_scales_windows_and_tiles_are_refused(run: Path, predictor: Predictor) -> None:
    image = Squares().read(0).image
    for options in ({"flip": True}, {"scales": (1.0, 2.0)}):
        with pytest.raises(ConfigError, match="the queries of panoptic segments are those of one image"):
            predictor.with_options(**options)(image, head="panoptic")
    with pytest.raises(ConfigError, match="tiles: for depth only, not for panoptic"):
        predictor.with_options(tiling=32)(image, head="panoptic")
    with pytest.raises(ConfigError, match="panoptic segments are predicted for a whole image at once"):
        densevit.load(run, window_size=32)


def test_instances_are_trained_and_predicted(tmp_path: Path) -> None:
    data = Squares()
    densevit.train(
        small_config(tmp_path), output=str(tmp_path / "run"), data={"train": data, "val": data},
        model={"decoders": {"objects": EOMT}, "heads": {"objects": {"type": "instances"}}},
        tasks={"objects": {"type": "instances"}}, steps=2, validate_every=2, batch_size=2,
    )  # fmt: skip
    found = densevit.load(tmp_path / "run", device="cpu")(data.read(0).image, head="objects")
    assert isinstance(found, InstancePrediction) and found.masks.shape[1:] == (48, 64)
    assert (np.diff(found.scores) <= 0).all()
    assert "objects/ap50" in (tmp_path / "run/val.csv").read_text()


@pytest.mark.parametrize(
    ("decoder", "why"),
    [
        ({"type": "eomt", "blocks": 1}, "its decoder must hand on queries"),
        ({"type": "linear"}, "its decoder must hand on queries"),
        ({**EOMT, "classes": 2}, "3 classes, but its decoder has 2"),
    ],
)
def test_a_decoder_without_queries_or_of_other_classes_is_refused(
    decoder: dict[str, Any], why: str, tmp_path: Path
) -> None:
    data = Squares()
    with pytest.raises(ConfigError, match=rf"model\.heads\.panoptic: {why}"):
        densevit.train(
            small_config(tmp_path), data={"train": data, "val": data}, tasks={"panoptic": {"type": "panoptic"}},
            model={"decoders": {"panoptic": decoder}, "heads": {"panoptic": {"type": "panoptic"}}}, steps=1,
        )  # fmt: skip


def test_objects_are_written_with_their_metres(predictor: Predictor, tmp_path: Path) -> None:
    image = Squares().read(1).image
    Image.fromarray(image).save(tmp_path / "a.png")
    densevit.predict(predictor, tmp_path / "a.png", tmp_path / "out", formats=["objects"], fov=60)
    rows = list(csv.DictReader((tmp_path / "out/objects.csv").read_text().splitlines()))
    found, depth = predictor(image, head="panoptic"), predictor(image)
    masks = [found.segments == row + 1 for row in np.flatnonzero(found.is_thing)]
    assert [float(row["depth_m"]) for row in rows] == pytest.approx([np.median(depth[m]) for m in masks], abs=1e-3)
    assert all(float(row["width_m"]) > 0 and row["low_m"] == "" for row in rows) and rows
    exif, photo = Image.Exif(), tmp_path / "photo.jpg"
    exif.get_ifd(IFD.Exif)[Base.FocalLengthIn35mmFilm] = 26
    Image.fromarray(image).save(photo, exif=exif)
    tables: dict[str, str] = {}
    for output, camera in (("exif", {}), ("given", {"fov": exif_fov(photo)})):
        densevit.predict(predictor, photo, tmp_path / output, formats=["objects"], **camera)
        tables[output] = (tmp_path / output / "objects.csv").read_text()
    assert tables["exif"] == tables["given"] and exif_fov(photo) is not None
    exif.get_ifd(IFD.Exif).update({Base.ExifImageWidth: 400, Base.ExifImageHeight: 100})  # it was cropped
    Image.fromarray(image).save(photo, exif=exif)
    densevit.predict(predictor, photo, tmp_path / "cropped", formats=["objects"])
    rows = list(csv.DictReader((tmp_path / "cropped/objects.csv").read_text().splitlines()))
    assert all(row["depth_m"] and not row["width_m"] for row in rows) and rows


@pytest.mark.slow
def test_the_exported_queries_are_merged_by_the_example_in_numpy(predictor: Predictor, tmp_path: Path) -> None:
    path, image = tmp_path / "model.onnx", Squares().read(3).image
    densevit.export(predictor, path, image_size=(48, 64))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    masks, classes = session.run(["panoptic", "panoptic/classes"], {"image": image[None]})
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples/panoptic_onnx.py"))
    segments, found = example["merge"](masks[0], classes.reshape(len(masks[0]), -1), {2}, 0.5)
    expected = predictor(image, head="panoptic")
    assert (segments != expected.segments).mean() < 1e-3
    assert [label for label, _ in found] == expected.classes.tolist()
    loaded = densevit.load(path)(image, head="panoptic")
    assert (loaded.segments != expected.segments).mean() < 1e-3
