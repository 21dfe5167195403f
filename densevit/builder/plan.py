"""A config becomes a plan: every component checked, then the data sets opened; no weights are allocated yet.

A plan also gives the card of the model: from which data it is trained, and from which weights.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

from torch import nn

from densevit.builder.checkpoint import InitCheckpoint
from densevit.builder.model import as_component, build_card
from densevit.config import parser, plugins
from densevit.config.parser import OBJECT, Draft
from densevit.config.schema import TrainConfig
from densevit.config.validation import ComponentChecker, ModelSpec, TaskSpec
from densevit.data.datasets.base import Dataset
from densevit.data.datasets.mix import Mix
from densevit.data.loading.clips import Clips
from densevit.data.loading.feature_cache import FeatureCache
from densevit.data.sanity_checks import fields_of_view, median_focal, output_problems
from densevit.data.transforms.affine import Transform
from densevit.data.transforms.geometric import compose
from densevit.engine.logger import Trackers
from densevit.engine.objective import TrainingObjective
from densevit.errors import ConfigError, DataError
from densevit.model_card import ModelCard
from densevit.models.dense import DenseModel
from densevit.models.lora import Lora
from densevit.preprocess_config import PreprocessConfig
from densevit.registries import REGISTRIES
from densevit.registry import ComponentSpec
from densevit.weights.finetune import filled

Locate = Callable[[str], str]

WITHOUT_DEPTH = {"segmentation", "classification", "panoptic", "instances"}
"""Tasks that ask for no depth."""


@dataclass(frozen=True)
class Plan:
    """A run whose every component is checked. `open()` opens its data sets; nothing is built before.

    Attributes:
        run: once open, every default spelled out and `steps` known: its dump repeats the run.
        datasets: `train`, and `val` and `probe` where the config has them.
        init: the checkpoint of `model.init_from`.
        objective: what is minimised.
        locate: puts file and line of its key in front of an error message.
        opened: the data sets by the same names; empty until `open()`.
    """

    run: TrainConfig
    model: ModelSpec
    tasks: Mapping[str, TaskSpec]
    transforms: Sequence[ComponentSpec[Transform]]
    datasets: Mapping[str, ComponentSpec[Dataset]]
    objective: ComponentSpec[TrainingObjective]
    init: InitCheckpoint | None = None
    locate: Locate = str
    opened: Mapping[str, Dataset] = field(default_factory=dict)

    @property
    def train(self) -> Dataset:
        return self.opened["train"]

    @property
    def val(self) -> Dataset | None:
        return self.opened.get("val")

    def open(self, step: int = 0, samples: int = 0) -> "Plan":
        """Return the plan with its data sets open, which says how long an epoch is and names the classes. Raises
        ConfigError if the run has too few steps for its schedule, DataError if a data set is missing or damaged.
        `step`, `samples`: where a resumed run goes on."""
        opened = {}
        for name, dataset in self.datasets.items():
            with self.located(f"data.{name}"):
                opened[name] = dataset.build()
        named = {spec.task.name for spec in self.tasks.values()}
        if named and named <= WITHOUT_DEPTH and not self.model.conditioning:
            opened = {name: data.without_depth() for name, data in opened.items()}
        if "normals" in named:
            opened = {name: data.with_normals() for name, data in opened.items()}
        if isinstance(val := opened.get("val"), Mix):
            val.join_onto(opened["train"].classes)
        train = opened["train"]
        labelled = train if train.classes else opened.get("probe", train)
        plan = replace(self, opened=opened, model=self.model.for_classes(labelled.classes, labelled.things))
        if plan.model.camera == "canonical" and plan.model.canonical_focal is None:
            with self.located("model.camera"):
                on_corrupt = self.run.data.on_corrupt
                focal = median_focal(plan.train, self.build_transform(), self.run.seed, on_corrupt=on_corrupt)
            plan = replace(plan, model=replace(plan.model, canonical_focal=focal))
        run = plan.resolved(len(plan.train), step, samples)
        if problems := run.problems():  # such as a warm-up longer than the epochs, whose steps are only known now
            raise ConfigError(*map(self.locate, problems))
        if run.data.clip > 1:
            with self.located("data.clip"):
                Clips(plan.train, run.data.clip, run.data.clip_stride)
        return replace(plan, run=run)

    def build_transform(self) -> Transform:
        """Return the augmentations of the training images as one transform."""
        return compose([choice.build() for choice in self.transforms])

    @contextmanager
    def located(self, key: str = "") -> Iterator[None]:
        """Put file and line of their keys in front of the errors inside; `key` is that of errors that name none."""
        try:
            yield
        except ConfigError as error:
            problems: Sequence[str] = error.problems
            if key:  # which the keys of the sources of a mixture continue
                problems = [f"{key}{'.' if p.startswith('sources') else ': '}{p}" for p in problems]
            raise ConfigError(*map(self.locate, problems)) from None
        except DataError as error:
            if not key:
                raise
            raise DataError(self.locate(f"{key}: {error}")) from error

    def resolved(self, length: int, step: int = 0, samples: int = 0) -> TrainConfig:
        """Return the run with every default spelled out, for `length` training samples. Epochs count what was trained
        before `step`, maybe in steps of another size."""
        run = self.run
        steps = run.steps or step + max(0, ceil(((run.epochs or 1) * length - samples) / run.batch_size))
        validate_every = run.validate_every or max(1, ceil(steps / 10))
        tasks = {
            name: replace(task, losses=[{**loss.spec(), "weight": weight} for weight, loss in self.tasks[name].losses])
            for name, task in run.tasks.items()
        }
        datasets: dict[str, Any] = {name: dataset.spec() for name, dataset in self.datasets.items()}
        model = self.model.spec()
        model["conditioning"] = {**run.model.conditioning, **model.get("conditioning", {})}
        return replace(
            run,
            model=replace(run.model, **model, resize=self.model.resize),
            tasks=tasks,
            data=replace(run.data, transforms=[transform.spec() for transform in self.transforms], **datasets),
            objective=self.objective.spec(),
            steps=steps,
            epochs=None,
            validate_every=validate_every,
            save_every=run.save_every or validate_every,
        )


def load_plan(path: str | Path, overrides: Sequence[str] = ()) -> Plan:
    """Read a config and check every name, option, type and file of it that needs no data; see `resolve_plan`."""
    return resolve_plan(Draft.read(path, overrides))


def resolve_plan(draft: Draft) -> Plan:
    """Check a config that was read already. Raises ConfigError with every error at once, with file and line."""
    run = draft.run
    if run.plugins or plugins.TRUSTED in os.environ:
        run = replace(run, plugins=plugins.load(run.plugins, draft.folder))
    objects = {key_path: as_component(key_path, value) for key_path, value in draft.objects.items()}
    checker = ComponentChecker(REGISTRIES, draft.problems, objects)
    try:
        Trackers(run.trackers)
    except ConfigError as error:
        checker.problems += error.problems
    checker.init_file(run.model)
    heads, decoders = checker.heads(run.model), checker.decoders(run.model)
    tasks, transforms, datasets = checker.tasks(run.tasks), checker.transforms(run.data), checker.datasets(run.data)
    init = InitCheckpoint(run.model) if run.model.init_from is not None and not checker.problems else None
    stored = init.info.model if init else {}
    objective = checker.objective(run)
    encoder = checker.encoder(run.model, filled(run.model.encoder, stored["encoder"]) if init else None)
    decoder = checker.decoder(run.model, filled(run.model.decoder, stored["decoder"]) if init else None)
    for name in heads:
        if hasattr(nn.ModuleDict, name) or name == "training":
            checker.problems.append(f"model.heads.{name}: torch's modules need this name themselves; take another.")
    lora = (run.model.encoder or {}).get("lora")
    if init is not None and lora == stored["encoder"].get("lora"):
        lora = None  # of a training that is over
    used = {Clips: run.data.clip > 1, FeatureCache: run.data.cache_features, Lora: lora}
    for component in (objective.component, *filter(used.get, used)):  # no component where `objective` has problems
        checker.problems += getattr(component, "incompatible", lambda run: ())(run)
    conditioning = checker.resolved_conditioning(run, stored.get("conditioning", {}))
    checker.raise_problems(draft.locate)
    if problems := output_problems(run):
        raise ConfigError(*map(draft.locate, problems))
    camera = run.model.camera or stored.get("camera", "none")
    canonical = run.model.canonical_focal or (stored.get("canonical_focal") if camera == "canonical" else None)
    resize = run.model.resize or (init.info.resize if init else PreprocessConfig())
    model = ModelSpec(encoder, decoder, heads, decoders, resize, camera, canonical, conditioning)
    return Plan(run, model, tasks, transforms, datasets, objective, init, draft.locate)


def describe_data(data: Mapping[str, Any]) -> str:
    """Return a data set in a line, for those who get the model: of the folder that it lies in only the last part.

    >>> describe_data({"type": "folder", "root": "/home/me/garden", "split": "train", "depth_scale": 1000})
    'folder garden, split train'
    >>> describe_data({"type": "rooms", "root": "/home/me/rooms"})
    'rooms'
    >>> describe_data({"type": "mix", "sources": [{"data": {"type": "nyu"}}, {"data": {"type": "vkitti2"}}]})
    'nyu + vkitti2'
    """
    if "sources" in data:
        return " + ".join(describe_data(source["data"]) for source in data["sources"])
    root = Path(data["root"]).name if data.get("root") else ""
    kind = " ".join(filter(None, dict.fromkeys((data["type"], root))))
    name = data.get("name") if data["type"] == OBJECT else kind
    return f"{name}, split {data['split']}" if data.get("split") else str(name)


def training_card(plan: Plan, model: DenseModel) -> ModelCard:
    """Return the card of the model of a plan, before it is trained."""
    card = build_card(model, plan.model, plan.train.palette)
    if plan.init is None:
        card = replace(card, licence=model.encoder.licence)
    else:
        init = plan.init.info
        source = "densevit, from " + init.source.removeprefix("densevit, from ")  # the first of several trainings
        multiple = (init.multiple if init.resize == plan.model.resize else None) or card.multiple
        card = replace(card, source=source, licence=init.licence, multiple=multiple)
    return replace(
        card,
        trained_on=describe_data(plan.run.data.train),
        fov=fields_of_view(plan.train, on_corrupt=plan.run.data.on_corrupt),
        config=parser.to_dict(plan.run),
        teachers={teacher.name: teacher.licence for teacher in plan.train.teachers},
    )
