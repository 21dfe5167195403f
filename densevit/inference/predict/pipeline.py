"""Predicts many images and writes their maps: decoding threads, the model and encoding threads work at the same time.

Images go through the model in fixed groups of the batch size, cut from the whole list, so that a resumed run computes
the same batches as an uninterrupted one, and writes the same bytes. Several processes share the groups.
"""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np

from densevit.data.io.readers import Rgb, read_image, stack
from densevit.data.loading.prefetch import prefetch
from densevit.errors import ConfigError, DataError
from densevit.inference.camera import Intrinsics, Lens, focal_of_matrix
from densevit.inference.image_input import ImageInput, Maps, points_are_input
from densevit.inference.predict.cameras import with_exif
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.output_plan import Existing, ExportPlan, OutputPlan, settings
from densevit.inference.predict.summary import Ledger, ReaderWarnings, Summary, failure_reason, merge_summaries
from densevit.inference.predictor import Predictor
from densevit.inference.writers.base import PredictedMap, head_of_each_format
from densevit.model_card import head_giving, uncertainty_of
from densevit.model_inputs import check_tileable_inputs, join_inputs
from densevit.utils.device import Pending, is_out_of_memory, read_pending
from densevit.utils.output import tqdm
from densevit.utils.process_group import ALONE, ProcessGroup

Pair = tuple[Item, ImageInput]


@dataclass
class Exporter(ABC):
    """Writes every format of every image or clip of a plan. A fault of one input costs that input only. Raises as
    `head_of_each_format`.

    Attributes:
        heads: which to write, where the model has several that a format is for.
        existing: what to do where outputs are already there.
        workers: threads that decode, and as many that encode.
        max_pixels: larger images fail; None is the reader's own limit.
        stop: when set, the export ends after the images under way.
        processes: those that share the inputs; each exports.
        sources: format -> the head it is written from.
        specs: format -> what its maps are when they are written.
        summary: of the inputs of this process.
        stopped: this process ended before its inputs were complete.
        needs_camera: whether the camera of every image must be known, for the model or a format.
        estimates: whether the model estimates the focal length of images of which none is known.
    """

    predictor: Predictor
    plan: ExportPlan
    _: KW_ONLY
    heads: Sequence[str] = ()
    existing: Existing = "refuse"
    workers: int = 2
    max_pixels: int | None = None
    stop: Event = field(default_factory=Event)
    progress: bool = False
    processes: ProcessGroup = ALONE
    summary: Summary = field(init=False)
    stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        card, writers = self.predictor.card, self.plan.writers
        self.sources = head_of_each_format(self.plan.formats, card, self.heads)
        self.specs = {format: self.plan.spec(card.outputs[head]) for format, head in self.sources.items()}
        self.beside = card.heads_of(*(kind for writer in writers.values() for kind in writer.beside))[:1]
        needing = any(writer.needs_camera(self.specs[format]) for format, writer in writers.items())
        self.needs_camera = card.needs_camera or needing
        unknown = self.predictor.cameras.override is None
        self.estimates = self.needs_camera and card.camera_head is not None and unknown

    def selected(self, maps: Maps) -> Maps:
        """Return the maps of the heads that are written."""
        heads = {*self.sources.values(), *self.beside}
        return {name: values for name, values in maps.items() if heads & {name, head_giving(name)}}

    def frames_of(self, maps: Maps, image: Rgb, camera: Intrinsics | Lens | None) -> dict[str, PredictedMap]:
        """Return what writers are given of an image, by head."""
        outputs = self.predictor.card.outputs

        def frame_of(head: str, depth: PredictedMap | None = None) -> PredictedMap:
            return PredictedMap(
                values=maps[head], image=image, spec=self.plan.spec(outputs[head]), camera=camera,
                uncertainty=maps.get(uncertainty_of(head)), classes=maps.get(f"{head}/classes"), depth=depth,
            )  # fmt: skip

        depth = next(map(frame_of, self.beside), None)
        return {head: frame_of(head, depth) for head in self.sources.values()}

    @abstractmethod
    def run(self) -> None:
        """Predict and write the inputs of this process."""

    def export(self) -> Summary:
        """Check the plan, write it, and return the summary of all processes. Raises ConfigError, DataError,
        StorageError: before anything is written; StorageError also when the disk fills up. Raises PartialError: some
        inputs failed; the others are done, and `failed.json` names the failed ones. Raises Preempted: `stop` was set;
        what is written is whole."""
        self.prepare()
        return self.run_and_finish()

    def prepare(self) -> None:
        """Check what an export needs, then make its folders and the files that all inputs share; see `export`."""
        plan, outputs = self.plan, self.predictor.card.outputs
        for format, writer in plan.writers.items():
            writer.check(self.specs[format])
            if writer.needs_uncertainty and uncertainty_of(self.sources[format]) not in outputs:
                raise ConfigError(
                    f"format {format}, as asked for, needs a head with `uncertainty: laplace`; "
                    f"'{self.sources[format]}' predicts none."
                )
            if writer.needs_beside and not self.predictor.card.heads_of(*writer.beside):
                raise ConfigError(
                    f"format {format}: needs a head of {' or '.join(writer.beside)}; this model has none."
                )
            if writer.needs_camera(self.specs[format]) and not self.predictor.card.camera_head:
                plan.check_cameras(format)
        unsure = [uncertainty_of(self.sources[name]) for name, one in plan.writers.items() if one.needs_uncertainty]
        self.predictor.check_tileable([*self.sources.values(), *unsure])
        plan.check(self.existing)
        self.processes.on_main(self.write_shared_files)

    @cached_property
    def ledger(self) -> Ledger:
        return self.plan.ledger()

    def write_shared_files(self) -> None:
        self.plan.begin(settings(self.predictor, self.plan, self.sources), self.existing)
        for format, writer in self.plan.writers.items():
            writer.write_shared(self.plan.folder, self.specs[format])

    def run_and_finish(self) -> Summary:
        """Write the inputs; return the summary of all processes, or raise what ends an export that is not complete."""
        self.run()
        gathered = self.processes.all_gather((self.summary, self.stopped))
        summary = merge_summaries([each for each, _ in gathered])
        self.processes.on_main(lambda: self.plan.write_lists(self.specs))
        return self.processes.on_main(lambda: self.plan.finish(summary, any(stopped for _, stopped in gathered)))


class ImageExporter(Exporter):
    """Images: decoding threads, the model and encoding threads work at the same time."""

    plan: OutputPlan

    def __post_init__(self) -> None:
        super().__post_init__()
        uses_camera = self.needs_camera or any(writer.uses_camera for writer in self.plan.writers.values())
        if uses_camera and not self.predictor.card.needs_camera:  # see `resolve_cameras`
            self.plan = replace(self.plan, items=with_exif(self.plan.items, needed=self.needs_camera))
        self.limit: dict[str, int] = {} if self.max_pixels is None else {"max_pixels": self.max_pixels}
        self.groups: list[Sequence[Item]] = share_of(self.plan.items, self.predictor.batch_size, self.processes)
        self.summary = Summary(sum(map(len, self.groups)), unsupported=self.plan.unsupported)
        self.digests: dict[Item, Any] = {}
        self.estimated: dict[Item, Lens] = {}
        self.warnings = ReaderWarnings()

    def prepare(self) -> None:
        predictor, card = self.predictor, self.predictor.card
        if self.plan.points is not None:
            if predictor.tiling is not None and points_are_input(predictor.model, card, *self.sources.values()):
                check_tileable_inputs(["points"])
            depth = any(card.outputs[head].output_kind.is_depth for head in (*self.sources.values(), *self.beside))
            if not depth and not points_are_input(predictor.model, card, *card.outputs):
                raise ConfigError(f"--points: brings depth to metres; {', '.join(self.sources)} are not made of depth.")
        super().prepare()

    def run(self) -> None:
        """Decode, predict and write; at most a few batches are in memory at a time."""
        begun = time.perf_counter()
        self.complete = {item for group in self.groups for item in group if not self.plan.missing(item)}
        self.summary.already = len(self.complete)
        ahead = 2 * self.workers + self.predictor.batch_size
        total = self.summary.images - self.summary.already
        pending: deque[tuple[Item, Future[Summary]]] = deque()
        # After an error, too, images being written are finished, and those that wait to be decoded are dropped.
        with (
            self.warnings,
            ThreadPoolExecutor(self.workers, "encode") as writers,
            closing(self.read_groups(self.workers, ahead)) as groups,
            tqdm(total=total, unit="image", disable=not (self.progress and self.processes.is_main)) as bar,
        ):
            for maps, pairs in read_pending(started for group in groups for started in self.start(group)):
                for i, (item, image) in enumerate(pairs):
                    if item not in self.complete:
                        outputs = self.predictor.unbatch(self.selected(maps), i)
                        pending.append((item, writers.submit(self.write, item, outputs, image)))
                while len(pending) > ahead:
                    self.count(*pending.popleft())
                bar.update(sum(item not in self.complete for item, _ in pairs))
            while pending:
                self.count(*pending.popleft())
        self.summary.seconds = time.perf_counter() - begun

    def read_groups(self, threads: int, ahead: int) -> Generator[list[Pair], None, None]:
        """Yield the images of each group that still has something to write, decoded ahead of the model."""
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

    def read(self, item: Item) -> ImageInput | str:
        """Return the image with its camera and measured points, or why there is none."""
        predictor, plan, camera = self.predictor, self.plan, None
        try:
            with item.file() as path:
                image = item.undistorted(read_image(path, **self.limit))
            size = (image.shape[0], image.shape[1])
            if item not in self.complete:
                self.digests[item] = plan.digest(item)
            if item.intrinsics is not None and predictor.card.needs_camera:
                camera = focal_of_matrix(item.intrinsics.matrix(size))
            points = None if plan.points is None else plan.points.read(item, size, single=len(plan.items) == 1)
            if warning := self.warnings.messages.pop(str(path), ""):
                self.summary.warnings[item.source] = warning
            return ImageInput(image, camera, points).prepare(predictor.model, predictor.card)
        except (DataError, OSError, MemoryError) as error:
            return failure_reason(error, item.source)

    def start(self, group: Sequence[Pair]) -> Iterator[tuple[Pending, Sequence[Pair]]]:
        """Start the images of a group; those of one size and one camera go through the model together."""
        batches: dict[Any, list[Pair]] = {}
        for item, image in group:
            separate = item if self.estimates and item.intrinsics is None else None  # has a focal length of its own
            batches.setdefault((image.image.shape, item.intrinsics, separate), []).append((item, image))
        for pairs in batches.values():
            yield from self.start_batch(pairs)

    def start_batch(self, pairs: Sequence[Pair]) -> Iterator[tuple[Pending, Sequence[Pair]]]:
        """Start a batch; one by one where its images are too much together."""
        first, images = pairs[0][0], [image.image for _, image in pairs]
        try:
            camera, inputs = pairs[0][1].camera, join_inputs([image.inputs for _, image in pairs])
            if self.estimates and first.intrinsics is None:
                camera = self.predictor.estimate_camera(images[0])
                self.estimated[first] = Lens(focal=camera)
            started = self.predictor.start(stack(images), camera=camera, inputs=inputs)
        except (DataError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise  # a fault of the model or of the program, not of this image
            if len(pairs) == 1:
                self.summary.failed[first.source] = failure_reason(error, first.source)
                return
        else:
            yield started, pairs
            return
        for pair in pairs:
            yield from self.start_batch([pair])

    def write(self, item: Item, maps: Maps, image: ImageInput) -> Summary:
        """Write the formats of one image."""
        fits = []
        for head, values in maps.items():
            if (fitted := image.in_metres(head, values, self.predictor.model, self.predictor.card)) is not None:
                maps[head], fit = fitted
                fits.append(fit)
        frames = self.frames_of(maps, image.image, item.intrinsics or self.estimated.get(item))
        out_of_range = [
            self.plan.writers[format].write(self.plan.path(item, format), frames[self.sources[format]])
            for format in self.plan.missing(item)
        ]
        invalid = int(np.any([~frame.valid() for frame in frames.values()], axis=0).sum())
        return Summary(1, out_of_range=sum(out_of_range), invalid=invalid, fits=fits)

    def count(self, item: Item, written: Future[Summary]) -> None:
        try:
            done = written.result()
        except DataError as error:
            self.summary.failed[item.source] = failure_reason(error, item.source)
        else:
            source = self.digests.pop(item)
            for path in self.plan.paths(item):
                self.ledger.add(path, source)
            self.summary.done += 1
            if camera := "estimate" if self.estimated.pop(item, None) else item.camera_source:
                self.summary.cameras[camera] += 1
            self.summary.out_of_range += done.out_of_range
            self.summary.invalid += done.invalid
            self.summary.fits += done.fits


def share_of(items: Sequence[Any], size: int, processes: ProcessGroup) -> list[Sequence[Any]]:
    """Return this process' groups of `size` neighbours: every n-th of the whole list's, for n processes."""
    groups = [items[i : i + size] for i in range(0, len(items), size)]
    return groups[processes.rank :: processes.size]
