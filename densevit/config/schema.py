"""The config as typed, frozen dataclasses: every key of a training run, with its default."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from densevit.preprocess_config import PreprocessConfig, resize_problems
from densevit.registry import ComponentConfig

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

Count = Annotated[int, Field(ge=1, lt=2**32)]

Fraction = Annotated[float, Field(ge=0, le=1)]

Share = Annotated[float, Field(ge=0, lt=1)]

BATCH_SIZES = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 2**20}, {"const": "auto"}]}
BatchSize = Annotated[int, Field(ge=1, le=2**20), WithJsonSchema(BATCH_SIZES)]  # the parser replaces auto
SHARED_DATA_OPTIONS = ("root", "depth_scale")  # keys of `data` that its train and val share
DATASET_OPTIONS = ("subset", "split", "val_fraction", "classes", "depth_range", "invalid")  # keys of most train and val


@dataclass(frozen=True, kw_only=True)
class Model:
    """Components of the network; each is `{type: name, option: value}`."""

    encoder: ComponentConfig | None = None
    """The encoder; with `init_from` that of the checkpoint, unless a type is given here. Options given here win."""
    decoder: ComponentConfig | None = None
    """The decoder of every head without one of its own in `decoders`; with `init_from` as for `encoder`."""
    heads: dict[str, ComponentConfig] = field(default_factory=dict)
    """Name -> head; one for each of `tasks`. Only a pre-training without labelled images has none."""
    decoders: dict[str, ComponentConfig] = field(default_factory=dict)
    """Name of a head -> a decoder of its own."""
    resize: PreprocessConfig | None = None
    """How images are preprocessed outside of training; default: as in `init_from`, else they are only padded."""
    init_from: str | None = None
    """Checkpoint whose weights the training starts from: a path, hf:owner/name, or densevit:rooms (packaged)."""
    init_family: str | ComponentConfig | None = None
    """Family of `init_from`, where its tensor names fit several; a name, or `{type: name, option: value}`."""
    camera: Literal["none", "canonical"] | None = None
    """How metric heads use the focal length. canonical: depth is predicted for one focal length and scaled to the
    camera's, which needs data with intrinsics. Default: as in `init_from`, else none."""
    canonical_focal: Positive | None = None
    """Focal length of `camera: canonical`, in pixels of the network's input; default: the training data's median."""
    conditioning: dict[str, ComponentConfig | None] = field(default_factory=dict)
    """Inputs beside the image that the model takes, each with its options: rays (the camera), motion (clips), points
    (measured depth). Default: those of `init_from`; null leaves one of them out."""
    trainable: list[str] = field(default_factory=list)
    """Submodules that alone are trained, such as conditioning.points, while all others stay as they are; default: the
    whole model."""
    freeze_encoder: bool = False
    """Train decoder and heads only."""
    grad_checkpointing: bool = False
    """Recompute the encoder's activations in the backward pass: less memory, more time."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one head learns from and is scored by; each loss is `{type: name, weight: 1.0, option: value}`."""

    type: str = "depth"
    """What is predicted."""
    losses: list[ComponentConfig] = field(default_factory=list)
    """Losses, summed by their weights; default: the usual ones of the task."""
    protocol: str = "plain"
    """Evaluation protocol of a depth task, in the validation during training."""
    weight: Positive = 1.0
    """Weight of the task's losses among those of all tasks; with learned weights the initial one."""
    sources: list[str] = field(default_factory=list)
    """Sources of a mixture that the task learns from and is scored on; default: all."""


@dataclass(frozen=True, kw_only=True)
class CacheFeatures:
    """Outputs of a frozen encoder on disk, computed before the first step and read in its place."""

    folder: Annotated[Path, AfterValidator(Path.expanduser)] = Path("runs/features")
    """Folder of the cache, shared by all runs and encoders."""
    views: Count = 1
    """Augmentations of each image; epoch n takes number n modulo views."""
    dtype: Literal["fp16", "fp32"] = "fp16"
    """Number format on disk."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Where images and ground truth come from; each data set is `{type: name, option: value}`."""

    root: Path | None = None
    """Folder of the data sets below that have no `root` of their own."""
    depth_scale: Positive | None = None
    """`depth_scale` of the data sets below that have none of their own: file values per metre."""
    train: ComponentConfig
    """Data set of the training."""
    val: ComponentConfig | None = None
    """Data set of the validation; default: no validation."""
    probe: ComponentConfig | None = None
    """Labelled images of a pre-training's probe; default: `train`."""
    transforms: list[ComponentConfig] = field(default_factory=list)
    """Augmentations of the training images, in this order."""
    clip: Annotated[int, Field(ge=1, le=1024)] = 1
    """Consecutive images of a batch that are frames of one video."""
    clip_stride: Count = 1
    """Take every n-th frame of a video."""
    workers: Annotated[int, Field(ge=0, le=1024)] | Literal["auto"] = "auto"
    """Loader processes of each rank."""
    on_corrupt: Literal["raise", "skip"] = "raise"
    """At an unreadable file: stop, or take the next sample (in a validation, none) and count it."""
    max_corrupt_fraction: Fraction = 0.001
    """Fraction of an epoch, and of a validation, that `on_corrupt: skip` may skip."""
    cache_features: CacheFeatures | None = None
    """Cache the outputs of a frozen encoder (`model.freeze_encoder`) on disk."""
    timeout: Annotated[float, Field(gt=0, le=1e6)] = 300.0
    """Seconds to wait for a sample; network file systems pause now and then."""

    @property
    def has_one_size(self) -> bool:
        """Whether `transforms` bring all images to one size."""
        for spec in reversed(self.transforms):
            if spec.get("size") or spec.get("type") in ("crop_box", "nyu_crop", "kb_crop"):
                return True
            if spec.get("type") in ("resize", "random_scale"):
                return False
        return False


@dataclass(frozen=True, kw_only=True)
class Probe:
    """Of a pre-training: decoder and heads, trained anew on the frozen encoder before each validation."""

    images: Count = 64
    """Number of labelled images, spread over `data.probe`."""
    steps: Count = 200
    """Steps of AdamW, with batches of 8."""
    lr: Positive = 1e-3
    """Learning rate."""


@dataclass(frozen=True, kw_only=True)
class Optim:
    """AdamW (Loshchilov and Hutter 2019). Layer i of L below the decoder learns at lr * scale * decay^(L-i)."""

    type: Literal["adamw", "sgd"] = "adamw"
    """The optimiser."""
    lr: Positive = 1e-4
    """Learning rate of decoder and heads, before `schedule`."""
    encoder_lr_scale: NonNegative = 1.0
    """Factor of `lr` for the encoder."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor of the learning rate from each layer of the encoder to the one below; 1: none."""
    weight_decay: NonNegative = 0.05
    """Weight decay; none for biases, norms, tokens and position embeddings."""
    betas: tuple[Share, Share] = (0.9, 0.999)
    """AdamW's decay rates of the gradient's mean and of its square."""
    eps: Positive = 1e-8
    """AdamW's smallest denominator."""
    momentum: Fraction = 0.9
    """Momentum of sgd."""
    clip_grad: Positive | None = 1.0
    """Largest norm of the gradient; null: not clipped."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Factor of `optim.lr` over steps: a linear warm-up, then the named curve down to `min_lr_ratio`."""

    type: Literal["cosine", "poly", "one_cycle", "constant"] = "cosine"
    """The curve after the warm-up."""
    warmup: NonNegative = 0.05
    """Steps of the warm-up; below 1 a fraction of all steps."""
    encoder_warmup: NonNegative | None = None
    """Steps of the encoder's own warm-up, counted like `warmup`: it is frozen during `warmup`, then starts (EoMT)."""
    min_lr_ratio: Fraction = 0.0
    """Factor at the end of the curve."""
    power: Positive = 0.9
    """Exponent of poly."""
    warmup_start_factor: Fraction = 0.0
    """Factor before the first step of the warm-up."""

    def warmups(self, steps: int) -> tuple[int, int]:
        """Return the steps of the warm-up, and of the encoder's own behind it."""
        shares = (self.warmup, self.encoder_warmup or 0)
        first, own = (round(share * steps if share < 1 else share) for share in shares)
        return first, own


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Everything a training run depends on, apart from the code and the files it reads."""

    # Of all sections, too. The text below a field is the description of its key.
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    model: Model
    """The network."""
    data: Data
    """Images and ground truth."""
    tasks: dict[str, Task] = field(default_factory=lambda: {"depth": Task()})
    """Name of a head -> what it learns; `tasks.NAME=null` leaves out a task of a recipe and its head."""
    objective: ComponentConfig = field(default_factory=lambda: {"type": "supervised"})
    """What is minimised: the losses of the tasks (supervised, the default), or what the encoder learns from images
    alone (mae, dino); `tasks` are then those of the probe."""
    probe: Probe = field(default_factory=Probe)
    """How a pre-training is scored."""
    optim: Optim = field(default_factory=Optim)
    """The optimiser."""
    schedule: Schedule = field(default_factory=Schedule)
    """The learning rate over the steps."""
    steps: Count | None = None
    """Length of the run in optimiser steps; give this or `epochs`."""
    epochs: Positive | None = None
    """Length of the run in passes over the training data."""
    batch_size: BatchSize = 8
    """Images per step, over all processes and micro-batches. auto measures: the most that fit on a GPU, by doubling, or
    the fewest at which a CPU is fastest; the run's config has the number."""
    grad_accum_steps: Count = 1
    """Micro-batches per step."""
    precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto"
    """Number format of a step; auto: bf16 where the hardware multiplies in it, else fp16 on a GPU, fp32 on a CPU."""
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of the weights' moving average, which is then what is validated and saved; default: none."""
    compile: bool | Literal["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = False
    """Compile the network's blocks with torch.compile, in its default mode (true) or the one named. reduce-overhead
    and max-autotune record CUDA graphs: for small batches on a GPU, with images of one size."""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: each holds the whole model (ddp), or a shard of it (fsdp)."""
    device: str = "auto"
    """Device as torch names it; auto: the GPU if there is one."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0  # numpy takes no larger one
    """Seed of initial weights, sampling and augmentation."""
    output: Annotated[Path, AfterValidator(Path.expanduser)] = Path("runs/default")
    """Folder of checkpoints, logs and the resolved config."""
    log_every: Count = 20
    """Steps between lines of the log."""
    profile: bool = False
    """Write a trace of five steps, the sixth to the tenth, by torch.profiler."""
    best: str | None = None
    """Score that selects the best checkpoint, as `val.csv` names it: nyu/abs_rel, labels/miou; default: by the task."""
    trackers: list[str | ComponentConfig] = field(default_factory=list)
    """Where scores are logged besides CSV and TensorBoard: wandb, mlflow, trackio; a name, or
    `{type: name, option: value}`."""
    validate_every: Count | None = None
    """Steps between validations; default: ten validations per run."""
    save_every: Count | None = None
    """Steps between checkpoints; default: at each validation. A validation with the best score yet saves one, too."""
    save_shards: bool | None = None
    """Each process saves the tensors that it holds, during the next steps; default: with `parallel: fsdp`."""
    keep_last: Annotated[int, Field(ge=0, lt=2**32)] = 2
    """Newest checkpoints kept besides the best; 0 keeps all."""
    early_stop: Count | None = None
    """Validations in a row without a better score (`best`) after which the run ends, its schedule unchanged."""
    max_skipped: Count | None = None
    """Consecutive non-finite steps before the run stops; default: 3, with fp16 12."""
    plugins: list[Path] = field(default_factory=list)
    """Python files that register components of your own."""

    @property
    def cuda_graphs(self) -> bool:
        """Whether the compiled blocks are recorded as CUDA graphs."""
        return self.compile in ("reduce-overhead", "max-autotune")

    def problems(self) -> list[str]:
        """Return what the types cannot say."""
        found = []
        if (self.steps is None) == (self.epochs is None):
            found.append(f"steps: give either steps or epochs, got {'neither' if self.steps is None else 'both'}.")
        if self.batch_size % self.grad_accum_steps:
            found.append(
                f"grad_accum_steps: {self.grad_accum_steps} micro-batches cannot share {self.batch_size} images evenly."
            )
        if self.cuda_graphs and not self.data.has_one_size:
            found.append(
                f"compile: {self.compile} records CUDA graphs, each for one size of images; end data.transforms with a "
                "crop or resize to `size`, or take compile: true."
            )
        if self.cuda_graphs and self.parallel == "fsdp":
            found.append(f"compile: {self.compile} records CUDA graphs, which fsdp rules out; take compile: true.")
        if self.early_stop and self.data.val is None:
            found.append("early_stop: there is no data.val whose scores could get better.")
        if self.steps and sum(warmups := self.schedule.warmups(self.steps)) >= self.steps:
            name = "encoder_warmup" if warmups[0] < self.steps else "warmup"
            found.append(f"schedule.{name}: {sum(warmups)} steps leave nothing of {self.steps}.")
        if self.schedule.encoder_warmup is not None and self.model.freeze_encoder:
            found.append("schedule.encoder_warmup: model.freeze_encoder leaves nothing to warm up.")
        for name in ("encoder", "decoder"):
            if self.model.init_from is None and getattr(self.model, name) is None:
                found.append(f"model.{name}: missing.")
        if self.model.init_family and not self.model.init_from:
            found.append("model.init_family: there is no model.init_from whose family this could be.")
        for name in self.model.heads:
            if not name or set(name) & set("./="):
                found.append(f"model.heads.{name}: a head's name has a letter, and no '.', '/' or '='.")
        for name in self.tasks.keys() ^ self.model.heads.keys():
            have, lack = ("tasks", "model.heads") if name in self.tasks else ("model.heads", "tasks")
            found.append(f"{have}.{name}: there is no {lack}.{name} for it.")
        for name in self.model.decoders.keys() - self.model.heads.keys():
            found.append(f"model.decoders.{name}: there is no model.heads.{name} for it.")
        if self.model.heads and self.model.heads.keys() <= self.model.decoders.keys():
            found.append("model.decoders: every head has its own; leave one of them to model.decoder.")
        if self.model.canonical_focal is not None and self.model.camera not in (None, "canonical"):
            found.append(f"model.canonical_focal: belongs to camera 'canonical', not to '{self.model.camera}'.")
        return found + (resize_problems(self.model.resize) if self.model.resize else [])
