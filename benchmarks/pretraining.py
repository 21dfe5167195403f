"""What MAE pre-training is worth: a probe on 50 labelled images before and after, on the test rooms.

    benchmarks/pretraining.py --rooms DIR --work DIR [--report FILE] [key=value ...]

DIR is what `make demo` leaves in demo/rooms. Trains the recipe pretrain/rooms_mae, and the same for one step at a rate
of nothing, which leaves the start; scores both by `eval-depth` and compares them image by image. What is done in --work
is not done again.
"""

import argparse
import contextlib
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from machine import made_on

from densevit.api.training import Run
from densevit.cli.main import main as command
from densevit.utils.atomic_io import write_text

START = ["steps=1", "optim.lr=1e-12", "schedule.warmup=0", "validate_every=1"]


def must(words: Sequence[str]) -> None:
    if code := command(list(words)):
        sys.exit(code)


def train(rooms: Path, output: Path, words: Sequence[str]) -> None:
    if not (output / "encoder.safetensors").exists():
        given = [f"data.root={rooms}", f"output={output}", "data.workers=0", "device=cpu", *words]
        must(["train", "pretrain/rooms_mae", *given, *(["--resume"] if output.exists() else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rooms", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    runs = {"start": START, "pretrained": []}
    for name, words in runs.items():
        train(args.rooms, args.work / name, [*args.overrides, *words])
        scores = args.work / f"{name}_scores"
        if not scores.exists():
            data = ["--data", "rooms", "--root", str(args.rooms), "--split", "test"]
            must(["eval-depth", str(args.work / name), *data, "--output", str(scores)])
    with contextlib.redirect_stdout(io.StringIO()) as compared:
        command(["compare", str(args.work / "start_scores"), str(args.work / "pretrained_scores")])
    run = Run(args.work / "pretrained")
    columns = ("abs_rel", "d1", "feature_std", "feature_rank")
    curve = "\n".join(
        f"| {row['step']:.0f} | " + " | ".join(f"{row[name]:.4g}" for name in columns) + " |" for row in run.val_log
    )
    minutes = run.train_log[-1]["seconds"] / 60
    text = f"""# MAE pre-training on rooms

{made_on()}. Made by
`benchmarks/pretraining.py --rooms demo/rooms --work DIR {" ".join(args.overrides)}`.
{minutes:.0f} minutes of training. The probe is the decoder `linear` on 50 labelled images, the encoder frozen; its
scores on the images for validation, before the first step and on the way:

| step | AbsRel | d1 | spread of the features | their effective rank |
|---|---|---|---|---|
{curve}

On the test rooms, by `densevit compare`, the start first, then the best checkpoint:

```
{compared.getvalue().strip()}
```
"""
    sys.stdout.write(text)
    if args.report:
        write_text(args.report, text)


if __name__ == "__main__":
    main()
