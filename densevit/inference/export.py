"""Many images to many files: decoding threads, the model, encoding threads, all at once.

Images travel in fixed groups of the batch size, cut from the whole list, so that a resumed run computes the same
batches as an uninterrupted one, and writes the same bytes.
"""

import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from threading import Event
from typing import Any, TypeVar

import numpy as np
from tqdm import tqdm

from densevit.data.io import read_image
from densevit.errors import ConfigError, DataError, Preempted
from densevit.files import write_text
from densevit.inference.inputs import Item
from densevit.inference.outputs import Frame
from densevit.inference.picture import Rgb
from densevit.inference.plan import FAILED, Existing, Plan, fingerprint
from densevit.inference.predictor import Map, Predictor
from densevit.inference.summary import Incomplete, Summary, out_of_memory, reason

A = TypeVar("A")
R = TypeVar("R")


def export(
    predictor: Predictor,
    plan: Plan,
    *,
    head: str | None = None,
    existing: Existing = "refuse",
    workers: int = 2,
    max_pixels: int | None = None,
    stop: Event | None = None,
    progress: bool = False,
) -> Summary:
    """Writes every format of every image. What one image does wrong costs that image only.

    Args:
        existing: what to do where outputs are already there.
        workers: threads that decode, and as many that encode.
        max_pixels: larger images fail; None is the reader's own limit.
        stop: when set, the export ends after the images under way.

    Raises:
        ConfigError, DataError, StorageError: before anything is written; StorageError also when the disk fills up.
        PartialError: some images failed; the others are done, and `failed.json` names the failed ones.
        Preempted: `stop` was set; what is written is whole.
    """
    name = predictor.head(head)
    if predictor.card.outputs[name].kind == "class":
        raise ConfigError(f"head '{name}' gives classes of whole images; there is no map to write.")
    for output in plan.outputs.values():
        output.check(predictor.card.outputs[name])
    plan.check(existing)
    plan.begin(settings(predictor, plan, name), existing)
    run = Run(predictor, plan, name, existing == "resume", max_pixels, stop or Event())
    begun = time.perf_counter()
    with tqdm(total=len(plan.items) - run.summary.already, unit="image", disable=None if progress else True) as bar:
        run.all(workers, bar.update)
    run.summary.seconds = time.perf_counter() - begun
    return concluded(run, plan)


def concluded(run: "Run", plan: Plan) -> Summary:
    summary = run.summary
    if summary.failed:
        reasons = [{"image": str(source), "reason": reason} for source, reason in summary.failed.items()]
        write_text(plan.folder / FAILED, json.dumps({"images": summary.images, "failed": reasons}, indent=1))
    if run.stopped:
        ready = summary.done + summary.already
        raise Preempted(f"stopped after {ready} of {summary.images} images, all of them whole; --resume goes on.")
    if summary.failed:
        raise Incomplete(summary, plan.folder / FAILED)
    return summary


class Run:
    """One pass over a plan."""

    def __init__(
        self, predictor: Predictor, plan: Plan, head: str, resume: bool, max_pixels: int | None, stop: Event
    ) -> None:
        self.predictor = predictor
        self.plan = plan
        self.head = head
        self.limit: dict[str, int] = {} if max_pixels is None else {"max_pixels": max_pixels}
        self.stop = stop
        self.stopped = False
        self.complete = {item for item in plan.items if not plan.missing(item)} if resume else set[Item]()
        self.resume = resume
        self.summary = Summary(len(plan.items), already=len(self.complete))

    def all(self, workers: int, tick: Callable[[int], object]) -> None:
        with ThreadPoolExecutor(workers, "decode") as readers, ThreadPoolExecutor(workers, "encode") as writers:
            pending: deque[tuple[Item, Future[tuple[int, int]]]] = deque()
            try:
                for group in self.groups(readers, ahead=2 * workers + self.predictor.batch_size):
                    for item, values, image in self.predict(group):
                        if item not in self.complete:
                            pending.append((item, writers.submit(self.write, item, values, image)))
                    while len(pending) > 2 * workers + self.predictor.batch_size:
                        self.count(*pending.popleft())
                    tick(sum(item not in self.complete for item, _ in group))
            finally:  # after an error, too: what is being written gets finished, what waits to be read does not
                readers.shutdown(wait=False, cancel_futures=True)
            while pending:
                self.count(*pending.popleft())

    def groups(self, readers: ThreadPoolExecutor, ahead: int) -> Iterator[list[tuple[Item, Rgb]]]:
        """The images of each group that still has something to write, decoded ahead of the model."""
        items, size = self.plan.items, self.predictor.batch_size
        whole = [items[i : i + size] for i in range(0, len(items), size)]
        todo = [group for group in whole if not self.complete.issuperset(group)]
        decoded = map_ahead(readers, self.read, (item for group in todo for item in group), ahead)
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
            return read_image(item.source, **self.limit)
        except (DataError, OSError, MemoryError) as error:
            return reason(error, item.source)

    def predict(self, group: Sequence[tuple[Item, Rgb]]) -> Iterator[tuple[Item, Map, Rgb]]:
        for _, alike in groupby(group, lambda pair: pair[1].shape):
            yield from self.batch(list(alike))

    def batch(self, pairs: Sequence[tuple[Item, Rgb]]) -> Iterator[tuple[Item, Map, Rgb]]:
        values, trouble = self.attempt([image for _, image in pairs], pairs[0][0])
        if values is not None:
            yield from ((item, value[0], image) for (item, image), value in zip(pairs, values, strict=True))
        elif len(pairs) > 1:  # what is too much together may go one by one
            for pair in pairs:
                yield from self.batch([pair])
        else:
            self.summary.failed[pairs[0][0].source] = trouble

    def attempt(self, images: Sequence[Rgb], first: Item) -> tuple[Map | None, str]:
        """The maps, or None and why there are none."""
        try:
            return self.predictor.run(np.stack(images))[self.head], ""
        except (DataError, MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not out_of_memory(error):
                raise  # a fault of the model or of ours, not of this image
            return None, reason(error, first.source)

    def write(self, item: Item, values: Map, image: Rgb) -> tuple[int, int]:
        """Writes the formats of one image; returns how many values were clipped, and how many pixels have none."""
        frame = Frame(values=values, image=image, spec=self.predictor.card.outputs[self.head])
        formats = self.plan.missing(item) if self.resume else list(self.plan.outputs)
        clipped = [self.plan.outputs[format].write(self.plan.path(item, format), frame) for format in formats]
        return sum(clipped), int((~frame.valid()).sum())

    def count(self, item: Item, written: Future[tuple[int, int]]) -> None:
        try:
            clipped, invalid = written.result()
        except DataError as error:
            self.summary.failed[item.source] = reason(error, item.source)
        else:
            self.summary.done += 1
            self.summary.clipped += clipped
            self.summary.invalid += invalid


def map_ahead(pool: ThreadPoolExecutor, work: Callable[[A], R], items: Iterable[A], ahead: int) -> Iterator[R]:
    """`map` over a pool that keeps its order and starts at most `ahead` items early."""
    pending: deque[Future[R]] = deque()
    for item in items:
        pending.append(pool.submit(work, item))
        if len(pending) > ahead:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def settings(predictor: Predictor, plan: Plan, head: str) -> dict[str, Any]:
    """What decides the bytes of the outputs, as `export.json` notes it."""
    spec = predictor.card.outputs[head]
    return {
        "weights": fingerprint(predictor.model),
        "source": predictor.card.source,
        "head": head,
        "kind": spec.kind,
        "unit": spec.unit,
        "precision": predictor.precision,
        "flip": predictor.flip,
        "window": getattr(predictor.window, "__name__", None),
        "formats": {name: vars(output) for name, output in plan.outputs.items()},
    }
