"""Prediction and evaluation from Python: the bytes, numbers and files of the commands, for whatever is given."""

import json
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small import contents
from toy_models import save_network, toy_network
from toy_room_model import write_toy

import densevit
from densevit.api import checkpoint, export_model, prediction
from densevit.cli.main import main
from densevit.data.io.readers import read_depth, read_image
from densevit.errors import ConfigError, DataError
from densevit.inference.predict.inputs import paths_of
from densevit.weights import hub


def test_a_path_and_a_predictor_write_the_bytes_of_the_command(small_run: Path, tmp_path: Path) -> None:
    images = small_run / "data/images"
    words = ["--formats", "png16,color,ply", "--scale", "500", "--fov", "60", "--precision", "fp32"]
    assert main(["predict", str(small_run / "run"), str(images), "--output", str(tmp_path / "command"), *words]) == 0
    formats = {"png16": {"scale": 500.0}, "color": {}, "ply": {}}
    summary = densevit.predict(small_run / "run", images, tmp_path / "path", formats=formats, fov=60, precision="fp32")
    assert summary.done == 6 and "6 images in" in str(summary)
    predictor = densevit.load(small_run / "run", precision="fp32")
    densevit.predict(predictor, [images], tmp_path / "predictor", formats=formats, fov=60)
    assert contents(tmp_path / "path") == contents(tmp_path / "predictor") == contents(tmp_path / "command")


def test_options_of_a_format_are_checked(small_run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such option"):
        densevit.predict(small_run / "run", small_run / "data/images", tmp_path, formats={"png16": {"scal": 3}})
    with pytest.raises(ConfigError, match="--formats png16: its options are a dict, got 5"):
        prediction.with_options({"png16": 5}, {})  # type: ignore[dict-item]


def test_options_may_be_scalars_of_numpy(small_run: Path, tmp_path: Path) -> None:
    predictor = densevit.load(small_run / "run").with_options(flip=np.True_, scales=[np.float32(1.5)])
    assert densevit.predict(predictor, small_run / "data/images/000.jpg", tmp_path, fov=60).done == 1


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({"image_size": (0, 64)}, r"\(0, 64\), 1"),
        ({"image_size": 64}, "64, 1"),
        ({"image_size": np.array([0, 64])}, r"\[0, 64\], 1"),
        ({"batch_size": None}, "None, None"),
        ({"batch_size": "3"}, "None, '3'"),
    ],
)
@pytest.mark.parametrize("file", ["a.onnx", "a.pt2"])
def test_numbers_of_an_export_are_checked_first(tmp_path: Path, options: Any, given: str, file: str) -> None:
    with pytest.raises(ConfigError, match=rf"--image-size HEIGHT,WIDTH, .* or dynamic for ONNX, got {given}"):
        export(tmp_path / file, **options)


def export(file: Path, **options: Any) -> None:
    """Export beyond the types of `densevit.export`, which tests check."""
    defaults = {name: value.default for name, value in signature(densevit.export).parameters.items()}
    export_model.export(defaults, **{**defaults, "model": "no-such-model", "output": file, **options})


@pytest.mark.parametrize("options", [{"precision": "bf16"}, {"crop": "eigen"}])
def test_a_choice_that_there_is_not_is_refused(tmp_path: Path, options: Any) -> None:
    (name,) = options
    with pytest.raises(ConfigError, match=f"--{name}: .*, got '{options[name]}'"):
        export(tmp_path / "a.onnx", image_size=(48, 64), **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": "eigen"}, "--crop: kb, got 'eigen'"),
        ({"window_size": 64, "stride": 0}, "whole numbers of pixels, got 64 and 0"),
    ],
)
def test_options_of_a_model_that_cannot_be_so_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checkpoint.load_checkpoint(
            "densevit:rooms", None, {}, None, (), options.pop("window_size", None), options.pop("stride", None),
            device="cpu", precision="fp32", runtime="torch", compile=False, **options,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("camera", "message"),
    [
        ({"intrinsics": np.array([50.0, 50.0, 31.5])}, "--intrinsics: fx, fy, cx, cy in pixels above 0"),
        ({"intrinsics": ["50", 50, 31, 23]}, "--intrinsics: fx, fy, cx, cy in pixels above 0"),
        ({"intrinsics": np.eye(2), "fov": 60}, "give the camera as one of"),
        ({"focal": (50.0, 50.0, 31.5)}, "focal is .*; a focal length is a number"),
    ],
)
def test_a_camera_that_is_none_is_refused(camera: Mapping[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, DataError), match=message):
        prediction.camera_of(*(camera.get(name) for name in ("intrinsics", "focal", "fov")))


def test_inputs_are_paths() -> None:
    for inputs in (np.zeros((8, 8, 3), np.uint8), [Path("a.png"), 3], 3):
        with pytest.raises(DataError, match="inputs are paths, got (ndarray|int); "):
            paths_of(inputs)
    with pytest.raises(DataError, match="inputs are paths, got NoneType; "):
        densevit.predict(None)  # type: ignore[arg-type]
    assert paths_of("a.png") == ["a.png"] and paths_of((Path("a"), "b")) == [Path("a"), "b"]


@pytest.mark.slow
def test_onnx_is_checked_and_asks_for_a_size(small_run: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(ConfigError, match="--image-size"):
        densevit.export(small_run / "run", tmp_path / "a.onnx")
    made = densevit.export(small_run / "run", tmp_path / "a.onnx", image_size=(48, 64))
    assert made.paths == (tmp_path / "a.onnx",) and made.errors["depth"] < 1e-4


def data(small_run: Path) -> dict[str, Any]:
    return {"type": "folder", "root": small_run / "data", "depth_scale": 1000}


def command(small_run: Path, output: Path, *words: str) -> dict[str, Any]:
    base = ["--data", "folder", "--root", str(small_run / "data"), "--data-options", "depth_scale=1000"]
    assert main(["eval", "--task", "depth", *words, *base, "--output", str(output)]) == 0
    found = json.loads((output / "metrics.json").read_text())
    return {key: value for key, value in found.items() if key != "source"}


def test_a_checkpoint_scores_as_by_the_command(small_run: Path, tmp_path: Path) -> None:
    theirs = command(small_run, tmp_path / "command", str(small_run / "run"))
    found = densevit.evaluate(small_run / "run", data(small_run), metrics=["distance"])
    written = found.report(tmp_path / "python")
    assert [path.name for path in written] == ["metrics.json", "per_image.csv", "report.html"]
    assert "<details open" not in written[2].read_text()  # the model card is folded
    mine = json.loads(written[0].read_text())
    assert mine["source"].pop("inference")["precision"] == "fp32"
    assert mine["source"].pop("warning").startswith("6 of these 6 images trained the model")
    assert mine.pop("source") == {
        "checkpoint": str(small_run / "run"), "task": "depth", "data": "folder", "root": str(small_run / "data"),
        "data_options": {"depth_scale": "1000"}, "metrics": "['distance']", "device": "cpu", "runtime": "torch",
    }  # fmt: skip
    assert mine == theirs
    assert (tmp_path / "python/per_image.csv").read_bytes() == (tmp_path / "command/per_image.csv").read_bytes()
    assert found.scores == theirs["metrics"] and dict(found.intervals) == {
        name: tuple(ends) for name, ends in theirs["intervals"].items()
    }
    assert str(found).startswith(found.summary()) and str(found).endswith("ms per image for the prediction.")
    one = densevit.compare(tmp_path / "python", tmp_path / "command", metrics="abs_rel")
    assert [difference.metric for difference in one.differences] == ["abs_rel"]
    with pytest.raises(ConfigError, match="this model has no head 'dept'"):
        densevit.export(small_run / "run", tmp_path / "model.onnx", image_size=(60, 80), heads="dept")
    html = found._repr_html_()
    assert html.startswith("<b>run on folder</b>") and f"<td>{found.scores['abs_rel']:.4f}</td>" in html


def test_a_model_is_scored_by_its_name_as_when_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "PACKAGED_FOLDER", write_toy(tmp_path / "toy"))
    rng = np.random.default_rng(0)
    images, depths = rng.integers(0, 256, (2, 48, 64, 3), dtype=np.uint8), rng.uniform(1, 5, (2, 48, 64))
    pairs = list(zip(images, depths.astype(np.float32), strict=True))
    named = densevit.evaluate("densevit:rooms", pairs, device="cpu")
    loaded = densevit.load("densevit:rooms", device="cpu", precision="fp32")
    assert named.scores == densevit.evaluate(loaded, pairs).scores


def test_flip_holds_where_only_the_loaded_model_tells_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of published weights and of ONNX files."""
    folder = save_network(tmp_path / "model", toy_network({"labels": {"type": "segmentation", "classes": ("a", "b")}}))
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (2, 28, 28, 3), dtype=np.uint8), rng.integers(0, 2, (2, 28, 28))
    items = [{"image": image, "labels": ids} for image, ids in zip(images, labels, strict=True)]
    data = densevit.Pairs(items, classes=["a", "b"])
    expected = densevit.evaluate(folder, data, task="segmentation", flip=True)
    monkeypatch.setattr("densevit.api.evaluation.card_before_loading", lambda model: None)
    found = densevit.evaluate(folder, data, flip=True)
    assert found.scores == expected.scores and found.inference[0]["flip"]
    assert found.scores != densevit.evaluate(folder, data).scores


def maps(small_run: Path) -> dict[str, np.ndarray]:
    """The ground truth, 10% too far."""
    return {p.stem: read_depth(p, 1000) * np.float32(1.1) for p in sorted((small_run / "data/depths").glob("*.png"))}


def test_predictions_may_be_files_arrays_or_a_function(small_run: Path, tmp_path: Path) -> None:
    given = maps(small_run)
    for name, depth in given.items():
        np.save(tmp_path / f"{name}.npy", depth)
    pairs = [(small_run / f"data/images/{name}.jpg", depth / np.float32(1.1)) for name, depth in given.items()]
    by_image = {read_image(image).tobytes(): given[image.stem] for image, _ in pairs}
    found = [
        densevit.evaluate(predictions=tmp_path, data=data(small_run)),
        densevit.evaluate(predictions=given, data=data(small_run)),
        densevit.evaluate(predictions=list(given.values()), data=pairs),
        densevit.evaluate(predictions=np.stack(list(given.values())), data=pairs),
        densevit.evaluate(lambda image: by_image[image.tobytes()], pairs),
    ]
    theirs = command(small_run, tmp_path / "command", "--predictions", str(tmp_path))
    assert found[0].scores == {name: theirs["metrics"][name] for name in found[0].scores}
    for other in found[1:]:
        assert other.scores["abs_rel"] == pytest.approx(0.1, abs=1e-6)
    several = densevit.evaluate(predictions=given, data=data(small_run), protocol="all")
    assert several.scores["plain/abs_rel"] == found[1].scores["abs_rel"]


@pytest.mark.parametrize(
    "form",
    [
        lambda depth, hole: torch.tensor(depth).bfloat16(),
        lambda depth, hole: torch.tensor(depth, requires_grad=True),
        lambda depth, hole: np.ma.array(depth + 9 * hole, mask=hole),
    ],
    ids=["bfloat16", "gradient", "masked"],
)
def test_depth_may_be_a_tensor_of_any_kind_or_a_masked_array(form: Callable[..., Any]) -> None:
    image, depth, hole = (
        np.zeros((8, 10, 3), np.uint8),
        np.full((8, 10), 2.0, np.float32),
        np.arange(80).reshape(8, 10) < 9,
    )
    given = form(depth, hole)
    assert densevit.evaluate(lambda image: depth, [(image, given)]).scores["abs_rel"] == 0
    found = densevit.evaluate(lambda image: given, [(image, depth)])
    assert found.scores["abs_rel"] == pytest.approx(0.9995 * 9 / 80 if np.ma.isMaskedArray(given) else 0)


def test_classes_are_scored_where_the_data_has_them_and_no_depth() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (3, 8, 9))
    image = np.zeros((8, 9, 3), np.uint8)
    pairs = densevit.Pairs([{"image": image, "labels": ids} for ids in labels], classes=["sky", "road"])
    wrong = labels.copy()
    wrong[0, :2] = 1 - wrong[0, :2]  # 18 of 216 pixels
    found = densevit.evaluate(predictions=wrong, data=pairs)
    given = iter(wrong)
    assert densevit.evaluate(lambda image: next(given), pairs).scores == found.scores
    assert found.scores["pixel_accuracy"] == pytest.approx(1 - 18 / 216)
    assert set(found.per_class) == {"sky", "road"}
    with pytest.raises(DataError, match="class ids are whole numbers"):
        densevit.evaluate(predictions=wrong * 1.0, data=pairs)
    parts = [{"image": image, "labels": labels[0]}, {"image": image, "depth": np.ones((8, 9)), "labels": labels[1]}]
    partial = densevit.Pairs(parts, classes=["sky", "road"])  # the first image has no depth
    assert densevit.evaluate(lambda image: np.full((8, 9), 1.5), partial).scores["abs_rel"] == pytest.approx(0.5)


def test_options_of_a_data_set_add_to_a_config_and_are_refused_beside_an_object(small_run: Path) -> None:
    def flat(image: np.ndarray) -> np.ndarray:
        return np.ones(image.shape[:2])

    options = {"root": small_run / "data", "data_options": {"depth_scale": 1000}}
    assert len(densevit.evaluate(flat, {"type": "folder"}, **options).per_image) == 6
    pairs = [(np.zeros((8, 9, 3), np.uint8), np.ones((8, 9)))]
    with pytest.raises(ConfigError, match="--root, --split, --data-options: of a data set by its name or config"):
        densevit.evaluate(flat, pairs, split="val")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either a MODEL or --predictions"),
        ({"predictions": {}}, "name the data"),
        ({"predictions": {"000": np.ones((60, 80))}, "data": 1}, "no prediction for 5 of 6 images"),
        ({"predictions": [np.ones((60, 80))], "data": 1}, "1 for 6 images"),
        ({"predictions": (np.ones((60, 80)) for _ in range(6)), "data": 1}, "generator is no sequence; give a list"),
        ({"predictions": [np.ones((1, 60, 80))] * 6, "data": 1}, "float64 of shape (1, 60, 80); it is numbers h w"),
        ({"predictions": [np.ones((60, 80), complex)] * 6, "data": 1}, "complex128 of shape (60, 80); it is numbers"),
        ({"model": np.mean, "data": 1, "device": "cpu"}, "device: options of a checkpoint's path"),
        ({"predictions": [], "data": 1, "protocol": "nyu_eigne"}, "nyu_eigen"),
        ({"predictions": [np.ones((60, 80))] * 6, "data": 1, "task": "classification"}, "predictions are maps"),
        ({"predictions": [], "data": 1, "metrics": "distanc"}, "no set of metrics 'distanc'"),
        ({"predictions": [], "data": 1, "scale": 1000}, "--scale is an option of a folder of --predictions only"),
        ({"model": np.mean, "data": 1, "label_encoding": "stored"}, "--label-encoding is an option of a folder"),
        ({"model": "run", "data": 1, "prediction_type": "affine"}, "--prediction-type is an option of --predictions"),
        ({"model": np.mean, "data": 1, "precision": "bf16"}, "--precision: options of a checkpoint's path"),
        ({"predictions": [], "data": 1, "precision": "fp32"}, "--precision is an option of a MODEL only"),
        ({"model": "run", "videos": "a.mp4", "split": "val"}, "--split: --videos are scored in place of a data set"),
    ],
)
def test_what_does_not_go_together_is_said(small_run: Path, options: dict[str, Any], message: str) -> None:
    if "data" in options:
        options = {**options, "data": data(small_run)}
    with pytest.raises((ConfigError, DataError)) as caught:
        densevit.evaluate(options.pop("model", None), **options)
    assert message in str(caught.value)
