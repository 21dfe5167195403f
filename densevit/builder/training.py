"""Builds a trainer from a plan: model, tasks, data loaders; and the checks before the first step."""

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor

from densevit.builder.model import build_encoder, build_model
from densevit.builder.plan import Plan, training_card
from densevit.builder.tasks import best_score, build_task, depth_tasks
from densevit.config.schema import TrainConfig
from densevit.data.datasets.base import check_source_names, dataset_fingerprint
from densevit.data.loading.clips import Clips, windows
from densevit.data.loading.dataloader import EvalLoader, TrainLoader
from densevit.data.loading.feature_cache import FeatureCache
from densevit.data.loading.workers import auto_workers
from densevit.engine.distributed import check_processes
from densevit.engine.objective import TrainingSetup, Validation
from densevit.engine.optim import freeze
from densevit.engine.trainer import Trainer
from densevit.engine.validation import Predict
from densevit.errors import ConfigError, first_line
from densevit.evaluation.depth.published_protocols import PROTOCOLS
from densevit.inference.forward import forward
from densevit.model_card import ModelCard
from densevit.models.encoders.base import ENCODERS, Encoder
from densevit.registry import ComponentConfig
from densevit.structures import Batch
from densevit.utils.device import Precision, is_out_of_memory, resolve
from densevit.utils.process_group import ProcessGroup


def build_trainer(plan: Plan, world: ProcessGroup) -> Trainer:
    """Build model, tasks and trainer, with weights loaded from `model.init_from`. Raises ConfigError or CheckpointError
    if these are missing or do not fit."""
    run = plan.run
    objective: Any = plan.objective.component
    with plan.located():
        check_processes(world, run, resolve(run.precision, world.device))
        size = run.batch_size // (run.grad_accum_steps * world.size)
        if size < (fewest := fewest_images(plan)):
            raise ConfigError(
                f"batch_size: micro-batches of {size} (batch_size / grad_accum_steps / processes), and objective "
                f"'{plan.objective.name}' needs {fewest} images or more in each."
            )
        for name, task in plan.tasks.items():
            check_source_names(f"tasks.{name}", task.sources, plan.train.sources)
        objective.check_data(run, plan.tasks, plan.opened)
        try:
            model = build_model(plan.model)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise ConfigError(f"model: does not fit into memory ({first_line(error)}).") from None
    if plan.init is not None:
        loaded = plan.init.load_into(model, plan.model)
        if world.is_main:
            print(loaded, file=sys.stderr)
    with plan.located():
        freeze(model, run.model)
    model.encoder.set_grad_checkpointing(run.model.grad_checkpointing)
    card = training_card(plan, model)
    tasks = {name: build_task(name, plan, card.outputs[name]) for name in plan.tasks}
    best = best_score(plan, tasks)
    setup = TrainingSetup(run, model, tasks, plan.tasks, card, plan.opened, checked_encoder)
    with plan.located():
        built = objective.build(setup, **plan.objective.options)
        data = dataset_fingerprint(plan.train)
        return Trainer(built, world, predict=make_predict_fn(plan, card), data=data, best=best)


def fewest_images(plan: Plan) -> int:
    """Return how many images a micro-batch needs at least."""
    objective: Any = plan.objective.component
    return int(objective.fewest_images(plan.objective.options))


def checked_encoder(config: ComponentConfig, key_path: str) -> Encoder:
    return build_encoder(ENCODERS.check(config, key_path), key_path)


def make_predict_fn(plan: Plan, card: ModelCard) -> Predict:
    """Return how validation runs the model: on the input window of the (source's) protocol, at the card's size."""
    # The model runs once an image, so the first depth protocol's input window holds for all heads.
    protocol = PROTOCOLS[next((task.protocol for task in depth_tasks(plan, card).values()), "plain")]
    by_source = {s.name: PROTOCOLS[s.protocol] for s in (plan.val.sources if plan.val else ()) if s.protocol}

    def predict(model: Any, batch: Batch, precision: Precision) -> tuple[Batch, dict[str, Tensor]]:
        batch = model.for_validation(batch)
        h, w = batch.image.shape[-2:]
        window = by_source.get(batch.sources[0], protocol) if batch.sources else protocol
        predictions = forward(
            model, batch.image, card.resize, card.multiple, model.inputs_of(batch),
            precision=precision, box=window.input_box(h, w), heads=card.outputs,
        )  # fmt: skip
        return batch, predictions

    return predict


def train_batches(
    plan: Plan, world: ProcessGroup, features: FeatureCache | None = None
) -> Callable[[int], TrainLoader]:
    """Return a function from the images already seen to the endless micro-batches from there on."""
    run = plan.run
    transform = plan.build_transform()
    clips = Clips(plan.train, run.data.clip, run.data.clip_stride) if run.data.clip > 1 else None
    return lambda start: TrainLoader(
        plan.train,
        transform,
        seed=run.seed,
        batch_size=run.batch_size,
        grad_accum_steps=run.grad_accum_steps,
        start=start,
        views=run.data.cache_features.views if run.data.cache_features else None,
        features=features,
        clips=clips,
        **loader_options(run, world),
    )


def val_batches(plan: Plan, world: ProcessGroup) -> Validation | None:
    if plan.val is None:
        return None
    size = max(1, min(8, plan.run.batch_size // (plan.run.grad_accum_steps * world.size)))
    frames = plan.model.clip_frames
    clips = windows(plan.val, frames) if frames > 1 and plan.val.video else None
    return EvalLoader(plan.val, batch_size=size, clips=clips, **loader_options(plan.run, world))


def loader_options(run: TrainConfig, world: ProcessGroup) -> dict[str, Any]:
    return {
        "rank": world.rank, "world_size": world.size, "workers": workers(run, world),
        "pin": world.device.type == "cuda", "timeout": run.data.timeout, "on_corrupt": run.data.on_corrupt,
        "max_corrupt_fraction": run.data.max_corrupt_fraction,
    }  # fmt: skip


def workers(run: TrainConfig, world: ProcessGroup) -> int:
    return auto_workers(world.local_size) if run.data.workers == "auto" else run.data.workers
