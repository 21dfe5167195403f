"""Depth from a video without ground truth: trained, resumed, shared by processes, scored; and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forked import ForkServer
from opened import assert_alike, first_step, opened, three_steps, with_first_batch
from scipy.spatial.transform import Rotation
from small_video import FOCAL, SIZE, small_video, video_config
from torch import Tensor

import densevit
from densevit.cli.main import main
from densevit.config import parser
from densevit.data.datasets.base import Dataset
from densevit.engine.logger import read_csv
from densevit.engine.trainer import Trainer
from densevit.errors import ConfigError, DataError
from densevit.model_card import ModelCard
from densevit.objectives.self_supervised import evaluation
from densevit.objectives.self_supervised.geometry import FramePairs
from densevit.objectives.self_supervised.monitor import Monitor
from densevit.objectives.self_supervised.objective import SelfSupervised
from densevit.ops.geometry import pinhole
from densevit.structures import Sample
from densevit.weights import checkpoint


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return video_config(tmp_path_factory.mktemp("video"))


def run(config: Path, name: str, **changes: Any) -> Path:
    output = config.parent / name
    densevit.train(config, output=str(output), **changes)
    return output


@pytest.fixture(scope="module")
def whole(config: Path) -> Path:
    return run(config, "whole", objective={"type": "self_supervised", "motion": "matches"}, ema=0.9)


def objective_of(trainer: Trainer) -> SelfSupervised:
    assert isinstance(trainer.objective, SelfSupervised)
    return trainer.objective


def test_with_known_poses_the_loss_is_least_at_the_true_depth(config: Path) -> None:
    """In metres: no scale is free."""
    trainer, batch = with_first_batch(config)
    objective = objective_of(trainer)
    assert batch.depth is not None and batch.pose is not None

    def loss(factor: float) -> float:
        return float(objective.video_losses(factor * batch.depth, batch)["photometric"])

    losses = [loss(factor) for factor in (0.5, 0.8, 0.9, 1, 1.1, 1.25, 2)]
    assert min(losses) == losses[3] < 0.4 * losses[0]
    assert losses[2] < losses[1] and losses[4] < losses[5]


@pytest.mark.slow
def test_with_measured_motion_the_losses_ignore_the_scale_of_depth_unless_distances_are_known(config: Path) -> None:
    def loss(factor: float) -> Tensor:
        losses = objective_of(trainer).video_losses(factor * batch.depth, batch)
        return torch.stack([losses["photometric"], losses["geometry"]])

    trainer, batch = with_first_batch(config, "objective={type: self_supervised, motion: matches}")
    torch.testing.assert_close(loss(3.0), loss(1.0), rtol=1e-4, atol=1e-7)
    trainer, batch = with_first_batch(config, "objective={type: self_supervised, motion: matches, velocity: true}")
    losses = [float(loss(factor)[0]) for factor in (0.5, 0.8, 1, 1.25, 2)]
    assert min(losses) == losses[2] < 0.7 * losses[0]


def test_micro_batches_divide_the_losses_of_other_tasks_by_their_own_counts(config: Path) -> None:
    """The depth losses, which are not learned from here, take sums of the step, too."""
    lens = ["model.heads.lens={type: focal}", "tasks.lens={type: focal}"]
    lens += ["model.decoders={lens: {type: pool, pool: average}}"]
    words = ["tasks.depth={losses: [{type: silog, pool: batch}]}", *lens]
    split, whole = (
        trainer.forward_backward_step(batches)
        for trainer, batches in (opened(config, *words, f"grad_accum_steps={count}") for count in (2, 1))
    )
    torch.testing.assert_close(split.losses["lens/log_l1"], whole.losses["lens/log_l1"], rtol=1e-5, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("motion", ["poses", "matches"])
def test_a_mirrored_clip_has_the_same_losses(config: Path, motion: str) -> None:
    """Image, camera and motion are mirrored together: the principal point is right."""
    found = []
    for p in (0.0, 1.0):
        trainer, batch = with_first_batch(
            config,
            f"data.transforms=[{{type: random_crop, size: [40, 48]}}, {{type: hflip, p: {p}}}]",
            f"objective.motion={motion}",
        )
        found.append(objective_of(trainer).video_losses(1.1 * batch.depth, batch))
    for name, loss in found[0].items():
        torch.testing.assert_close(loss, found[1][name], rtol=1e-4, atol=1e-7)


@pytest.mark.slow
def test_micro_batches_give_the_loss_and_gradient_of_the_whole_batch(config: Path) -> None:
    words = ["objective={type: self_supervised, motion: matches, occlusion: true, brightness: true, ground_truth: 1}"]
    loss, whole = first_step(config, *words)
    split_loss, split = first_step(config, *words, "grad_accum_steps=2")
    torch.testing.assert_close(split_loss, loss, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(split, whole, rtol=1e-3, atol=1e-5 * float(whole.abs().max()))


@pytest.mark.slow
def test_two_processes_train_as_one(config: Path, fork_server: ForkServer, tmp_path: Path) -> None:
    words = ["objective={type: self_supervised, motion: matches}", "batch_size=12"]
    one, two = (three_steps(fork_server, count, config, *words, output=tmp_path / str(count)) for count in (1, 2))
    assert_alike(one, two)
    scores = [read_csv(tmp_path / f"{count}/val.csv")[-1]["photometric"] for count in (1, 2)]
    assert scores[1] == pytest.approx(scores[0], rel=1e-4)


@pytest.mark.slow
def test_stopped_and_resumed_the_run_is_bit_equal(config: Path, whole: Path) -> None:
    again = config.parent / "again"
    densevit.train(whole / "config.yaml", resume=whole / "checkpoints/step-00000002", output=str(again))
    first, second = (checkpoint.read(folder / "checkpoints/step-00000004")[0] for folder in (whole, again))
    assert first and all(torch.equal(value, second[name]) for name, value in first.items())


def test_validation_scores_held_out_clips_and_trajectories(whole: Path) -> None:
    for row in read_csv(whole / "val.csv"):
        assert 0 < row["photometric"] < 1 and row["ate"] >= 0 and row["rpe"] > 0 and row["rpe_degrees"] > 0
    lines = np.loadtxt(whole / "trajectories/images.txt")
    assert lines.shape == (9, 8) and lines[0].tolist() == [0, 0, 0, 0, 0, 0, 0, 1]
    best = min(read_csv(whole / "val.csv"), key=lambda row: row["photometric"])
    assert (whole / "checkpoints/best").resolve().name == f"step-{int(best['step']):08d}"


def test_depth_that_moves_all_pixels_out_of_view_does_not_look_good(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fewer pixels a neighbour sees, the fewer count: the others are no match, not a perfect one."""
    trainer, batch = with_first_batch(config)
    objective = objective_of(trainer)

    def error(factor: float) -> float:
        monkeypatch.setattr(objective, "_held_out_depth", lambda batch: (batch, factor * batch.depth))
        return float(objective._held_out_error(batch))

    assert error(1) < 0.5 * error(0.2) and math.isnan(error(0.01))


def test_depth_is_used_only_where_it_is_asked_for(config: Path) -> None:
    trainer, batch = with_first_batch(config)
    assert set(trainer.objective.losses(batch, 0)) == {"photometric", "smoothness", "geometry"}
    words = ["objective={type: self_supervised, ground_truth: 0.5}", "tasks.depth.losses=[{type: silog}]"]
    trainer, batch = with_first_batch(config, *words)
    losses = trainer.objective.losses(batch, 0)
    prediction = trainer.objective.predict(batch)["depth"].float()
    supervised = trainer.tasks["depth"].losses(prediction, batch, 0)["silog"]
    torch.testing.assert_close(losses["silog"], 0.5 * supervised)


def test_a_mixture_may_have_a_source_without_depth(config: Path) -> None:
    data = parser.read(config)[0].data.train
    sources = [{"name": "video", "data": data, "truth": "none"}, {"name": "depth", "data": data, "truth": "metric"}]
    objective = {"type": "self_supervised", "ground_truth": 1.0}
    mix = {"type": "mix", "sources": [{**source, "weight": 1} for source in sources]}
    output = run(config, "mix", **{"data.train": mix, "objective": objective, "steps": 2})
    row = read_csv(output / "train.csv")[-1]
    assert row["depth/silog"] > 0 and row["photometric"] > 0 and "video/silog" not in row


PRIOR = {
    "model.heads.depth": {"type": "disparity"},
    "tasks.depth.losses": [{"type": "ssi"}, {"type": "ssi_gradient", "weight": 0.5}],
}


@pytest.fixture(scope="module")
def pseudo_labels(config: Path) -> Path:
    """The images, their camera and the disparity of a teacher, in one folder of images."""
    teacher = run(config, "teacher", **PRIOR, **{"objective.type": "supervised", "best": None, "steps": 1})
    root = small_video(config.parent / "labelled", columns="camera pose")
    camera = {"fx": FOCAL, "fy": FOCAL, "cx": (SIZE[1] - 1) / 2, "cy": (SIZE[0] - 1) / 2}
    (root / "intrinsics.json").write_text(json.dumps(camera))
    assert main(["pseudo-label", str(teacher), str(root / "images"), "--output", str(root / "pseudo")]) == 0
    return root


@pytest.mark.slow
@pytest.mark.parametrize("images", ["same", "others"])
def test_a_published_model_is_a_prior_beside_the_photometric_loss(
    config: Path, pseudo_labels: Path, images: str
) -> None:
    """Its maps stand beside the frames of the walk, or label images without camera in a source of their own."""
    walk = {"type": "folder", "root": str(pseudo_labels), "require_depth": False}
    sources = {
        "same": [{"data": {**walk, "depths": "pseudo"}, "truth": "disparity"}],
        "others": [
            {"name": "walk", "data": {**walk, "manifest": "manifest.csv"}, "truth": "none"},
            {"name": "prior", "data": {"type": "pseudo_labels", "root": str(pseudo_labels / "pseudo")}},
        ],
    }[images]
    changes = {
        **PRIOR,
        "data.train": {"type": "mix", "sources": sources},
        "data.val": {"type": "mix", "sources": sources[:1]},
        "objective.motion": "matches" if images == "same" else "poses",
        "objective.ground_truth": 0.1,
    }
    trainer, batch = with_first_batch(config, *(f"{key}={json.dumps(value)}" for key, value in changes.items()))
    losses = trainer.objective.losses(batch, 0)
    parameters = [p for p in trainer.model.parameters() if p.requires_grad]
    for name in ("photometric", "ssi", "ssi_gradient"):
        gradients = torch.autograd.grad(losses[name], parameters, retain_graph=True, allow_unused=True)
        assert sum(float(g.abs().sum()) for g in gradients if g is not None) > 0, name
    row = read_csv(run(config, f"prior-{images}", **changes, steps=3) / "train.csv")[-1]
    assert row["photometric"] > 0 and row["ssi"] > 0 and row["ssi_gradient"] > 0
    assert images == "same" or (row["prior/ssi"] > 0 and "walk/ssi" not in row)


def test_a_disparity_head_learns_up_to_a_scale(config: Path) -> None:
    trainer, batch = with_first_batch(config, "model.heads.depth={type: disparity}", "objective.geometry=0")
    objective = objective_of(trainer)
    depth = objective.depth(torch.full_like(batch.image[:, :1], 0.24), batch)
    torch.testing.assert_close(depth, torch.full_like(depth, 4.0))
    with pytest.raises(ConfigError, match=r"model\.heads\.depth: depth up to scale and shift moves no pixel"):
        with_first_batch(config, "model.heads.depth={type: affine}")


@pytest.mark.parametrize("turn", [0, 1.5], ids=["stands", "turns"])
def test_a_camera_that_stands_or_only_turns_is_refused(config: Path, tmp_path: Path, turn: float) -> None:
    for columns in ("camera pose", "camera"):
        root = small_video(tmp_path / columns.replace(" ", "_"), step=(0, 0, 0), turn=turn, columns=columns)
        data = {"type": "folder", "root": str(root), "manifest": "manifest.csv", "require_depth": False}
        changes = {
            "data.train": data,
            "data.val": data,
            "objective.motion": "poses" if "pose" in columns else "matches",
            "data.on_corrupt": "skip",
        }
        if columns == "camera":
            (root / "images/004.png").write_bytes(b"damaged")
        pairs = 8 if "pose" in columns else 6
        with pytest.raises(
            DataError, match=rf"median parallax of {pairs} pairs .* is 0(\.\d+)? pixels at 48x64, .* only turns"
        ):
            run(config, "refused", **changes)


def test_what_teaches_nothing_is_refused_before_the_first_step(config: Path, tmp_path: Path) -> None:
    for changes, error, why in (
        ({"data.clip": 1}, ConfigError, r"data\.clip: objective 'self_supervised' compares neighbouring frames"),
        ({"data.transforms": [{"type": "random_scale"}]}, ConfigError, "RandomScale divides depth, as no camera does"),
        ({"data.clip_stride": 2, "objective.strides": [1, 2]}, ConfigError, r"data\.clip_stride: objective\.strides"),
        (
            {"model.heads.depth.uncertainty": "laplace"},
            ConfigError,
            r"uncertainty: is learned from ground truth",
        ),
        ({"objective.velocity": 1.0}, ConfigError, r"objective\.velocity: motion 'poses' has its distances"),
        ({"parallel": "fsdp"}, ConfigError, r"parallel: objective 'self_supervised' needs ddp"),
    ):
        with pytest.raises(error, match=why):
            run(config, "refused", **changes)
    for columns, why in (
        ("pose", "the camera of '.*' is not known"),
        ("camera", "'poses' and objective.velocity need the pose of each image"),
    ):
        root = small_video(tmp_path / columns, columns=columns)
        data = {"type": "folder", "root": str(root), "manifest": "manifest.csv", "require_depth": False}
        with pytest.raises(DataError, match=why):
            run(config, "refused", **{"data.train": data, "data.val": data})
    assert not (config.parent / "refused").exists()


def test_a_collapse_is_told_once_with_its_cause() -> None:
    monitor = Monitor()
    flat, still = torch.full((2, 1, 4, 4), 3.0), torch.zeros(2, 4, 4, dtype=torch.bool)
    far = torch.eye(4).repeat(2, 1, 1)
    far[:, 0, 3] = 5
    far[1, 0, 3] = 1000  # of a pair that is not known
    known, pairs = torch.tensor([True, False]).view(2, 1, 1, 1), FramePairs.of(2, 2, flat.device)
    monitor.see(flat, far, known, torch.stack([~still[0], still[1]]), pairs)
    assert monitor.values()["masked"] == 0  # an image of which no motion is known is not compared
    monitor.see(flat, far, known, still, pairs)
    values = monitor.values()
    assert values == pytest.approx({"depth_spread": 0, "masked": 1, "motion": 5 / 3}, abs=1e-6)
    told = list(monitor.warnings(values))  # at the beginning of a run depth is constant
    assert [text.split(":")[0] for text in told] == [
        "100% of all pixels are masked", "the camera moves by 1.7 times the median depth from frame to frame",
    ]  # fmt: skip
    monitor.progress = 0.5
    (told,) = monitor.warnings(values)
    assert told.startswith("depth is all but constant") and "Lower optim.lr" in told
    assert not list(monitor.warnings(values))


def test_the_times_of_a_trajectory_are_the_numbers_of_its_frames(tmp_path: Path) -> None:
    class Walk(Dataset):
        names, video = [f"walk/{i}" for i in range(8)], True

        def read(self, index: int) -> Sample:
            return Sample(name=self.names[index], image=np.zeros((4, 6, 3), np.uint8))

    card = ModelCard(outputs={}, multiple=1)
    walk = Walk()
    for stride, following, numbers in ((3, None, [0, 3, 6]), (1, [2, -1, -1, 5, 6, 6, 7, -1], [0, 2, 3, 5, 6, 7])):
        walk.next_frames = None if following is None else np.array(following)
        videos = evaluation.HeldOutVideos(walk, 2, stride, card)
        found = videos.trajectories(lambda batch: torch.eye(4).expand(len(batch) - 1, 4, 4))
        assert evaluation.trajectory_scores(found, tmp_path) == {}
        assert np.loadtxt(tmp_path / "walk.txt")[:, 0].tolist() == numbers


def test_the_frames_of_a_held_out_clip_have_the_size_of_the_first() -> None:
    class Walk(Dataset):
        names, video = ["walk/0", "walk/1"], True

        def read(self, index: int) -> Sample:
            camera = pinhole(10, 10, 5.5, 3.5)
            return Sample(name=self.names[index], image=np.zeros((4 + 4 * index, 12, 3), np.uint8), intrinsics=camera)

    (batch,) = evaluation.HeldOutVideos(Walk(), 2, 1, ModelCard(outputs={}, multiple=1)).batches(0, 1)
    assert batch.image.shape == (2, 3, 4, 12)
    assert batch.intrinsics[1].tolist() == pinhole(10, 5, 5.5, 1.5).tolist()  # half as high, borders to borders


def test_clips_and_trajectories_with_an_unreadable_frame_are_skipped_where_they_may_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Walk(Dataset):
        names, video = [f"{walk}/{i}" for walk in "ab" for i in range(3)], True

        def read(self, index: int) -> Sample:
            if index == 1:
                raise DataError("a/1.png: damaged.")
            return Sample(name=self.names[index], image=np.zeros((4, 6, 3), np.uint8))

    card = ModelCard(outputs={}, multiple=1)
    skipping, strict = (evaluation.HeldOutVideos(Walk(), 2, 1, card, on_corrupt) for on_corrupt in ("skip", "raise"))
    assert [batch.names for batch in skipping.batches(0, 1)] == [("b/0", "b/1"), ("b/1", "b/2")]
    tracked = skipping.trajectories(lambda batch: torch.eye(4).expand(len(batch) - 1, 4, 4))
    assert [name for name, _, _ in tracked] == ["b"]
    assert caplog.messages == ["not validated: sample 1 ('a/1'): a/1.png: damaged."] * 3
    with pytest.raises(DataError, match="damaged"):
        list(strict.batches(0, 1))
    limited = evaluation.HeldOutVideos(Walk(), 2, 1, card, "skip", max_corrupt_fraction=0)
    for found in (limited.batches(0, 1), limited.trajectories(lambda batch: batch.pose)):
        with pytest.raises(DataError, match=r"1 unreadable samples in a validation, where 0 of 6 may be skipped.*a/1"):
            list(found)


def test_errors_of_a_trajectory_ignore_a_similarity_and_are_those_of_evo() -> None:
    draw = np.random.default_rng(0)
    true = np.tile(np.eye(4), (6, 1, 1))
    true[:, :3, :3] = Rotation.random(6, random_state=0).as_matrix()
    true[:, :3, 3] = draw.normal(size=(6, 3))
    moved = true.copy()
    turn = Rotation.random(random_state=1).as_matrix()
    moved[:, :3, :3] = turn @ true[:, :3, :3]
    moved[:, :3, 3] = 0.3 * true[:, :3, 3] @ turn.T + 2
    assert evaluation.trajectory_errors(moved, true) == pytest.approx(
        dict.fromkeys(("ate", "rpe", "rpe_degrees"), 0), abs=1e-5
    )
    # By hand: a square's corner displaced out of its plane by d; each of two steps is off by d, in the corner's axes.
    square = np.tile(np.eye(4), (4, 1, 1))
    square[:, :2, 3] = [[0, 0], [1, 0], [1, 1], [0, 1]]
    bent = square.copy()
    bent[1, :3, :3] = Rotation.from_euler("z", 9, degrees=True).as_matrix()
    errors = evaluation.trajectory_errors(bent, square)
    assert errors["ate"] == pytest.approx(0, abs=1e-9)
    assert errors["rpe_degrees"] == pytest.approx(math.sqrt(2 * 9**2 / 3))
