"""Trains a step, validates, saves, resumes and predicts on the stand-in of a GPU, and says what that took."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

import fake_gpu
import numpy as np
import torch
from torch import Tensor

from densevit.builder import plan as planning
from densevit.builder import training
from densevit.builder.plan import Plan
from densevit.config.schema import TrainConfig
from densevit.data.datasets.base import Dataset
from densevit.engine.logger import MetricLogger
from densevit.engine.run_folder import find_checkpoint
from densevit.engine.trainer import Trainer
from densevit.inference.image_input import ImageInput
from densevit.inference.predictor import Predictor
from densevit.losses.set_criterion import BatchSegments, MatchedPairs, SetCriterion
from densevit.objectives.self_supervised import objective as self_supervised
from densevit.structures import Batch, Sample
from densevit.utils.device import upload
from densevit.utils.process_group import ProcessGroup

CONFIGS = Path(__file__).parents[2] / "configs"
CLASSES = {"ade20k": 150, "cityscapes": 19, "voc": 21, "mnist": 10, "digits": 10, "rooms": 18, "folder": 5, "coco": 133}


class Absent(Dataset):
    """Names and classes of data whose files are elsewhere."""

    depth_range = (1e-3, 80.0)

    def __init__(self, classes: int) -> None:
        self.names = [str(i) for i in range(64)]
        self.classes = [f"class {i}" for i in range(classes)]

    def read(self, index: int) -> Sample:
        blank = np.zeros((60, 80), np.float32)
        image = np.zeros((60, 80, 3), np.uint8)
        return Sample(name=self.names[index], image=image, depth=blank, valid=blank > 0, labels=blank.astype(np.int64))


def plan_of(config: str | Path, *overrides: str) -> Plan:
    """The plan of a recipe without its data and without published weights."""
    path = CONFIGS / f"{config}.yaml" if isinstance(config, str) else config
    unpublished = ["model.encoder.pretrained=false"] if "pretrained" in path.read_text() else []
    found = planning.load_plan(path, ["data.workers=0", *unpublished, *overrides])
    fixed = [head.options["classes"] for head in found.model.heads.values() if head.options.get("classes")]
    given = fixed[0] if fixed else CLASSES.get(found.run.data.train["type"], 0)
    data = Absent(given if isinstance(given, int) else len(given))
    opened = replace(found, opened={"train": data, "val": data}, model=found.model.for_classes(data.classes))
    return replace(opened, run=opened.resolved(1000))


def image_size(run: TrainConfig) -> tuple[int, int]:
    given = [spec["size"] for spec in run.data.transforms if isinstance(spec.get("size"), list | tuple)]
    side = run.model.encoder.get("image_size") if run.model.encoder else None
    h, w = given[-1] if given else (side, side) if isinstance(side, int) else side or (480, 640)
    return h, w


def batch_of(plan: Plan, n: int, size: tuple[int, int], seed: int = 0) -> Batch:
    """As the loader hands it over: pinned, with all ground truth that there is."""
    random = torch.Generator().manual_seed(seed)
    classes = max(1, len(plan.train.classes))
    labels = torch.randint(0, classes, (n, *size), generator=random)
    labels[:, :2] = 255
    pixels = torch.randint(0, 256, (n, *size, 3), generator=random, dtype=torch.uint8)
    segments: dict[str, Tensor] = {}
    if any(spec.task.name in ("panoptic", "instances") for spec in plan.tasks.values()):
        segments = {
            "segments": torch.randint(0, CLASSES_AN_IMAGE + 1, (n, *size), generator=random).to(torch.uint8),
            "segment_classes": torch.randint(0, classes, (n, CLASSES_AN_IMAGE), generator=random),
            "segment_crowd": torch.zeros(n, CLASSES_AN_IMAGE, dtype=torch.bool),
        }
    return Batch(
        **segments,
        names=tuple(map(str, range(n))),
        indices=tuple(range(n)),
        image=pixels.permute(0, 3, 1, 2),
        depth=torch.rand(n, 1, *size, generator=random) * 5 + 0.5,
        valid=torch.rand(n, 1, *size, generator=random) > 0.2,
        labels=labels.to(torch.uint8),
        label=torch.randint(0, classes, (n,), generator=random),
        **views_of(n, size) if plan.run.objective["type"] == "self_supervised" else {},
    ).pin_memory()


def views_of(n: int, size: tuple[int, int]) -> dict[str, Any]:
    """Clips of two frames, of a camera that moves, with its motion as it is measured."""
    pose = torch.eye(4).repeat(n, 1, 1)
    pose[:, 0, 3] = 0.1 * torch.arange(n)
    camera = torch.tensor([[size[1], 0.0, size[1] / 2], [0, size[1], size[0] / 2], [0, 0, 1]])
    step = torch.eye(4).repeat(n, 1, 1)
    step[:, 0, 3] = -1
    inputs = {"next_motion": step, "baselines": torch.full((n, 1, *size), 20.0)}
    return {"clip_length": 2, "intrinsics": camera.repeat(n, 1, 1), "pose": pose, "inputs": inputs}


class Batches:
    """An endless stream of two batches in turn."""

    def __init__(self, plan: Plan, n: int, size: tuple[int, int]) -> None:
        self.two = [batch_of(plan, n, size, seed) for seed in range(2)]
        self.taken = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self.taken += 1
        return self.two[self.taken % 2]

    def close(self) -> None: ...


@dataclass
class Found:
    """What one run of `dry_run` took.

    Attributes:
        waits, kernels, casts, bytes_up: of a training step, the second of a run, which logs nothing.
        prediction_waits, prediction_kernels: of the prediction of one image, the second of its size.
        float64: operations in float64 on the device, of all that ran.
        kept: bytes for the backward pass, by number of images.
    """

    waits: dict[tuple[str, str], int]
    kernels: int
    casts: int
    bytes_up: int
    said: str
    float64: Counter[str]
    kept: dict[int, int]
    parameters: int
    values: dict[str, float]
    prediction_waits: dict[tuple[str, str], int]
    prediction_kernels: int

    @property
    def kept_per_image(self) -> float:
        (few, less), (many, more) = sorted(self.kept.items())
        return (more - less) / (many - few)

    @property
    def constant(self) -> float:
        """Bytes kept that do not grow with the images: weights in lower precision."""
        few, less = min(self.kept.items())
        return less - few * self.kept_per_image


CLASSES_AN_IMAGE = 10  # of those that a set criterion would find, where there are no numbers to find any


def some_pairs(criterion: SetCriterion, masks: Tensor, classes: Tensor, truth: BatchSegments) -> MatchedPairs:
    """A matching as large as usual."""
    b, layers = masks.shape[:2]
    grid = torch.meshgrid(*(torch.arange(n) for n in (b, layers, CLASSES_AN_IMAGE)), indexing="ij")
    image, layer, label = (part.flatten() for part in grid)
    return MatchedPairs(*upload(torch.stack([image, layer, label, label]), truth.ids.device))


def without_numbers() -> Iterator[Any]:
    """Weights that have no numbers are not initialised, and nothing looks at them."""
    yield patch.object(SetCriterion, "match", some_pairs)
    for name in ("uniform_", "normal_", "erfinv_"):
        yield patch.object(torch.Tensor, name, lambda self, *args, **kwargs: self)
    for name in ("torch.nn.init._no_grad_trunc_normal_", "torch.nn.init.trunc_normal_"):
        yield patch(name, lambda tensor, *args, **kwargs: tensor)


def dry_run(
    plan: Plan,
    folder: Path,
    *,
    shapes_only: bool = False,
    precision: str = "bf16",
    size: tuple[int, int] | None = None,
    images: Sequence[int] = (2,),
    resume: bool = False,
) -> Found:
    """Two steps, and a prediction; where there are numbers, also a third step, a validation, and with `resume` a
    checkpoint that a second trainer loads.

    Args:
        images: numbers of images for which the bytes kept are counted; the steps have the first.
    """
    size, n = size or image_size(plan.run), images[0]
    run = replace(
        plan.run, output=folder, precision=precision, device="cuda", steps=6, batch_size=n, grad_accum_steps=1,
        log_every=100, keep_last=1,
    )  # fmt: skip
    plan = replace(plan, run=run)
    with fake_gpu.fake_gpu(shapes_only=shapes_only) as counts, ExitStack() as stack:
        stack.enter_context(patch.object(training, "dataset_fingerprint", lambda data: ""))
        stack.enter_context(patch.object(self_supervised, "check_video", lambda *args, **kwargs: None))
        stack.enter_context(patch.object(self_supervised, "MeasuredMotion", lambda *args: None))
        stack.enter_context(patch.object(self_supervised, "chosen_frames", lambda *args: None))
        for entry in without_numbers() if shapes_only else ():
            stack.enter_context(entry)
        world = ProcessGroup(fake_gpu.DEVICE)
        trainer = training.build_trainer(plan, world)
        batches, stop = Batches(plan, n, size), Event()
        trainer.train_step(batches, stop, wait=False)
        float64 = Counter(counts.float64)
        counts.reset()
        values, _ = trainer.train_step(batches, stop, wait=False)
        step = dict(counts.waits), counts.kernels, counts.casts, counts.bytes_up, counts.said()
        kept = {number: bytes_kept(trainer, batch_of(plan, number, size)) for number in images}
        if not shapes_only:
            values, _ = trainer.train_step(batches, stop)
            check_gradients(trainer, precision)
            assert trainer.validate([batch_of(plan, n, size)], MetricLogger(None), stop)
        if resume:
            trainer.checkpointer.save()
            again, found = training.build_trainer(plan, world), find_checkpoint(run, "auto", world)
            assert found is not None
            again.checkpointer.load(*found)
            again.train_step(batches, stop)
        predictor = Predictor(trainer.model, trainer.card, device="cuda", precision=precision)  # type: ignore[arg-type]
        focal = 500.0 if trainer.card.needs_camera else None
        float64 += counts.float64
        counts.reset()
        for _ in range(2):  # the first of a size uploads what is kept for it
            counts.reset()
            predictor.predict_all(ImageInput(np.zeros((size[0] + 6, size[1] + 10, 3), np.uint8), focal))
            float64 += counts.float64
        return Found(
            *step,
            float64 + counts.float64,
            kept,
            sum(p.numel() for p in trainer.model.parameters()),
            values,
            dict(counts.waits),
            counts.kernels,
        )


def shapes_only_trainer(plan: Plan, stack: ExitStack) -> Trainer:
    """A trainer without numbers; the stand-in stays as long as the stack."""
    stack.enter_context(fake_gpu.fake_gpu(shapes_only=True))
    stack.enter_context(patch.object(training, "dataset_fingerprint", lambda data: ""))
    for entry in without_numbers():
        stack.enter_context(entry)
    return training.build_trainer(plan, ProcessGroup(fake_gpu.DEVICE))


def check_gradients(trainer: Trainer, precision: str) -> None:
    gradients = {name: p.grad.inner for name, p in trainer.model.named_parameters() if p.grad is not None}  # type: ignore[attr-defined]
    assert gradients
    bad = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    assert not bad or precision == "fp16", bad  # fp16 looks for its scale in the first steps


def bytes_kept(trainer: Trainer, batch: Batch) -> int:
    """What autograd keeps of a batch for the backward pass: model and losses, without the parameters themselves."""
    own = {fake_gpu.inner(p).untyped_storage()._cdata for p in trainer.model.parameters()}
    found: dict[int, torch.UntypedStorage] = {}

    def keep(x: Tensor) -> Tensor:
        storage = fake_gpu.inner(x).untyped_storage()
        if storage._cdata not in own:
            found[storage._cdata] = storage  # which keeps it alive, or another would take its number
        return x

    trainer.model.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        losses = trainer.objective.losses(batch.to(trainer.world.device), 0)
    total = sum(storage.nbytes() for storage in found.values())
    del losses
    return total


LEFT_OUT = {"mixture/zoedepth_nyu_kitti"}  # its tasks want the data sets of a mixture, which are elsewhere
RECIPES = sorted({str(path.relative_to(CONFIGS).with_suffix("")) for path in CONFIGS.rglob("*.yaml")} - LEFT_OUT)
BUDGETS = Path(__file__).with_name("budgets.json")
IMAGES = (2, 6)  # whose bytes kept are compared: what grows with them, and what does not


def budget(found: Found) -> dict[str, float]:
    return {
        "waits": sum(found.waits.values()),
        "kernels": found.kernels,
        "casts": found.casts,
        "kept_mb": round(found.kept_per_image / 2**20, 1),
        "constant_mb": round(max(0.0, found.constant) / 2**20, 1),
        "prediction_waits": sum(found.prediction_waits.values()),
        "prediction_kernels": found.prediction_kernels,
    }
