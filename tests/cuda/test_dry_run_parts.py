"""Encoders, decoders, heads and losses train, are saved, resumed and predict on the stand-in, in bf16 and fp16.

What a step may wait for stands here; everything else must not.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from dry_run import dry_run, plan_of

pytestmark = [pytest.mark.fake_cuda, pytest.mark.slow]

DEPTH, LABELS, BOTH = "depth/rooms", "segmentation/rooms", "multitask/rooms"
SMALL = "model.encoder={type: vit, dim: 32, depth: 2, heads: 2, patch_size: 16, image_size: 64, out_indices: 2}"
FOUR = SMALL.replace("depth: 2", "depth: 4").replace(", out_indices: 2", "")
SIMPLE = "model.decoder={type: conv_transpose, stride: 4, min_channels: 8}"
W = str([1.0] * 18)


def depth(*options: str) -> list[str]:
    return [SMALL, SIMPLE, *options]


def losses(task: str, *specs: str) -> str:
    return f"tasks.{task}.losses=[{', '.join(f'{{type: {spec}}}' for spec in specs)}]"


def encoder(text: str) -> list[str]:
    return [f"model.encoder={{{text}}}", "model.decoder={type: dpt, channels: 16}"]


CASES: dict[str, tuple[str, list[str]]] = {
    "all losses of metric depth": (
        DEPTH,
        depth(
            losses(
                "depth", "silog, unbiased: true, warmup: 2", "gradient", "l1", "relative_l1", "mse", "log_l1", "berhu"
            ),
            "objective.loss_weighting=fixed",
        ),
    ),
    "all losses of relative depth": (
        DEPTH,
        depth(
            "model.heads.depth={type: disparity}",
            losses("depth", "ssi", "ssi, align: lstsq, error: mse, trim: 0", "ssi_gradient"),
        ),
    ),
    "losses of pixels": (
        LABELS,
        depth(losses("labels", f"cross_entropy, weights: {W}, label_smoothing: 0.1", f"focal, weights: {W}")),
    ),
    "two tasks, weighted by uncertainty": (BOTH, depth("objective.loss_weighting=uncertainty")),
    "sgd, frozen encoder": (DEPTH, depth("optim={type: sgd, lr: 0.01}", "model.freeze_encoder=true")),
    "checkpointing, stochastic depth": (
        DEPTH,
        [SMALL.replace("dim: 32", "dim: 32, drop_path: 0.2, proj_drop: 0.1"), SIMPLE, "model.grad_checkpointing=true"],
    ),
    "sliding window, flip": (
        DEPTH,
        depth("model.resize={mode: shortest, size: [96, 96], window: [64, 64], stride: [48, 48], flip: true}"),
    ),
    "eomt": (
        LABELS,
        [
            SMALL.replace("depth: 2", "depth: 4").replace("out_indices: 2", "out_indices: [1, 3]"),
            "model.decoder={type: eomt, classes: 18, queries: 20, blocks: 2}",
            "model.heads.labels={type: mask_logits, classes: 18}",
            losses("labels", "set_criterion, points: 200"),
        ],
    ),
    "mask_transformer": (
        LABELS,
        [
            SMALL,
            "model.decoder={type: mask_transformer, classes: 18, layers: 1}",
            "model.heads.labels={type: mask_logits, classes: 18}",
        ],
    ),
    "dpt, batch norm, project": (
        DEPTH,
        [FOUR, "model.decoder={type: dpt, channels: 16, norm: batch, readout: project}"],
    ),
    "linear": (DEPTH, [FOUR, "model.decoder={type: linear, norm: batch, class_token: true}"]),
    "bins": (DEPTH, depth("model.heads.depth={type: bins, spacing: mixed}")),
    "affine": (DEPTH, depth("model.heads.depth={type: affine, activation: exp}", losses("depth", "ssi, space: depth"))),
    "dinov3": (DEPTH, encoder("type: timm, name: vit_small_patch16_dinov3, image_size: 64, out_indices: [0, 1, 2, 3]")),
}

MAY_WAIT = {"eomt": {"copy to the CPU": 1}}
"""The matching of queries and classes runs on the CPU."""


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("case", CASES)
def test_it_trains_and_predicts_on_a_gpu_and_its_step_does_not_wait(case: str, precision: str, tmp_path: Path) -> None:
    config, options = CASES[case]
    plan = plan_of(config, *options)
    found = dry_run(plan, tmp_path, precision=precision, size=(64, 64), resume=precision == "bf16")
    waits: dict[str, int] = {}
    for (what, _), count in found.waits.items():
        waits[what] = waits.get(what, 0) + count
    assert waits == MAY_WAIT.get(case, {}), found.said
    # The loss scale is inverted in float64, by torch.
    assert [where for where in found.float64 if "trainer.py" not in where or precision != "fp16"] == []


LOSSES_THAT_WAIT = {"ohem": 6, "dice": 7, "lovasz": 6}
"""Their sizes depend on the labels: at most so many waits a step, counted here so that they become no more."""


@pytest.mark.parametrize("loss", LOSSES_THAT_WAIT)
def test_losses_whose_sizes_depend_on_the_labels_wait_no_more_than_now(loss: str, tmp_path: Path) -> None:
    plan = plan_of(LABELS, *depth(losses("labels", loss)))
    found = dry_run(plan, tmp_path, size=(64, 64))
    assert sum(found.waits.values()) <= LOSSES_THAT_WAIT[loss], found.said


def test_cuda_graphs_are_told_of_each_step_and_left_out_of_validations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(torch, "compile", lambda forward, **options: calls.append(options["mode"]) or forward)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: calls.append("step"))
    monkeypatch.setattr(torch.compiler, "set_stance", lambda stance: nullcontext(calls.append(stance)))
    dry_run(plan_of(DEPTH, *depth("compile=reduce-overhead")), tmp_path)
    assert calls == [*["reduce-overhead"] * 4, *["step"] * 3, "force_eager"]  # two blocks, two stages
