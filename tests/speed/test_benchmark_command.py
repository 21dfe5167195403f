"""`densevit benchmark`: what it refuses, what it writes, and that our networks equal the reference networks."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from shell import Shell
from toy_models import toy_network

from densevit.cli.main import main
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.speed import hardware, inference, reference_models, training
from densevit.speed.report import Report, Row
from densevit.speed.settings import Settings
from densevit.speed.timing import Spread


def test_wrong_options_are_refused_before_anything_is_timed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, shell: Shell
) -> None:
    for wrong, told in (
        ("--sections=inferenc", "there are inference, training"),
        ("--image-sizes=500", "490 fits"),
        (f"--baseline={tmp_path / 'none.json'}", "not a report"),
        ("--name=a/b", "'a/b' is no name of a file"),
        ("--name=", "'' is no name of a file"),
        (f"--depth-anything={tmp_path / 'none'}", "none is no folder"),
    ):
        assert told in shell.refused("benchmark", wrong, "--output", tmp_path)
    for wrong in ("--repeats=0", "--images=0", "--workers=0", "--threads=-2", "--image-sizes=0", "--batch-sizes=1,0"):
        with pytest.raises(SystemExit):
            main(["benchmark", wrong])
        assert "1 or more; got" in capsys.readouterr().err


def test_a_run_writes_a_dated_report_that_the_next_one_is_held_against(
    tmp_path: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("densevit.speed.hardware.SIDE", 64)
    monkeypatch.setattr("densevit.speed.hardware.COPY_BYTES", 2**16)
    monkeypatch.setattr("densevit.speed.dataloader.IMAGES", 2)
    arguments = ["benchmark", "--sections", "scoring", "--repeats", "1", "--threads", "1", "--output", str(tmp_path)]
    assert main(arguments) == 0
    (markdown,), (data,) = tmp_path.glob("*-benchmark.md"), tmp_path.glob("*-benchmark.json")
    assert "## Scoring" in markdown.read_text()
    tree = json.loads(data.read_text())
    assert {row["section"] for row in tree["rows"]} == {"hardware", "scoring"}
    assert tree["machine"]["threads"] == 1
    for row in tree["rows"]:
        row["value"] = {"middle": 1e9, "low": 1e9, "high": 1e9}  # as if it had been this fast before
    data.write_text(json.dumps(tree))
    output = shell(*arguments, "--baseline", data, code=1).out
    assert "slower: scoring, saved PNG16, nyu_eigen, 1 process" in output
    assert f"against {data}: 1 rows compared." in output or f"against {data}: 2 rows compared." in output  # by cores
    assert json.loads(data.read_text()) == tree  # the second of a day replaces none
    assert data.with_stem(f"{data.stem}-2").exists()


def test_what_was_measured_before_a_run_ends_early_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(settings: Settings) -> Iterator[Row]:
        yield Row("scoring", "maps", "1 process", Spread(1, 1, 1), "images/s")
        raise KeyboardInterrupt

    monkeypatch.setattr(hardware, "SIDE", 64)
    monkeypatch.setattr(hardware, "COPY_BYTES", 2**16)
    monkeypatch.setattr("densevit.speed.dataloader.measure_scoring", interrupted)
    assert main(["benchmark", "--sections", "scoring,export", "--repeats", "1", "--output", str(tmp_path)]) == 130
    (kept,) = tmp_path.glob("*.json")
    assert [row.section for row in Report.read(kept).rows][-1] == "scoring"
    assert "Not run: all further sections: KeyboardInterrupt ended the run." in capsys.readouterr().out


@pytest.mark.parametrize("formats", [["fp32"], ["fp32", "bf16"]])
def test_the_peak_rate_in_bf16_is_that_of_hardware_that_has_it(
    monkeypatch: pytest.MonkeyPatch, formats: list[str]
) -> None:
    monkeypatch.setattr(hardware, "SIDE", 64)
    monkeypatch.setattr(hardware, "COPY_BYTES", 2**16)
    monkeypatch.setattr(hardware, "resolve", lambda *_: formats[-1])
    assert [row.who for row in hardware.peak_rates(torch.device("cpu"), 1)] == [*formats, "bytes"]


def test_a_missing_reference_is_named(tmp_path: Path) -> None:
    with pytest.raises(reference_models.Unavailable, match="--depth-anything"):
        reference_models.depth_anything("small", None)
    with pytest.raises(reference_models.Unavailable, match="holds no depth_anything_v2"):
        reference_models.depth_anything("small", tmp_path)
    with pytest.raises(reference_models.Unavailable, match="no_such_package is not installed"):
        reference_models.require_package("no_such_package")


def test_without_any_reference_ours_is_timed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise reference_models.Unavailable("not here")

    def small_network(size: str) -> tuple[DenseModel, ModelCard]:
        encoder = {"dim": 32, "depth": 1, "out_indices": 1}
        return toy_network({"depth": {"type": "disparity"}}, std=None, encoder=encoder)

    for name in ("depth_anything", "transformers", "smp", "openvino"):
        monkeypatch.setattr(reference_models, name, absent)
    for module in (inference, training):
        monkeypatch.setattr(module, "our_network", small_network)
    monkeypatch.setattr(inference, "int8_forwards", lambda *_: {})  # a network of one block has nothing to smooth
    monkeypatch.setattr(hardware, "SIDE", 64)
    monkeypatch.setattr(training, "HEIGHT", 56)
    monkeypatch.setattr(training, "WIDTH", 56)
    monkeypatch.setattr(training, "peak_memory_growth", lambda *_: None)
    settings = Settings(device=torch.device("cpu"), precision="bf16", sides=(56,), rounds=1)
    rows = [*inference.measure(settings), *training.measure(settings)]
    assert [row.who for row in rows] == ["densevit, fp32", "densevit, bf16"] * 4
    units = ["s an image", "s an image, processor", "s", "s, processor"]
    assert [row.case for row in rows[::4]] == ["ViT-S/14, 56 x 56, batch 1", "step of ViT-S/14, 2 x 56 x 56"]
    assert [row.unit for row in rows[::2]] == units
    assert [row.faster.middle for row in rows[::2] if row.faster] == [1.0] * 4
    assert settings.absent[0] == "not here" and settings.absent[1:] in ([], ["nncf is not installed."])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "build"),
    [("transformers", reference_models.transformers), ("segmentation_models_pytorch", reference_models.smp)],
)
@pytest.mark.filterwarnings("default")
def test_our_network_with_the_weights_of_a_reference_gives_its_numbers(
    package: str, build: object, tmp_path: Path
) -> None:
    pytest.importorskip(package)
    reference = build("small")  # type: ignore[operator]
    ours = reference.as_densevit(tmp_path)
    image = torch.rand(1, 3, 8 * reference.patch, 10 * reference.patch)
    with torch.inference_mode():
        expected = reference((image - ours.encoder.mean) / ours.encoder.std)
        found = next(iter(ours(image).values()))
    assert (found - expected).abs().max() <= 1e-4 * expected.abs().max()
