"""A dry run of every recipe on the stand-in of a GPU (tests/cuda): what a training step takes, by counting.

    python benchmarks/cuda_dry_run.py                # the table, as Markdown
    python benchmarks/cuda_dry_run.py --budgets      # and the budgets of tests/cuda/test_dry_run_recipes.py, anew

Nothing of it is a measurement of a GPU: tests/cuda/fake_gpu.py says what such a run cannot see.
"""

import argparse
import json
import sys
import warnings
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/cuda"))

import torch  # noqa: E402
from compiled_recipes import compiled  # noqa: E402
from dry_run import BUDGETS, IMAGES, RECIPES, budget, dry_run, image_size, plan_of  # noqa: E402

HEADER = """# Every recipe on a stand-in of a GPU, {date}

`python benchmarks/cuda_dry_run.py`, torch {torch}, bf16, no GPU. The second training step with {few} images of the
recipe's size, on tensors without numbers: how often the host waits for the device, kernels that start, those of them
that only cast a tensor to another type, bytes copied up; what autograd keeps of model and losses for {few} and {many}
images, as slope and constant; and, with compiled blocks, graphs and their breaks. Not a measurement of a GPU; what such
a run cannot see stands in docs/cuda.md. EoMT's matching, which waits once in a real step, is replaced,
for there are no numbers to match.
"""
HEADS = (
    *("recipe", "image", "waits", "kernels", "casts", "MB copied up an image", "GB kept an image", "GB kept, constant"),
    *("graphs", "breaks"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budgets", action="store_true", help=f"write {BUDGETS.relative_to(ROOT)}")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(HEADER.format(date=date.today(), torch=torch.__version__.partition("+")[0], few=IMAGES[0], many=IMAGES[1]))
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    budgets = {}
    for recipe in RECIPES:
        plan = plan_of(recipe)
        with TemporaryDirectory() as folder:
            found = dry_run(plan, Path(folder), shapes_only=True, images=IMAGES)
        graphs = compiled(plan)
        budgets[recipe] = budget(found) | graphs
        size = " x ".join(map(str, image_size(plan.run)))
        print(
            f"| {recipe} | {size} | {sum(found.waits.values())} | {found.kernels:,} | {found.casts:,} "
            f"| {found.bytes_up / IMAGES[0] / 1e6:.2f} | {found.kept_per_image / 2**30:.2f} "
            f"| {max(0.0, found.constant) / 2**30:.2f} "
            f"| {graphs['graphs']} | {graphs['graph_breaks']} |",
            flush=True,
        )
    if args.budgets:
        lines = (f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in budgets.items())
        BUDGETS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
