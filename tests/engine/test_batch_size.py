"""`batch_size: auto`: the most that fit, or the fewest at full speed; the run has the number and keeps it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from small import small_config

from densevit.api import training
from densevit.api.training import Run
from densevit.cli.main import main
from densevit.engine.trials import choose_batch_size
from densevit.errors import ConfigError


def machine(fitting: int, rate: Callable[[int], float]) -> Callable[[int], float]:
    def measure(size: int) -> float:
        if size > fitting:
            raise ConfigError("does not fit") from MemoryError()
        return rate(size)

    return measure


def test_the_largest_power_of_two_that_fits_or_the_fewest_at_full_speed_is_chosen() -> None:
    assert choose_batch_size(machine(50, lambda n: 1.0), 1, 1024, fastest=False) == 32
    assert choose_batch_size(machine(5000, lambda n: 1.0), 1, 100, fastest=False) == 64
    assert choose_batch_size(machine(5000, lambda n: min(n, 8)), 1, 100, fastest=True) == 8
    assert choose_batch_size(machine(50, float), 3, 1024, fastest=True) == 48
    assert choose_batch_size(machine(5000, lambda n: 1.0), 6, 4, fastest=True) == 6
    with pytest.raises(ConfigError, match="does not fit"):
        choose_batch_size(machine(0, float), 1, 8, fastest=False)


@pytest.mark.slow
def test_the_number_is_measured_once_and_stands_in_the_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config, words = small_config(tmp_path), ["batch_size=auto", "steps=4", "validate_every=4"]
    sizes: list[int] = []
    measured = training.images_per_second

    def spy(trainer, train):
        sizes.append(trainer.run.batch_size)
        assert measured(trainer, train) > 0
        return float(min(trainer.run.batch_size, 2))

    monkeypatch.setattr(training, "images_per_second", spy)
    assert main(["train", str(config), *words]) == 0
    assert sizes == [1, 2, 4] and Run(tmp_path / "run").config["batch_size"] == 2
    assert "batch_size  2, the fewest at full speed" in capsys.readouterr().out
    assert main(["train", str(config), *words, "steps=8", "--resume"]) == 0
    assert sizes == [1, 2, 4] and Run(tmp_path / "run").config["batch_size"] == 2
    assert {file.name for file in tmp_path.iterdir()} == {"data", "run", "small.yaml"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "size"),
    [
        (["data.clip=3"], 6),
        (["objective={type: dino, prototypes: 8, hidden: 8, bottleneck: 8}", "model.decoder={type: linear}"], 4),
    ],
)
def test_the_first_size_has_all_that_a_micro_batch_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], size: int
) -> None:
    config, sizes = small_config(tmp_path), []

    def spy(trainer, train):
        sizes.append(trainer.run.batch_size)
        return 1.0

    monkeypatch.setattr(training, "images_per_second", spy)
    words += ["batch_size=auto", "grad_accum_steps=2", "steps=1"]
    assert main(["train", str(config), *words]) == 0
    assert sizes == [size] and Run(tmp_path / "run").config["batch_size"] == size


@pytest.mark.slow
def test_batch_norm_gets_two_images_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UPerNet pools to one value a channel, of which batch norm has no variance."""
    monkeypatch.setattr(training, "MOST_IMAGES", 1)
    upernet = ["model.encoder.out_indices=1", "model.decoder={type: upernet, channels: 8}"]
    words = ["batch_size=auto", "grad_accum_steps=2", "steps=1"]
    assert main(["train", str(small_config(tmp_path)), *upernet, *words]) == 0
    assert Run(tmp_path / "run").config["batch_size"] == 4
