"""Exports clips: a decoding thread, one of the model, and one that stabilises and encodes work at the same time.

A clip is cut into segments of SEGMENT frames. When one is written, `progress.json` says so; a resumed export decodes
the clip again from its beginning, but predicts only from the first frame that is still missing (and a few before it,
which the stabiliser needs), so that it writes the same bytes as an uninterrupted one.
"""

import json
import logging
import shutil
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from densevit.data.io.depth_video import Coding
from densevit.data.io.readers import stack
from densevit.data.io.video import LiveCamera, VideoFrame
from densevit.data.loading.prefetch import prefetch_iterator
from densevit.errors import DataError
from densevit.inference.camera import CameraNumbers, Lens, focal_numbers, focal_of_matrix, pinhole_view
from densevit.inference.image_input import ImageInput, Maps
from densevit.inference.predict.pipeline import Exporter
from densevit.inference.predict.summary import Summary, hash_of
from densevit.inference.video.clips import PROGRESS, TIMES, Clip, ClipPlan, ClipProgress
from densevit.inference.video.formats import SUFFIX, ClipFacts, Depth16Segment, Ffv1, FloatSegment, coding_for
from densevit.inference.video.predict import motion_windows, sees_motion
from densevit.inference.video.stabilizer import Stabilizer
from densevit.inference.writers.base import PredictedMap
from densevit.utils.atomic_io import atomic_path, make_folder, remove_stale_temporaries, write_text
from densevit.utils.device import read_pending
from densevit.utils.output import tqdm

log = logging.getLogger(__name__)

SEGMENT = 64
"""Frames that an interruption may cost; a multiple of every sensible batch size."""


class ClipExporter(Exporter):
    """Clips, one after another. What cannot be read of a clip costs only that.

    When `stop` is set, files end after the frames under way, to be resumed; a camera's clip is finished.
    """

    plan: ClipPlan

    def prepare(self) -> None:
        super().prepare()
        outputs = self.predictor.card.outputs
        depth = any(outputs[head].output_kind.is_depth for head in (*self.sources.values(), *self.beside))
        if self.plan.stabilize is not None and not depth:
            log.warning("--stabilize: is for depth, of which %s are not made.", ", ".join(self.sources))

    def run(self) -> None:
        clips = self.plan.clips[self.processes.rank :: self.processes.size]
        self.summary = Summary(0, clips=len(clips))
        begun = time.perf_counter()
        for clip in clips:
            if self.plan.is_complete(clip):
                continue
            job = ClipExport(self, clip)
            job.run()
            self.stopped |= job.stopped
            if self.stop.is_set():
                break
        self.summary.seconds = time.perf_counter() - begun
        self.stopped |= self.stop.is_set() and any(not self.plan.is_complete(clip) for clip in clips)


class ClipExport:
    """One clip, from its first missing frame to its files."""

    def __init__(self, exporter: ClipExporter, clip: Clip) -> None:
        self.exporter = exporter
        self.predictor, self.plan, self.sources = exporter.predictor, exporter.plan, exporter.sources
        self.clip, self.summary, self.workers, self.stop = clip, exporter.summary, exporter.workers, exporter.stop
        self.show = exporter.progress and exporter.processes.is_main
        self.work = self.plan.work(clip)
        self.stopped = False
        self.ledger, self.source = exporter.ledger, self.plan.digest(clip)
        self.done = ClipProgress.read(self.work / PROGRESS, hash_of([self.ledger.settings, self.source]))
        self.resumed, self.written = self.done.frames, len(self.done.times)
        self.boundary = self.resumed + SEGMENT
        self.live = isinstance(clip.source, LiveCamera)
        formats = self.plan.clip_formats.items()
        self.encodings = sorted({(format.encoding, self.sources[name]) for name, format in formats})
        self.stabilizers = self.build_stabilizers()
        self.camera: CameraNumbers | None = None
        self.camera_set = False
        self.segments: dict[tuple[str, str], Any] = {}
        self.opened = ExitStack()
        self.images: deque[Future[int]] = deque()

    def build_stabilizers(self) -> dict[str, Stabilizer]:
        if self.plan.stabilize is None:
            return {}
        options = dict(self.plan.stabilize)
        if self.live:
            options["future"] = 0
        heads = {*self.sources.values(), *self.exporter.beside}
        specs = {head: self.predictor.card.outputs[head] for head in sorted(heads)}
        return {
            head: Stabilizer(spec.kind, limits=spec.metres, **options)
            for head, spec in specs.items()
            if spec.output_kind.is_depth
        }

    def set_camera(self, image: np.ndarray) -> None:
        """Set the camera of all frames, once their size is known: the given one, else an estimate by the first."""
        if self.camera_set:
            return
        self.camera_set = True
        if self.plan.intrinsics is not None:
            self.camera = focal_of_matrix(self.plan.intrinsics.matrix((image.shape[0], image.shape[1])))
        elif self.exporter.estimates:
            self.done.focal = self.done.focal or self.predictor.estimate_camera(image)
            self.camera = self.done.focal
        if self.camera is not None:
            for stabilizer in self.stabilizers.values():
                stabilizer.focal = focal_numbers(self.camera)[0]

    def run(self) -> None:
        try:
            self.predict_and_write()
        except DataError as error:
            self.summary.failed[self.clip.input] = str(error).removeprefix(f"{self.clip.input}: ")
            self.remove_empty_folders()
            return
        problems = self.clip.source.problems
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            self.summary.failed[self.clip.input] = "; ".join(problems[:3]) + more + "."
        if self.stopped and not self.live:
            return
        self.stopped = False
        if not self.done.times:
            beyond = self.clip.source.length(self.plan.span) == 0 and self.clip.source.length()
            why = f"ends before --start {self.plan.span.start:g} s" if beyond else "no frame could be read"
            self.summary.failed.setdefault(self.clip.input, f"{why}.")
            self.remove_empty_folders()
            return
        self.join()

    def remove_empty_folders(self) -> None:
        if not self.done.times:
            shutil.rmtree(self.work, ignore_errors=True)
            with suppress(OSError):
                (self.plan.folder / self.clip.name).rmdir()

    def predict_and_write(self) -> None:
        """Write the segments and the files of single frames."""
        make_folder(self.work)
        remove_stale_temporaries(self.work)
        if self.plan.writers:
            make_folder(self.plan.folder / self.clip.name)
            remove_stale_temporaries(self.plan.folder / self.clip.name)
        batch = self.predictor.batch_size
        memory = max((s.past for s in self.stabilizers.values()), default=0)
        begin = max(0, self.done.frames - memory) // batch * batch  # the same batches as an uninterrupted export
        if sees_motion(self.predictor):
            begin = 0  # a window depends on all before it
        frames = self.frames(begin)
        ahead = 2 * batch + 2
        with (
            self.opened,
            closing(prefetch_iterator(frames, ahead)) as decoded,
            ThreadPoolExecutor(self.workers, "encode") as self.pool,
            closing(prefetch_iterator(self.predicted(decoded), ahead)) as predicted,
            self.bar() as bar,
        ):
            for frame, maps in self.stabilized(predicted):
                self.write(frame, maps)
                bar.update(frame.index >= self.resumed)
            if not self.stopped or self.live:
                self.close_segment()
        self.summary.images += len(self.done.times)
        self.summary.done += len(self.done.times) - self.written
        self.summary.already += self.written
        self.summary.out_of_range += self.done.out_of_range
        if self.done.focal is not None:
            self.summary.cameras["estimate"] += 1

    def frames(self, begin: int) -> Iterator[VideoFrame]:
        """Return the frames, undistorted where the camera's distortion is known."""
        for frame in self.clip.source.frames(self.plan.span, skip=begin):
            view = pinhole_view(self.plan.intrinsics, (frame.image.shape[0], frame.image.shape[1]))
            yield frame if view is None else replace(frame, image=view.image(frame.image))

    def predicted(self, decoded: Iterator[VideoFrame]) -> Iterator[tuple[VideoFrame, Maps]]:
        """Return frames with their maps, those of a model with motion blocks up to a window late; runs in a thread."""
        if not sees_motion(self.predictor):
            started = (
                (self.predictor.start(stack([frame.image for frame in group]), camera=self.camera), group)
                for group in self.groups(decoded)
            )
            for maps, group in read_pending(started, ahead=not self.live):
                selected = self.exporter.selected(maps)
                yield from ((frame, self.predictor.unbatch(selected, i)) for i, frame in enumerate(group))
            return
        windows = motion_windows(self.predictor, causal=self.live)
        waiting: deque[VideoFrame] = deque()
        for group in self.groups(decoded):
            for frame in group:
                waiting.append(frame)
                for outputs in windows.push(ImageInput(frame.image, self.camera)):
                    yield waiting.popleft(), self.exporter.selected(outputs)
        if not self.stopped or self.live:
            for outputs in windows.flush():
                yield waiting.popleft(), self.exporter.selected(outputs)

    def groups(self, decoded: Iterator[VideoFrame]) -> Iterator[list[VideoFrame]]:
        """Yield the frames of each pass through the model, until `stop` is set."""
        for group in groups_of(decoded, self.predictor.batch_size):
            if self.stop.is_set():
                self.stopped = True
                return
            self.set_camera(group[0].image)
            yield group

    def stabilized(self, predicted: Iterator[tuple[VideoFrame, Maps]]) -> Iterator[tuple[VideoFrame, Maps]]:
        """Return frames with their stabilised maps, which come some frames late."""
        waiting: deque[tuple[VideoFrame, Maps]] = deque()
        ready: dict[str, deque[Any]] = {head: deque() for head in self.stabilizers}

        def complete() -> Iterator[tuple[VideoFrame, Maps]]:
            while waiting and all(ready.values()):
                frame, maps = waiting.popleft()
                yield frame, {**maps, **{head: maps_of_head.popleft() for head, maps_of_head in ready.items()}}

        for frame, maps in predicted:
            waiting.append((frame, maps))
            for head, stabilizer in self.stabilizers.items():
                ready[head].extend(stabilizer.push(frame.image, maps[head]))
            yield from complete()
        if not self.stopped or self.live:
            for head, stabilizer in self.stabilizers.items():
                ready[head].extend(stabilizer.flush())
            yield from complete()

    def bar(self) -> tqdm:
        total = None if self.live else self.clip.source.length(self.plan.span)
        options: dict[str, Any] = {"unit": "frame", "disable": not self.show, "desc": self.clip.name[:24]}
        return tqdm(total=total, initial=self.resumed, **options)

    def write(self, frame: VideoFrame, maps: Maps) -> None:
        if frame.index < self.resumed:
            return  # written already: only the stabiliser needed it
        while frame.index >= self.boundary:
            self.close_segment(note=True)
        camera = self.plan.intrinsics or (None if self.done.focal is None else Lens(focal=self.done.focal))
        shown = self.exporter.frames_of(maps, frame.image, camera)
        self.done.size = list(frame.image.shape[:2])
        name = frame.name or f"{frame.index:06d}"
        for key in self.encodings:
            if key not in self.segments:
                self.segments[key] = self.open_segment(key, shown[key[1]])
            self.done.out_of_range += self.segments[key].write(shown[key[1]], frame.time)
        for format, writer in self.plan.writers.items():
            path = self.plan.frame_path(self.clip, name, format)
            self.images.append(self.pool.submit(writer.write, path, shown[self.sources[format]]))
        while len(self.images) > 4 * self.workers:
            self.done.out_of_range += self.images.popleft().result()
        self.done.times.append(frame.time)
        self.done.names.append(name)

    def segment_path(self, encoding: str, head: str, segment: int) -> Path:
        return self.work / f"{head}-{segment:06d}{SUFFIX[encoding]}"  # type: ignore[index]

    def open_segment(self, key: tuple[str, str], first: PredictedMap) -> Any:
        """Return the next segment; it appears under its name when it is complete."""
        encoding, head = key
        path = self.opened.enter_context(atomic_path(self.segment_path(encoding, head, self.done.segments)))
        if encoding == "float32":
            return self.opened.enter_context(closing(FloatSegment(path)))
        if self.done.coding is None:
            scale = next((f.scale for f in self.plan.clip_formats.values() if isinstance(f, Ffv1)), None)
            self.done.coding = asdict(coding_for(first, scale))
        h, w = first.image.shape[:2]
        return self.opened.enter_context(Depth16Segment(path, (h, w), Coding(**self.done.coding)))

    def close_segment(self, note: bool = False) -> None:
        """End the segments. `note`: in `progress.json`, that everything up to the boundary is written."""
        while self.images:
            self.done.out_of_range += self.images.popleft().result()
        self.opened.close()
        self.done.segments += bool(self.segments)
        self.segments.clear()
        if note:
            self.done.frames, self.boundary = self.boundary, self.boundary + SEGMENT
            write_text(self.work / PROGRESS, json.dumps(asdict(self.done)))

    def join(self) -> None:
        """Join the segments into the files of the clip, and remove them."""
        spec = self.predictor.card.outputs
        times = np.array(self.done.times, np.float64)
        size = (self.done.size[0], self.done.size[1])
        for name, format in self.plan.clip_formats.items():
            head = self.sources[name]
            paths = [self.segment_path(format.encoding, head, i) for i in range(self.done.segments)]
            facts = ClipFacts(spec[head], size, times, mean_rate(times))
            with atomic_path(self.plan.path(self.clip, name)) as path:
                format.join(paths, path, facts)
        if self.plan.writers:
            lines = [f"{name},{seconds:.6f}" for name, seconds in zip(self.done.names, self.done.times, strict=True)]
            write_text(self.plan.folder / self.clip.name / TIMES, "\n".join(["name,seconds", *lines, ""]))
        for path in self.plan.finals(self.clip):
            self.ledger.add(path, self.source)
        shutil.rmtree(self.work, ignore_errors=True)


def mean_rate(times: np.ndarray) -> float:
    """Return the frames per second."""
    span = float(times[-1] - times[0]) if len(times) > 1 else 0.0
    return (len(times) - 1) / span if span > 0 else 30.0


def groups_of(frames: Iterator[VideoFrame], size: int) -> Iterator[list[VideoFrame]]:
    """Yield the consecutive frames whose positions share a multiple of `size`: the same groups wherever reading
    begins."""
    group: list[VideoFrame] = []
    for frame in frames:
        if group and frame.index // size != group[0].index // size:
            yield group
            group = []
        group.append(frame)
        if (frame.index + 1) % size == 0:
            yield group
            group = []
    if group:
        yield group
