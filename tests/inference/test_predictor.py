"""Predictor: what goes in, what comes out, and what is refused. The model answers with the mean colour in metres."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor, nn
from toy_models import MeanColour, fp32

from densevit.errors import ConfigError, DataError
from densevit.inference.backends.onnx_runtimes import ExternalRuntimeModule
from densevit.inference.forward import check_box
from densevit.inference.image_input import ImageInput
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import Tiling
from densevit.model_card import HeadSpec, ModelCard
from densevit.preprocess_config import PreprocessConfig
from densevit.utils.device import autocast, cast_weights, resolve

CARD = ModelCard(outputs={"depth": HeadSpec(kind="metric", range=(1e-3, 10.0))}, multiple=14)


def predictor(model: nn.Module | None = None, card: ModelCard = CARD, **options: object) -> Predictor:
    return fp32((model or MeanColour(), card), **options)


def picture(h: int = 6, w: int = 9, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (h, w, 3), dtype=np.uint8)


def expected(image: np.ndarray) -> np.ndarray:
    return (1 + image.astype(np.float64).mean(-1) / 255).astype(np.float32)


def test_an_array_a_file_and_a_pil_image_give_the_same_map(tmp_path: Path) -> None:
    image = picture()
    Image.fromarray(image).save(tmp_path / "a.png")
    predict = predictor()
    for given in (image, Image.fromarray(image), tmp_path / "a.png", str(tmp_path / "a.png")):
        depth = predict(given)
        assert depth.dtype == np.float32
        np.testing.assert_allclose(depth, expected(image), atol=1e-6)


def test_several_pictures_give_a_list_in_their_order_and_neighbours_of_one_size_share_a_batch() -> None:
    images = [picture(6, 9, seed) for seed in range(5)] + [picture(4, 4, 5), picture(6, 9, 6)]
    model = MeanColour()
    depths = predictor(model, batch_size=2)(images)
    assert list(map(len, model.seen)) == [2, 2, 1, 1, 1]
    for image, depth in zip(images, depths, strict=True):
        np.testing.assert_allclose(depth, expected(image), atol=1e-6)


def test_generators_and_stacked_arrays_are_several_pictures() -> None:
    stack = np.stack([picture(seed=0), picture(seed=1)])
    predict = predictor()
    np.testing.assert_array_equal(predict(stack), predict(picture(seed=i) for i in range(2)))
    assert predict([]) == []


def test_heads_are_chosen_by_name_and_depth_is_the_default() -> None:
    spec = HeadSpec(kind="metric")
    card = ModelCard(outputs={"depth": spec, "other": spec}, multiple=1)
    predict = predictor(MeanColour("depth", "other"), card)
    np.testing.assert_allclose(predict(picture(), head="other"), 1 + expected(picture()), atol=1e-6)
    assert set(predict.predict_all(picture())) == {"depth", "other"}
    np.testing.assert_array_equal(predict.predict_all(picture())["depth"], predict(picture()))
    with pytest.raises(DataError, match=r"no head 'sky'. It has: depth, other"):
        predict(picture(), head="sky")


def test_images_of_one_pixel_and_one_row_keep_their_size() -> None:
    rule = PreprocessConfig(mode="upper_bound", size=(28, 28))
    card = ModelCard(outputs=CARD.outputs, multiple=14, resize=rule)
    for size in ((1, 1), (1, 5000)):
        assert predictor(card=card)(picture(*size)).shape == size


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (np.zeros((4, 4, 3), np.float32), r"images are uint8, 0 to 255; `\(image \* 255\)"),
        (np.zeros((4, 4), np.uint8), r"`np.repeat\(image"),
        (np.zeros((4, 4, 4), np.uint8), "drops the alpha channel"),
        (np.zeros((3, 4, 5), np.uint8), "puts the channels last"),
        (np.zeros((0, 4, 3), np.uint8), "is empty"),
        (np.zeros((4,), np.uint8), "images are h w 3"),
        (torch.zeros(1, 3, 4, 4), "Models take tensors"),
        (7, "int is no image"),
        (Image.new("I;16", (4, 4)), "has no 8-bit colours"),
        (b"bytes", "bytes is no image"),
        (BytesIO(), "BytesIO is no image.* PIL.Image.open reads what an open file holds"),
        ("missing.jpg", "missing.jpg"),
    ],
)
def test_what_is_no_image_is_refused_with_what_would_fit(given: object, hint: str) -> None:
    with pytest.raises(DataError, match=hint):
        predictor()(given)  # type: ignore[call-overload]


def test_the_model_is_left_in_evaluation_and_maps_need_no_gradient() -> None:
    model = nn.Sequential(nn.Dropout(1.0))
    model.forward = lambda image: {"depth": model[0](image)[:, :1]}  # type: ignore[method-assign]
    assert predictor(model.train())(np.full((2, 2, 3), 255, np.uint8)).min() == 1.0


def test_bf16_computes_in_bf16_and_answers_in_float32() -> None:
    seen: list[torch.dtype] = []

    class Spy(nn.Module):
        def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
            depth = nn.functional.conv2d(image, torch.ones(1, 3, 1, 1))
            seen.append(depth.dtype)
            return {"depth": depth}

    predict = Predictor(Spy(), CARD, device="cpu", precision="bf16")
    assert predict(picture()).dtype == np.float32
    assert seen == [torch.bfloat16] and predict.precision == "bf16"


def test_an_unknown_device_is_refused() -> None:
    if not torch.backends.mps.is_available():  # torch lists all its backends, in a thousand letters
        with pytest.raises(
            ConfigError, match=r"^device: 'mps' cannot be used here \([^.]{,99}(\.[^.]{,99})?\)\. `auto`"
        ):
            Predictor(MeanColour(), CARD, device="mps")
    with pytest.raises(ConfigError, match="device: 'tpu' cannot be used here"):
        Predictor(MeanColour(), CARD, device="tpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0; it is a whole number"),
        ({"batch_size": "auto"}, "batch_size is 'auto'; it is a whole number"),
        ({"flip": "x"}, "flip is 'x'; it is True or False"),
        ({"scales": 0.5}, r"scales are 0\.5; they are one or more numbers"),
        ({"scales": (0.0,)}, "scales are"),
        ({"tiling": 1}, "tiles: a side of 1 pixels"),
    ],
)
def test_options_that_cannot_be_so_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((DataError, ConfigError), match=message):
        predictor().with_options(**options)


def test_a_precision_and_scales_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="no 'half'; choose auto, fp32, tf32, bf16, fp16"):
        resolve("half", torch.device("cpu"))
    for scales in ((), (-1.0,), (1.0, float("nan")), (9.0,)):
        with pytest.raises(DataError, match="numbers over 0 and up to 8"):
            predictor(scales=scales)


@pytest.mark.parametrize("tiling", [None, 4])
def test_a_box_that_is_none_is_refused_of_tiled_pictures_too(tiling: int | None) -> None:
    for box in ((0, 2), (0.0, 2.0, 0.0, 2.0), 3):
        with pytest.raises(DataError, match="it is four whole numbers"):
            check_box(box, (8, 6))
    with pytest.raises(DataError, match="does not lie inside an image of 8x6"):
        predictor(tiling=tiling)(picture(8, 6), box=(0, 9, 0, 6))


def test_tiles_stay_within_the_range_of_the_head() -> None:
    class Bounded(nn.Module):
        def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
            return {"depth": (1 + 8 * image.mean(1, keepdim=True)).clamp(max=8.5)}

    image = np.zeros((16, 32, 3), np.uint8)
    image[:, 12:] = np.linspace(0, 255, 20, dtype=np.uint8)[None, :, None]
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric", range=(1.0, 8.5))}, multiple=1)
    assert predictor(Bounded(), card, tiling=16)(image).max() <= 8.5


@pytest.mark.parametrize("focal", [6.0, [6.0, 6.0], (6.0, 6.0), np.array([6, 6])])
def test_a_focal_length_is_one_number_or_two(focal: object) -> None:
    outputs = {"depth": HeadSpec(kind="metric", focal=3.0)}
    card = ModelCard(outputs=outputs, multiple=1)
    assert np.allclose(predictor(card=card, camera=focal)(picture()), 2 * predictor()(picture()))
    inputs = [ImageInput(picture(), camera) for camera in (focal, focal, 3.0)]
    assert np.allclose(
        predictor(card=card).predict(inputs), np.stack([2, 2, 1])[:, None, None] * predictor()(picture())
    )
    with pytest.raises(TypeError, match="focal: what a call knows of an image is camera, points, inputs"):
        predictor(card=card)(picture(), focal=focal)
    with pytest.raises(DataError, match="0.001 pixels is a field of view of 180 degrees.* not in millimetres"):
        predictor(card=card, camera=0.001)(picture())
    for wrong in ([6.0], float("inf"), float("nan"), (0.0, 6.0)):
        with pytest.raises(DataError, match="a number of pixels above 0, or two, along x and y"):
            predictor(card=card, camera=wrong)(picture())


def test_a_window_is_what_the_model_sees_of_each_picture() -> None:
    image = picture(10, 6)
    depth = predictor(window=lambda h, w: (h - 4, h, 0, w))(image)
    assert np.isnan(depth[:6]).all()
    assert np.array_equal(depth[6:], predictor()(image[6:]))


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("bf16", False), ("tf32", True)])
def test_a_prediction_multiplies_fp32_numbers_exactly_unless_tf32_is_asked_for(precision: str, tf32: bool) -> None:
    class Spy(MeanColour):
        def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
            self.tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
            return super().forward(image)

    predict = predictor(model := Spy())
    vars(predict).update(precision=precision)  # as on a GPU
    predict(picture())
    assert model.tf32 == (tf32, tf32)


def test_weights_in_the_precision_of_the_model_change_no_number() -> None:
    """The casts are those of autocast; LayerNorm and what else computes in fp32 stays as it is."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 1), nn.GELU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 1, 2))
    model, image = nn.Sequential(*layers).eval(), torch.rand(1, 3, 8, 9)
    with torch.no_grad(), autocast("bf16", torch.device("cpu")):
        before = model(image)
        cast_weights(model, "bf16")
        assert torch.equal(model(image), before)
    assert {p.dtype for p in model[0].parameters()} == {torch.bfloat16}
    assert {p.dtype for p in model[3].parameters()} == {torch.float32}


def test_a_predictor_whose_weights_were_cast_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lost digits; load the checkpoint without"):
        predictor(cast_weights=True).save_pretrained(tmp_path / "x")


def test_threads_with_cameras_of_their_own_share_one_predictor() -> None:
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric", focal=50.0)}, multiple=1)
    shared, images = predictor(card=card, batch_size=2), [picture(seed=seed) for seed in range(40)]

    def depths(camera: float) -> list[np.ndarray]:
        return shared.predict(ImageInput(image, camera) for image in images)

    with ThreadPoolExecutor(2) as threads:
        for camera, found in zip((50.0, 100.0), threads.map(depths, (50.0, 100.0)), strict=True):
            for image, depth in zip(images, found, strict=True):
                np.testing.assert_allclose(depth, camera / 50 * expected(image), rtol=1e-5)


def test_a_predictor_does_not_change_and_other_options_make_another_one_on_the_same_model() -> None:
    one = predictor()
    with pytest.raises(AttributeError, match="camera: a Predictor does not change"):
        one.camera = 50.0  # type: ignore[attr-defined]
    other = one.with_options(flip=True, camera=50.0)
    assert (one.flip, one.cameras.override) == (False, None) and (other.flip, other.cameras.override) == (True, 50.0)
    assert other.model is one.model and pickle.loads(pickle.dumps(other)).flip
    with pytest.raises(TypeError, match="focus: options that change are card, flip"):
        one.with_options(focus=1)
    assert one.with_options(tiling=64).tiling == Tiling(64)
    with pytest.raises(ConfigError, match="runtime: no 'x'"):
        one.with_options(runtime="x")
    assert isinstance(one.with_options(runtime="onnxruntime").network, ExternalRuntimeModule)


def test_repr_says_what_the_predictor_is() -> None:
    card = ModelCard(outputs={"depth": HeadSpec(kind="metric")}, multiple=1)
    made = Predictor(nn.Conv2d(3, 1, 1), card, device="cpu", precision="bf16")
    computed = "device='cpu', precision='bf16' (8 bits of mantissa; 'fp32' to compare)"
    assert repr(made) == f"Predictor(Conv2d, 0.0M parameters, heads={{depth: metric depth}}, {computed})"
