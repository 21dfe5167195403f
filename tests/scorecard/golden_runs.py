"""Twenty steps of each task, small and exact; their losses, scores and predictions are kept in `golden/`.

python tests/scorecard/golden_runs.py    writes them anew; a change that should change no number leaves them alone
"""

import contextlib
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

import densevit  # noqa: E402
from densevit.builder import plan as planning  # noqa: E402
from densevit.builder import training  # noqa: E402
from densevit.engine import run_folder  # noqa: E402
from densevit.engine.logger import read_csv  # noqa: E402
from densevit.engine.train_state import reseed, seed_everything  # noqa: E402
from densevit.utils.process_group import ProcessGroup  # noqa: E402
from densevit.weights import checkpoint  # noqa: E402

GOLDEN = HERE / "golden"
NUMBERS = GOLDEN / "numbers.json"
CHECKPOINT = GOLDEN / f"schema-{checkpoint.SCHEMA}"  # as this version writes it; those of older versions stay
MODEL = "encoder: {type: vit, dim: 16, depth: 2, heads: 2, patch_size: 8, image_size: 32, out_indices: 1}"
RUN = "optim: {lr: 1e-3}\nprecision: fp32\nema: 0.9\nlog_every: 1\nsteps: 20\nbatch_size: 4\nvalidate_every: 20\n"
FOLDER = "{type: folder, root: ROOT, depth_scale: 1000}"
TRANSFORMS = "transforms: [{type: random_crop, size: [32, 32]}, {type: hflip}]"
DATA = f"{{train: {FOLDER}, val: {FOLDER}, {TRANSFORMS}, workers: 0}}"
CONFIGS = {
    "depth": f"""
model:
  {MODEL}
  decoder: {{type: conv_transpose, stride: 4, min_channels: 8}}
  heads: {{depth: {{type: metric, max_depth: 10, hidden: 8}}}}
tasks: {{depth: {{losses: [{{type: silog}}, {{type: gradient}}, {{type: l1, weight: 0.5}}]}}}}
data: {DATA}
{RUN}""",
    "labels": f"""
model:
  {MODEL}
  decoder: {{type: linear}}
  heads: {{seg: {{type: segmentation, classes: 3}}}}
tasks: {{seg: {{type: segmentation}}}}
data: {DATA}
{RUN}""",
    "class": f"""
model:
  {MODEL.replace("patch_size: 8, image_size: 32", "patch_size: 2, image_size: 8")}
  decoder: {{type: pool, pool: token}}
  heads: {{digit: {{type: classifier, classes: 10}}}}
tasks: {{digit: {{type: classification}}}}
data: {{train: {{type: digits, split: train}}, val: {{type: digits, split: val}}, workers: 0}}
{RUN}""",
}


def images(root: Path) -> Path:
    """Six planes as PNG files: image, depth in millimetres, and labels by distance."""
    draw = np.random.default_rng(0)
    for kind in ("images", "depths", "labels"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    rows, columns = np.mgrid[:40, :48] / 48
    for i in range(6):
        depth = draw.uniform(1.5, 3) + draw.uniform(0, 3) * rows + 0.3 * (columns > 0.5)
        image = np.stack([40 * depth, 255 * columns, 255 - 30 * depth], -1) + draw.uniform(0, 20, (40, 48, 3))
        Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(root / f"images/{i}.png")
        Image.fromarray((1000 * depth).astype(np.uint16)).save(root / f"depths/{i}.png")
        Image.fromarray((depth // 2).clip(0, 2).astype(np.uint8)).save(root / f"labels/{i}.png")
    (root / "classes.txt").write_text("near\nmiddle\nfar\n")
    return root


def some_image() -> Any:
    return np.random.default_rng(1).integers(0, 256, (40, 48, 3), dtype=np.uint8)


def run(task: str, folder: Path) -> dict[str, Any]:
    """Losses of twenty steps, scores of the last validation, and what the moving average predicts for an image."""
    with contextlib.chdir(folder):  # so that the paths in the checkpoint are those of any machine
        config = Path(f"{task}.yaml")
        config.write_text(CONFIGS[task].replace("ROOT", str(images(Path("data")))))
        plan, world = planning.load_plan(config, [f"output={task}"]).open(), ProcessGroup(torch.device("cpu"))
        run_folder.find_checkpoint(plan.run, None, world)
        seed_everything(plan.run.seed)
        trainer = training.build_trainer(plan, world)
        reseed(plan.run.seed, 0)
        scores = trainer.fit(training.train_batches(plan, world), training.val_batches(plan, world))
        return {
            "losses": [row["loss"] for row in read_csv(Path(task) / "train.csv")],
            "scores": {name: value for name, value in scores.items() if name != "seconds"},
            "prediction": predicted(Path(task)),
        }


def predicted(path: Path) -> list[float]:
    """Mean, standard deviation and first number of the prediction for the image."""
    predictor = densevit.load(path, device="cpu", precision="fp32")
    shape = 8 if "digit" in predictor.card.outputs else 40
    answer = np.asarray(
        predictor.start(some_image()[None, :shape, :shape]).read()[next(iter(predictor.card.outputs))], np.float64
    )
    return [float(answer.mean()), float(answer.std()), float(answer.flat[0])]


def write() -> None:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        numbers = json.loads(NUMBERS.read_text()) | {task: run(task, folder) for task in CONFIGS}
        shutil.rmtree(CHECKPOINT, ignore_errors=True)
        shutil.copytree(checkpoint.steps(folder / "depth/checkpoints")[-1], CHECKPOINT)
        numbers[CHECKPOINT.name] = {"prediction": predicted(CHECKPOINT)}
    NUMBERS.write_text(json.dumps(numbers, indent=1) + "\n")
    print(f"written: {NUMBERS}, {CHECKPOINT}")


if __name__ == "__main__":
    write()
