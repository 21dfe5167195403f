"""`mix`: several data sets as one, each with its share of the draws, its transforms and its kind of ground truth."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
from jaxtyping import Float32, Int64
from pydantic import Field

from densevit.config.schema import NonNegative, Positive, Share
from densevit.data.datasets.base import DATASETS, Dataset, MixtureSource, Truth
from densevit.data.labels.joined_classes import JoinedClasses, join_by_name, join_by_table
from densevit.data.transforms.affine import TRANSFORMS, Transform
from densevit.data.transforms.photometric import Color, ImageOnlyTransform
from densevit.errors import ConfigError
from densevit.ops.align import disparity_as_depth
from densevit.ops.normals import KINDS_WITH_NORMALS
from densevit.ops.segments import Objects
from densevit.registry import ComponentConfig, ComponentSpec
from densevit.structures import IGNORE, DepthKind, Sample

DEPTH_KINDS: tuple[DepthKind, ...] = get_args(DepthKind)


@dataclass(frozen=True, kw_only=True)
class Consistency:
    """Images without ground truth: the moving average of the weights labels each in every step, and the model learns
    that from a stronger augmentation of the same image (mean teacher; UniMatch, arXiv:2410.10777)."""

    strong: tuple[ComponentConfig, ...] = ()
    """Transforms of pixel values (color, blur, ...) that only the model's view gets, not the teacher's."""
    confidence: Share = 0.95
    """Pixels whose class the teacher is less sure of are ignored."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One data set of a mixture."""

    data: ComponentConfig
    """The data set."""
    name: str = ""
    """Name in logs and in `tasks.NAME.sources`; default: the data set's type."""
    weight: Positive | None = None
    """Sampling weight among all sources; given for all of them, or for none: then by their number of images."""
    truth: Truth | tuple[Truth, ...] | None = None
    """What is learned: metric depth (metres), depth up to scale (relative) or up to scale and shift (affine), disparity
    up to both, labels, normals; none: images only. Default: what the data set has."""
    transforms: tuple[ComponentConfig, ...] = ()
    """Transforms of this source, applied before `data.transforms`."""
    drop_worst: Share = 0.0
    """Fraction of an image's pixels, those with the largest error, that are ignored: errors of a teacher."""
    cutmix: Share = 0.0
    """Probability that a rectangle of another image of this source is pasted in, with its ground truth."""
    consistency: Consistency | None = None
    """With `truth: none`, how images without ground truth are learned from."""
    protocol: str | None = None
    """Evaluation protocol of depth, in the validation during training; default: the task's."""


@DATASETS.register("mix")
class Mix(Dataset):
    """Several data sets as one. In training, the draws follow the weights, and each loss learns from the images whose
    ground truth fits it; in validation, every image comes once, and each data set has scores of its own."""

    def __init__(
        self,
        *,
        sources: Annotated[tuple[Source, ...], Field(min_length=1)],
        temperature: NonNegative = 1.0,
        balanced: bool = True,
        classes: Path | None = None,
    ) -> None:
        """Open all data sets. Raises ConfigError: names that come twice, weights that only some sources have, an option
        of a source. Raises DataError if a data set is not where or what it should be, a table of classes that does not
        fit.

        Args:
            sources: the data sets, each `{data: {type: ...}, name, weight, truth, transforms, drop_worst, cutmix,
                consistency, protocol}`.
            temperature: where no source has a weight, it is its number of images to this power: 1 draws every image
                equally often, 0 every data set.
            balanced: every step has the weights' share of images of each data set, rounded up or down; else the draws
                of a step are independent.
            classes: a CSV table that joins class lists, one row a class: its name in the first column, then a column
                for each source with its names for it, `|` between several. Without it, equal names are one class.
        """
        names = source_names(sources)
        opened = [open_source(source, f"sources.{i}") for i, source in enumerate(sources)]
        shares = shares_of(sources, [len(data) for data in opened], temperature)
        self.sources = [
            MixtureSource(
                name=name,
                data=data,
                share=share,
                truths=truths_of(source),
                transforms=[
                    TRANSFORMS.check(spec, f"sources.{i}.transforms.{j}").build()
                    for j, spec in enumerate(source.transforms)
                ],
                drop_worst=source.drop_worst,
                cutmix=source.cutmix,
                protocol=source.protocol,
                strong=None if source.consistency is None else strong_transforms(source.consistency, f"sources.{i}"),
                confidence=source.consistency.confidence if source.consistency else 0.0,
            )
            for i, (name, source, data, share) in enumerate(zip(names, sources, opened, shares, strict=True))
        ]
        self.balanced = balanced
        self.video = all(data.video for data in opened)
        self.teachers = tuple(dict.fromkeys(teacher for data in opened for teacher in data.teachers))
        self.starts = [0, *accumulate(map(len, opened))]
        self.names = [f"{source.name}/{name}" for source in self.sources for name in source.data.names]
        ranges = [data.depth_range for data in opened]
        self.depth_range = (min(low for low, _ in ranges), max(high for _, high in ranges))
        self.by_table = classes is not None
        labelled = {s.name: s.data for s in self.sources if s.data.classes and teaches(s, "labels")}
        self._join(join_by_name(labelled) if classes is None else join_by_table(classes, labelled))

    def join_onto(self, names: Sequence[str]) -> None:
        """Take the classes of the training data, where it joins class lists by name; its others are ignored."""
        if names and self.classes and not self.by_table and tuple(names) != tuple(self.classes):
            labelled = {s.name: s.data for s in self.sources if s.name in self.joined.lookups}
            self._join(join_by_name(labelled, names))

    def _join(self, joined: JoinedClasses) -> None:
        self.joined = joined
        self.classes, self.palette = joined.names, joined.palette
        self.things = sorted({
            int(joined.lookups[s.name][i]) for s in self.sources if s.name in joined.lookups for i in s.data.things
        } - {IGNORE})  # fmt: skip

    def locate(self, index: int) -> tuple[MixtureSource, int]:
        """Return the data set of a sample, and its index in that."""
        number = bisect_right(self.starts, index) - 1
        return self.sources[number], index - self.starts[number]

    def read(self, index: int) -> Sample:
        source, row = self.locate(index)
        sample = source.data.read(row)
        named = replace(sample, name=f"{source.name}/{sample.name}", source=source.name)
        return self.joined.map_sample(source.name, with_truths(named, source), self.things)

    def without_depth(self) -> "Mix":
        other = copy(self)
        other.sources = [replace(source, data=source.data.without_depth()) for source in self.sources]
        return other

    def with_normals(self, *, files: bool = True) -> "Dataset":
        other = super().with_normals()
        other.sources = [
            replace(source, data=source.data.with_normals(files=files and teaches(source, "normals")))
            if source.truths is None or depth_kind_of(source.truths) in KINDS_WITH_NORMALS
            else source  # of its disparity, say, which is read as if it were metres
            for source in self.sources
        ]
        return other

    def files(self, index: int) -> Mapping[str, Path]:
        source, row = self.locate(index)
        return source.data.files(row)

    def scene(self, index: int) -> str:
        source, row = self.locate(index)
        scene = source.data.scene(row)
        return f"{source.name}/{scene}" if scene else ""

    def time(self, index: int) -> float:
        source, row = self.locate(index)
        return source.data.time(row)

    def label_map(self, index: int) -> Int64[np.ndarray, "h w"] | None:
        source, row = self.locate(index)
        labels = source.data.label_map(row) if teaches(source, "labels") else None
        return None if labels is None else self.joined.map_ids(source.name, labels)

    def depth_kind(self, index: int) -> DepthKind:
        source, row = self.locate(index)
        return depth_kind_of(source.truths or ()) or source.data.depth_kind(row)

    def objects(self, index: int) -> Objects | None:
        source, row = self.locate(index)
        found = source.data.objects(row) if teaches(source, "labels") else None
        return None if found is None else found.mapped(self.joined.map_ids(source.name, found.classes))

    def depth_map(self, index: int) -> Float32[np.ndarray, "h w"] | None:
        source, row = self.locate(index)
        if source.truths is not None and not {"metric", "relative", "affine"} & set(source.truths):
            return super().depth_map(index)
        return source.data.depth_map(row)


def split_sources(split: str, options: Mapping[str, Any]) -> Iterator[tuple[str, ComponentSpec[Dataset]]]:
    """Yield the data sets of a mixture one by one, as `split/source`, to be checked each for itself."""
    for i, (name, source) in enumerate(zip(source_names(options["sources"]), options["sources"], strict=True)):
        data = DATASETS.check(source.data, f"data.{split}.sources.{i}.data")
        if {"relative", "affine", "disparity"} & set(truths_of(source) or ()):  # which are no metres
            data = DATASETS.check({"type": "mix", "sources": [{**vars(source), "weight": None}]}, "source")
        yield f"{split}/{name}", data


def source_names(sources: Sequence[Source]) -> list[str]:
    """Raise ConfigError if a name comes twice, or would not fit into the name of a column."""
    names = [source.name or str(source.data.get("type", "")) for source in sources]
    problems = [f"sources.{i}.name: '{name}' comes twice; give each source its own." for i, name in enumerate(names)
                if name in names[:i]]  # fmt: skip
    problems += [f"sources.{i}.name: {name!r} must not hold '.', '/', ',', '=' or line breaks, nor begin with '+', '-' "
                 "or '@'." for i, name in enumerate(names)
                 if set(name) & set("./,=") or not name.isprintable() or name.startswith(("+", "-", "@"))]  # fmt: skip
    if problems:
        raise ConfigError(*problems)
    return names


def open_source(source: Source, key_path: str) -> Dataset:
    if source.data.get("type") == "mix":
        raise ConfigError(f"{key_path}.data: a mixture within a mixture; list its sources beside the others.")
    data = DATASETS.check(source.data, f"{key_path}.data").build()
    truths = truths_of(source)
    return data if truths is None or depth_kind_of(truths) else data.without_depth()


def strong_transforms(consistency: Consistency, key_path: str) -> list[Transform]:
    """Raise ConfigError: one moves pixels, so that the teacher's map would not fit the image."""
    transforms: list[Transform] = []
    for i, spec in enumerate(consistency.strong):
        path = f"{key_path}.consistency.strong.{i}"
        transform = TRANSFORMS.check(spec, path).build()
        if not isinstance(transform, Color | ImageOnlyTransform):
            raise ConfigError(
                f"{path}: '{spec['type']}' does more than change pixel values; put it into `transforms`, which both "
                "views share."
            )
        transforms.append(transform)
    return transforms


def shares_of(sources: Sequence[Source], lengths: Sequence[int], temperature: float) -> list[float]:
    """Return each data set's share of the draws: its weight, or its size to the power of the temperature, over their
    sum. Raises ConfigError: only some have weights."""
    raw = [source.weight for source in sources]
    if None in raw and any(weight is not None for weight in raw):
        missing = raw.index(None)
        raise ConfigError(f"sources.{missing}.weight: missing, where other sources have one; give all of them or none.")
    weights = [length**temperature if weight is None else weight for weight, length in zip(raw, lengths, strict=True)]
    return [weight / sum(weights) for weight in weights]


def truths_of(source: Source) -> tuple[Truth, ...] | None:
    return (source.truth,) if isinstance(source.truth, str) else source.truth


def teaches(source: MixtureSource, truth: Truth) -> bool:
    return source.truths is None or truth in source.truths


def depth_kind_of(truths: Sequence[Truth]) -> DepthKind | None:
    return next((kind for kind in DEPTH_KINDS if kind in truths), None)


def with_truths(sample: Sample, source: MixtureSource) -> Sample:
    """Return the sample with the ground truth that its source names, and none else; all of it where it names none.

    Depth is what the source says it is. Disparity is read as depth is, and turned into it.
    """
    truths = source.truths
    if truths is None:
        return sample
    kind = depth_kind_of(truths)
    if kind is None or sample.depth is None or sample.valid is None:
        sample = replace(sample, depth=None, valid=None)
    elif kind != sample.depth_kind:
        depth = disparity_as_depth(sample.depth, sample.valid) if kind == "disparity" else sample.depth
        sample = replace(sample, depth=depth, depth_kind=kind)
    if "labels" not in truths:
        sample = replace(sample, labels=None, label=None, segments=None, segment_classes=None, segment_crowd=None)
    return sample if "normals" in truths or not source.data.reads_normals else replace(sample, normals=None)
