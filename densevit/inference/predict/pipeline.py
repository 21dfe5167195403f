"""Many images to many files: decoding threads, the model, encoding threads, all at once.

Images travel in fixed groups of the batch size, cut from the whole list, so that a resumed run computes the same
batches as an uninterrupted one, and writes the same bytes. To several processes groups are dealt in turn.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from threading import Event
from typing import Any, Protocol, TypeVar, runtime_checkable

from tqdm import tqdm

from densevit.data.io.readers import read_image
from densevit.data.loading.prefetch import prefetch
from densevit.errors import ConfigError, DataError, Preempted
from densevit.inference.images import Rgb
from densevit.inference.predict.inputs import Item
from densevit.inference.predict.output_plan import FAILED, Existing, Plan, fingerprint
from densevit.inference.predict.summary import Incomplete, Summary, merged, out_of_memory, reason
from densevit.inference.predictor import Map, Predictor, as_batch
from densevit.inference.tiling import demand_depth
from densevit.inference.writers import MapWriter, PredictedMap
from densevit.utils.atomic_io import write_text

Maps = dict[str, Map]
"""By head."""


T = TypeVar("T")


@runtime_checkable
class ProcessGroup(Protocol):
    """What an export asks of the processes around it; `engine.distributed.World` is one."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_gather(self, value: Any) -> list[Any]: ...
    def on_main(self, work: Callable[[], T]) -> T: ...


@dataclass(frozen=True)
class SingleProcess:
    """A team of one."""

    rank: int = 0
    size: int = 1

    def all_gather(self, value: Any) -> list[Any]:
        return [value]

    def on_main(self, work: Callable[[], T]) -> T:
        return work()


ALONE = SingleProcess()


def export(
    predictor: Predictor,
    plan: Plan,
    *,
    heads: Sequence[str] = (),
    existing: Existing = "refuse",
    workers: int = 2,
    max_pixels: int | None = None,
    stop: Event | None = None,
    progress: bool = False,
    team: ProcessGroup = ALONE,
) -> Summary:
    """Writes every format of every image. What one image does wrong costs that image only.

    Args:
        heads: those that are meant, where the model has several that a format is for.
        existing: what to do where outputs are already there.
        workers: threads that decode, and as many that encode.
        max_pixels: larger images fail; None is the reader's own limit.
        stop: when set, the export ends after the images under way.
        team: the processes that share the list; each calls this, and each is given the summary of all.

    Raises:
        ConfigError, DataError, StorageError: before anything is written; StorageError also when the disk fills up.
        PartialError: some images failed; the others are done, and `failed.json` names the failed ones.
        Preempted: `stop` was set; what is written is whole.
    """
    sources = head_of_each(plan.outputs, predictor, heads)
    for format, output in plan.outputs.items():
        output.check(predictor.card.outputs[sources[format]])
    if predictor.tiling is not None:
        demand_depth({head: predictor.card.outputs[head].kind for head in sources.values()})
    plan.check(existing)
    team.on_main(lambda: begin(predictor, plan, sources, existing))
    run = PredictionPipeline(predictor, plan, sources, existing == "resume", max_pixels, stop or Event(), team)
    begun = time.perf_counter()
    shown = None if progress and team.rank == 0 else True
    with tqdm(total=run.summary.images - run.summary.already, unit="image", disable=shown) as bar:
        run.all(workers, bar.update)
    run.summary.seconds = time.perf_counter() - begun
    parts = team.all_gather((run.summary, run.stopped))
    summary = merged([part for part, _ in parts])
    return team.on_main(lambda: concluded(summary, any(stopped for _, stopped in parts), plan))


def begin(predictor: Predictor, plan: Plan, sources: Mapping[str, str], existing: Existing) -> None:
    """Folders, and what is written once for all images."""
    plan.begin(settings(predictor, plan, sources), existing)
    for format, output in plan.outputs.items():
        output.begin(plan.folder, predictor.card.outputs[sources[format]])


def head_of_each(outputs: Mapping[str, MapWriter], predictor: Predictor, wanted: Sequence[str]) -> dict[str, str]:
    """Format -> the head it is written from: the only one of its kind, or the one that is named, or `depth`.

    All are answers to one pass through the model.

    Raises:
        DataError: no such head.
        ConfigError: a format that no head is for, or several; a head that no format is for.
    """
    wanted = [predictor.head(name) for name in wanted]
    sources = {
        format: predictor.head_for(output.kinds, wanted, f"format {format}") for format, output in outputs.items()
    }
    if unused := [name for name in wanted if name not in sources.values()]:
        raise ConfigError(f"--head: no format of {', '.join(outputs)} is written from {', '.join(unused)}.")
    return sources


def concluded(summary: Summary, stopped: bool, plan: Plan) -> Summary:
    if summary.failed:
        reasons = [{"image": str(source), "reason": reason} for source, reason in summary.failed.items()]
        write_text(plan.folder / FAILED, json.dumps({"images": summary.images, "failed": reasons}, indent=1))
    if stopped:
        ready = summary.done + summary.already
        raise Preempted(f"stopped after {ready} of {summary.images} images, all of them whole; --resume goes on.")
    if summary.failed:
        raise Incomplete(summary, plan.folder / FAILED)
    return summary


class PredictionPipeline:
    """One pass over a plan."""

    def __init__(
        self,
        predictor: Predictor,
        plan: Plan,
        sources: Mapping[str, str],
        resume: bool,
        max_pixels: int | None,
        stop: Event,
        team: ProcessGroup = ALONE,
    ) -> None:
        self.predictor = predictor
        self.plan = plan
        self.sources = sources  # format -> head
        self.limit: dict[str, int] = {} if max_pixels is None else {"max_pixels": max_pixels}
        self.stop = stop
        self.stopped = False
        self.whole = dealt(plan.items, predictor.batch_size, team)
        mine = [item for group in self.whole for item in group]
        self.complete = {item for item in mine if not plan.missing(item)} if resume else set[Item]()
        self.resume = resume
        self.summary = Summary(len(mine), already=len(self.complete))

    def all(self, workers: int, tick: Callable[[int], object]) -> None:
        ahead = 2 * workers + self.predictor.batch_size
        pending: deque[tuple[Item, Future[tuple[int, int]]]] = deque()
        # After an error, too, images being written are finished, and those that wait to be decoded are dropped.
        with ThreadPoolExecutor(workers, "encode") as writers, closing(self.groups(workers, ahead)) as groups:
            for group in groups:
                for item, maps, image in self.predict(group):
                    if item not in self.complete:
                        pending.append((item, writers.submit(self.write, item, maps, image)))
                while len(pending) > ahead:
                    self.count(*pending.popleft())
                tick(sum(item not in self.complete for item, _ in group))
            while pending:
                self.count(*pending.popleft())

    def groups(self, threads: int, ahead: int) -> Generator[list[tuple[Item, Rgb]], None, None]:
        """The images of each group that still has something to write, decoded ahead of the model."""
        todo = [group for group in self.whole if not self.complete.issuperset(group)]
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
                return read_image(path, **self.limit)
        except (DataError, OSError, MemoryError) as error:
            return reason(error, item.source)

    def predict(self, group: Sequence[tuple[Item, Rgb]]) -> Iterator[tuple[Item, Maps, Rgb]]:
        for _, alike in groupby(group, lambda pair: pair[1].shape):
            yield from self.batch(list(alike))

    def batch(self, pairs: Sequence[tuple[Item, Rgb]]) -> Iterator[tuple[Item, Maps, Rgb]]:
        maps, trouble = self.attempt([image for _, image in pairs], pairs[0][0])
        if maps is not None:
            for i, (item, image) in enumerate(pairs):
                yield item, self.predictor.taken_apart(maps, i), image
        elif len(pairs) > 1:  # what is too much together may go one by one
            for pair in pairs:
                yield from self.batch([pair])
        else:
            self.summary.failed[pairs[0][0].source] = trouble

    def attempt(self, images: Sequence[Rgb], first: Item) -> tuple[Maps | None, str]:
        """The maps, or None and why there are none."""
        try:
            answers = self.predictor.run(as_batch(images))
            return {head: answers[head] for head in self.sources.values()}, ""
        except (DataError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not out_of_memory(error):
                raise  # a fault of the model or of ours, not of this image
            return None, reason(error, first.source)

    def write(self, item: Item, maps: Maps, image: Rgb) -> tuple[int, int]:
        """Writes the formats of one image; returns how many values were clipped, and how many pixels have none."""
        spec = self.predictor.card.outputs
        frames = {head: PredictedMap(values=values, image=image, spec=spec[head]) for head, values in maps.items()}
        formats = self.plan.missing(item) if self.resume else list(self.plan.outputs)
        clipped = [
            self.plan.outputs[format].write(self.plan.path(item, format), frames[self.sources[format]])
            for format in formats
        ]
        return sum(clipped), sum(int((~frame.valid()).sum()) for frame in frames.values())

    def count(self, item: Item, written: Future[tuple[int, int]]) -> None:
        try:
            clipped, invalid = written.result()
        except DataError as error:
            self.summary.failed[item.source] = reason(error, item.source)
        else:
            self.summary.done += 1
            self.summary.clipped += clipped
            self.summary.invalid += invalid


def settings(predictor: Predictor, plan: Plan, sources: Mapping[str, str]) -> dict[str, Any]:
    """What decides the bytes of the outputs, as `export.json` notes it."""
    heads = {head: predictor.card.outputs[head] for head in sources.values()}
    return {
        "weights": fingerprint(predictor.model),
        "source": predictor.card.source,
        "heads": {head: {"kind": spec.kind, "unit": spec.unit} for head, spec in heads.items()},
        "runtime": None if predictor.runtime == "torch" else predictor.runtime,  # older records have none
        "precision": predictor.precision,
        "flip": predictor.flip,
        "scales": list(predictor.scales),
        "focal": predictor.focal,
        "sliding": [predictor.card.resize.window, predictor.card.resize.stride],
        "window": getattr(predictor.window, "__name__", None),
        "tiling": predictor.tiling and vars(predictor.tiling),
        "formats": {name: {"head": sources[name], **vars(output)} for name, output in plan.outputs.items()},
    }


def dealt(items: Sequence[T], size: int, team: ProcessGroup) -> list[Sequence[T]]:
    """This process' groups of `size` neighbours: every so many-th of the whole list."""
    groups = [items[i : i + size] for i in range(0, len(items), size)]
    return groups[team.rank :: team.size]
