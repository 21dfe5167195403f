"""Predicts many images and writes their maps: decoding threads, the model and encoding threads work at the same time.

Images go through the model in fixed groups of the batch size, cut from the whole list, so that a resumed run computes
the same batches as an uninterrupted one, and writes the same bytes. Several processes share the groups.
"""

import hashlib
import json
import logging
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import astuple
from itertools import groupby
from threading import Event
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float32

from densevit.data.io import images
from densevit.data.io.readers import read_image
from densevit.data.io.rgb import Rgb, stack
from densevit.data.loading.prefetch import prefetch
from densevit.errors import ConfigError, DataError, Preempted
from densevit.inference.camera import Focal, Lens, focal_of_matrix
from densevit.inference.measured_points import TILED_POINTS, points_are_input, to_metres
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.output_plan import FAILED, Existing, OutputPlan
from densevit.inference.predict.summary import Summary, failure_reason, incomplete, merge_summaries
from densevit.inference.predictor import Map, Predictor
from densevit.inference.tiling import check_tileable
from densevit.inference.writers import PredictedMap
from densevit.model_card import Kind, uncertainty_of
from densevit.ops.anchors import FEWEST, Anchored, Anchors, anchors_as_map
from densevit.utils.atomic_io import write_text
from densevit.utils.device import is_out_of_memory
from densevit.utils.process_group import ALONE, ProcessGroup
from densevit.utils.progress import tqdm
from densevit.weights.fingerprint import weights_fingerprint

T = TypeVar("T")

Maps = dict[str, Map]
"""By head."""


class Written(NamedTuple):
    """Of one image: values out of range, pixels without a value, and the fits to its measured points."""

    out_of_range: int
    invalid: int
    anchored: list[Anchored]


@runtime_checkable
class Writer(Protocol):
    """A format, of images or of clips."""

    @property
    def kinds(self) -> tuple[Kind, ...]: ...
    @property
    def fallback(self) -> tuple[Kind, ...]: ...


def export(
    predictor: Predictor,
    plan: OutputPlan,
    *,
    heads: Sequence[str] = (),
    existing: Existing = "refuse",
    workers: int = 2,
    max_pixels: int | None = None,
    stop: Event | None = None,
    progress: bool = False,
    processes: ProcessGroup = ALONE,
) -> Summary:
    """Writes every format of every image. A fault of one image costs that image only.

    Args:
        heads: which to write, where the model has several that a format is for.
        existing: what to do where outputs are already there.
        workers: threads that decode, and as many that encode.
        max_pixels: larger images fail; None is the reader's own limit.
        stop: when set, the export ends after the images under way.
        processes: those that share the list; each calls this, and each gets the summary of all.

    Raises:
        ConfigError, DataError, StorageError: before anything is written; StorageError also when the disk fills up.
        PartialError: some images failed; the others are done, and `failed.json` names the failed ones.
        Preempted: `stop` was set; what is written is whole.
    """
    sources = prepare(predictor, plan, heads, existing, processes)
    pipeline = PredictionPipeline(
        predictor, plan, sources, existing == "resume", max_pixels, stop or Event(), processes
    )
    pipeline.run(workers, progress and processes.is_main)
    parts = processes.all_gather((pipeline.summary, pipeline.stopped))
    summary = merge_summaries([part for part, _ in parts])
    return processes.on_main(lambda: finish(summary, any(stopped for _, stopped in parts), plan))


def prepare(
    predictor: Predictor,
    plan: OutputPlan,
    heads: Sequence[str] = (),
    existing: Existing = "refuse",
    processes: ProcessGroup = ALONE,
) -> dict[str, str]:
    """Checks what an export needs, then makes its folders and the files that all images share.

    Returns:
        format -> the head it is written from.

    Raises:
        ConfigError, DataError, StorageError: before anything is written.
    """
    sources = head_of_each_format(plan.writers, predictor, heads)
    for format, writer in plan.writers.items():
        spec = plan.spec(predictor.card.outputs[sources[format]])
        writer.check(spec)
        if writer.needs_uncertainty and uncertainty_of(sources[format]) not in predictor.card.outputs:
            raise ConfigError(
                f"format {format}, as asked for, needs a head with `uncertainty: laplace`; '{sources[format]}' "
                "predicts none."
            )
        if writer.needs_camera(spec) and not predictor.card.focal_head:
            plan.check_cameras(format)
    if predictor.tiling is not None and plan.anchors is not None and any_takes_points(predictor, sources):
        raise ConfigError(TILED_POINTS)
    if predictor.tiling is not None:
        check_tileable({head: predictor.card.outputs[head].kind for head in sources.values()})
    plan.check(existing)
    processes.on_main(lambda: write_shared_files(predictor, plan, sources, existing))
    return sources


def head_of_each_format(writers: Mapping[str, Writer], predictor: Predictor, wanted: Sequence[str]) -> dict[str, str]:
    """Format -> the head it is written from: the only one of its kind, or the one that is named, or `depth`.

    All come from one pass through the model.

    Raises:
        DataError: no such head.
        ConfigError: a format that no head is for, or several; a head that no format is for.
    """
    wanted = [predictor.card.head(name) for name in wanted]
    outputs = predictor.card.outputs
    sources = {}
    for format, writer in writers.items():
        there = any(outputs[name].kind in writer.kinds for name in wanted or outputs)
        kinds = writer.kinds if there else (*writer.kinds, *writer.fallback)
        sources[format] = predictor.card.head_for(kinds, wanted, f"format {format}")
    if unused := [name for name in wanted if name not in sources.values()]:
        raise ConfigError(f"--head: no format of {', '.join(writers)} is written from {', '.join(unused)}.")
    return sources


def write_shared_files(predictor: Predictor, plan: OutputPlan, sources: Mapping[str, str], existing: Existing) -> None:
    """Makes the folders, and the files that all images share."""
    plan.prepare_folder(settings(predictor, plan, sources), existing)
    for format, writer in plan.writers.items():
        writer.write_shared(plan.folder, plan.spec(predictor.card.outputs[sources[format]]))


def finish(summary: Summary, stopped: bool, plan: OutputPlan) -> Summary:
    """Writes `failed.json`, and raises what ends an export that is not complete."""
    if summary.failed:
        reasons = [{"image": str(source), "reason": reason} for source, reason in summary.failed.items()]
        write_text(plan.folder / FAILED, json.dumps({"images": summary.images, "failed": reasons}, indent=1))
    if stopped:
        ready = summary.done + summary.already
        raise Preempted(f"stopped after {ready} of {summary.images} images, all of them whole; --resume goes on.")
    if summary.failed:
        raise incomplete(summary, plan.folder / FAILED)
    return summary


class ReaderWarnings(logging.Handler):
    """What readers warn of, by path, for the summary in place of standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        path, _, message = record.getMessage().partition(": ")
        self.messages[path] = message

    def __enter__(self) -> None:
        images.log.addHandler(self)
        images.log.propagate = False

    def __exit__(self, *_: object) -> None:
        images.log.removeHandler(self)
        images.log.propagate = True


class PredictionPipeline:
    """One pass over this process' share of a plan."""

    def __init__(
        self,
        predictor: Predictor,
        plan: OutputPlan,
        sources: Mapping[str, str],
        resume: bool,
        max_pixels: int | None,
        stop: Event,
        processes: ProcessGroup,
    ) -> None:
        self.predictor, self.plan, self.resume, self.stop = predictor, plan, resume, stop
        self.sources = sources  # format -> head
        self.limit: dict[str, int] = {} if max_pixels is None else {"max_pixels": max_pixels}
        self.groups = share_of(plan.items, predictor.batch_size, processes)
        items = [item for group in self.groups for item in group]
        self.complete = {item for item in items if not plan.missing(item)} if resume else set[Item]()
        self.summary = Summary(len(items), already=len(self.complete), unsupported=plan.unsupported)
        self.stopped = False
        wanted = predictor.card.needs_camera or any(
            writer.needs_camera(plan.spec(predictor.card.outputs[sources[format]]))
            for format, writer in plan.writers.items()
        )
        self.estimates = wanted and predictor.card.focal_head is not None and predictor.cameras.override is None
        self.estimated: dict[Item, Lens] = {}
        self.warnings = ReaderWarnings()

    def run(self, workers: int, progress: bool) -> None:
        """Decodes, predicts and writes; at most a few batches are in memory at a time."""
        begun = time.perf_counter()
        ahead = 2 * workers + self.predictor.batch_size
        total = self.summary.images - self.summary.already
        pending: deque[tuple[Item, Future[Written]]] = deque()
        # After an error, too, images being written are finished, and those that wait to be decoded are dropped.
        with (
            self.warnings,
            ThreadPoolExecutor(workers, "encode") as writers,
            closing(self.read_groups(workers, ahead)) as groups,
            tqdm(total=total, unit="image", disable=not progress) as bar,
        ):
            for group in groups:
                for item, maps, image in self.predict(group):
                    if item not in self.complete:
                        pending.append((item, writers.submit(self.write, item, maps, image)))
                while len(pending) > ahead:
                    self.count(*pending.popleft())
                bar.update(sum(item not in self.complete for item, _ in group))
            while pending:
                self.count(*pending.popleft())
        self.summary.seconds = time.perf_counter() - begun

    def read_groups(self, threads: int, ahead: int) -> Generator[list[tuple[Item, Rgb]], None, None]:
        """The images of each group that still has something to write, decoded ahead of the model."""
        todo = [group for group in self.groups if not self.complete.issuperset(group)]
        items = (item for group in todo for item in group)
        decoded = prefetch(self.read, items, threads=threads, ahead=ahead)
        for group in todo:
            if self.stop.is_set():
                self.stopped = True
                return
            read = [(item, next(decoded)) for item in group]
            bad = {item: got for item, got in read if isinstance(got, str)}
            self.summary.failed |= {item.source: why for item, why in bad.items() if item not in self.complete}
            yield [(item, got) for item, got in read if not isinstance(got, str)]

    def read(self, item: Item) -> Rgb | str:
        """The image, or why there is none."""
        try:
            with item.file() as path:
                image = read_image(path, **self.limit)
            if item.intrinsics is not None and self.predictor.card.needs_camera:
                item.intrinsics.matrix(image.shape[:2])  # raises where it is that of another size
            if warning := self.warnings.messages.pop(str(path), ""):
                self.summary.warnings[item.source] = warning
            return image
        except (DataError, OSError, MemoryError) as error:
            return failure_reason(error, item.source)

    def predict(self, group: Sequence[tuple[Item, Rgb]]) -> Iterator[tuple[Item, Maps, Rgb]]:
        """The maps of each image; neighbours of one size and one camera go through the model together."""
        for (_, intrinsics), alike in groupby(group, lambda pair: (pair[1].shape, pair[0].intrinsics)):
            if self.estimates and intrinsics is None:  # each has a focal length of its own
                for pair in alike:
                    yield from self.predict_batch([pair])
            else:
                yield from self.predict_batch(list(alike))

    def predict_batch(self, pairs: Sequence[tuple[Item, Rgb]]) -> Iterator[tuple[Item, Maps, Rgb]]:
        maps, trouble = self.try_predict(pairs)
        if maps is not None:
            for i, (item, image) in enumerate(pairs):
                yield item, self.predictor.unbatch(maps, i), image
        elif len(pairs) > 1:  # images that are too much together may go one by one
            for pair in pairs:
                yield from self.predict_batch([pair])
        else:
            self.summary.failed[pairs[0][0].source] = trouble

    def points_of(self, pairs: Sequence[tuple[Item, Rgb]]) -> Float32[np.ndarray, "b 1 h w"] | None:
        """The measured points of images of one size, where they are an input of the model."""
        if self.plan.anchors is None or not any_takes_points(self.predictor, self.sources):
            return None
        size = pairs[0][1].shape[:2]
        return np.stack([anchors_as_map(self.anchors_of(item, image), size) for item, image in pairs])[:, None]

    def anchors_of(self, item: Item, image: Rgb) -> Anchors:
        assert self.plan.anchors is not None
        return self.plan.anchors.read(item, (image.shape[0], image.shape[1]), alone=len(self.plan.items) == 1)

    def camera_of(self, item: Item, image: Rgb) -> Focal | None:
        """The focal length of an image: its own, or as the model estimates it; None leaves it to the predictor."""
        if item.intrinsics is not None and self.predictor.card.needs_camera:
            return focal_of_matrix(item.intrinsics.matrix((image.shape[0], image.shape[1])))
        if item.intrinsics is not None or not self.estimates:
            return None
        focal = self.predictor.estimate_focal(image)
        self.estimated[item] = Lens(focal=focal)
        return focal

    def try_predict(self, pairs: Sequence[tuple[Item, Rgb]]) -> tuple[Maps | None, str]:
        """The maps, or None and why there are none."""
        images, first = [image for _, image in pairs], pairs[0][0]
        try:
            points, camera = self.points_of(pairs), self.camera_of(first, images[0])
            maps = self.predictor.predict_arrays(stack(images), camera=camera, points=points)
            wanted = {name for head in self.sources.values() for name in (head, uncertainty_of(head)) if name in maps}
            return {name: maps[name] for name in wanted}, ""
        except (DataError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise  # a fault of the model or of the program, not of this image
            return None, failure_reason(error, first.source)

    def write(self, item: Item, maps: Maps, image: Rgb) -> Written:
        """Writes the formats of one image."""
        outputs, residuals = self.predictor.card.outputs, []
        if self.plan.anchors is not None:
            anchors = self.anchors_of(item, image)
            for head in [name for name in maps if outputs[name].kind in FEWEST]:
                fitted = to_metres(maps[head], anchors, self.predictor.model, self.predictor.card, head)
                maps = {**maps, head: fitted.depth}
                residuals.append(fitted)
        frames = {
            head: PredictedMap(
                values=maps[head],
                image=image,
                spec=self.plan.spec(outputs[head]),
                camera=item.intrinsics or self.estimated.get(item),
                uncertainty=maps.get(uncertainty_of(head)),
            )
            for head in self.sources.values()
        }
        formats = self.plan.missing(item) if self.resume else list(self.plan.writers)
        out_of_range = [
            self.plan.writers[format].write(self.plan.path(item, format), frames[self.sources[format]])
            for format in formats
        ]
        invalid = sum(int((~frame.valid()).sum()) for frame in frames.values())
        return Written(sum(out_of_range), invalid, residuals)

    def count(self, item: Item, written: Future[Written]) -> None:
        try:
            done = written.result()
        except DataError as error:
            self.summary.failed[item.source] = failure_reason(error, item.source)
        else:
            self.summary.done += 1
            if source := "estimate" if self.estimated.pop(item, None) else item.camera_source:
                self.summary.cameras[source] += 1
            self.summary.out_of_range += done.out_of_range
            self.summary.invalid += done.invalid
            self.summary.anchored += done.anchored


def any_takes_points(predictor: Predictor, sources: Mapping[str, str]) -> bool:
    """Return whether measured points are an input of the network for one of the heads that are written."""
    return any(points_are_input(predictor.model, predictor.card, head) for head in sources.values())


def share_of(items: Sequence[T], size: int, processes: ProcessGroup) -> list[Sequence[T]]:
    """This process' groups of `size` neighbours: every n-th of the whole list's, for n processes."""
    groups = [items[i : i + size] for i in range(0, len(items), size)]
    return groups[processes.rank :: processes.size]


def settings(predictor: Predictor, plan: OutputPlan, sources: Mapping[str, str]) -> dict[str, Any]:
    """What decides the bytes of the outputs, as `export.json` records it."""
    return {
        **settings_of_model(predictor, sources),
        "intrinsics": recorded_intrinsics(plan.items),
        **({"anchors": list(map(str, astuple(plan.anchors)))} if plan.anchors else {}),
        "formats": {name: {"head": sources[name], **vars(writer)} for name, writer in plan.writers.items()},
    }


def settings_of_model(predictor: Predictor, sources: Mapping[str, str]) -> dict[str, Any]:
    """What decides the maps of an image."""
    heads = {head: predictor.card.outputs[head] for head in sources.values()}
    return {
        "weights": weights_fingerprint(predictor.model),
        "source": predictor.card.source,
        "heads": {head: {"kind": spec.kind, "unit": spec.unit} for head, spec in heads.items()},
        "runtime": None if predictor.runtime == "torch" else predictor.runtime,  # older records have none
        "precision": predictor.precision,
        "flip": predictor.flip,
        "scales": list(predictor.scales),
        "focal": predictor.cameras.override,
        "sliding": [predictor.card.resize.window, predictor.card.resize.stride],
        "window": getattr(predictor.window, "__name__", None),
        "tiling": predictor.tiling and vars(predictor.tiling),
    }


def recorded_intrinsics(items: Sequence[Item]) -> Any:
    """The one camera of all images and the size that it holds for, or a hash of several."""
    cameras = {item.name: item.intrinsics and astuple(item.intrinsics) for item in items}
    if len(set(cameras.values())) <= 1:
        return next(iter(cameras.values()), None)
    return hashlib.sha256(json.dumps(cameras).encode()).hexdigest()[:16]
