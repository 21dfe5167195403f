"""Training on a mixture: each head learns from what fits it; scores, losses and draws of each source; features
held close to a frozen encoder's."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from forked import ForkServer
from opened import opened, with_first_batch
from shell import Shell
from small import add_cameras
from small_mixture import small_mixture_config

from densevit.builder import plan as planning
from densevit.cli.main import main
from densevit.engine.logger import read_csv
from densevit.engine.monitors import COLUMNS as SPEED
from densevit.objectives.feature_alignment import feature_alignment
from densevit.weights import checkpoint


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    assert main(["train", str(small_mixture_config(folder)), "steps=12", "save_every=1", "keep_last=0"]) == 0
    return folder


def test_the_logs_have_losses_draws_and_scores_of_each_source(folder: Path) -> None:
    train, val = read_csv(folder / "run/train.csv"), read_csv(folder / "run/val.csv")
    last = train[-1]
    assert [last[f"{name}/samples"] for name in ("rooms", "web", "seg")] == [24, 12, 12]  # 2 : 1 : 1 of 48
    assert last["rooms/depth/silog"] == pytest.approx(last["depth/silog"])  # its only teacher
    mean = (2 * last["rooms/relative/ssi"] + last["web/relative/ssi"]) / 3  # 2 images and 1 in the step
    assert last["relative/ssi"] == pytest.approx(mean, rel=1e-5)
    assert not [name for name in last if name.startswith(("web/depth", "seg/depth", "web/labels", "rooms/labels"))]
    assert {"rooms/depth/abs_rel", "seg/depth/abs_rel", "rooms/labels/miou", "seg/labels/miou"} <= val[-1].keys()


def test_an_image_moves_only_the_heads_that_its_ground_truth_fits(folder: Path) -> None:
    trainer, batches = opened(folder / "mix.yaml", "batch_size=1")
    taught: dict[str, set[str]] = {}
    for read, _ in zip(batches, range(12), strict=False):
        batch = trainer.upload(read)
        trainer.optimizer.zero_grad()
        torch.stack(list(trainer.objective.losses(batch, 0).values())).sum().backward()
        moved = {name for name, head in trainer.model.heads.items() if any(p.grad.any() for p in head.parameters())}
        taught.setdefault(batch.sources[0], set()).update(moved)
    assert taught == {"rooms": {"depth", "relative"}, "web": {"relative"}, "seg": {"labels"}}


POOL = "model.decoders.x={type: pool, pool: average}"


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("x", ["model.heads.x={type: normals}", "tasks.x.type=normals"]),
        ("x", ["model.heads.x={type: normals}", "tasks.x.type=normals", "data.train.sources.0.truth=relative"]),
        ("x", ["model.heads.x={type: focal}", "tasks.x.type=focal", POOL]),
        ("depth", ["model.camera=canonical"]),
    ],
)
def test_a_head_that_needs_cameras_learns_from_the_sources_that_have_them(
    folder: Path, tmp_path: Path, head: str, words: list[str]
) -> None:
    shutil.copytree(folder / "a", tmp_path / "cameras")
    add_cameras(tmp_path / "cameras")
    root = f"data.train.sources.0.data.root={tmp_path / 'cameras'}"
    trainer, _ = opened(folder / "mix.yaml", root, f"{SOURCES}.1.truth=metric", *words)
    assert list(trainer.objective.router.policies[head]) == ["rooms"]
    assert trainer.objective.router.shares[head] == 0.5  # by which its loss is divided


@pytest.mark.slow
def test_one_named_score_picks_the_best_checkpoint(folder: Path, shell: Shell) -> None:
    words = ["train", str(folder / "mix.yaml"), f"output={folder / 'best'}", "steps=4", "validate_every=1"]
    assert main([*words, "best=seg/labels/miou"]) == 0
    rows = read_csv(folder / "best/val.csv")
    best = max(rows, key=lambda row: row["seg/labels/miou"])["step"]
    assert checkpoint.step_of((folder / "best/checkpoints/best").resolve()) == best
    told = shell.refused(*words, "best=seg/labels/mio", f"output={folder / 'none'}")
    assert "best: no score 'seg/labels/mio'. Did you mean 'seg/labels/miou'" in told


def test_without_a_name_it_is_of_a_source_that_has_what_is_scored(folder: Path) -> None:
    words = ["data.val.sources.0.truth=labels", "data.val.sources.1.truth=metric"]
    assert opened(folder / "mix.yaml")[0].checkpointer.folder.score == "rooms/depth/abs_rel"
    assert opened(folder / "mix.yaml", *words)[0].checkpointer.folder.score == "seg/depth/abs_rel"


SOURCES = "data.train.sources"
ALIGN = "objective.align_features"
ENCODER = "{type: vit, dim: 32, depth: 1, heads: 2, patch_size: 8, image_size: 64, out_indices: 1}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([f"{SOURCES}.2.truth=none"], "data.train.sources.2: the ground truth of 'seg' fits no task: it has none"),
        ([f"{SOURCES}.2.truth=affine"], "it has affine; depth from metric; relative from disparity, metric, relative"),
        ([f"{SOURCES}.0.truth=labels"], "tasks.depth: no source of data.train has ground truth that it learns from"),
        ([f"{SOURCES}.1.weight=0"], "data.train.sources.1.weight: input should be greater than 0, got 0"),
        ([f"{SOURCES}.0.weigth=1"], "data.train.sources.0.weigth: no such option. Did you mean 'weight'?"),
        ([f"{SOURCES}.0.data.rooot=x"], "data.train.sources.0.data.rooot: no such option. Did you mean 'root'?"),
        ([f"{SOURCES}.0.protocol=nyu_eigan"], "sources.0.protocol: no protocol 'nyu_eigan'. Did you mean 'nyu_eigen'"),
        (["tasks.depth.sources=[roms]"], "tasks.depth.sources.0: no source 'roms' in data.train. Did you mean 'rooms'"),
        ([f"{ALIGN}.encoder={ENCODER.replace('32', '48')}"], "has 48 channels at stride 8, that of"),
        ([f"{ALIGN}.encoder={{type: vitt}}"], "align_features.encoder.type: no encoder 'vitt'. Did you mean 'vit'"),
        ([f"{ALIGN}.encoder={ENCODER}", "model.freeze_encoder=true"], "needs a trained encoder"),
        ([f"{ALIGN}.encoder={ENCODER}", "model.trainable=[decoder, heads]"], "needs a trained encoder"),
        ([f"{ALIGN}.encoder={ENCODER}", "compile=true"], "needs a trained encoder, and neither"),
        ([f"{ALIGN}.encoder={ENCODER}", f"{ALIGN}.sources=[wep]"], "no source 'wep' in data.train"),
        ([f"{ALIGN}.encoder={{type: vit, weights: none.pth}}"], "align_features.encoder.weights: no such file"),
    ],
)
def test_what_does_not_fit_together_is_told_before_training(
    folder: Path, tmp_path: Path, shell: Shell, words: list[str], message: str
) -> None:
    assert message in shell.refused("train", folder / "mix.yaml", f"output={tmp_path / 'run'}", *words)
    assert not (tmp_path / "run").exists()


def test_labels_without_names_join_no_others(folder: Path, tmp_path: Path, shell: Shell) -> None:
    """They were trained as if their ids were those of the joined classes."""
    shutil.copytree(folder / "a", tmp_path / "nameless")
    (tmp_path / "nameless/classes.json").unlink()
    words = [f"{SOURCES}.0.data.root={tmp_path / 'nameless'}", f"output={tmp_path / 'run'}"]
    told = shell.refused("train", folder / "mix.yaml", *words, f"{SOURCES}.0.truth=[metric, labels]")
    assert "data.train: source 'rooms' has labels, and no names of its classes" in told
    opened(folder / "mix.yaml", *words)


def test_check_data_validates_each_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-data", str(folder / "mix.yaml"), "--no-cache"]) == 2  # trained on what is validated on
    told = capsys.readouterr().out
    assert all(f"train/{name}: {n} of {n} samples" in told for name, n in (("rooms", 4), ("web", 5), ("seg", 6)))
    assert "[val/seg]" in told and "is the training image" in told


@pytest.mark.slow
def test_two_processes_learn_from_a_mixture_as_one_does(tmp_path: Path, fork_server: ForkServer) -> None:
    config = small_mixture_config(tmp_path)
    for count, name in ((1, "one"), (2, "two")):
        fork_server.finish(count, "train", config, f"output={tmp_path / name}", "steps=6")
    one, two = (checkpoint.read(tmp_path / name / "checkpoints/last")[0] for name in ("one", "two"))
    # A loss up to scale and shift has no gradient on the last bias of its head; Adam makes steps of the rounding error.
    learned = [name for name in one if name != "heads.relative.projection.before.bias"]
    assert max(float((one[name] - two[name]).abs().max()) for name in learned) < 2e-5
    rows = [list(csv.DictReader((tmp_path / name / "train.csv").read_text().splitlines())) for name in ("one", "two")]
    for first, second in zip(*rows, strict=True):
        for column in first.keys() - {"seconds", *SPEED}:
            assert float(first[column] or "nan") == pytest.approx(float(second[column] or "nan"), rel=1e-4, nan_ok=True)


def test_cells_beyond_the_margin_count_as_0_in_the_mean() -> None:
    """Cosines 1, 0.9, 0.6 and 0: with the margin 0.85 the mean of 0, 0, 0.4 and 1."""
    frozen = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 2, 2)
    cosines = torch.tensor([[1.0, 0.9], [0.6, 0.0]])
    student = 3 * torch.stack([cosines, (1 - cosines**2).sqrt()])[None]  # the length is no matter
    assert float(feature_alignment(student, frozen)) == pytest.approx(0.35)
    assert float(feature_alignment(student, frozen, margin=1.0)) == pytest.approx(0.375)


def test_only_images_of_the_named_sources_are_compared(folder: Path) -> None:
    words = [f"{ALIGN}.encoder={ENCODER}", f"{ALIGN}.sources=[web]", f"{ALIGN}.weight=2", f"{ALIGN}.margin=1"]
    trainer, batch = with_first_batch(folder / "mix.yaml", *words)
    rows = [row for row, source in enumerate(batch.sources) if source == "web"]
    loss = trainer.objective.losses(batch, 0)["align_features"]
    alignment = trainer.objective.alignment
    own = trainer.model.get_submodule("encoder")(batch.image[rows]).maps[-1]
    other = alignment.frozen(batch.image[rows]).maps[-1]
    cosine = (own * other).sum(1) / own.norm(dim=1) / other.norm(dim=1)
    assert float(loss.detach()) == pytest.approx(
        2 * len(rows) / len(batch) * float((1 - cosine).mean().detach()), rel=1e-4
    )
    loss.backward()
    trained = {name for name, p in trainer.model.named_parameters() if p.grad is not None and p.grad.any()}
    assert trained and all(name.startswith("encoder.") for name in trained)
    assert not any(p.requires_grad for p in alignment.frozen.parameters())
    none = replace(batch, sources=("rooms",) * len(batch))
    assert float(trainer.objective.losses(none, 0)["align_features"].detach()) == 0


@pytest.mark.slow
def test_it_is_logged_and_nothing_of_it_is_saved(folder: Path, tmp_path: Path) -> None:
    words = ["steps=2", f"output={tmp_path / 'run'}", "validate_every=9", f"{ALIGN}.encoder={ENCODER}"]
    assert main(["train", str(folder / "mix.yaml"), *words]) == 0
    assert "align_features" in (tmp_path / "run/train.csv").read_text().splitlines()[0].split(",")
    again = planning.load_plan(tmp_path / "run/config.yaml")
    assert again.objective.options["align_features"].encoder["depth"] == 1
