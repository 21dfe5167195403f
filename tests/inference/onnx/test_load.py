"""An ONNX file in place of a checkpoint gives what it gives, also with measured points, or says why it cannot."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from shell import Shell
from test_onnx_export import SIZE, noise
from torch import Tensor
from toy_models import DEPTH, DEPTH_AND_LABELS, SMALL_DPT, fp32, toy_network

import densevit
from densevit.depth_corrections import Calibration
from densevit.errors import CheckpointError, ConfigError, DataError
from densevit.inference.backends.onnx_runtimes import RUNTIMES
from densevit.inference.camera import Lens
from densevit.inference.image_input import ImageInput
from densevit.inference.onnx import export
from densevit.inference.onnx.export import export_onnx
from densevit.inference.onnx.load import reason_against_flip
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.predict.cameras import resolve_cameras
from densevit.inference.predict.inputs import Item
from densevit.inference.predictor import Predictor
from densevit.inference.pt2 import COMPILERS, export_pt2, load_pt2
from densevit.inference.web.export import export_web
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.preprocess_config import PreprocessConfig

# OpenVINO has no antialiased bicubic Resize, which images and position embeddings ask for here.
RULE = PreprocessConfig(mode="lower_bound", size=(42, 42), antialias=True)
HEADS = {**DEPTH_AND_LABELS, "class": {"type": "classifier", "classes": 4}}


def network(heads: Any = HEADS) -> tuple[DenseModel, ModelCard]:
    return toy_network(heads, None, RULE, encoder={"image_size": 42})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`any.onnx` takes bytes of any size, `two.onnx` two float images of SIZE; depth of both is calibrated."""
    folder, (model, card) = tmp_path_factory.mktemp("onnx"), calibrated()
    export_onnx(
        model, card, folder / "any.onnx", OnnxExportOptions(size=None, any_size=True, heads=("labels", "depth"))
    )
    export_onnx(model, card, folder / "two.onnx", OnnxExportOptions(size=SIZE, batch=2, floats=True))
    return folder


def calibrated() -> tuple[DenseModel, ModelCard]:
    """Its metres are twice what the network says: a calibration that is applied again would show."""
    model, card = network()
    depth = replace(card.outputs["depth"], calibration=Calibration(form="scale", a=2.0))
    return model, replace(card, outputs={**card.outputs, "depth": depth})


@pytest.mark.slow
def test_a_focal_length_that_a_file_cannot_take_is_said(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    densevit.load(files / "any.onnx", focal=500.0)
    assert "any.onnx takes none (export --focal)" in caplog.text


@pytest.mark.slow
def test_a_file_of_one_focal_length_is_for_images_of_that_lens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, card = toy_network(DEPTH, None, RULE, encoder={"image_size": 42}, camera="canonical", canonical_focal=50.0)
    export_onnx(model, card, path := tmp_path / "a.onnx", OnnxExportOptions(size=SIZE, camera=(float(SIZE[1]), 70.0)))
    predictor = densevit.load(path)  # 2 atan(1 / 2) = 53 degrees
    Image.fromarray(noise(1)[0]).save(tmp_path / "a.png")
    resolve_cameras([Item(tmp_path / "a.png", "a", intrinsics=Lens(fov=55))], predictor.cameras)
    assert "field of view" not in caplog.text
    resolve_cameras([Item(tmp_path / "a.png", "a", intrinsics=Lens(fov=80))], predictor.cameras)
    assert "1 of 1 images looked at have a field of view of 80 degrees" in caplog.text
    assert "metres hold for 53 degrees" in caplog.text
    with pytest.raises(ConfigError, match=r"--tile-size: .*a\.onnx holds the camera of whole images"):
        densevit.load(path, tile_size=64)


@pytest.mark.slow
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize(("name", "size", "flip"), [("any", (33, 61), False), ("any", SIZE, True), ("two", SIZE, True)])
def test_the_maps_are_those_of_the_checkpoint(
    files: Path, runtime: Any, name: str, size: tuple[int, int], flip: bool
) -> None:
    predictor = densevit.load(files / f"{name}.onnx", runtime=runtime, precision="fp32", batch_size=3, flip=flip)
    expected = fp32(calibrated(), flip=flip)
    images = noise(3, size)
    found, wanted = predictor.start(images).read(), expected.start(images).read()
    assert predictor.runtime == runtime and list(found) == (["labels", "depth"] if name == "any" else list(HEADS))
    for head, values in ((head, wanted[head]) for head in found):
        assert values.std() > 1e-3
        np.testing.assert_allclose(found[head], values, rtol=1e-3, atol=1e-4 * np.abs(values).max(), err_msg=head)


@pytest.mark.slow
def test_what_a_file_does_not_see_of_images_is_not_scored(tmp_path: Path) -> None:
    model, card = toy_network(DEPTH, None, RULE, encoder={"image_size": 42})
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=SIZE, box=(8, 40, 4, 48)))
    data = [(image, np.full(SIZE, 3.0, np.float32)) for image in noise(2)]
    found = densevit.evaluate(densevit.load(tmp_path / "a.onnx", precision="fp32"), data)
    expected = densevit.evaluate(fp32((model, card), window=lambda h, w: (8, 40, 4, 48)), data)
    assert found.scores == pytest.approx(expected.scores, rel=1e-3)
    assert [row["pixels"] for _, row in found.per_image] == [32 * 44] * 2


@pytest.mark.slow
def test_a_file_for_one_size_refuses_others(files: Path) -> None:
    predictor = densevit.load(files / "two.onnx", runtime="onnxruntime")
    assert predictor.precision == "fp32"
    with pytest.raises(DataError, match=r"an image of 30x52, and this ONNX file is for 40x52; .*--image-size dynamic"):
        predictor(noise(1, (30, 52))[0])


@pytest.mark.slow
def test_the_fastest_that_is_installed_computes_unless_one_is_named(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert densevit.load(files / "any.onnx").runtime == "openvino"
    assert "parameters" not in repr(densevit.load(files / "any.onnx"))
    monkeypatch.setattr("densevit.inference.onnx.load.is_installed", lambda name: name != "openvino")
    assert densevit.load(files / "any.onnx", runtime="auto").runtime == "onnxruntime"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int8"}, r"any\.onnx is in fp32; export --precision int8 .* writes int8"),
        ({"precision": "bf16", "runtime": "openvino"}, r"any\.onnx computes where to sample .* take fp32"),
        ({"precision": "bf16", "runtime": "onnxruntime"}, "onnxruntime computes in fp32, not in bf16"),
        ({"device": "cuda"}, "'cuda'"),
        ({"family": "depth-anything-v2"}, "family: of a checkpoint"),
        ({"family_options": {"max_depth": 20}}, "family_options: of a checkpoint"),
        ({"compile": True}, "leave out `compile`"),
        ({"scales": (0.75, 1.25)}, r"--scales: .*any\.onnx itself resizes images"),
    ],
)
def test_options_that_do_not_fit_a_file_are_named(files: Path, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        densevit.load(files / "any.onnx", **options)


@pytest.mark.slow
def test_options_that_change_fit_a_file_or_are_named(tmp_path: Path) -> None:
    """The mirror image of a window beside the middle is another one, a column off at an odd width."""
    options = OnnxExportOptions(size=SIZE, heads=("depth",), box=(8, 40, 4, 49))
    export_onnx(*network(), path := tmp_path / "a.onnx", options)
    predictor = densevit.load(path, runtime="onnxruntime")
    assert predictor.with_options(scales=[1], batch_size=2).batch_size == 2
    with pytest.raises(ConfigError, match="--scales: this file itself resizes images"):
        predictor.with_options(scales=(0.75, 1.25))
    with pytest.raises(ConfigError, match="runtime: onnxruntime computes this file; load it again by another one"):
        predictor.with_options(runtime="openvino")
    with pytest.raises(ConfigError, match="--flip: this file sees columns 4 to 49 of 52, .* export it with --flip"):
        predictor.with_options(flip=True)


def test_rays_of_a_camera_with_its_centre_beside_the_middle_are_others_in_the_mirror_image() -> None:
    _, rays = toy_network(conditioning={"rays": {}})
    _, canonical = toy_network(camera="canonical", canonical_focal=50.0)
    sides, middle, beside = (48, 64), (70.0, 75.0, 31.5, 20.0), (70.0, 75.0, 20.0, 24.0)
    assert not any(reason_against_flip(rays, sides, None, camera) for camera in ((), (70.0,), middle))
    assert not reason_against_flip(canonical, sides, None, beside)  # where the focal length alone counts
    assert "its centre at column 20 of 64" in reason_against_flip(rays, sides, None, beside)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("uncertainty", "calibration"),
    [(None, Calibration(form="log_affine", a=0.5)), ("laplace", Calibration(form="affine", a=2.0, b=-0.5))],
)
def test_what_a_checkpoint_corrects_after_averaging_is_not_averaged_corrected(
    tmp_path: Path, uncertainty: str | None, calibration: Calibration
) -> None:
    """The mean of sqrt(d) is not sqrt(mean d); nor is an affine correction of uncertainty a linear one."""
    model, card = network({"depth": {"type": "metric", "uncertainty": uncertainty}})
    outputs = {**card.outputs, "depth": replace(card.outputs["depth"], calibration=calibration)}
    export_onnx(model, replace(card, outputs=outputs), path := tmp_path / "a.onnx", OnnxExportOptions(size=SIZE))
    with pytest.raises(ConfigError, match=r"--flip: .*a\.onnx corrects 'depth' by .*; export it with --flip"):
        densevit.load(path, flip=True)
    with pytest.raises(ConfigError, match="--flip: this file corrects 'depth'"):
        densevit.load(path).with_options(flip=True)


@pytest.mark.slow
def test_a_file_for_any_size_is_not_computed_in_bf16_where_nothing_is_asked_for(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bf16 OpenVINO's maps of a trained model were off by up to 1 m, those of a file for one size by 0.02 m."""
    monkeypatch.setattr("densevit.inference.onnx.load.resolve_device_and_precision", lambda *_, **__: ("cpu", "bf16"))
    assert densevit.load(files / "any.onnx", runtime="openvino").precision == "fp32"
    assert densevit.load(files / "two.onnx", runtime="openvino").precision == "bf16"


@pytest.mark.slow
def test_a_file_that_does_not_open_in_bf16_is_computed_in_fp32_unless_bf16_was_asked_for(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = RUNTIMES["openvino"].open

    def no_bf16(path: Path, precision: Any) -> Any:
        if precision == "bf16":
            raise RuntimeError("No suitable implementations")
        return opened(path, precision)

    monkeypatch.setattr("densevit.inference.backends.auto.resolve", lambda asked, _: asked.replace("auto", "bf16"))
    monkeypatch.setattr(RUNTIMES["openvino"], "open", no_bf16)
    assert densevit.load(files / "two.onnx", runtime="openvino").precision == "fp32"
    with pytest.raises(CheckpointError, match="No suitable implementations"):
        densevit.load(files / "two.onnx", runtime="openvino", precision="bf16")


@pytest.mark.slow
def test_pseudo_label_takes_a_file_as_its_teacher(files: Path, tmp_path: Path, shell: Shell) -> None:
    Image.fromarray(noise(1)[0]).save(tmp_path / "a.png")
    words = [files / "any.onnx", tmp_path / "a.png", "--runtime", "onnxruntime", "--output", tmp_path / "maps"]
    shell("pseudo-label", *words)
    expected = fp32(calibrated(), flip=True)(noise(1)[0], head="depth")
    found = np.load(tmp_path / "maps/a.depth.npz")["depth"]
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=2e-3)
    manifest = json.loads((tmp_path / "maps/manifest.json").read_text())
    assert manifest["teacher"]["name"] == "any.onnx" and manifest["maps"]["labels"]["kind"] == "labels"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("resized", "options"), [(False, {"flip": True}), (True, {}), (True, {"flip": True, "network": True})]
)
def test_the_mirror_image_is_not_averaged_with_twice(tmp_path: Path, resized: bool, options: dict[str, bool]) -> None:
    model, card = network()
    card = replace(card, resize=replace(card.resize, flip=resized))
    export_onnx(model, card, path := tmp_path / "a.onnx", OnnxExportOptions(size=SIZE, heads=("depth",), **options))
    with pytest.raises(ConfigError, match=r"--flip: .*a\.onnx itself averages with the mirror image; leave it out"):
        densevit.load(path, flip=True)
    densevit.load(path)


def test_int8_of_a_checkpoint_names_the_command_that_makes_the_file() -> None:
    with pytest.raises(ConfigError, match="export CHECKPOINT --precision int8 --max-drop"):
        densevit.load("no-such-checkpoint", precision="int8", runtime="openvino")


@pytest.mark.slow
def test_files_that_cannot_stand_for_a_checkpoint_are_refused(files: Path, tmp_path: Path) -> None:
    graph = onnx.load(files / "any.onnx")
    graph.graph.output[1].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    onnx.save(graph, tmp_path / "ids.onnx")
    with pytest.raises(ConfigError, match=r"ids\.onnx: gives ids of classes; export it without --argmax"):
        densevit.load(tmp_path / "ids.onnx")
    graph.graph.input.add().name = "focal"
    onnx.save(graph, tmp_path / "focal.onnx")
    with pytest.raises(ConfigError, match=r"takes image, focal; .*--focal PIXELS \(and --image-size HEIGHT,WIDTH\)"):
        densevit.load(tmp_path / "focal.onnx")
    graph.producer_name = "pytorch"
    onnx.save(graph, tmp_path / "other.onnx")
    with pytest.raises(CheckpointError, match=r"an ONNX file of pytorch, not of densevit"):
        densevit.load(tmp_path / "other.onnx")
    with pytest.raises(CheckpointError, match=r"none\.onnx: no such file"):
        densevit.load(tmp_path / "none.onnx")


@pytest.mark.slow
def test_what_needs_weights_is_refused(files: Path, tmp_path: Path) -> None:
    predictor = densevit.load(files / "any.onnx")
    with pytest.raises(ConfigError, match="no weights to save; take the checkpoint"):
        predictor.save_pretrained(tmp_path / "saved")
    with pytest.raises(ConfigError, match="no weights to save; take the checkpoint"):
        densevit.export(predictor, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.slow
def test_export_depth_takes_a_file_and_resumes_only_the_same(files: Path, tmp_path: Path, shell: Shell) -> None:
    Image.fromarray(noise(1)[0]).save(tmp_path / "a.png")
    words = [tmp_path / "a.png", "--output", tmp_path / "maps", "--formats", "npy", "--heads", "depth"]
    words += ["--precision", "fp32", "--runtime", "openvino"]
    assert "1 image on cpu in fp32 by openvino" in shell("predict", files / "any.onnx", *words).err
    expected = fp32(calibrated())(noise(1)[0], head="depth")
    np.testing.assert_allclose(np.load(tmp_path / "maps/a.npy"), expected, rtol=1e-3)
    assert "weights" in shell.refused("predict", files / "two.onnx", *words, "--resume")


ODD = (50, 75)
# 5 x 6 patches of 14 pixels: neither the padded image nor the levels of the DPT are multiples of each other.
FIXED = PreprocessConfig(mode="fixed", size=(60, 80), interpolation="bicubic", antialias=True)


def pointed(camera: str = "none") -> tuple[DenseModel, ModelCard]:
    more = {"camera": "canonical", "canonical_focal": 50.0} if camera == "canonical" else {}
    conditioning = {**({"rays": {}} if camera == "rays" else {}), "points": {"hidden": 8}}
    return toy_network(DEPTH, SMALL_DPT, FIXED, conditioning=conditioning, **more)


def measured(count: int) -> np.ndarray:
    """Metres at a tenth of the pixels; the last image has none."""
    rng = np.random.default_rng(4)
    points = np.where(rng.random((count, *ODD)) < 0.1, rng.uniform(1, 5, (count, *ODD)), 0).astype(np.float32)
    points[-1] = 0
    return points


@pytest.mark.slow
def test_classes_that_are_exported_alone_see_points_in_the_metres_of_the_network(
    uncorrected: None, tmp_path: Path
) -> None:
    """They saw those of the depth after its calibration, and were refused the camera that these metres follow from."""
    more: Any = {"conditioning": {"points": {"hidden": 8}}, "camera": "canonical", "canonical_focal": 50.0}
    model, card = toy_network(DEPTH_AND_LABELS, SMALL_DPT, FIXED, **more)
    depth = replace(card.outputs["depth"], calibration=Calibration(form="scale", a=3.0))
    card = replace(card, outputs={**card.outputs, "depth": depth})
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=ODD, heads=("labels",), camera=60.0))
    given = {"inputs": {"points": torch.from_numpy(measured(2)[:1, None])}}
    found = densevit.load(tmp_path / "a.onnx", precision="fp32").start(noise(1, ODD), **given).read()
    expected = fp32((model, card), camera=60.0).start(noise(1, ODD), **given).read()
    np.testing.assert_allclose(found["labels"], expected["labels"], atol=1e-4 * np.abs(expected["labels"]).max())


@pytest.mark.slow  # test_points_and_clips_training.py exports such a file, too, and predicts by it
@pytest.mark.parametrize("camera", ["none", "canonical", "rays"])
def test_a_file_gives_torch_s_maps_with_points_and_without(uncorrected: None, camera: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    made = export_onnx(*pointed(camera), path, OnnxExportOptions(size=ODD, batch=None))
    assert made.metadata["input points"] == "float32 batch x 50 x 75, measured metres, 0 where none"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {"image": noise(3, ODD), "points": measured(3)}
    focals = {} if camera == "none" else {"focal": np.array([60, 70, 80], np.float32)}
    assert [x.name for x in session.get_inputs()] == ["image", *focals, "points"]
    (found,) = session.run(None, {**given, **focals})
    predictor = fp32(pointed(camera))
    for i, (image, points) in enumerate(zip(given["image"], given["points"], strict=True)):
        one = ImageInput(image, None if camera == "none" else float(focals["focal"][i]))
        expected = predictor(one, points=points) if i < 2 else predictor(one)
        np.testing.assert_allclose(found[i, 0], expected, rtol=1e-4)
    assert i == 2 and np.abs(predictor(one, points=given["points"][0]) / expected - 1).max() > 1e-2


@pytest.mark.slow
def test_a_file_stands_for_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    export_onnx(*pointed("canonical"), path, OnnxExportOptions(size=ODD, camera=60.0))
    predictor = fp32(pointed("canonical"), camera=60.0)
    (image,), points = noise(1, ODD), measured(2)[0]
    expected = predictor(image, points=points)
    for runtime in RUNTIMES:
        loaded = densevit.load(path, runtime=runtime, precision="fp32")
        np.testing.assert_allclose(loaded(image), predictor(image), rtol=1e-4)
        np.testing.assert_allclose(loaded(image, points=points), expected, rtol=1e-4)
        lowest = densevit.load(path, runtime=runtime)  # bf16, where runtime and processor have it
        np.testing.assert_allclose(lowest(image, points=points), expected, rtol=0.05)


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_package_takes_them_too(uncorrected: None, tmp_path: Path) -> None:
    export_pt2(*pointed(), tmp_path / "model.pt2", OnnxExportOptions(size=ODD))
    predictor = fp32(pointed())
    found = load_pt2(tmp_path / "model.pt2")(noise(1, ODD), points=measured(2)[:1])["depth"]
    np.testing.assert_allclose(found[0, 0], predictor(noise(1, ODD)[0], points=measured(2)[0]), rtol=1e-4)


@pytest.mark.slow
def test_a_file_that_ignores_points_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predict = Predictor.predict_batch

    def without_points(self: Predictor, images: np.ndarray, *, inputs: Mapping[str, Tensor], **options: Any) -> Any:
        return predict(self, images, inputs={name: 0 * x for name, x in inputs.items()}, **options)

    monkeypatch.setattr(Predictor, "predict_batch", without_points)
    with pytest.raises(ConfigError, match="largest difference from PyTorch"):
        export_onnx(*pointed(), tmp_path / "model.onnx", OnnxExportOptions(size=ODD))
    assert list(tmp_path.iterdir()) == []


def test_where_no_points_can_be_given_the_model_is_refused(tmp_path: Path) -> None:
    model, card = pointed()
    with pytest.raises(ConfigError, match="a web page: not for a model that takes points"):
        export_web(model, card, tmp_path / "page")
    with pytest.raises(ConfigError, match="--precision int8: not for a model"):
        export.refuse_inputs(card, "--precision int8")
    with pytest.raises(ConfigError, match="dynamic: not for this model: how far it spreads measured points"):
        export_onnx(model, card, tmp_path / "any.onnx", OnnxExportOptions(size=None, any_size=True))
    assert list(tmp_path.iterdir()) == []
