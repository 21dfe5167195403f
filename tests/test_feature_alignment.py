"""The trained encoder's features held close to a frozen one's, of some sources of a mixture."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from opened import with_first_batch
from shell import Shell
from small_mixture import small_mixture_config

from densevit.builder import plan as planning
from densevit.cli.main import main
from densevit.objectives.feature_alignment import feature_alignment

ALIGN = "objective.align_features"
ENCODER = "{type: vit, dim: 32, depth: 1, heads: 2, patch_size: 8, image_size: 64, out_indices: 1}"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_mixture_config(tmp_path_factory.mktemp("alignment"))


def test_cells_beyond_the_margin_count_as_0_in_the_mean() -> None:
    """Cosines 1, 0.9, 0.6 and 0: with the margin 0.85 the mean of 0, 0, 0.4 and 1."""
    frozen = torch.tensor([1.0, 0.0]).view(1, 2, 1, 1).expand(1, 2, 2, 2)
    cosines = torch.tensor([[1.0, 0.9], [0.6, 0.0]])
    student = 3 * torch.stack([cosines, (1 - cosines**2).sqrt()])[None]  # the length is no matter
    assert float(feature_alignment(student, frozen)) == pytest.approx(0.35)
    assert float(feature_alignment(student, frozen, margin=1.0)) == pytest.approx(0.375)


def test_only_images_of_the_named_sources_are_compared(config: Path) -> None:
    words = [f"{ALIGN}.encoder={ENCODER}", f"{ALIGN}.sources=[web]", f"{ALIGN}.weight=2", f"{ALIGN}.margin=1"]
    trainer, batch = with_first_batch(config, *words)
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
def test_it_is_logged_and_nothing_of_it_is_saved(config: Path, tmp_path: Path) -> None:
    words = ["steps=2", f"output={tmp_path / 'run'}", "validate_every=9", f"{ALIGN}.encoder={ENCODER}"]
    assert main(["train", str(config), *words]) == 0
    assert "align_features" in (tmp_path / "run/train.csv").read_text().splitlines()[0].split(",")
    again = planning.load_plan(tmp_path / "run/config.yaml")
    assert again.objective.options["align_features"].encoder["depth"] == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([f"{ALIGN}.encoder={ENCODER.replace('32', '48')}"], "has 48 channels at stride 8, that of"),
        ([f"{ALIGN}.encoder={{type: vitt}}"], "align_features.encoder.type: no encoder 'vitt'. Did you mean 'vit'"),
        ([f"{ALIGN}.encoder={ENCODER}", "model.freeze_encoder=true"], "needs a trained encoder"),
        ([f"{ALIGN}.encoder={ENCODER}", "model.trainable=[decoder, heads]"], "needs a trained encoder"),
        ([f"{ALIGN}.encoder={ENCODER}", "compile=true"], "needs a trained encoder, and neither"),
        ([f"{ALIGN}.encoder={ENCODER}", f"{ALIGN}.sources=[wep]"], "no source 'wep' in data.train"),
        ([f"{ALIGN}.encoder={{type: vit, weights: none.pth}}"], "align_features.encoder.weights: no such file"),
    ],
)
def test_what_does_not_fit_is_told_before_training(
    config: Path, tmp_path: Path, shell: Shell, words: list[str], message: str
) -> None:
    assert message in shell.refused("train", config, f"output={tmp_path / 'x'}", *words)
