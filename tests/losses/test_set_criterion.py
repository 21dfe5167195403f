"""Mask classification: against Mask2Former's own loss, against a loop written out, and at the edges."""

from collections.abc import Iterator
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from densevit.errors import ConfigError
from densevit.losses import point_sampling, set_criterion
from densevit.losses.point_sampling import VOID
from densevit.losses.segmentation import LABEL_LOSSES, LabelLoss
from densevit.losses.set_criterion import BACKGROUND, SEGMENT_LOSSES, BatchSegments, SetCriterion, class_segments
from densevit.structures import IGNORE

H, W = 12, 16


def answers(b: int = 2, layers: int = 2, q: int = 5, k: int = 4, seed: int = 0) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return {
        "masks": (3 * torch.randn(b, layers, q, H // 2, W // 2)).requires_grad_(),
        "classes": torch.randn(b, layers, q, k + 1).requires_grad_(),
        "covers": torch.tensor([H, W]),
    }


def blobs(b: int = 2, k: int = 4, seed: int = 1) -> Tensor:
    coarse = torch.randint(0, k, (b, H // 4, W // 4), generator=torch.Generator().manual_seed(seed))
    return coarse.repeat_interleave(4, 1).repeat_interleave(4, 2)


def loss_of(extras: dict[str, Tensor], labels: Tensor, **options: float) -> Tensor:
    unused = torch.zeros(len(labels), extras["classes"].shape[-1] - 1, H, W)
    return SetCriterion(**options)(unused, labels, extras)  # type: ignore[arg-type]


@pytest.fixture
def fixed_points(monkeypatch: pytest.MonkeyPatch) -> Iterator[Tensor]:
    """Every look at the masks, in matching as in the loss, goes to the same places."""
    places = torch.rand(1, 50, 2, generator=torch.Generator().manual_seed(2))
    for module in (set_criterion, point_sampling):
        monkeypatch.setattr(module, "random_points", lambda n, p, device: places[:, :p].expand(n, -1, -1))
    yield places


def test_it_is_the_loss_of_mask2former(fixed_points: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = pytest.importorskip("transformers.models.mask2former.modeling_mask2former")
    monkeypatch.setattr(torch, "rand", lambda *size, **_: fixed_points[:, : size[1]].repeat(size[0], 1, 1))
    weights = {"class_weight": 2.0, "mask_weight": 5.0, "dice_weight": 5.0, "no_object_weight": 0.1}
    config = SimpleNamespace(
        num_labels=4, train_num_points=40, oversample_ratio=1.25, importance_sample_ratio=0.75, **weights
    )
    criterion = theirs.Mask2FormerLoss(config, {})
    extras, labels = answers(), blobs()
    ids = [image.unique() for image in labels]
    masks = [(image == found[:, None, None]).float() for image, found in zip(labels, ids, strict=True)]
    expected = torch.zeros(())
    for layer in range(2):
        queries, classes = extras["masks"][:, layer], extras["classes"][:, layer]
        pairs = criterion.matcher(queries, classes, masks, ids)
        mask_terms = criterion.loss_masks(queries, masks, pairs, sum(map(len, ids)))
        expected = expected + 2 * criterion.loss_labels(classes, ids, pairs)["loss_cross_entropy"]
        expected = expected + 5 * mask_terms["loss_mask"] + 5 * mask_terms["loss_dice"]
    found = loss_of(extras, labels, points=40, oversample=1.25)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for name in ("masks", "classes"):
        ours, reference = (torch.autograd.grad(x, extras[name], retain_graph=True)[0] for x in (found, expected))
        torch.testing.assert_close(ours, reference, atol=1e-6, rtol=1e-4)


def test_with_segments_it_is_the_loss_of_eomt(fixed_points: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = pytest.importorskip("transformers.models.eomt.modeling_eomt")
    monkeypatch.setattr(torch, "rand", lambda *size, **_: fixed_points[:, : size[1]].repeat(size[0], 1, 1))
    config = theirs.EomtConfig(num_labels=4, train_num_points=40, oversample_ratio=1.25)
    criterion = theirs.EomtLoss(config, {})
    extras, ids = answers(), blobs()
    classes = torch.tensor([[2, 0, 2, 2], [1, 1, 3, 0]])  # several segments of a class
    present = [image.unique() for image in ids]
    masks = [(image == found[:, None, None]).float() for image, found in zip(ids, present, strict=True)]
    labels = [row[found] for row, found in zip(classes, present, strict=True)]
    expected = torch.zeros(())
    for layer in range(2):
        found = criterion(extras["masks"][:, layer], extras["classes"][:, layer], masks, labels)
        expected = expected + 2 * found["loss_cross_entropy"] + 5 * found["loss_mask"] + 5 * found["loss_dice"]
    segments = BatchSegments(ids, classes)
    ours = SetCriterion(points=40, oversample=1.25)(torch.zeros(2, 4, H, W), segments, extras)
    torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)
    for name in ("masks", "classes"):
        grad, reference = (torch.autograd.grad(x, extras[name], retain_graph=True)[0] for x in (ours, expected))
        torch.testing.assert_close(grad, reference, atol=1e-5, rtol=1e-4)


def test_segments_that_are_classes_are_the_semantic_loss_and_absent_ones_change_nothing(fixed_points: Tensor) -> None:
    extras, labels = answers(), blobs()
    labels[0, :3] = IGNORE
    numbers = torch.tensor([3, 0, 2, 1])  # the segment of each class
    ids = torch.where(labels == IGNORE, VOID, numbers[labels.clamp_max(3)])
    classes = torch.tensor([[1, 3, 2, 0, 2, -1]] * 2)  # the fifth occurs nowhere
    found = SetCriterion(points=40)(torch.zeros(2, 4, H, W), BatchSegments(ids, classes), extras)
    torch.testing.assert_close(found, loss_of(extras, labels, points=40))


def test_masks_are_kept_off_the_background_but_not_off_void() -> None:
    segments = torch.zeros(1, H, W, dtype=torch.int64)
    segments[:, :, W // 2 :] = BACKGROUND
    masks = torch.full((1, 1, 1, H // 2, W // 2), 5.0, requires_grad=True)
    extras = {"masks": masks, "classes": torch.zeros(1, 1, 1, 3), "covers": torch.tensor([H, W])}

    def gradient(ids: Tensor) -> Tensor:
        truth = BatchSegments(ids, torch.zeros(1, 1, dtype=torch.int64))
        loss = SetCriterion(class_weight=0)(torch.zeros(1, 2, H, W), truth, extras)
        return torch.autograd.grad(loss, masks)[0][0, 0, 0, :, W // 4 + 1 :]

    assert (gradient(segments) > 0).all()
    assert not gradient(segments.where(segments == 0, VOID)).any()


@pytest.mark.parametrize(("outside", "weight"), [(BACKGROUND, 2.0), (VOID, 0.0)])
def test_the_queries_of_an_image_without_objects_learn_so_and_those_of_an_unknown_one_nothing(
    outside: int, weight: float
) -> None:
    extras = answers(b=1)
    truth = BatchSegments(torch.full((1, H, W), outside), torch.full((1, 1), -1))
    found = SetCriterion()(torch.zeros(1, 4, H, W), truth, extras)
    no_object = -extras["classes"].log_softmax(-1)[..., -1].mean((0, 2)).sum()
    torch.testing.assert_close(found, weight * no_object)


def test_it_is_what_the_formulas_say_written_out(fixed_points: Tensor) -> None:
    # One image, one layer, two classes present, every pairing tried; importance 0, so that points are all the same.
    extras, labels = answers(b=1, layers=1, q=3, k=4), torch.full((1, H, W), 3)
    labels[:, :, :7], labels[:, 9:, :2] = 1, IGNORE
    logits = F.grid_sample(extras["masks"][0], 2 * fixed_points[:, None] - 1, align_corners=False)[0, :, 0].detach()
    known = 1 - at_points(labels[0] == IGNORE, fixed_points)
    truth = np.stack([at_points(labels[0] == i, fixed_points) for i in (1, 3)])
    x = logits.double().numpy()
    p = 1 / (1 + np.exp(-x))
    shares = torch.softmax(extras["classes"][0, 0].double(), -1).detach().numpy()

    def pair(query: int, row: int) -> tuple[float, float]:
        t = truth[row]
        bce = known * -(t * np.log(p[query]) + (1 - t) * np.log(1 - p[query]))
        dice = 1 - (2 * (known * p[query] * t).sum() + 1) / ((known * p[query]).sum() + (known * t).sum() + 1)
        return bce.sum() / known.sum(), dice

    def cost(chosen: tuple[int, ...]) -> float:
        return sum(5 * sum(pair(q, row)) - 2 * shares[q, (1, 3)[row]] for row, q in enumerate(chosen))

    best = min(permutations(range(3), 2), key=cost)
    bce, dice = (sum(pair(q, row)[i] for row, q in enumerate(best)) / 2 for i in (0, 1))
    target, weight = np.full(3, 4), np.full(3, 0.1)
    target[list(best)], weight[list(best)] = (1, 3), 1.0
    ce = (weight * -np.log(shares[range(3), target])).sum() / weight.sum()
    found = loss_of(extras, labels, points=50, oversample=1, importance=0)
    assert found.item() == pytest.approx(2 * ce + 5 * bce + 5 * dice, rel=1e-5)


def at_points(mask: Tensor, places: Tensor) -> np.ndarray:
    return F.grid_sample(mask[None, None].double(), 2 * places[:, None].double() - 1, align_corners=False)[
        0, 0, 0
    ].numpy()


def test_the_pairs_are_those_of_least_cost_and_every_class_present_gets_one() -> None:
    extras, labels = answers(b=3, q=6), blobs(3)
    with torch.no_grad():  # query 4 of image 1 paints class 2 and says so
        wanted = F.interpolate((labels[1:2, None] == 2).float(), size=(H // 2, W // 2), mode="area")[0, 0]
        extras["masks"][1, :, 4] = 20 * wanted - 10
        extras["classes"][1, :, 4] = torch.tensor([0.0, 0, 9, 0, 0])
    pairs = SetCriterion().match(extras["masks"], extras["classes"], class_segments(labels, 4))
    found = {(int(i), int(layer), int(c)): int(q) for i, layer, q, c in zip(*vars(pairs).values(), strict=True)}
    assert found[1, 0, 2] == found[1, 1, 2] == 4
    assert {key[::2] for key in found} == {(i, int(c)) for i in range(3) for c in labels[i].unique()}
    alone = SetCriterion().match(
        extras["masks"][:1], extras["classes"][:1], class_segments(torch.full((1, H, W), 3), 4)
    )
    assert alone.segment.tolist() == [3, 3]


@pytest.mark.slow
def test_the_truth_brings_the_loss_near_its_floor_and_a_descent_finds_it() -> None:
    extras, labels = answers(layers=1), blobs()
    start = loss_of(extras, labels, points=200).item()
    optimiser = torch.optim.Adam([extras["masks"], extras["classes"]], lr=0.3)
    for _ in range(150):
        optimiser.zero_grad()
        loss = loss_of(extras, labels, points=200)
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.35 * start
    shares = extras["classes"][:, 0].softmax(-1)[..., :-1]
    scores = torch.einsum("bqk,bqhw->bkhw", shares, extras["masks"][:, 0].sigmoid())
    said = F.interpolate(scores, size=(H, W), mode="bilinear").argmax(1)
    assert (said == labels).float().mean() > 0.9


def test_without_labels_it_is_exactly_zero_and_so_is_every_gradient() -> None:
    extras = answers()
    loss = loss_of(extras, torch.full((2, H, W), IGNORE))
    loss.backward()
    assert loss.item() == 0
    assert all(extras[name].grad is not None and not extras[name].grad.any() for name in ("masks", "classes"))


def test_an_image_without_labels_changes_nothing_for_the_others(fixed_points: Tensor) -> None:
    extras, labels = answers(), blobs()
    labels[1] = IGNORE
    both = loss_of(extras, labels, points=40)
    first = {name: value[:1] if value.ndim > 1 else value for name, value in extras.items()}
    torch.testing.assert_close(both, loss_of(first, labels[:1], points=40))
    both.backward()
    assert not extras["masks"].grad[1].any() and not extras["classes"].grad[1].any()  # type: ignore[index]


def test_what_masks_say_where_the_labels_ignore_does_not_matter() -> None:
    extras, labels = answers(b=1), blobs(1)
    labels[:, :, W // 2 :] = IGNORE
    for seed in range(3):
        values = []
        for shift in (0.0, 50.0):
            changed = extras["masks"].detach().clone()
            changed[..., W // 4 + 1 :] += shift  # a cell further, since cells reach into their neighbours
            torch.manual_seed(seed)
            values.append(loss_of({**extras, "masks": changed}, labels, points=300, importance=0).item())
        assert values[0] == pytest.approx(values[1], rel=1e-5)


def test_labels_of_an_unpadded_image_lie_in_the_middle_of_what_the_masks_cover() -> None:
    # 12 x 16 is covered by masks of 14 x 19: 1 above and below, 1 left, 2 right.
    labels = class_segments(blobs(1), 4).padded((14, 19)).ids
    assert labels.shape == (1, 14, 19)
    assert torch.equal(labels[:, 1:13, 1:17], blobs(1))
    assert (labels == VOID).sum() == 14 * 19 - H * W


def test_more_classes_than_queries_leave_the_dearest_unmatched() -> None:
    extras, labels = answers(b=1, q=2), blobs(1)
    assert len(labels.unique()) > 2
    loss = loss_of(extras, labels)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(extras["masks"].grad).all()  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e4])
def test_wild_masks_do_not_stop_the_matching(value: float) -> None:
    extras, labels = answers(), blobs()
    with torch.no_grad():
        extras["masks"][0, 0, 1] = value
    loss = loss_of(extras, labels)  # the trainer's guard looks at what comes out
    assert loss.ndim == 0
    assert torch.isfinite(loss) or value != 1e4


def test_half_precision_comes_near_full() -> None:
    extras, labels = answers(), blobs()
    torch.manual_seed(0)
    exact = loss_of(extras, labels)
    torch.manual_seed(0)
    rough = loss_of({name: x.bfloat16() if x.is_floating_point() else x for name, x in extras.items()}, labels)
    assert rough.dtype == torch.float32
    assert rough.item() == pytest.approx(exact.item(), rel=0.02)


def test_labels_at_points_are_the_mask_looked_up_by_grid_sample() -> None:
    labels = blobs(2, k=3)
    labels[0, :3, :5] = VOID
    owner, ids = torch.tensor([0, 0, 1]), torch.tensor([0, 2, 1])
    places = torch.rand(3, 500, 2)
    inside, known = point_sampling.sample_label_masks(labels, owner, ids, places)
    masks = (labels[owner] == ids[:, None, None]).float()
    torch.testing.assert_close(inside, point_sampling.point_sample(masks, places), atol=1e-5, rtol=0)
    unknown, pixels = (
        point_sampling.point_sample(x[owner].float(), places) for x in (labels == VOID, torch.ones_like(labels))
    )
    torch.testing.assert_close(known, 1 - unknown / pixels, atol=1e-5, rtol=0)


def test_uncertain_points_lie_where_a_mask_changes_sign_and_never_on_ignored_pixels() -> None:
    x = torch.linspace(-8, 8, 32).expand(1, 32, 32)  # sure at both sides, 0 in the middle
    labels = torch.zeros(1, 32, 32, dtype=torch.int64)
    labels[:, 16:] = VOID
    found = point_sampling.uncertain_points(
        x, labels, torch.zeros(1, dtype=torch.int64), 400, oversample=6, importance=1
    )
    # A few lie at the border, where a look beyond the outermost centres fades to 0 as well, as in Mask2Former.
    assert ((found[..., 0] - 0.5).abs() < 0.25).float().mean() > 0.9
    assert found[..., 1].max() <= 0.5


def test_it_says_what_it_needs() -> None:
    for registry in (LABEL_LOSSES, SEGMENT_LOSSES):
        assert isinstance(registry.check({"type": "set_criterion"}, "loss").build(), LabelLoss)
    with pytest.raises(ConfigError, match="queries"):
        SetCriterion()(torch.zeros(1, 4, H, W), blobs(1), {})


def test_pixels_to_ignore_are_no_class_of_more_than_255() -> None:
    labels = torch.tensor([[[3, IGNORE, 299]], [[IGNORE, IGNORE, IGNORE]]])
    assert [row.nonzero()[:, 0].tolist() for row in class_segments(labels, 300).occur()] == [[3, 299], []]
