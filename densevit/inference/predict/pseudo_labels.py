"""Pseudo-labels: a teacher's maps with confidence, beside the images or packed with them into tar shards.

    DIR/manifest.json              the teacher: name, licence, what its maps mean; the data set `pseudo_labels` reads it
    DIR/images.jsonl               the images that are labelled: where each is, relative to DIR, or its shard
    DIR/kitchen/0001.depth.npz     `depth` (float16, or float32 where that overflows) and `confidence` (0 to 255)
    DIR/kitchen/0001.labels.npz    `labels` (class ids, 255 = none) and `confidence`; both `intrinsics` where known
    DIR/shard-000000.tar           with shards: 0001.jpg, 0001.depth.npz, 0001.labels.npz of each image

b images, h x w pixels, k classes, v views of an image.
"""

import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, UInt8
from scipy.special import softmax

from densevit.data.datasets.pseudo_labels import IMAGES, MANIFEST, SUFFIXES
from densevit.data.io.tar import list_members
from densevit.data.io.writers import encode_npz
from densevit.errors import ConfigError, DataError, StorageError
from densevit.inference.camera import CameraNumbers
from densevit.inference.image_input import Map
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.output_plan import Existing, OutputPlan, read_record
from densevit.inference.predict.pipeline import Exporter, ImageExporter
from densevit.inference.predict.summary import Ledger, Rows, Summary, hash_of, merge_summaries
from densevit.inference.predictor import Predictor
from densevit.inference.writers.base import MapWriter, PredictedMap, head_of_each_format
from densevit.inference.writers.labels import LabelWriter
from densevit.model_card import Kind
from densevit.model_inputs import NO_INPUTS, ModelInputs, mirror_inputs
from densevit.ops.geometry import Matrix
from densevit.output_kinds import DEPTH_KINDS
from densevit.structures import IGNORE, Box
from densevit.utils.atomic_io import atomic_path, make_folder, remove, write_bytes, write_text
from densevit.utils.device import Pending
from densevit.utils.state_dict import weights_fingerprint

DISAGREEMENT = 0.1  # relative, at which the confidence of depth is 1 / e
HALF = float(np.finfo(np.float16).max)


class Teacher(Predictor):
    """A predictor that averages over its views (mirror image, scales) and tells how far they agree.

    Its maps are b 2 h w for depth (mean, confidence from 0 to 1), and b k h w logarithms of mean probabilities for
    classes.

    Attributes:
        views: scale of the image, and whether it is mirrored.
    """

    views: list[tuple[float, bool]]

    def __init__(self, predictor: Predictor) -> None:
        views = [(scale, mirrored) for scale in predictor.scales for mirrored in (False, True)[: 1 + predictor.flip]]
        vars(self).update(vars(predictor), views=views)
        if predictor.flip:  # the mirrored view would be the same as the other where each is the mean of both
            vars(self)["card"] = replace(self.card, resize=replace(self.card.resize, flip=False))

    def start(
        self,
        images: UInt8[np.ndarray, "b h w 3"],
        *,
        box: Box | None = None,
        camera: CameraNumbers | None = None,
        inputs: ModelInputs = NO_INPUTS,
    ) -> Pending:
        views: list[tuple[bool, Pending]] = []
        inputs = self.with_cameras(images, inputs, camera)
        h, w = images.shape[1:3]
        y0, y1, x0, x1 = box or (self.window and self.window(h, w)) or (0, h, 0, w)
        for scale, mirrored in self.views:
            one = self.with_options(flip=False, scales=(scale,))
            seen = np.ascontiguousarray(images[:, :, ::-1]) if mirrored else images
            view_inputs = mirror_inputs(inputs, w) if mirrored else inputs
            seen_box = (y0, y1, w - x1, w - x0) if mirrored else (y0, y1, x0, x1)
            views.append((mirrored, Predictor.start(one, seen, box=seen_box, inputs=view_inputs)))
        return Pending(lambda: self.merged(views), all(view.is_complete for _, view in views))

    def merged(self, views: list[tuple[bool, Pending]]) -> dict[str, Map]:
        """Return the maps of all views as one."""
        maps_by_head: dict[str, list[Map]] = {}
        for mirrored, view in views:
            for head, maps in view.read().items():
                maps_by_head.setdefault(head, []).append(maps[..., ::-1] if mirrored else maps)
        kinds = {head: spec.kind for head, spec in self.card.outputs.items()}
        return {
            head: mean_and_agreement(np.stack(maps), kinds[head]) if kinds[head] in DEPTH_KINDS else _mean(maps)
            for head, maps in maps_by_head.items()
        }


def mean_and_agreement(views: Float32[np.ndarray, "v b 1 h w"], kind: Kind) -> Float32[np.ndarray, "b 2 h w"]:
    """Return the mean of the views, and exp(-d / 0.1), d being their mean relative deviation from it.

    Depth in metres deviates in its logarithm. Depth or disparity without unit is compared after each view is brought to
    the mean of all by scale and shift, and d is relative to the mean's own mean deviation from its median.
    """
    mean = views.mean(0)
    if kind == "metric":
        with np.errstate(invalid="ignore", divide="ignore"):
            deviation = np.abs(np.log(views) - np.log(mean)).mean(0)
    else:  # outside of a window there are no values
        axes = (-2, -1)
        average = partial(np.nanmean, axis=axes, keepdims=True)
        centred, target = views - average(views), mean - average(mean)
        slope = average(centred * target) / np.maximum(average(np.square(centred)), 1e-12)
        spread = average(np.abs(mean - np.nanmedian(mean, axes, keepdims=True)))
        deviation = np.abs(slope * centred - target).mean(0) / np.maximum(spread, 1e-12)
    confidence = np.nan_to_num(np.exp(-deviation / DISAGREEMENT), nan=0.0)
    return np.concatenate([mean, confidence], 1).astype(np.float32)


def _mean(views: Sequence[Map]) -> Map:
    """Return the logarithms of the mean probabilities of views of logits, b k h w."""
    total = sum(softmax(view, axis=1) for view in views) / len(views)
    return np.asarray(np.log(np.maximum(total, np.finfo(np.float32).tiny)), np.float32)


class DepthWriter(MapWriter):
    """`depth` and `confidence` of a teacher."""

    suffix = SUFFIXES["depth"]

    def encode(self, frame: PredictedMap) -> bytes:
        depth, confidence = frame.values
        valid = np.isfinite(depth) & (depth > 0) if frame.spec.kind == "metric" else np.isfinite(depth)
        stored = np.where(valid, depth, np.float32(np.nan))
        half = stored.astype(np.float16) if not valid.any() or np.abs(depth[valid]).max() < HALF else stored
        return encode_npz(depth=half, confidence=to_bytes(np.where(valid, confidence, 0)), **stored_camera(frame))


class ClassWriter(LabelWriter):
    """`labels` and `confidence` of a teacher: the class of the largest mean probability, and that probability."""

    suffix = SUFFIXES["labels"]

    def write_shared(self, folder: Path, spec: Any) -> None:
        """Write nothing: the manifest has the classes."""

    def encode(self, frame: PredictedMap) -> bytes:
        finite = np.isfinite(frame.values).all(0)
        ids = np.where(finite, frame.values.argmax(0), IGNORE)
        confidence = np.where(finite, np.exp(frame.values.max(0)), 0)
        labels = ids.astype(np.uint8 if ids.max() <= IGNORE else np.uint16)
        return encode_npz(labels=labels, confidence=to_bytes(confidence), **stored_camera(frame))


def stored_camera(frame: PredictedMap) -> dict[str, Matrix]:
    return {} if frame.camera is None else {"intrinsics": frame.matrix()}


def to_bytes(share: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w"]:
    return np.asarray(np.rint(share * 255).clip(0, 255), np.uint8)


WRITERS: Mapping[str, MapWriter] = {"depth": DepthWriter(), "labels": ClassWriter()}


@dataclass(frozen=True)
class LabelPlan(OutputPlan):
    """Which images become pseudo-labels, in tar archives or next to the manifest.

    Attributes:
        shard_size: images in an archive; None leaves images where they are and writes maps into folders.
        teacher: the teacher and its maps, for the manifest.
    """

    record: ClassVar[str] = MANIFEST
    shard_size: int | None = None
    teacher: Mapping[str, Any] = field(default_factory=dict)

    def shards(self) -> Iterator[tuple[Path, "LabelPlan"]]:
        """Return each archive with the plan of its images, which are labelled in a folder next to it."""
        if self.shard_size is None:
            return
        for number, start in enumerate(range(0, len(self.items), self.shard_size)):
            path = self.folder / f"shard-{number:06d}.tar"
            items = self.items[start : start + self.shard_size]
            yield path, replace(self, items=items, folder=path.with_suffix(".parts"), shard_size=None)

    def units(self) -> Iterator[tuple[Any, list[Path]]]:
        return super().units() if self.shard_size is None else ((plan, [path]) for path, plan in self.shards())

    def digest(self, unit: Any) -> Any:
        return super().digest(unit) if isinstance(unit, Item) else {item.name: unit.digest(item) for item in unit.items}

    def settings(self, formats: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
        return {**self.teacher, **super().settings(formats, batch_size), "shard_size": self.shard_size}

    def unfinished(self) -> list[Path]:
        return [plan.folder for _, plan in self.shards()]

    def check(self, existing: Existing = "refuse") -> None:
        """Raise ConfigError: something is there and is not to be replaced. Raises StorageError: the folder cannot be
        written to."""
        if existing == "refuse" and (self.folder / MANIFEST).exists():
            raise ConfigError(
                f"output {self.folder}: holds pseudo-labels. Continue with --resume, or replace all with --overwrite."
            )
        super().check(existing)

    def begin(self, settings: Mapping[str, Any], existing: Existing) -> None:
        """Remove also the list of the images and, with `overwrite`, shards that are not planned."""
        if existing == "overwrite" and (self.folder / MANIFEST).exists():
            for path in self.folder.glob("shard-*"):
                remove(path)
        super().begin(settings, existing)
        (self.folder / IMAGES).unlink(missing_ok=True)

    def salvage(self, settings: Mapping[str, Any], rows: Rows, done: set[Path]) -> None:
        """Unpack the maps of unchanged images from archives that will be packed anew with others."""
        inner, outer = {**settings, "shard_size": None}, hash_of(settings)
        shards = [(path, plan, plan.folder / MANIFEST) for path, plan in self.shards() if path not in done]
        for _, plan, record in shards:
            if record.exists() and read_record(record) != inner:  # half done with other settings
                shutil.rmtree(plan.folder, ignore_errors=True)
        planned = {item.name: (plan, item) for _, plan, _ in shards for item in plan.items}
        ledgers = {plan.folder: Ledger(plan.folder, hash_of(inner)) for _, plan, _ in shards}
        for path, _, _ in shards:
            made_with, inside = rows.get(path.name, ("", {}))
            if made_with != outer or not path.exists():
                continue
            with suppress(DataError):
                members = {member.name: member for member in list_members(path)}
                for plan, item in (planned[name] for name in inside if name in planned):
                    if plan.digest(item) != inside[item.name]:
                        continue
                    make_folder(plan.folder)
                    write_text(plan.folder / MANIFEST, json.dumps(inner, indent=1))
                    for format, writer in plan.writers.items():
                        target = plan.path(item, format)
                        make_folder(target.parent)
                        write_bytes(target, members[sample_key(item.name) + writer.suffix].read())
                        ledgers[plan.folder].add(target, inside[item.name])

    def end(self) -> None:
        """Write the list of the images that are labelled: what the data set reads. Remove shards that are not planned,
        of more images than there are now."""
        rows = self.ledger().read()
        planned = {path.name for path, _ in self.shards()}
        for path in self.folder.glob("shard-*.tar"):
            if path.name in rows and path.name not in planned:
                remove(path)
        try:
            images: list[dict[str, str]] = [
                {"name": item.name, "image": os.path.relpath(item.source, self.folder)}
                for item in (self.items if self.shard_size is None else ())
                if not self.missing(item)
            ]
        except ValueError as error:  # another drive
            raise StorageError(f"{self.folder}: {error}") from None
        for path, plan in self.shards():
            inside = rows[path.name][1]
            images += [{"name": item.name, "shard": path.name} for item in plan.items if item.name in inside]
        write_text(self.folder / IMAGES, "".join(f"{json.dumps(row)}\n" for row in images))


def write_pseudo_labels(
    predictor: Predictor, plan: LabelPlan, name: str, heads: Sequence[str], existing: Existing, **options: Any
) -> Summary:
    """Label all images; several processes share them, or the shards. `name`: of the teacher, for the manifest;
    `options`: of `Exporter`. Raises ConfigError: the teacher has no head for depth or classes of pixels, or was another
    one where this resumes; images in archives, without shards. Raises PartialError: some images failed; the others are
    labelled, and `failed.json` names the failed ones. Raises Preempted: `stop` was set; what is written is whole."""
    if plan.shard_size is None and any(item.member for item in plan.items):
        raise ConfigError("images in .tar archives are labelled into shards: set --shard-size.")
    teacher = Teacher(predictor)
    kinds = {teacher.card.outputs[teacher.card.head(head)].kind for head in heads or teacher.card.outputs}
    writers = {name: writer for name, writer in plan.writers.items() if kinds & set(writer.kinds)}
    if not writers:
        raise ConfigError(f"the teacher gives {', '.join(sorted(kinds))}: no depth, and no classes of pixels.")
    sources = head_of_each_format(writers, teacher.card, heads)
    plan = replace(plan, writers=writers, teacher=manifest(name, teacher, sources))
    kind = ImageExporter if plan.shard_size is None else ShardExporter
    return kind(teacher, plan, heads=list(sources.values()), existing=existing, **options).export()


class ShardExporter(Exporter):
    """Shards, one after another; an interrupted one goes on where it was."""

    plan: LabelPlan

    def run(self) -> None:
        begun, summaries = time.perf_counter(), [Summary(0)]
        shards = list(self.plan.shards())[self.processes.rank :: self.processes.size]
        for path, plan in shards:
            self.stopped |= self.stop.is_set()
            if self.stopped:
                break
            summaries.append(self.write(path, plan))
        self.summary = merge_summaries(summaries)
        self.summary.images = sum(len(plan.items) for _, plan in shards)
        self.summary.seconds = time.perf_counter() - begun

    def write(self, path: Path, plan: LabelPlan) -> Summary:
        """Label the images of a shard, then pack both."""
        if path.exists():
            return Summary(len(plan.items), already=len(plan.items))
        images = ImageExporter(
            self.predictor, plan, heads=list(self.sources.values()), existing="resume", workers=self.workers,
            max_pixels=self.max_pixels, stop=self.stop,
        )  # fmt: skip
        images.prepare()
        images.run()
        self.stopped = images.stopped
        if not self.stopped:
            rows = images.ledger.read()
            pack(path, plan)
            inside = [(item, images.ledger.name(plan.paths(item)[0])) for item in plan.items if not plan.missing(item)]
            self.ledger.add(path, {item.name: rows[name][1] for item, name in inside})
            shutil.rmtree(plan.folder, ignore_errors=True)
        return images.summary


def pack(path: Path, plan: OutputPlan) -> None:
    """Write the images of a shard and their maps into its archive."""
    with atomic_path(path) as temporary, tarfile.open(temporary, "w") as tar:
        for item in plan.items:
            if not plan.missing(item):
                for name, content in members(item, plan):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))


def members(item: Item, plan: OutputPlan) -> Iterator[tuple[str, bytes]]:
    with item.file() as file:
        yield sample_key(item.name) + item.source.suffix.lower(), file.read_bytes()
    for format, writer in plan.writers.items():
        yield sample_key(item.name) + writer.suffix, plan.path(item, format).read_bytes()


def sample_key(name: str) -> str:
    """Return a name without dots: what shares a name up to its first dot is one sample of an archive."""
    return name.replace("%", "%25").replace(".", "%2E")


def manifest(name: str, teacher: Teacher, sources: Mapping[str, str]) -> dict[str, Any]:
    """Return what the data set `pseudo_labels` reads, and what a resumed run must agree with."""
    card = teacher.card
    return {
        "teacher": {
            "name": name,
            "source": card.source,
            "licence": card.licence,
            "weights": weights_fingerprint(teacher.model),
        },
        "maps": {
            kind: {
                "head": head,
                "kind": card.outputs[head].kind,
                "range": card.outputs[head].metres,
                "classes": list(card.outputs[head].classes),
                "palette": [list(colour) for colour in card.outputs[head].palette],
            }
            for kind, head in sources.items()
        },
        "views": [list(view) for view in teacher.views],
    }
