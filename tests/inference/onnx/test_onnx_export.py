"""ONNX files of small models: they say what torch says, in every shape and at any size, or are not kept."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from toy_models import DEPTH_AND_LABELS, SMALL_DPT, fp32, toy_network

import densevit
from densevit.depth_corrections import Calibration
from densevit.errors import ConfigError, DataError
from densevit.inference.onnx import export, graph, verify
from densevit.inference.onnx.dynamic_size import NetworkSizes
from densevit.inference.onnx.export import check_output, export_onnx
from densevit.inference.onnx.metadata import OnnxExportOptions
from densevit.inference.onnx.verify import test_images as pictures
from densevit.model_card import HeadSpec, ModelCard
from densevit.models.dense import DenseModel
from densevit.ops.resize import network_size, network_steps
from densevit.preprocess_config import PreprocessConfig

PAGE = Path(__file__).parents[3] / "docs" / "onnx.md"
SIZE = (40, 52)
HEADS = {
    "depth": {"type": "metric"},
    "class": {"type": "classifier", "classes": 4},  # a name that Python's own grammar knows
    "labels": {"type": "segmentation", "classes": 3},
}
# No multiple of the patches, so positions are resampled and the picture is padded; the long way in and out.
RULE = PreprocessConfig(mode="lower_bound", size=(50, 50), interpolation="bicubic", antialias=True, round_to_uint8=True)


def network(rule: PreprocessConfig | None = None) -> tuple[DenseModel, ModelCard]:
    return toy_network(HEADS, {"type": "conv_transpose", "stride": 7, "min_channels": 8}, rule)


def run(path: Path, images: np.ndarray) -> dict[str, np.ndarray]:
    """As a stranger's program."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"image": images}), strict=True))


def predicted(rule: PreprocessConfig | None, images: np.ndarray, **looks: Any) -> dict[str, np.ndarray]:
    return fp32(network(rule), **looks).start(images).read()


def noise(count: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (count, *size, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def anyhow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Any number of pictures, all heads, the whole way from bytes."""
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    model, card = network(RULE)
    trained = replace(card, config={"output": "/home/somebody/run"})
    written = export_onnx(model, trained, path, OnnxExportOptions(size=SIZE, batch=None))
    assert list(written.errors) == list(HEADS) and max(written.errors.values()) < 1e-5
    assert written.paths == (path,) and [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    return path


def test_any_number_of_pictures_gets_the_answers_of_the_predictor(anyhow: Path) -> None:
    for count in (1, 2, 5):
        images = noise(count)
        found, expected = run(anyhow, images), predicted(RULE, images)
        assert found["class"].shape == (count, 4)
        for name in ("depth", "labels"):
            np.testing.assert_allclose(found[name], expected[name], atol=1e-5)
        np.testing.assert_allclose(found["class"], expected["class"][..., 0, 0], atol=1e-5)


@pytest.mark.slow
def test_maps_of_the_stem_leave_the_number_of_images_open(tmp_path: Path) -> None:
    encoder = {"type": "vit", "dim": 16, "depth": 2, "heads": 2, "patch_size": 16, "image_size": 32, "stem": "conv"}
    model = toy_network(
        encoder={**encoder, "stem_features": [4], "out_indices": [0, 1]}, decoder={"type": "dpt", "channels": 8}
    )
    export_onnx(*model, tmp_path / "stem.onnx", OnnxExportOptions(size=(32, 48), batch=None))
    images = noise(3, (32, 48))
    expected = fp32(model).start(images).read()["depth"]
    np.testing.assert_allclose(run(tmp_path / "stem.onnx", images)["depth"], expected, rtol=1e-4, atol=1e-5)


def test_the_file_says_what_it_is(anyhow: Path) -> None:
    file = onnx.load(anyhow)
    about = {entry.key: entry.value for entry in file.metadata_props}
    assert file.producer_name == "densevit"
    assert about["input image"] == "uint8 batch x 40 x 52 x 3, RGB, as decoded from a file"
    assert about["output depth"] == "float32 batch x 1 x 40 x 52, metric depth in m, 0.001 to 10"
    assert about["output class"].startswith("float32 batch x 4, logits")
    assert about["output depth"] in file.doc_string
    assert ModelCard.from_dict(json.loads(about["card"])).resize == RULE
    assert file.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_the_file_holds_no_paths_and_is_the_same_each_time(anyhow: Path) -> None:
    content = anyhow.read_bytes()
    assert str(Path(densevit.__file__).parent).encode() not in content and b"somebody" not in content
    made = onnx.load(anyhow).graph
    weights = [tensor.name for tensor in made.initializer]
    assert weights == sorted(weights) and not made.metadata_props  # or else their order depended on the process


@pytest.mark.slow
def test_ids_of_classes_a_mirror_and_a_window(tmp_path: Path) -> None:
    box = (8, 40, 0, 52)
    wanted = OnnxExportOptions(size=SIZE, heads=("labels", "depth"), argmax=True, flip=True, box=box, batch=2)
    assert list(export_onnx(*network(), tmp_path / "a.onnx", wanted).errors) == ["labels", "depth"]
    found = run(tmp_path / "a.onnx", noise(2))
    expected = predicted(None, noise(2), flip=True, window=lambda h, w: box)
    assert found["labels"].dtype == np.uint8 and found["labels"].shape == (2, *SIZE)
    np.testing.assert_array_equal(found["labels"][:, 8:], expected["labels"].argmax(1)[:, 8:])
    assert (found["labels"][:, :8] == 255).all()  # outside the window nothing is known
    np.testing.assert_allclose(found["depth"], expected["depth"], rtol=1e-5)


@pytest.mark.slow
def test_the_network_alone_takes_floats_of_its_own_size(tmp_path: Path) -> None:
    rule = replace(RULE, size=(56, 56))
    wanted = OnnxExportOptions(size=None, network=True, heads=("depth",))
    written = export_onnx(*network(rule), tmp_path / "a.onnx", wanted)
    assert written.metadata["input image"].startswith("float32 1 x 3 x 56 x 56, RGB in [0, 1], resized")
    image = torch.rand(1, 3, 56, 56)
    with torch.no_grad():
        expected = network(rule)[0](image)["depth"]
    np.testing.assert_allclose(run(tmp_path / "a.onnx", image.numpy())["depth"], expected, rtol=1e-5)


@pytest.mark.slow
def test_weights_beyond_one_files_limit_stand_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MAX_WEIGHTS", 1000)
    path = tmp_path / "a.onnx"
    written = export_onnx(*network(), path, OnnxExportOptions(size=SIZE, heads=("depth",), floats=True))
    assert written.paths == (path, tmp_path / "a.onnx.data")
    assert set(tmp_path.iterdir()) == set(written.paths)
    image = noise(1).transpose(0, 3, 1, 2).astype(np.float32) / 255
    np.testing.assert_allclose(run(path, image)["depth"], predicted(None, noise(1))["depth"], rtol=1e-5)
    with pytest.raises(ConfigError, match=r"a\.onnx and .*a\.onnx\.data exists already; --overwrite"):
        check_output(path)


def test_what_differs_from_torch_is_not_kept(anyhow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.onnx").write_text("before")
    answers = verify.run_onnx
    monkeypatch.setattr(verify, "run_onnx", lambda *given: [1.001 * y for y in answers(*given)])
    monkeypatch.setattr(export, "save_graph", lambda module, examples, path, **_: shutil.copy(anyhow, path))
    with pytest.raises(ConfigError, match=r"labels: the exported graph is not kept: .* from PyTorch is 1\.0e-03"):
        export_onnx(*network(RULE), tmp_path / "a.onnx", OnnxExportOptions(size=SIZE, batch=None))
    assert [file.name for file in tmp_path.iterdir()] == ["a.onnx"] and (tmp_path / "a.onnx").read_text() == "before"


@pytest.mark.slow
def test_fp16_halves_the_weights_and_keeps_the_types_of_maps(tmp_path: Path) -> None:
    written = export_onnx(*network(), tmp_path / "a.onnx", OnnxExportOptions(size=SIZE, precision="fp16"))
    assert written.metadata["precision"] == "fp16"
    weights = onnx.load(tmp_path / "a.onnx").graph.initializer
    halves = [one for one in weights if one.data_type == onnx.TensorProto.FLOAT16]
    assert len(halves) > 20 and all(np.prod(one.dims) < 100 for one in weights if one not in halves)
    found, expected = run(tmp_path / "a.onnx", noise(1)), predicted(None, noise(1))
    assert {y.dtype for y in found.values()} == {np.dtype(np.float32)}
    for name in ("depth", "labels"):
        off = np.abs(found[name] - expected[name]).max() / np.abs(expected[name]).max()
        assert 1e-6 < off < 5e-3  # it did compute in fp16


def test_gaps_are_shares_of_the_largest_value() -> None:
    theirs = np.array([[[[1.0, -4.0], [np.nan, 2.0]]]])
    assert verify.error_of_values(theirs + 0.1, theirs) == pytest.approx(0.025)
    assert verify.error_of_values(np.nan_to_num(theirs), theirs) == np.inf
    assert verify.error_of_values(theirs[0], theirs) == np.inf
    logits = np.array([[[[1.0, 3.0]], [[2.0, -8.0]]]])  # two classes, two pixels: 1 and 0 win, by 1 and by 11
    assert verify.error_of_ids(np.array([[[1, 0]]]), logits) == 0.0
    assert verify.error_of_ids(np.array([[[0, 0]]]), logits) == pytest.approx(1 / 8)
    assert verify.error_of_ids(np.array([[[1, 255]]]), logits) == np.inf
    many = np.full((1, 300, 1, 2), [0.0, np.nan])  # the second pixel lies outside a window
    assert [verify.error_of_ids(np.array([[[299, none]]]), many) for none in (255, 299)] == [0, np.inf]


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card = network(PreprocessConfig(mode="lower_bound", size=(2016, 2016)))[1]
    for wanted, fault in (
        (OnnxExportOptions(size=SIZE, heads=("deepth",)), "no head 'deepth'. It has: depth, class, labels"),
        (OnnxExportOptions(size=SIZE, heads=("depth",), argmax=True), "no head here classifies pixels"),
        (OnnxExportOptions(size=SIZE, camera=500.0), "--focal: no output of this file depends on it"),
        (OnnxExportOptions(size=(2, 5000)), "that shape is too thin"),
        (OnnxExportOptions(size=(20, 20), box=(0, 30, 0, 20)), "does not lie inside an image of 20x20"),
    ):
        with pytest.raises((ConfigError, DataError), match=re.escape(fault)):
            export_onnx(torch.nn.Identity(), card, tmp_path / "a.onnx", wanted)
    monkeypatch.setattr(export, "NEEDS", ("onnx", "no_such_package"))
    with pytest.raises(ConfigError, match=r"no_such_package is not installed: pip install 'densevit\[onnxruntime\]'"):
        check_output(tmp_path / "a.onnx")
    assert not list(tmp_path.iterdir())


def test_a_predictor_that_is_exported_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, card = network(PreprocessConfig())
    assert export.on_cpu(model) is model
    copied = export.on_cpu(model.bfloat16())
    assert {x.dtype for x in copied.parameters()} == {torch.float32}
    assert {x.dtype for x in model.parameters()} == {torch.bfloat16}
    with pytest.raises(ConfigError, match="no head 'none'"):
        densevit.export(fp32((model, card), flip=True), tmp_path / "a.onnx", image_size=SIZE, heads=["none"])
    assert "export: flip of the Predictor: no part of what is written." in caplog.text


def test_segments_bring_the_classes_of_their_queries_and_uncertainty_its_depth() -> None:
    kinds = {"depth": "metric", "depth/uncertainty": "uncertainty", "a": "panoptic", "a/classes": "query_classes"}
    card = ModelCard(outputs={name: HeadSpec(kind=kind) for name, kind in kinds.items()}, multiple=14)
    for heads, outputs in (
        (("a",), ["a", "a/classes"]),
        (("depth",), ["depth"]),
        (("a/classes", "a"), ["a/classes", "a"]),
        (("depth/uncertainty",), ["depth/uncertainty", "depth"]),
    ):
        assert list(export.check_options(card, OnnxExportOptions(size=SIZE, heads=heads))[0].outputs) == outputs


def test_uncertainty_that_is_exported_alone_is_of_the_calibrated_depth() -> None:
    model, card = toy_network({"depth": {"type": "metric", "uncertainty": "laplace"}})
    depth = replace(card.outputs["depth"], calibration=Calibration(form="affine", a=1.3, b=0.7))
    card = replace(card, outputs={**card.outputs, "depth": depth})
    heads, options = export.check_options(card, OnnxExportOptions(size=SIZE, heads=("depth/uncertainty",)))
    found = export.ExportedPipeline(model, heads, options)(torch.from_numpy(noise(1)))["depth/uncertainty"]
    expected = fp32((model, card)).start(noise(1)).read()["depth/uncertainty"]
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5)


def test_the_network_alone_of_a_sliding_window_takes_one_window() -> None:
    rule = PreprocessConfig(mode="shortest", size=(70, 70), window=(56, 56))
    card = ModelCard(outputs={"labels": HeadSpec(kind="labels")}, multiple=14, resize=rule)
    whole, asked = (export.check_options(card, OnnxExportOptions(size=s, network=True))[1] for s in (None, SIZE))
    assert (whole.size, asked.size) == ((56, 56), SIZE)


@pytest.mark.slow
def test_a_sliding_window_asks_for_a_number_of_pictures(tmp_path: Path) -> None:
    rule = PreprocessConfig(window=(28, 28), stride=(14, 14))
    with pytest.raises(ConfigError, match="sliding window; give a number"):
        export_onnx(*network(rule), tmp_path / "a.onnx", OnnxExportOptions(size=SIZE, batch=None))
    export_onnx(*network(rule), tmp_path / "a.onnx", OnnxExportOptions(size=(28, 42), heads=("depth",)))
    expected = predicted(rule, noise(1, (28, 42)))["depth"]
    np.testing.assert_allclose(run(tmp_path / "a.onnx", noise(1, (28, 42)))["depth"], expected, rtol=1e-5)


def test_the_example_of_the_page_runs_without_us(anyhow: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(noise(1)[0]).save("photo.png")
    Path("photo.png").rename("photo.jpg")  # exact pixels under the page's name
    shutil.copy(anyhow, "model.onnx")
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert "torch" not in code and "densevit" not in code
    space: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), space)
    np.testing.assert_allclose(space["depth"], predicted(RULE, noise(1))["depth"], rtol=1e-5)
    assert "(1, 1, 40, 52) metres from" in capsys.readouterr().out


CANONICAL = {"camera": "canonical", "canonical_focal": 50.0}
MODES = get_args(PreprocessConfig.__dataclass_fields__["mode"].type)
# One with the trained grid of 4 x 4, two with the same number of patches, one smaller and one larger, odd ones.
SIZES = [(56, 56), (40, 68), (68, 40), (29, 30), (90, 111), (57, 83), (14, 70), (70, 43)]


def any_network(
    rule: PreprocessConfig | None = None, camera: str = "none", **encoder: Any
) -> tuple[DenseModel, ModelCard]:
    more: dict[str, Any] = {"rays": {"conditioning": {"rays": {}}}, "none": {}}.get(camera, CANONICAL)
    model, card = toy_network(DEPTH_AND_LABELS, {**SMALL_DPT, "hidden": [8] * 4}, rule, encoder=encoder, **more)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, std=1.0) if "pos_embed" in name else None
    return model, card


def check_sizes(path: Path, model: DenseModel, card: ModelCard) -> None:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    predictor = fp32((model, card))
    for size in SIZES:
        image, given = pictures(size, 2)[1:], {}
        if card.needs_camera:
            given = {"focal": np.array([0.7 * size[0]], np.float32)}
        depth, labels = session.run(["depth", "labels"], {"image": image, **given})
        expected = predictor.start(image, camera=0.7 * size[0]).read()
        assert depth.shape == (1, 1, *size)
        assert expected["depth"].std() > 1e-3
        np.testing.assert_allclose(depth, expected["depth"], rtol=1e-4, err_msg=str(size))
        np.testing.assert_allclose(labels, expected["labels"], atol=1e-4, err_msg=str(size))


@pytest.mark.slow  # test_load.py exports such a file, too, and asks it for two sizes
def test_one_file_takes_every_size(tmp_path: Path) -> None:
    model, card = any_network(pos_embed_interpolation="offset")
    wanted = OnnxExportOptions(size=None, any_size=True)
    written = export_onnx(model, card, tmp_path / "a.onnx", wanted)
    assert written.metadata["input image"] == "uint8 1 x height x width x 3, RGB, as decoded from a file"
    assert written.metadata["output depth"].startswith("float32 1 x 1 x height x width, metric depth")
    (image,) = onnxruntime.InferenceSession(str(tmp_path / "a.onnx")).get_inputs()
    assert image.name == "image" and image.shape == [1, "height", "width", 3]
    check_sizes(tmp_path / "a.onnx", model, card)


@pytest.mark.slow
@pytest.mark.parametrize(("camera", "mode"), [("canonical", "shortest"), ("rays", "longest")])
def test_the_focal_length_goes_with_every_size(tmp_path: Path, camera: str, mode: Any) -> None:
    rule = PreprocessConfig(mode=mode, size=(50, 50), flip=True)
    model, card = any_network(rule, camera, pos_embed_interpolation="offset")
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True))
    check_sizes(tmp_path / "a.onnx", model, card)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "options", "encoder"),
    [
        ("lower_bound", {"output_align_corners": True}, {"pos_embed_interpolation": "offset"}),
        ("longest", {"interpolation": "adaptive", "round_to_uint8": True}, {"pos_embed_interpolation": "bicubic"}),
        ("shortest", {"interpolation": "bilinear", "antialias": True}, {"pos_embed_interpolation": "bilinear"}),
        ("minimal", {"interpolation": "bilinear", "round_to_uint8": True, "flip": True}, {}),
        ("fixed", {"antialias": True, "round_to_uint8": True}, {}),
        ("upper_bound", {"interpolation": "area"}, {"pos_embed_interpolation": "offset"}),
    ],
)
def test_every_way_to_resize(tmp_path: Path, mode: Any, options: dict[str, Any], encoder: dict[str, Any]) -> None:
    model, card = any_network(PreprocessConfig(mode=mode, size=(50, 50), **options), **encoder)
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True, batch=None))
    check_sizes(tmp_path / "a.onnx", model, card)


@pytest.mark.slow
def test_the_surest_queries_of_every_size(tmp_path: Path) -> None:
    decoder = {"type": "eomt", "classes": 3, "queries": 6, "blocks": 1, "segments": True, "keep": 3}
    heads = {"parts": {"type": "panoptic", "classes": 3, "things": (0,)}}
    model, card = toy_network(heads, decoder, encoder={"out_indices": 1})
    export_onnx(model, card, tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True))
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    masks, classes = session.run(None, {"image": pictures((57, 83), 1)})
    expected = fp32((model, card)).start(pictures((57, 83), 1)).read()
    np.testing.assert_allclose(masks, expected["parts"], atol=1e-4)
    np.testing.assert_allclose(classes, expected["parts/classes"][..., 0, 0], atol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_the_graph_rounds_sizes_as_the_predictor_does(mode: Any) -> None:
    config, draw = PreprocessConfig(mode=mode, size=(518, 518)), np.random.default_rng(0)
    graph = NetworkSizes(config, 14, rows=1)
    for h, w in [(1, 2000), (518, 518), (259, 1036), (343, 504), *draw.integers(1, 3000, (300, 2)).tolist()]:
        found = [tuple(size.tolist()) for size in graph(torch.zeros(1).expand(1, h, w, 3))]
        padded = tuple(-(-side // 14) for side in network_size((h, w), config, 14))
        assert found[-1] == padded, (h, w)
        if len(found) == 2:
            assert found[0] == network_steps((h, w), config, 14)[0], (h, w)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (PreprocessConfig(window=(28, 28)), "the number of its sliding windows depends on the size"),
        (PreprocessConfig(margin=3.0), "the width of the margin"),
        (
            PreprocessConfig(mode="fixed", size=(9, 9), interpolation="area", round_to_uint8=True),
            "another rule where a side grows",
        ),
    ],
)
def test_models_that_need_a_known_size_are_refused(tmp_path: Path, rule: PreprocessConfig, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"--image-size dynamic: not for this model: .*{reason}"):
        export_onnx(*any_network(rule), tmp_path / "a.onnx", OnnxExportOptions(size=None, any_size=True))
    assert not list(tmp_path.iterdir())
