"""What saving costs: hash, fsync and reading back included, against the steps between two saves.

    python benchmarks/saving.py                      # ViT-S and DPT, with a moving average
    python benchmarks/saving.py --size base --steps 5

Prints the time of a step and of a save, and the share of saving in a run of 1,000 steps at the default interval, which
is ten saves.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch

from densevit.builder.checkpoint import parse_model
from densevit.builder.model import build_card, build_model
from densevit.config.schema import Data, Model, Task, TrainConfig
from densevit.engine.objective import TrainingSetup
from densevit.engine.trainer import Trainer
from densevit.objectives import Supervised
from densevit.structures import Batch
from densevit.tasks.depth import DepthTask
from densevit.utils.device import choose_device
from densevit.utils.process_group import ProcessGroup
from densevit.weights import checkpoint

SIDE, RUN = 224, 1000  # pixels; steps of the run that the share is told for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="small", help="of the ViT (small)")
    parser.add_argument("--batch-size", type=int, default=8, metavar="N")
    parser.add_argument("--steps", type=int, default=8, metavar="N", help="to time (8)")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(args, Path(folder))
        steps, saves = timed(trainer, args.steps)
        written = sum(path.stat().st_size for path in checkpoint.steps(Path(folder) / "checkpoints")[-1].iterdir())
    step, save = median(steps), median(saves)
    share = 10 * save / (RUN * step)
    print(f"ViT-{args.size} + DPT, {args.batch_size} images of {SIDE}x{SIDE}, on {trainer.world.device}")
    print(f"a step {step:.3f} s; a save {save:.3f} s ({written / 1e6:.0f} MB, {written / 1e6 / save:.0f} MB/s)")
    few = 10 * save / (0.05 * step)
    print(f"ten saves in {RUN} steps: {share:.2%} of the time; 5% from {few:.0f} steps a run down")


def trainer_of(args: argparse.Namespace, folder: Path) -> Trainer:
    encoder = {"type": "vit", "size": args.size, "image_size": SIDE}
    heads = {"depth": {"type": "metric"}}
    run = TrainConfig(
        model=Model(encoder=encoder, decoder={"type": "dpt"}, heads=heads),
        tasks={"depth": Task(losses=[{"type": "silog"}])},
        data=Data(train={"type": "none"}),
        steps=RUN, batch_size=args.batch_size, ema=0.999, output=folder, device=args.device,
    )  # fmt: skip
    spec = parse_model({"encoder": encoder, "decoder": {"type": "dpt"}, "heads": heads}, "benchmark")
    model = build_model(spec)
    card = build_card(model, spec)
    world = ProcessGroup(choose_device(args.device))
    setup = TrainingSetup(run, model, {"depth": Squared()}, {}, card, data={}, build_encoder=unused)
    return Trainer(Supervised(setup), world, predict=unused, best=Squared.best)


class Squared(DepthTask):
    """A task whose loss costs next to nothing."""

    best = ("loss", "min")

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    def losses(
        self, prediction: torch.Tensor, batch: Batch, step: int, extras: object = None
    ) -> dict[str, torch.Tensor]:
        return {"loss": (prediction - batch.depth).square().mean()}


def unused(*given: object) -> dict[str, torch.Tensor]:
    raise AssertionError("nothing is validated here")


def batches(size: int) -> Iterator[Batch]:
    image = torch.rand(size, 3, SIDE, SIDE)
    names = tuple(map(str, range(size)))
    batch = Batch(names=names, indices=tuple(range(size)), image=image, depth=image[:, :1] + 1, valid=image[:, :1] >= 0)
    while True:
        yield batch


def timed(trainer: Trainer, count: int) -> tuple[list[float], list[float]]:
    """Seconds of steps and of saves, in turn, without the first of each."""
    from threading import Event

    steps, saves, data = [], [], batches(trainer.run.batch_size)
    for _ in range(count + 1):
        began = time.perf_counter()
        trainer.train_step(data, Event())
        between = time.perf_counter()
        trainer.checkpointer.save()
        steps.append(between - began)
        saves.append(time.perf_counter() - between)
    return steps[1:], saves[1:]


if __name__ == "__main__":
    main()
