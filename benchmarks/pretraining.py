"""What MAE pre-training is worth, on rooms by a probe and on CamVid by a whole training.

    benchmarks/pretraining.py --rooms DIR --work DIR [--report FILE] [key=value ...]
    benchmarks/pretraining.py --camvid DIR --work DIR [--report FILE] [key=value ...]

Rooms: DIR is what `make demo` leaves in demo/rooms. Trains the recipe pretrain/rooms_mae, and the same for one step at
a rate of nothing, which leaves the start; scores the probes of both by `eval-depth`. CamVid: trains the recipe
pretrain/camvid_mae, then segmentation/camvid from its encoder and from random weights, and scores both by `eval-seg`.
Both end with `densevit compare` of the test images. Overrides are the pre-training's. What is done in --work is not
done again.
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


def train(recipe: str, root: Path, output: Path, words: Sequence[str] = ()) -> Run:
    """The run in `output`, trained to its end."""
    given = [f"data.root={root}", f"output={output}", "data.workers=0", "device=cpu", *words]
    must(["train", recipe, *given, *(["--resume"] if output.exists() else [])])
    return Run(output)


def score(how: str, run: Run, data: str, root: Path) -> Path:
    """The folder of its evaluation on the test images."""
    scores = run.output.with_name(f"{run.output.name}_scores")
    if not scores.exists():
        must([how, str(run.output), "--data", data, "--root", str(root), "--split", "test", "--output", str(scores)])
    return scores


def compared(a: Path, b: Path, metric: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as text:
        command(["compare", "--metrics", metric, str(a), str(b)])
    return f"```\n{text.getvalue().strip()}\n```"


def curve(run: Run, columns: Sequence[str]) -> str:
    return "\n".join(
        f"| {row['step']:.0f} | " + " | ".join(f"{row[name]:.4g}" for name in columns) + " |" for row in run.val_log
    )


def minutes(run: Run) -> str:
    return f"{run.train_log[-1]['seconds'] / 60:.0f}"


def rooms(args: argparse.Namespace) -> str:
    start = train("pretrain/rooms_mae", args.rooms, args.work / "start", [*args.overrides, *START])
    run = train("pretrain/rooms_mae", args.rooms, args.work / "pretrained", args.overrides)
    a, b = (score("eval-depth", found, "rooms", args.rooms) for found in (start, run))
    return f"""# MAE pre-training on rooms

{made_on()}, one thread, bf16. Made by
`{" ".join(["benchmarks/pretraining.py --rooms demo/rooms --work DIR", *args.overrides])}`.
{minutes(run)} minutes of pre-training on the 1,920 training images, without their ground truth. The probe is
the decoder `linear` on 50 labelled images, the encoder frozen; its scores on the images for validation, before the
first step and on the way:

| step | AbsRel | d1 | spread of the features | their effective rank |
|---|---|---|---|---|
{curve(run, ("abs_rel", "d1", "feature_std", "feature_rank"))}

On the test rooms, the start (A) and the best checkpoint (B). Goal: AbsRel at least 10% lower, its interval without 0.

{compared(a, b, "abs_rel")}
"""


def camvid(args: argparse.Namespace) -> str:
    run = train("pretrain/camvid_mae", args.camvid, args.work / "mae", args.overrides)
    weights = f"model.encoder.weights={run.output / 'encoder.safetensors'}"
    scratch = train("segmentation/camvid", args.camvid, args.work / "scratch")
    tuned = train("segmentation/camvid", args.camvid, args.work / "pretrained", [weights])
    a, b = (score("eval-seg", found, "camvid", args.camvid) for found in (scratch, tuned))
    rows = "\n".join(
        f"| {first['step']:.0f} | {first['miou']:.4f} | {second['miou']:.4f} |"
        for first, second in zip(scratch.val_log, tuned.val_log, strict=True)
    )
    return f"""# MAE pre-training on CamVid's training images

{made_on()}, one thread, bf16, seed 0. Made by
`{" ".join(["benchmarks/pretraining.py --camvid camvid --work DIR", *args.overrides])}`.
The recipe `pretrain/camvid_mae` for {minutes(run)} minutes on the 367 training images, without their labels; then
`segmentation/camvid`, {minutes(scratch)} minutes from random weights and {minutes(tuned)} from the pre-trained encoder,
with the same steps, rates and crops. mIoU of the pre-training's linear probe (50 labelled images) on the 101 images for
validation:

| step | mIoU | spread of the features | their effective rank |
|---|---|---|---|
{curve(run, ("miou", "feature_std", "feature_rank"))}

mIoU of the two trainings on the images for validation:

| step | from random weights | pre-trained |
|---|---|---|
{rows}

On the 233 test images, from random weights (A) and pre-trained (B):

{compared(a, b, "miou")}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = parser.add_mutually_exclusive_group(required=True)
    data.add_argument("--rooms", type=Path)
    data.add_argument("--camvid", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    text = rooms(args) if args.rooms else camvid(args)
    sys.stdout.write(text)
    if args.report:
        write_text(args.report, text)


if __name__ == "__main__":
    main()
