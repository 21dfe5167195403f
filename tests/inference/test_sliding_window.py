"""Windows that slide, and several looks at an image: by hand, and by mmseg's definition written out."""

import pytest
import torch
from torch import Tensor, nn

from densevit.inference.forward import forward
from densevit.inference.tta import SlidingWindow, window_boxes
from densevit.model_card import HeadSpec
from densevit.preprocess_config import PreprocessConfig


class Context(nn.Module):
    """Two logits a pixel that depend on what else is seen: the pixel's red less the mean of the image's."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, ...]] = []

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        self.seen.append(tuple(image.shape))
        red = image[:, :1] - image[:, :1].mean((2, 3), keepdim=True)
        return {"labels": torch.cat([red, -2 * red], 1), "kind": image.mean((2, 3), keepdim=True)}


def test_windows_stand_by_the_stride_and_the_last_ends_with_the_image() -> None:
    # mmseg: max(side - crop + stride - 1, 0) // stride + 1 windows; 10 pixels, 4 wide, 3 apart: at 0, 3, 6.
    assert [box[2:] for box in window_boxes((4, 10), (4, 4), (3, 3))] == [(0, 4), (3, 7), (6, 10)]
    # 9 pixels: the third would begin at 6 and leave the image, so it begins at 5.
    assert [box[2:] for box in window_boxes((4, 9), (4, 4), (3, 3))] == [(0, 4), (3, 7), (5, 9)]
    # A side shorter than the window is seen whole.
    assert window_boxes((3, 5), (4, 4), (3, 3)) == [(0, 3, 0, 4), (0, 3, 1, 5)]


def test_windows_without_stride_are_spread_as_by_eomt() -> None:
    """tue-mps/eomt, window_imgs_semantic: ceil(side / window) windows share their overlap. 5 windows of 4 on 17 pixels:
    3 pixels among 4 overlaps, at 0, 3.25, 6.5, 9.75 and 13."""
    assert [box[2:] for box in window_boxes((4, 17), (4, 4), None)] == [(0, 4), (3, 7), (6, 10), (9, 13), (13, 17)]
    assert window_boxes((8, 3), (4, 4), None) == [(0, 4, 0, 3), (4, 8, 0, 3)]


def mmseg_slide(image: Tensor, crop: int, stride: int) -> Tensor:
    """slide_inference as its definition reads, one window after the other."""
    h, w = image.shape[-2:]
    preds, count = torch.zeros(len(image), 2, h, w), torch.zeros(1, 1, h, w)
    for i in range(max(h - crop + stride - 1, 0) // stride + 1):
        for j in range(max(w - crop + stride - 1, 0) // stride + 1):
            y2, x2 = min(i * stride + crop, h), min(j * stride + crop, w)
            y1, x1 = max(y2 - crop, 0), max(x2 - crop, 0)
            preds[:, :, y1:y2, x1:x2] += Context()(image[:, :, y1:y2, x1:x2])["labels"]
            count[:, :, y1:y2, x1:x2] += 1
    return preds / count


@pytest.mark.parametrize("size", [(16, 16), (19, 33), (8, 30), (5, 6)])
def test_sliding_is_mmsegs(size: tuple[int, int]) -> None:
    image = torch.rand(2, 3, *size)
    found = SlidingWindow(Context(), (8, 8), (5, 5))(image)["labels"]
    assert torch.allclose(found, mmseg_slide(image, 8, 5), atol=1e-6)


def test_one_window_that_suffices_is_the_model_itself_bit_for_bit() -> None:
    image = torch.rand(2, 3, 8, 7)
    found = SlidingWindow(Context(), (8, 8), (5, 5))(image)
    assert all(torch.equal(found[name], whole) for name, whole in Context()(image).items())


def test_windows_go_through_the_model_together_and_few_at_a_time() -> None:
    model = Context()
    SlidingWindow(model, (8, 8), (4, 4))(torch.rand(2, 3, 16, 24))  # 3 x 5 windows of two images
    assert model.seen == [(16, 3, 8, 8), (14, 3, 8, 8)]


def test_an_answer_for_the_whole_image_is_the_mean_of_the_windows() -> None:
    image = torch.rand(1, 3, 8, 16)
    found = SlidingWindow(Context(), (8, 8), (8, 8))(image)["kind"]
    assert found.shape == (1, 3, 1, 1) and torch.allclose(found, image.mean((2, 3), keepdim=True))


def test_the_window_slides_over_the_image_as_the_network_meets_it() -> None:
    model = Context()
    rule = PreprocessConfig(mode="lower_bound", size=(16, 16), window=(16, 16), stride=(10, 10))
    answer = forward(model, torch.rand(1, 3, 32, 64), rule, 1)["labels"]
    assert model.seen == [(3, 3, 16, 16)]  # 16 x 32 in windows at 0, 10 and 16
    assert answer.shape == (1, 2, 32, 64)


def test_scales_and_mirrored_views_are_averaged_as_probabilities() -> None:
    image = torch.rand(1, 3, 8, 12)
    rule = PreprocessConfig(interpolation="bilinear")
    found = forward(
        Context(), image, rule, 1, flip=True, scales=(0.5, 1.0), heads={"labels": HeadSpec(kind="labels", unit="")}
    )
    looks = []
    for seen in (nn.functional.interpolate(image, scale_factor=0.5, mode="bilinear"), image):
        for mirrored in (False, True):
            answer = Context()(seen.flip(-1) if mirrored else seen)["labels"]
            answer = answer.flip(-1) if mirrored else answer
            looks.append(nn.functional.interpolate(answer, (8, 12), mode="bilinear").softmax(1))
    assert torch.allclose(found["labels"].softmax(1), torch.stack(looks).mean(0), atol=1e-6)
    assert torch.allclose(found["labels"].logsumexp(1), torch.zeros(1, 8, 12), atol=1e-5)  # they are ln p


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        (PreprocessConfig(), (12, 18)),
        (PreprocessConfig(mode="lower_bound", size=(16, 16)), (24, 36)),
        (PreprocessConfig(mode="fixed", size=(16, 20)), (24, 30)),
    ],
)
def test_a_scale_enlarges_what_the_rule_asks_for(rule: PreprocessConfig, seen: tuple[int, int]) -> None:
    model = Context()
    forward(model, torch.rand(1, 3, 8, 12), rule, 1, scales=(1.5,))
    assert model.seen == [(1, 3, *seen)]
