"""forward: numbers by hand on a model whose answer is the red channel, or the column it sees."""

import math

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

from densevit.errors import DataError
from densevit.inference.forward import forward
from densevit.model_card import HeadSpec
from densevit.model_inputs import ModelInputs
from densevit.ops.camera import Camera
from densevit.preprocess_config import PreprocessConfig

NATIVE = PreprocessConfig()


class Red(nn.Module):
    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        return {"depth": image[:, :1]}


class Column(nn.Module):
    """Answers with the column number, whatever it sees: not mirrored when the image is."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[tuple[int, ...]] = []

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        self.sizes.append(tuple(image.shape))
        b, _, h, w = image.shape
        return {"depth": torch.arange(w, dtype=image.dtype).expand(b, 1, h, w)}


NORMALS = {"normals": HeadSpec(kind="normals", unit="")}


def test_the_native_rule_hands_the_image_through_untouched() -> None:
    image = torch.rand(2, 3, 5, 7)
    assert torch.equal(forward(Red(), image, NATIVE, 14)["depth"], image[:, :1])


def test_flip_averages_with_the_answer_mirrored_back_also_where_the_rule_asks_for_it() -> None:
    # Columns 0 1 2 3, mirrored back 3 2 1 0: their mean is 1.5 everywhere.
    image = torch.rand(1, 3, 2, 4)
    for rule, options in ((NATIVE, {"flip": True}), (PreprocessConfig(flip=True), {})):
        answer = forward(Column(), image, rule, 1, **options)["depth"]
        assert torch.equal(answer, torch.full((1, 1, 2, 4), 1.5))
    assert torch.allclose(forward(Red(), image, NATIVE, 1, flip=True)["depth"], image[:, :1])


@pytest.mark.parametrize(
    ("rule", "share"),
    [
        (NATIVE, 1),
        (PreprocessConfig(window=(8, 4), stride=(8, 4)), 4 / 16),
        (PreprocessConfig(window=(8, 40), stride=(8, 40)), 1),
        (PreprocessConfig(mode="padded", size=(16, 24)), 24 / 24),
        (PreprocessConfig(mode="padded", size=(8, 24)), 24 / 16),
        (PreprocessConfig(margin=3.0), (16 + 2 * 8) / 16),  # sqrt(16 / 2) * 3 on each side
    ],
)
def test_a_focal_length_is_a_share_of_the_image_and_not_of_what_the_network_sees(
    rule: PreprocessConfig, share: float
) -> None:
    class Focal(nn.Module):
        def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
            return {"focal": torch.full((len(image), 1, 1, 1), 0.5), "depth": image[:, :1]}

    heads = {"focal": HeadSpec(kind="focal", unit="")}
    outputs = forward(Focal(), torch.rand(2, 3, 8, 16), rule, 1, heads=heads)
    assert outputs["focal"].flatten().tolist() == pytest.approx([0.5 * share] * 2)
    assert outputs["depth"].shape == (2, 1, 8, 16)


def test_outside_the_box_there_is_nan_and_inside_what_the_window_gives() -> None:
    model = Column()
    answer = forward(model, torch.rand(1, 3, 6, 8), NATIVE, 1, box=(1, 4, 2, 7))["depth"][0, 0]
    assert model.sizes == [(1, 3, 3, 5)]
    assert torch.equal(answer[1:4, 2:7], torch.arange(5.0).expand(3, 5))
    assert int(answer.isnan().sum()) == 6 * 8 - 3 * 5
    with pytest.raises(DataError, match=r"0:4, 2:9 does not lie inside an image of 6x8"):
        forward(Red(), torch.rand(1, 3, 6, 8), NATIVE, 1, box=(0, 4, 2, 9))


def test_the_model_sees_the_size_of_the_rule_and_the_answer_has_that_of_the_image() -> None:
    model = Column()
    rule = PreprocessConfig(mode="fixed", size=(28, 42))
    answer = forward(model, torch.rand(1, 3, 10, 21), rule, 14)["depth"]
    assert model.sizes == [(1, 3, 28, 42)]
    # Bilinear from 42 to 21 columns averages pairs: 0.5, 2.5, 4.5 ...
    assert torch.allclose(answer, (2 * torch.arange(21.0) + 0.5).expand(1, 1, 10, 21))


def test_a_thin_image_is_refused_before_it_is_enlarged() -> None:
    # lower_bound 518 makes 1 x 5000 into 518 x 2,590,000.
    with pytest.raises(DataError, match="1x5000 image would enter the network at 518x2590000"):
        forward(Red(), torch.rand(1, 3, 1, 5000), PreprocessConfig(mode="lower_bound", size=(518, 518)), 14)


def test_a_margin_continues_the_image_by_reflection_and_is_cut_off_again() -> None:
    # ZoeDepth: int(sqrt(8 / 2) * 3) = 6 rows and int(sqrt(18 / 2) * 3) = 9 columns on either side.
    model, image, rule = Column(), torch.rand(1, 3, 8, 18), PreprocessConfig(margin=3.0)
    answer = forward(model, image, rule, 1)["depth"]
    assert model.sizes == [(1, 3, 20, 36)]
    assert answer[0, 0, 0].tolist() == list(range(9, 27))
    assert torch.equal(forward(Red(), image, rule, 1)["depth"], image[:, :1])
    assert forward(Red(), torch.rand(1, 3, 2, 3), rule, 1)["depth"].shape == (1, 1, 2, 3)  # narrower than the margin


@pytest.mark.parametrize("interpolation", ["area", "adaptive", "bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
def test_images_are_resized_in_fp32_whatever_the_model_computes_in(interpolation: str, antialias: bool) -> None:
    """Area and adaptive are matrix products, which autocast would do in bf16: off by up to 1.24 of 255 grey levels."""

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Tensor] = []

        def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
            self.seen.append(image)
            assert (image @ image.mT).dtype == self.expected
            return {"depth": image[:, :1]}

    image = torch.rand(1, 3, 24, 36)
    rule = PreprocessConfig(mode="fixed", size=(14, 28), interpolation=interpolation, antialias=antialias)
    model = Product()
    for precision, model.expected in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        forward(model, image, rule, 14, precision=precision)
    assert torch.equal(*model.seen)


class Leaning(nn.Module):
    """Normals that lean to the bright side, and mirror with the image as true ones do."""

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
        columns = torch.linspace(-1, 1, image.shape[-1])
        bright = (image.mean(1, keepdim=True) * columns).mean((-2, -1), keepdim=True).expand_as(image[:, :1])
        return {"normals": torch.nn.functional.normalize(torch.cat([4 * bright, 0 * bright, bright * 0 - 1], 1), dim=1)}


def test_mirrored_normals_change_the_sign_of_x_and_all_have_length_1() -> None:
    image = torch.rand(1, 3, 6, 8, generator=torch.Generator().manual_seed(0))
    plain = forward(Leaning(), image, NATIVE, 1, heads=NORMALS)["normals"]
    assert abs(float(plain[0, 0, 0, 0])) > 0.01
    flipped = forward(Leaning(), image, NATIVE, 1, flip=True, heads=NORMALS)["normals"]
    assert torch.allclose(flipped, plain, atol=1e-6)
    resized = PreprocessConfig(mode="fixed", size=(12, 20))
    for options in ({"flip": True}, {"scales": (1.0, 2.0)}, {"box": (1, 5, 2, 8)}):
        y = forward(Leaning(), image, resized, 1, heads=NORMALS, **options)["normals"]  # type: ignore[arg-type]
        lengths = y.norm(dim=1)
        assert torch.allclose(lengths[lengths.isfinite()], torch.ones(()), atol=1e-6)


def test_both_normals_of_a_flip_count_the_same_however_long_resizing_has_left_them() -> None:
    """As when a file, whose normals have length 1, is given the image and its mirror image."""

    class Crease(nn.Module):
        """Normals that disagree in columns 0 and 1, and agree in 2 and 3."""

        def forward(self, image: Float[Tensor, "b 3 h w"]) -> dict[str, Tensor]:
            row = torch.tensor([[1.0, -1, 0, 0], [0, 0, 0, 0], [0, 0, -1, -1]])
            return {"normals": row[None, :, None].expand(1, 3, 2, 4)}

    rule, image = PreprocessConfig(mode="fixed", size=(2, 4)), torch.rand(1, 3, 4, 9)
    flipped = forward(Crease(), image, rule, 1, flip=True, heads=NORMALS)["normals"]
    one = forward(Crease(), image, rule, 1, heads=NORMALS)["normals"]
    mean = one + one.flip(-1) * torch.tensor([-1.0, 1, 1])[:, None, None]
    assert torch.allclose(flipped, mean / mean.norm(dim=1, keepdim=True).clamp_min(1e-12), atol=1e-6)


def test_bicubic_resizing_leaves_no_uncertainty_below_the_least_that_heads_predict() -> None:
    class Stepped(nn.Module):
        def forward(self, image: Tensor) -> dict[str, Tensor]:
            step = torch.tensor([1e-3, 1e-3, 1.0, 1.0]).expand(1, 1, 4, 4)
            return {"depth": torch.ones_like(step), "depth/uncertainty": step}

    rule = PreprocessConfig(output_interpolation="bicubic")
    heads = {"depth": HeadSpec(kind="metric"), "depth/uncertainty": HeadSpec(kind="uncertainty", unit="")}
    scale = forward(Stepped(), torch.rand(1, 3, 32, 32), rule, 1, heads=heads)["depth/uncertainty"]
    assert math.exp(-7) >= float(scale.min()) > 9e-4


def test_bicubic_resizing_leaves_no_declared_range() -> None:
    class Steps(nn.Module):
        def forward(self, image: Tensor) -> dict[str, Tensor]:
            return {"depth": 10 * (torch.arange(8) % 4 > 1).float().expand(1, 1, 8, 8)}

    rule = PreprocessConfig(output_interpolation="bicubic")
    free, bounded = (
        forward(Steps(), torch.rand(1, 3, 21, 21), rule, 1, heads={"depth": HeadSpec(kind="metric", range=limits)})
        for limits in (None, (0.0, 10.0))
    )
    assert free["depth"].max() > 10.1 and free["depth"].min() < -0.1
    assert torch.equal(bounded["depth"], free["depth"].clamp(0, 10))


class Rays(nn.Module):
    """How far the first channel is from x / z of the camera that came with the image."""

    input_names = ("camera",)

    def forward(self, image: Float[Tensor, "b 3 h w"], inputs: ModelInputs) -> dict[str, Tensor]:
        size = (image.shape[-2], image.shape[-1])
        return {"depth": image[:, :1] - Camera(inputs["camera"]).directions(size, size)[:, :1]}


def test_rays_follow_an_image_that_is_resized_corner_to_corner() -> None:
    camera = Camera(torch.tensor([[90.0, 90.0, 10.0, 30.0]]))
    image = camera.directions((60, 80), (60, 80))[:, :1].expand(-1, 3, -1, -1)
    rule = PreprocessConfig(mode="fixed", size=(28, 42), interpolation="bilinear", align_corners=True)
    assert forward(Rays(), image, rule, 14, {"camera": camera.values})["depth"].abs().max() < 1e-5
