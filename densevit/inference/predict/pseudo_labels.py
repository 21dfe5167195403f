"""Pseudo-labels: a teacher's maps with confidence, beside the images or packed with them into tar shards.

    DIR/manifest.json              the teacher: name, licence, what its maps mean; the data set `pseudo_labels` reads it
    DIR/images.jsonl               without shards: where each image is, relative to DIR
    DIR/kitchen/0001.depth.npz     `depth` (float16, or float32 where that overflows) and `confidence` (0 to 255)
    DIR/kitchen/0001.labels.npz    `labels` (class ids, 255 = none) and `confidence`
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Float32, UInt8

from densevit.errors import ConfigError, StorageError
from densevit.inference.camera import CameraNumbers
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.output_plan import Existing, OutputPlan
from densevit.inference.predict.pipeline import Exporter, ImageExporter
from densevit.inference.predict.summary import Summary, merge_summaries
from densevit.inference.predictor import Map, Predictor
from densevit.inference.writers import MapWriter, PredictedMap
from densevit.inference.writers.labels import LabelWriter
from densevit.model_card import Kind
from densevit.model_inputs import NO_INPUTS, ModelInputs, mirror_inputs
from densevit.output_kinds import DEPTH_KINDS
from densevit.structures import IGNORE, Box
from densevit.utils.atomic_io import atomic_path, write_bytes, write_text
from densevit.weights.fingerprint import weights_fingerprint

MANIFEST, IMAGES = "manifest.json", "images.jsonl"
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

    def predict_arrays(
        self,
        images: UInt8[np.ndarray, "b h w 3"],
        *,
        box: Box | None = None,
        camera: CameraNumbers | None = None,
        inputs: ModelInputs = NO_INPUTS,
    ) -> dict[str, Map]:
        found: dict[str, list[Map]] = {}
        inputs = self.with_cameras(images, inputs, camera)
        for scale, mirrored in self.views:
            one = self.with_options(flip=False, scales=(scale,))
            seen = np.ascontiguousarray(images[:, :, ::-1]) if mirrored else images
            given = mirror_inputs(inputs, images.shape[2]) if mirrored else inputs
            for head, maps in Predictor.predict_arrays(one, seen, box=box, inputs=given).items():
                found.setdefault(head, []).append(maps[..., ::-1] if mirrored else maps)
        kinds = {head: spec.kind for head, spec in self.card.outputs.items()}
        return {
            head: mean_and_agreement(np.stack(maps), kinds[head]) if kinds[head] in DEPTH_KINDS else _mean(maps)
            for head, maps in found.items()
        }


def mean_and_agreement(views: Float32[np.ndarray, "v b 1 h w"], kind: Kind) -> Float32[np.ndarray, "b 2 h w"]:
    """The mean of the views, and exp(-d / 0.1), d being their mean relative deviation from it.

    Depth in metres deviates in its logarithm. Depth or disparity without unit is compared after each view is brought to
    the mean of all by scale and shift, and d is relative to the mean's own mean deviation from its median.
    """
    mean = views.mean(0)
    if kind == "metric":
        with np.errstate(invalid="ignore", divide="ignore"):
            deviation = np.abs(np.log(views) - np.log(mean)).mean(0)
    else:
        axes = (-2, -1)
        centred, target = views - views.mean(axes, keepdims=True), mean - mean.mean(axes, keepdims=True)
        slope = (centred * target).mean(axes, keepdims=True) / np.maximum(
            np.square(centred).mean(axes, keepdims=True), 1e-12
        )
        spread = np.abs(mean - np.median(mean, axes, keepdims=True)).mean(axes, keepdims=True)
        deviation = np.abs(slope * centred - target).mean(0) / np.maximum(spread, 1e-12)
        mean = mean if len(views) == 1 else views.mean(0)
    confidence = np.nan_to_num(np.exp(-deviation / DISAGREEMENT), nan=0.0)
    return np.concatenate([mean, confidence], 1).astype(np.float32)


def _mean(views: Sequence[Map]) -> Map:
    """Logarithms of the mean probabilities of views of logits, b k h w."""
    total = sum(_softmax(view) for view in views) / len(views)
    return np.asarray(np.log(np.maximum(total, np.finfo(np.float32).tiny)), np.float32)


def _softmax(logits: Float[np.ndarray, "b k h w"]) -> Float[np.ndarray, "b k h w"]:
    shares: Float[np.ndarray, "b k h w"] = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(shares / shares.sum(1, keepdims=True))


class DepthWriter(MapWriter):
    """`depth` and `confidence` of a teacher."""

    suffix = ".depth.npz"

    def write(self, path: Path, frame: PredictedMap) -> int:
        depth, confidence = frame.values
        valid = np.isfinite(depth) & (depth > 0) if frame.spec.kind == "metric" else np.isfinite(depth)
        stored = np.where(valid, depth, np.float32(np.nan))
        half = stored.astype(np.float16) if not valid.any() or np.abs(depth[valid]).max() < HALF else stored
        _save(path, depth=half, confidence=to_bytes(np.where(valid, confidence, 0)))
        return 0


class ClassWriter(LabelWriter):
    """`labels` and `confidence` of a teacher: the class of the largest mean probability, and that probability."""

    suffix = ".labels.npz"

    def write_shared(self, folder: Path, spec: Any) -> None:
        """The manifest has the classes."""

    def write(self, path: Path, frame: PredictedMap) -> int:
        known = np.isfinite(frame.values).all(0)
        ids = np.where(known, frame.values.argmax(0), IGNORE)
        confidence = np.where(known, np.exp(frame.values.max(0)), 0)
        _save(path, labels=ids.astype(np.uint8 if ids.max() <= IGNORE else np.uint16), confidence=to_bytes(confidence))
        return 0


def to_bytes(share: Float[np.ndarray, "h w"]) -> UInt8[np.ndarray, "h w"]:
    return np.asarray(np.rint(share * 255).clip(0, 255), np.uint8)


def _save(path: Path, **arrays: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    write_bytes(path, buffer.getbuffer())


WRITERS: Mapping[str, MapWriter] = {"depth": DepthWriter(), "labels": ClassWriter()}


@dataclass(frozen=True)
class LabelPlan(OutputPlan):
    """Which images become pseudo-labels, in tar archives or next to the manifest.

    Attributes:
        shard_size: images in an archive; None leaves images where they are and writes maps into folders.
    """

    record: ClassVar[str] = MANIFEST
    shard_size: int | None = None

    def shards(self) -> list[tuple[Path, OutputPlan]]:
        """Return each archive with the plan of its images, which are labelled in a folder next to it."""
        if self.shard_size is None:
            return []
        groups = [self.items[i : i + self.shard_size] for i in range(0, len(self.items), self.shard_size)]
        paths = [self.folder / f"shard-{number:06d}.tar" for number in range(len(groups))]
        return [
            (path, OutputPlan(items, self.writers, path.with_suffix(".parts")))
            for path, items in zip(paths, groups, strict=True)
        ]

    def outputs(self) -> list[Path]:
        return [path for path, _ in self.shards()]

    def unfinished(self) -> list[Path]:
        return [plan.folder for _, plan in self.shards()]

    def check(self, existing: Existing = "refuse") -> None:
        """
        Raises:
            ConfigError: something is there and is not to be replaced; images in archives, without shards.
            StorageError: the folder cannot be written to.
        """
        if existing == "refuse" and (self.folder / MANIFEST).exists():
            raise ConfigError(
                f"output {self.folder}: holds pseudo-labels. --resume goes on, --overwrite makes all anew."
            )
        super().check(existing)
        if self.shard_size is None and any(item.member for item in self.items):
            raise ConfigError("images in .tar archives are labelled into shards: set --shard-size.")


def write_pseudo_labels(
    predictor: Predictor, plan: LabelPlan, name: str, heads: Sequence[str], existing: Existing, **options: Any
) -> Summary:
    """Label all images; several processes share them, or the shards.

    Args:
        name: of the teacher, for the manifest.
        options: of `Exporter`.

    Raises:
        ConfigError: the teacher has no head for depth or classes of pixels, or was another one where this resumes.
        PartialError: some images failed; the others are labelled, and `failed.json` names the failed ones.
        Preempted: `stop` was set; what is written is whole.
    """
    teacher = Teacher(predictor)
    kinds = {teacher.card.outputs[teacher.card.head(head)].kind for head in heads or teacher.card.outputs}
    writers = {name: writer for name, writer in plan.writers.items() if kinds & set(writer.kinds)}
    if not writers:
        raise ConfigError(f"the teacher gives {', '.join(sorted(kinds))}: no depth, and no classes of pixels.")
    plan = replace(plan, writers=writers)
    shards = ShardExporter(teacher, plan, heads=heads, existing=existing, **options)
    shards.processes.on_main(lambda: plan.begin(manifest(name, plan.shard_size, teacher, shards.sources), existing))
    if plan.shard_size is not None:
        return shards.run_and_finish()
    chosen, images = list(shards.sources.values()), OutputPlan(plan.items, writers, plan.folder)
    summary = ImageExporter(teacher, images, heads=chosen, existing=existing, **options).export()
    shards.processes.on_main(lambda: write_image_list(plan))
    return summary


class ShardExporter(Exporter):
    """Shards, one after another; an interrupted one goes on where it was."""

    plan: LabelPlan

    def run(self) -> None:
        begun, parts = time.perf_counter(), [Summary(0)]
        shards = self.plan.shards()[self.processes.rank :: self.processes.size]
        for path, plan in shards:
            self.stopped |= self.stop.is_set()
            if self.stopped:
                break
            parts.append(self.write(path, plan))
        self.summary = merge_summaries(parts)
        self.summary.images = sum(len(plan.items) for _, plan in shards)
        self.summary.seconds = time.perf_counter() - begun

    def write(self, path: Path, plan: OutputPlan) -> Summary:
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
            pack(path, plan)
        return images.summary


def pack(path: Path, plan: OutputPlan) -> None:
    """Write the images of a shard and their maps into its archive, and remove the folder of the maps."""
    with atomic_path(path) as temporary, tarfile.open(temporary, "w") as tar:
        for item in plan.items:
            if not plan.missing(item):
                for name, content in members(item, plan):
                    info = tarfile.TarInfo(name)
                    info.size = len(content)
                    tar.addfile(info, io.BytesIO(content))
    shutil.rmtree(plan.folder, ignore_errors=True)


def members(item: Item, plan: OutputPlan) -> Iterator[tuple[str, bytes]]:
    name = item.name.replace(".", "_")  # a sample is what shares a name up to its first dot
    with item.file() as file:
        yield name + item.source.suffix.lower(), file.read_bytes()
    for format, writer in plan.writers.items():
        yield name + writer.suffix, plan.path(item, format).read_bytes()


def manifest(name: str, shard_size: int | None, teacher: Teacher, sources: Mapping[str, str]) -> dict[str, Any]:
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
                "range": card.outputs[head].range,
                "classes": list(card.outputs[head].classes),
                "palette": [list(colour) for colour in card.outputs[head].palette],
            }
            for kind, head in sources.items()
        },
        "views": [list(view) for view in teacher.views],
        "shard_size": shard_size,
    }


def write_image_list(plan: LabelPlan) -> None:
    lines = [json.dumps({"name": item.name, "image": os.path.relpath(item.source, plan.folder)}) for item in plan.items]
    try:
        write_text(plan.folder / IMAGES, "".join(f"{line}\n" for line in lines))
    except ValueError as error:  # another drive
        raise StorageError(f"{plan.folder}: {error}") from None
