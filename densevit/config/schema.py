"""The config as typed, frozen dataclasses: every key of a training run, with its default."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from densevit.model_card import PreprocessConfig
from densevit.registry import ComponentConfig

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Count = Annotated[int, Field(ge=1, lt=2**32)]

Fraction = Annotated[float, Field(ge=0, le=1)]

Share = Annotated[float, Field(ge=0, lt=1)]

Memory = Annotated[float, Field(ge=0, lt=1)]  # share that a moving average keeps in each step
SHARED_DATA_OPTIONS = ("root", "depth_scale")  # keys of `data` that its train and val share


@dataclass(frozen=True, kw_only=True)
class Temporal:
    """Motion blocks between the levels of `model.decoder`: attention over a clip's frames (Video Depth Anything)."""

    type: Literal["attention"] = "attention"
    heads: Count = 8
    frames: Annotated[int, Field(ge=2, le=1024)] | None = None  # of a window over a film; default: `data.clip`
    freeze_rest: bool = False  # only the motion blocks learn, so that single images are predicted as before


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Blocks after the fusions of `model.decoder` that take measured depth at some points (Prompt Depth Anything)."""

    type: Literal["points"] = "points"
    hidden: Count = 32  # channels of their convolutions
    freeze_rest: bool = False  # only these blocks learn, so that images without points are predicted as before


@dataclass(frozen=True, kw_only=True)
class Model:
    """Components of the network; each is `{type: name, option: value}`."""

    encoder: ComponentConfig | None = (
        None  # with `init_from` the file's, unless it has a type; its options go over the file's
    )
    decoder: ComponentConfig | None = None  # likewise; of every head without one in `decoders`
    heads: dict[str, ComponentConfig]  # one per task
    decoders: dict[str, ComponentConfig] = field(default_factory=dict)  # head -> a decoder of its own
    resize: PreprocessConfig | None = (
        None  # how images are preprocessed outside training: as in `init_from`, else padded only
    )
    init_from: str | None = None  # start from the weights of this checkpoint: a path, or hf:owner/name
    init_family: str | ComponentConfig | None = (
        None  # family of that checkpoint, where its tensor names fit several; {type: name, option: value}
    )
    # how metric heads know the lens, as in `init_from`, else none. canonical: depth for one focal length, scaled to the
    # camera's; rays: the viewing direction of each cell is an input. Both need data with intrinsics
    camera: Literal["none", "canonical", "rays"] | None = None
    canonical_focal: Positive | None = None  # pixels of the network's input; default: the training data's median
    temporal: Literal["none", "attention"] | Temporal | None = (
        None  # as in `init_from`, else none; learns from `data.clip`
    )
    prompt: Literal["none", "points"] | Prompt | None = (
        None  # as in `init_from`, else none; learns from points that the transform `sparse_depth` draws
    )
    freeze_encoder: bool = False  # a probe: only decoder and heads learn
    grad_checkpointing: bool = False


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one head learns from and is scored by; each loss is `{type: name, weight: 1.0, option: value}`."""

    type: str = "depth"
    losses: list[ComponentConfig] = field(default_factory=list)  # none: the task's usual ones
    protocol: str = "plain"  # of depth, in the validation during training
    weight: Positive = 1.0  # of its losses among those of other tasks; where `loss_weighting` learns, where it begins
    sources: list[str] = field(
        default_factory=list
    )  # of a mixture, those that it learns from and is scored on; none: all


Truth = Literal["metric", "relative", "affine", "disparity", "labels", "normals", "none"]


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Images without ground truth: the moving average of the weights labels each in every step, and the model learns
    that from a stronger augmentation of the same image (mean teacher; UniMatch, arXiv:2410.10777)."""

    strong: tuple[ComponentConfig, ...] = ()  # transforms of the model's view alone, of pixel values: color, blur ...
    confidence: Share = 0.95  # pixels of which the teacher is less sure of the class teach nothing


@dataclass(frozen=True, kw_only=True)
class Source:
    """One data set of a mixture."""

    data: ComponentConfig
    name: str = ""  # in logs and in `tasks.NAME.sources`; default: the data set's type
    weight: NonNegative | None = None  # of its draws among those of all; none has one: by the number of images
    truth: Truth | tuple[Truth, ...] | None = (
        None  # what is learned from: depth in metres, up to scale, up to scale and shift, disparity up to both; labels
    )
    transforms: tuple[ComponentConfig, ...] = ()  # its own, before those of `data.transforms`
    drop_worst: Share = 0.0  # of an image's pixels, those with the largest error: faults of a teacher, not learned from
    cutmix: Share = 0.0  # probability that a rectangle of another of its images is pasted in, with its ground truth
    consistency: Consistency | None = None  # with `truth: none`, to learn from images without ground truth
    protocol: str | None = None  # of depth, in the validation during training: instead of the task's


@dataclass(frozen=True, kw_only=True)
class CacheFeatures:
    """Outputs of a frozen encoder on disk, computed before the first step and read in its place."""

    folder: Annotated[Path, AfterValidator(Path.expanduser)] = Path("runs/features")  # of all runs and encoders
    views: Count = 1  # augmentations of each image; epoch n takes number n modulo views
    dtype: Literal["fp16", "fp32"] = "fp16"


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where images and ground truth come from; each data set is `{type: name, option: value}`."""

    root: Path | None = None  # of train and val, where they have no `root` of their own
    depth_scale: Positive | None = None  # likewise
    train: ComponentConfig
    val: ComponentConfig | None = None
    probe: ComponentConfig | None = None  # labelled images of a pre-training's probe; by default of `train`
    transforms: list[ComponentConfig] = field(default_factory=list)
    clip: Annotated[int, Field(ge=1, le=1024)] = 1  # consecutive images of a batch that are frames of one video
    clip_stride: Count = 1  # every so many-th frame of a video
    workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = "auto"  # loader processes of each rank
    on_corrupt: Literal["raise", "skip"] = "raise"  # a file that turns bad: stop, or take its successor and count
    max_corrupt_fraction: Fraction = 0.001  # share of an epoch that may be skipped so
    cache_features: CacheFeatures | None = None  # with `model.freeze_encoder`
    timeout: Annotated[float, Field(gt=0, le=1e6)] = 300.0  # seconds for a sample: network disks pause now and then


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Of a pre-training: decoder and heads, trained anew on the frozen encoder before each validation."""

    images: Count = 64  # labelled ones, spread over `data.probe`
    steps: Count = 200  # of AdamW, with batches of 8
    lr: Positive = 1e-3


@dataclass(frozen=True, kw_only=True)
class AlignFeatures:
    """A frozen encoder whose features those of the trained one stay close to (Depth Anything, arXiv:2401.10891)."""

    encoder: ComponentConfig  # its last map must have the channels of the trained one's
    weight: Positive = 1.0
    margin: Annotated[float, Field(gt=-1, le=1)] = 0.85  # features of this cosine or more are close enough
    sources: tuple[str, ...] = ()  # of a mixture, whose images are compared; empty: all


@dataclass(frozen=True, kw_only=True)
class Optim:
    """AdamW (Loshchilov and Hutter 2019). Layer i of L below the decoder learns at lr * scale * decay^(L-i)."""

    type: Literal["adamw", "sgd"] = "adamw"
    lr: Positive = 1e-4
    encoder_lr_scale: NonNegative = 1.0
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    weight_decay: NonNegative = 0.05
    betas: tuple[Memory, Memory] = (0.9, 0.999)
    eps: Positive = 1e-8
    momentum: Fraction = 0.9  # of sgd, which has neither betas nor eps
    clip_grad: Positive | None = 1.0  # largest norm of the gradient


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Factor of `optim.lr` over steps: a linear warm-up, then the named curve down to `min_lr_ratio`."""

    type: Literal["cosine", "poly", "one_cycle", "constant"] = "cosine"
    warmup: NonNegative = 0.05  # steps; below 1 a share of all steps
    encoder_warmup: NonNegative | None = None  # likewise: the encoder rests during `warmup`, then has its own (EoMT)
    min_lr_ratio: Fraction = 0.0
    power: Positive = 0.9  # of poly
    warmup_start_factor: Fraction = 0.0  # factor before the first step of the warm-up

    def warmups(self, steps: int) -> tuple[int, int]:
        """The steps of the warm-up, and of the encoder's own behind it."""
        shares = (self.warmup, self.encoder_warmup or 0)
        first, own = (round(share * steps if share < 1 else share) for share in shares)
        return first, own


@dataclass(frozen=True, kw_only=True)
class Run:
    """Everything a training run depends on, apart from the code and the files it reads."""

    model: Model
    data: Data
    tasks: dict[str, Task] = field(default_factory=lambda: {"depth": Task()})
    pretrain: ComponentConfig | None = None  # what the encoder learns from images alone; then the tasks are the probe's
    probe: Probe = field(default_factory=Probe)  # of a pre-training
    align_features: AlignFeatures | None = None
    loss_weighting: Literal["fixed", "uncertainty"] = "fixed"  # of several tasks: by their weights, or learned
    optim: Optim = field(default_factory=Optim)
    schedule: Schedule = field(default_factory=Schedule)
    steps: Count | None = None  # optimiser steps; either this or epochs
    epochs: Positive | None = None
    batch_size: Annotated[int, Field(ge=1, le=2**20)] = 8  # images a step, over all processes and accumulation
    grad_accum_steps: Count = 1  # micro-batches per step
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None  # decay of the weights' moving average
    compile: bool = False
    parallel: Literal["ddp", "fsdp"] = "ddp"  # of several processes: each holds the whole model, or a part of it
    device: str = "auto"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0  # numpy takes no larger one
    output: Annotated[Path, AfterValidator(Path.expanduser)] = Path("runs/default")
    log_every: Count = 20  # steps
    best: str | None = None  # the score that picks the best checkpoint, as `val.csv` names it: nyu/abs_rel, labels/miou
    trackers: list[str | ComponentConfig] = field(
        default_factory=list
    )  # beside CSV and TensorBoard: wandb, mlflow, trackio; or {type: name, option: value}
    validate_every: Count | None = None  # steps; default: ten times a run
    save_every: Count | None = None  # steps between checkpoints; default: at each validation
    keep_last: Annotated[int, Field(ge=0, lt=2**32)] = 2  # newest checkpoints kept besides the best; 0 keeps all
    max_skipped: Count | None = None  # non-finite steps in a row before giving up: 3, under fp16 12
    plugins: list[Path] = field(default_factory=list)  # Python files that register components of your own

    def problems(self) -> list[str]:
        """What the types cannot say."""
        found = []
        if (self.steps is None) == (self.epochs is None):
            found.append(f"steps: give either steps or epochs, got {'neither' if self.steps is None else 'both'}.")
        if self.batch_size % self.grad_accum_steps:
            found.append(
                f"grad_accum_steps: {self.grad_accum_steps} micro-batches cannot share {self.batch_size} images evenly."
            )
        if self.steps and sum(warmups := self.schedule.warmups(self.steps)) >= self.steps:
            name = "encoder_warmup" if warmups[0] < self.steps else "warmup"
            found.append(f"schedule.{name}: {sum(warmups)} steps leave nothing of {self.steps}.")
        if self.schedule.encoder_warmup is not None and self.model.freeze_encoder:
            found.append("schedule.encoder_warmup: model.freeze_encoder leaves nothing to warm up.")
        if self.model.freeze_encoder and (self.model.encoder or {}).get("lora"):
            found.append("model.freeze_encoder: model.encoder.lora freezes the encoder itself, and trains its updates.")
        if self.data.cache_features and not self.model.freeze_encoder:
            found.append("data.cache_features: the encoder must stay as it is; set model.freeze_encoder.")
        if self.data.cache_features and self.parallel == "fsdp":
            found.append("data.cache_features: goes with parallel ddp; fsdp would shard an encoder that never runs.")
        for name in ("encoder", "decoder"):
            if self.model.init_from is None and getattr(self.model, name) is None:
                found.append(f"model.{name}: missing.")
        if self.data.clip > 1:
            found += self._clip_problems()
        elif self.model.temporal not in (None, "none"):
            found.append("model.temporal: learns from clips; set data.clip to their number of frames.")
        if self.model.prompt not in (None, "none"):
            found += self._prompt_problems()
        if (rule := self.model.resize) and rule.mode != "native" and not (rule.size and min(rule.size) > 0):
            found.append(f"model.resize.size: mode '{rule.mode}' needs two sides over 0, got {rule.size}.")
        if self.model.init_family and not self.model.init_from:
            found.append("model.init_family: there is no model.init_from whose family this could be.")
        if not self.model.heads:
            found.append("model.heads: there is none, and nothing to learn.")
        for name in self.model.heads:
            if not name or set(name) & set("./="):
                found.append(f"model.heads.{name}: a head's name has a letter, and no '.', '/' or '='.")
        for name in self.tasks.keys() ^ self.model.heads.keys():
            have, lack = ("tasks", "model.heads") if name in self.tasks else ("model.heads", "tasks")
            found.append(f"{have}.{name}: there is no {lack}.{name} to go with it.")
        for name in self.model.decoders.keys() - self.model.heads.keys():
            found.append(f"model.decoders.{name}: there is no model.heads.{name} to go with it.")
        if self.model.heads and self.model.heads.keys() <= self.model.decoders.keys():
            found.append("model.decoders: every head has its own; leave one of them to model.decoder.")
        if self.model.canonical_focal is not None and self.model.camera not in (None, "canonical"):
            found.append(f"model.canonical_focal: belongs to camera 'canonical', not to '{self.model.camera}'.")
        if self.loss_weighting == "uncertainty" and len(self.tasks) == 1:
            found.append("loss_weighting: there is only one task, and nothing to balance it with.")
        unfit = self.model.freeze_encoder or self.pretrain or self.compile or self.parallel == "fsdp"
        if self.align_features is not None and unfit:
            found.append(
                "align_features: goes with a training of the encoder, and without pretrain, compile and parallel: fsdp."
            )
        if self.pretrain is not None:
            found += self._pretraining_problems()
        elif self.data.probe is not None:
            found.append("data.probe: only a pre-training has a probe; there is no `pretrain`.")
        return found + _window_problems(self.model.resize)

    def _clip_problems(self) -> list[str]:
        found = []
        if self.batch_size % (self.data.clip * self.grad_accum_steps):
            micro = "" if self.grad_accum_steps == 1 else f" in each of {self.grad_accum_steps} micro-batches"
            found.append(f"data.clip: {self.batch_size} images a step hold no whole clips of {self.data.clip}{micro}.")
        if self.data.cache_features:
            found.append(
                "data.cache_features: caches single images, each with its own augmentation; leave data.clip out."
            )
        if self.parallel == "fsdp" and self.model.temporal not in (None, "none"):
            found.append("model.temporal: goes with parallel ddp; clips of several lengths would not run in step.")
        if self.pretrain is not None:
            found.append("data.clip: a pre-training learns from single images.")
        return found

    def _prompt_problems(self) -> list[str]:
        found = []
        if self.parallel == "fsdp":
            found.append("model.prompt: goes with parallel ddp; batches with and without points would not run in step.")
        if self.pretrain is not None:
            found.append("model.prompt: a pre-training predicts no depth; leave it out.")
        return found

    def _pretraining_problems(self) -> list[str]:
        found = []
        if self.data.val is None:
            found.append("data.val: missing; the probe of a pre-training is scored on its labelled images.")
        if self.model.freeze_encoder:
            found.append("model.freeze_encoder: leaves a pre-training nothing to learn.")
        if self.parallel == "fsdp":
            found.append("parallel: a pre-training goes with ddp, which holds the whole model.")
        if self.loss_weighting != "fixed":
            found.append("loss_weighting: of the probe's tasks, which a pre-training does not learn; leave it out.")
        return found


def _window_problems(rule: PreprocessConfig | None) -> list[str]:
    if rule is None or (rule.window is None and rule.stride is None):
        return []
    if rule.window is None:
        return ["model.resize.stride: there is no model.resize.window to move by it."]
    stride = rule.stride or rule.window
    if min(*rule.window, *stride) < 1 or any(step > side for step, side in zip(stride, rule.window, strict=True)):
        return [f"model.resize.stride: between 1 and the sides of the window, got {stride} for {rule.window}."]
    return []


for _node in (
    Run, Model, Temporal, Task, Source, Consistency, AlignFeatures, Data, CacheFeatures, Probe, Optim, Schedule,
    PreprocessConfig,
):  # fmt: skip
    setattr(_node, "__pydantic_config__", ConfigDict(extra="forbid"))  # noqa: B010 (pydantic reads it, mypy does not know it)
