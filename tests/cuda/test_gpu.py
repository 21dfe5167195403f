"""On a real GPU: 20 steps of every kind of training, resumed, evaluated and exported. Skipped where there is none."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from small import CONFIG, small_folder

import densevit
from densevit.cli.main import main
from densevit.engine.logger import read_csv
from densevit.weights import checkpoint

pytestmark = pytest.mark.gpu

KINDS = {
    "bf16": ["precision=bf16"],
    "fp16": ["precision=fp16"],
    "tf32": ["precision=tf32"],
    "fp32": ["precision=fp32"],
    "sgd": ["precision=bf16", "optim={type: sgd, lr: 0.001}"],
    "accumulated": ["precision=bf16", "grad_accum_steps=2", "ema=0.9"],
    "checkpointed": ["precision=bf16", "model.grad_checkpointing=true"],
    "frozen": ["precision=bf16", "model.freeze_encoder=true"],
    "compiled": ["precision=bf16", "compile=true"],
    "graphs": ["precision=bf16", "compile=reduce-overhead", "ema=0.9"],
    "graphs, recomputed": ["precision=bf16", "compile=reduce-overhead", "model.grad_checkpointing=true"],
    "graphs, accumulated": ["precision=bf16", "compile=reduce-overhead", "grad_accum_steps=2"],
    "dpt": [
        "precision=bf16",
        "model.encoder.depth=4",
        "model.encoder.out_indices=4",
        "model.decoder={type: dpt, channels: 16}",
    ],
}


@pytest.fixture(scope="module")
def config(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(CONFIG.format(root=small_folder(folder / "data", count=12), output=folder / "run"))
    return path


def train(config: Path, output: Path, *words: str) -> list[dict[str, float]]:
    base = [str(config), "device=cuda", "steps=20", "validate_every=10", "save_every=10", f"output={output}"]
    assert main(["train", *base, *words]) == 0
    return read_csv(output / "train.csv")


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_resumes_evaluates_and_exports(kind: str, config: Path, tmp_path: Path) -> None:
    rows = train(config, tmp_path / "run", *KINDS[kind])
    losses = [row["loss"] for row in rows if np.isfinite(row["loss"])]
    assert len(rows) == 20 and losses[-1] < losses[0]
    last = checkpoint.steps(tmp_path / "run/checkpoints")[-1]
    last.rename(tmp_path / last.name)
    again = train(config, tmp_path / "run", *KINDS[kind], "--resume")
    # Sums on a GPU come in any order.
    assert [row["loss"] for row in again][10:] == pytest.approx([row["loss"] for row in rows][10:], rel=0.05)
    data = ["--data", "folder", "--root", str(config.parent / "data"), "--data-options", "depth_scale=1000"]
    for precision in ("fp32", "tf32", "auto"):
        out = tmp_path / precision
        words = ["--device", "cuda", "--precision", precision, "--output", str(out)]
        assert main(["eval", "--task", "depth", str(tmp_path / "run"), *data, *words]) == 0
        assert json.loads((out / "metrics.json").read_text())["source"]["device"].startswith("cuda")
    images = str(config.parent / "data/images")
    assert main(["predict", str(tmp_path / "run"), images, "--device", "cuda", "--output", str(tmp_path / "maps")]) == 0
    assert len(list((tmp_path / "maps").rglob("*.png"))) == 12


def test_a_gpu_predicts_what_a_cpu_predicts(config: Path, tmp_path: Path) -> None:
    train(config, tmp_path / "run", "precision=bf16")
    image = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    cpu = densevit.load(tmp_path / "run", device="cpu", precision="fp32")(image)
    assert np.abs(densevit.load(tmp_path / "run", device="cuda", precision="fp32")(image) - cpu).max() < 1e-3
    for precision, close in (("tf32", 0.02), ("bf16", 0.2), ("fp16", 0.05)):
        found = densevit.load(tmp_path / "run", device="cuda", precision=precision)(image)
        assert np.abs(found - cpu).max() < close * cpu.max(), precision


def test_too_large_a_step_says_what_to_change(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.cuda.set_per_process_memory_fraction(0.002)
    try:
        words = [
            "device=cuda",
            f"output={tmp_path}",
            "batch_size=12",
            "data.transforms=[{type: resize, size: [1536, 2048]}]",
        ]
        assert main(["train", str(config), *words]) == 2
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "grad_accum_steps=" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # "is a prototype feature", says torch
def test_a_step_does_not_wait_for_the_gpu(config: Path, tmp_path: Path) -> None:
    """What the stand-in of tests/cuda counts, asked of CUDA itself."""
    from threading import Event

    from densevit.builder import plan as planning
    from densevit.builder import training
    from densevit.utils.process_group import ProcessGroup

    plan = planning.load_plan(config, ["device=cuda", "precision=bf16", "log_every=100", f"output={tmp_path}"]).open()
    world = ProcessGroup(torch.device("cuda:0"))
    trainer = training.build_trainer(plan, world)
    batches, stop = training.train_batches(plan, world)(0), Event()
    for _ in range(3):
        trainer.train_step(batches, stop, wait=False)
    torch.cuda.set_sync_debug_mode("error")
    try:
        trainer.train_step(batches, stop, wait=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
