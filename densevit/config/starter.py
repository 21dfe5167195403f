"""A first config for a user's folder: small, commented, ready to train."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, floor, log10
from typing import Any, Literal

PLAIN = re.compile(r"/?[A-Za-z_][\w./-]*")  # text that YAML takes for nothing else without quotes
PATCH = 14  # of the encoder
LARGEST_CROP = 518  # pixels, as DINOv2 was trained at last
BATCH_SIZE = 8
STEPS = (500, 20_000)  # at least and at most
EPOCHS = 40


@dataclass(frozen=True, kw_only=True)
class FolderFacts:
    """What a look at some samples of a folder found."""

    root: str  # the folder
    # of data set `folder`, other than the usual ones, as `images`
    options: Mapping[str, Any] = field(default_factory=dict)
    splits: tuple[str, ...] = ()  # the folders train, val and test in it
    images: int  # how many it has to train on
    val_images: int  # how many it has to validate on; of `val_fraction` where there is no folder
    val_fraction: float
    sizes: tuple[tuple[int, int], ...]  # (h, w) of the images that were looked at
    # stored units per metre; None for float files, files that say it themselves, or no depth
    depth_scale: float | None = None
    depth_guess: str = ""  # why the scale is a guess; empty where it is known
    # the 1st, 50th and 99th percentile of depth; None without depth
    depth_metres: tuple[float, float, float] | None = None
    classes: tuple[str, ...] | int | None = None  # names of the classes, or how many there are; None without labels
    class_hint: str = ""  # an id without a name that may mean no class
    type: str = "folder"  # the data set that reads it
    segments: Literal["panoptic", "instances"] | None = None  # what is learned of them
    facts: Sequence[str] = ()  # further lines about it

    def lines(self) -> Iterator[str]:
        """Yield what was found, for a terminal."""
        hs, ws = zip(*self.sizes, strict=True)
        size = f"{hs[0]} x {ws[0]}" if len(set(self.sizes)) == 1 else f"{min(hs)} x {min(ws)} to {max(hs)} x {max(ws)}"
        yield f"images   {self.images:,} to train, {self.val_images:,} to validate, {size} (h x w)"
        if self.depth_metres is not None:
            near, median, far = self.depth_metres
            scale = "metres" if self.depth_scale is None else f"{self.depth_scale:g} stored units per metre"
            yield f"depth    {scale}; {near:.2f} to {far:.2f} m, median {median:.2f} m"
        if self.depth_guess:
            yield f"check    data.depth_scale: {self.depth_guess}"
        if isinstance(self.classes, int):
            mark = 'with "ignore": true where one means no class'
            yield f"labels   ids 0 to {self.classes - 1}; list their names in classes.json in the folder, {mark}"
        elif self.classes is not None:
            more = ", ..." if len(self.classes) > 6 else ""
            yield f"labels   {len(self.classes)} classes: {', '.join(self.classes[:6])}{more}"
        if self.class_hint:
            yield f"check    labels: {self.class_hint}"
        yield from (f"data     {fact}" for fact in self.facts)


def starter_config(name: str, facts: FolderFacts) -> str:
    """Return the config as YAML with comments."""
    depth, labels = facts.depth_metres is not None, facts.classes is not None and not facts.segments
    data = {"type": facts.type, **facts.options}
    splits: list[dict[str, Any]] = [{**data, "split": split} for split in ("train", "val")]
    if not facts.splits and facts.val_fraction:
        splits = [{**split, "val_fraction": facts.val_fraction} for split in splits]
    if depth and labels:
        splits = [{**split, "require_depth": False, "require_labels": False} for split in splits]
    side = crop_side(facts)
    model = segment_model(facts.segments, side) if facts.segments else ROOMS if depth else DPT
    steps = min(max(ceil(EPOCHS * facts.images / BATCH_SIZE), STEPS[0]), STEPS[1])
    lines = [
        f"# `densevit init` found {facts.images:,} images to train and {facts.val_images:,} to validate on.",
        f"#   densevit train {shlex.quote(f'{name}.yaml')}",
        f"#   densevit eval {shlex.quote(f'runs/{name}')}",
        *model,
    ]
    if facts.depth_metres is not None:
        farthest = max(ROOMS_RANGE[1], upper_end(1.1 * facts.depth_metres[2]))
        lines += [
            f"    depth: {{type: metric, activation: log, min_depth: {ROOMS_RANGE[0]:g}, max_depth: {farthest:g}, "
            f"hidden: 0}} # metres; 99% of the depth is below {facts.depth_metres[2]:.3g}"
        ]
    if labels:
        count = f", classes: {facts.classes}" if isinstance(facts.classes, int) else ""
        lines += [f"    labels: {{type: segmentation{count}}}"]
    if depth and labels:
        lines += ["  decoders: {labels: {type: linear}}"]
    lines += ["tasks:", *([f"  {facts.segments}: {{type: {facts.segments}}}"] if facts.segments else [])]
    if depth:
        losses = "{type: silog, variance_focus: 0.85}, {type: log_l1, weight: 0.5}, {type: gradient, weight: 0.2}"
        lines += [f"  depth: {{losses: [{losses}]}}"]
    if labels:
        lines += ["  labels: {type: segmentation}"]
    if depth and labels:
        lines += ["objective: {loss_weighting: uncertainty} # learned weights of the two tasks"]
    lines += ["data:", f"  root: {quoted(facts.root)}"]
    if facts.depth_scale is not None:
        guess = f"; a guess: {facts.depth_guess}" if facts.depth_guess else ""
        lines += [f"  depth_scale: {facts.depth_scale:g} # stored units per metre{guess}"]
    lines += [f"  {split}: {flow(options)}" for split, options in zip(("train", "val"), splits, strict=True)]
    crops = [
        f"    - {{type: resize, short_side: {side}}}",
        *(["    - {type: random_scale, range: [0.5, 2.0], metric: intrinsics}"] if facts.segments else []),
        f"    - {{type: random_crop, size: [{side}, {side}]}} # multiples of the patch, {PATCH}",
    ]
    lines += [
        "  transforms:",
        *(["    - {type: random_resized_crop, size: [192, 256], range: [0.7, 1.0]}"] if model is ROOMS else crops),
        "    - {type: hflip}",
        "    - {type: color, p: 0.5}",
        *(ROOMS_OPTIM if model is ROOMS else (SEGMENT_OPTIM if facts.segments else OPTIM, "ema: 0.999")),
        f"steps: {steps} # of batch_size images: {steps * BATCH_SIZE / facts.images:.0f} epochs",
        f"batch_size: {BATCH_SIZE} # where memory runs out, grad_accum_steps: 2 halves what is in it",
        f"output: {quoted(f'runs/{name}')}",
    ]
    return "\n".join(lines) + "\n"


ROOMS = (
    "# From the small model in the box: no download, minutes on a CPU. Recipe depth/folder tunes DINOv2 on a GPU.",
    "model:",
    "  init_from: densevit:rooms",
    "  camera: none # the metres of your one camera",
    "  heads:",
)
ROOMS_RANGE = (0.05, 40.0)  # metres that its head can tell
ROOMS_OPTIM = ("optim: {lr: 2e-4, weight_decay: 0.05}", "schedule: {type: cosine, warmup: 20}")
DPT = (
    "# DINOv2 ViT-S/14 + DPT, fine-tuned. `densevit list components` lists what else can stand here.",
    "model:",
    "  encoder: {type: timm, name: vit_small_patch14_dinov2.lvd142m, pretrained: true} # or weights: FILE",
    "  decoder: {type: dpt, channels: 64, hidden: [48, 96, 192, 384]}",
    "  heads:",
)
OPTIM = "optim: {lr: 1e-4, encoder_lr_scale: 0.1, weight_decay: 0.01}"
SEGMENT_OPTIM = "optim: {lr: 1e-4, layer_decay: 0.8, weight_decay: 0.05, clip_grad: 0.01} # EoMT's"


def segment_model(kind: str, side: int) -> Sequence[str]:
    """Return the lines of a model for segments."""
    return (
        "# EoMT: 100 queries in the last three blocks of DINOv2 ViT-S/14, fine-tuned (docs/panoptic.md).",
        "model:",
        "  encoder: {type: timm, name: vit_small_patch14_dinov2.lvd142m, pretrained: true, out_indices: 1}",
        "  decoder: {type: eomt, queries: 100, blocks: 3, segments: true}",
        f"  heads: {{{kind}: {{type: {kind}}}}}",
        f"  resize: {{mode: padded, size: [{side}, {side}]}} # images are not cropped but padded, as in EoMT",
    )


def crop_side(facts: FolderFacts) -> int:
    """Return the side of training crops: the short side of the images, a multiple of the patch."""
    short = min(min(size) for size in facts.sizes)
    return max(PATCH, min(short, LARGEST_CROP) // PATCH * PATCH)


def upper_end(metres: float) -> float:
    """Return a round number of metres above: 1, 1.5, 2, 3, 5 or 8 times a power of ten.

    >>> upper_end(7.2), upper_end(79.0), upper_end(0.9)
    (8.0, 80.0, 1.0)
    """
    power = 10.0 ** floor(log10(metres))
    return next(step * power for step in (1, 1.5, 2, 3, 5, 8, 10) if step * power >= metres)


def flow(options: Mapping[str, Any]) -> str:
    """Return a mapping on one line of YAML."""
    return "{" + ", ".join(f"{key}: {quoted(value)}" for key, value in options.items()) + "}"


def quoted(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) and not PLAIN.fullmatch(value):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
