"""Exports clips: a decoding thread, the model, and a thread that stabilises and encodes work at the same time.

A clip is cut into segments of SEGMENT frames. When one is written, `progress.json` says so; a resumed export decodes
the clip again from its beginning, but predicts only from the first frame that is still missing (and a few before it,
which the stabiliser needs), so that it writes the same bytes as an uninterrupted one.
"""

import json
import shutil
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from densevit.data.io.depth_video import Coding
from densevit.data.io.rgb import stack
from densevit.data.io.video import LiveCamera, VideoFrame
from densevit.data.loading.prefetch import prefetch_iterator
from densevit.errors import DataError, PartialError, Preempted
from densevit.inference.camera import Focal, focal_numbers, focal_of_matrix
from densevit.inference.predict.output_plan import FAILED, Existing
from densevit.inference.predict.pipeline import Maps, head_of_each_format, settings_of_model
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import check_tileable
from densevit.inference.video.clips import PROGRESS, TIMES, Clip, ClipPlan, Progress
from densevit.inference.video.formats import SUFFIX, ClipFacts, Depth16Part, Ffv1, FloatPart, coding_for
from densevit.inference.video.predict import motion_windows, sees_motion
from densevit.inference.video.stabilizer import Stabilizer
from densevit.inference.video.summary import ClipSummary, merge_summaries
from densevit.inference.video.windows import ClipWindows
from densevit.inference.writers.base import PredictedMap
from densevit.utils.atomic_io import atomic_path, make_folder, remove_stale_temporaries, write_text
from densevit.utils.process_group import ALONE, ProcessGroup
from densevit.utils.progress import tqdm

SEGMENT = 64
"""Frames that an interruption may cost; a multiple of every sensible batch size."""


def export_clips(
    predictor: Predictor,
    plan: ClipPlan,
    *,
    heads: Sequence[str] = (),
    existing: Existing = "refuse",
    workers: int = 2,
    stop: Event | None = None,
    progress: bool = False,
    processes: ProcessGroup = ALONE,
) -> ClipSummary:
    """Writes every format of every clip. What cannot be read of a clip costs only that.

    Args:
        heads: which to write, where the model has several that a format is for.
        existing: what to do where outputs are already there.
        workers: threads that encode single frames.
        stop: when set, files end after the frames under way, to be resumed; a camera's clip is finished.
        processes: those that share the clips; each calls this.

    Raises:
        ConfigError, DataError, StorageError: before anything is written; StorageError also when the disk fills up.
        PartialError: some clips could not be read, or not to their end; what was read is written.
        Preempted: `stop` was set.
    """
    sources = head_of_each_format({**plan.writers, **plan.formats}, predictor, heads)
    for format, writer in plan.writers.items():
        writer.check(predictor.card.outputs[sources[format]])
    if predictor.tiling is not None:
        check_tileable({head: predictor.card.outputs[head].kind for head in sources.values()})
    plan.check(existing)
    processes.on_main(lambda: prepare(predictor, plan, sources, existing))
    share = plan.clips[processes.rank :: processes.size]
    summary = ClipSummary(len(share))
    stop = stop or Event()
    begun = time.perf_counter()
    stopped = False
    for clip in share:
        if existing == "resume" and plan.is_complete(clip):
            continue
        job = ClipExport(predictor, plan, clip, sources, summary, workers, stop, progress and processes.is_main)
        job.run()
        stopped |= job.stopped
        if stop.is_set():
            break
    summary.seconds = time.perf_counter() - begun
    stopped |= stop.is_set() and any(not plan.is_complete(clip) for clip in share)
    found = processes.all_gather((summary, stopped))
    return processes.on_main(lambda: finish([part for part, _ in found], any(s for _, s in found), plan))


def prepare(predictor: Predictor, plan: ClipPlan, sources: Mapping[str, str], existing: Existing) -> None:
    record = {
        **settings_of_model(predictor, sources),
        "intrinsics": plan.intrinsics and asdict(plan.intrinsics),
        "formats": {
            name: {"head": sources[name], **vars(writer)} for name, writer in {**plan.writers, **plan.formats}.items()
        },
        "span": asdict(plan.span),
        "stabilize": plan.stabilize and dict(plan.stabilize),
        "batch_size": predictor.batch_size,
    }
    plan.prepare(record, existing)
    for format, writer in plan.writers.items():
        writer.write_shared(plan.folder, predictor.card.outputs[sources[format]])


def finish(parts: Sequence[ClipSummary], stopped: bool, plan: ClipPlan) -> ClipSummary:
    """The summary of all processes; raises what ends an export that is not complete."""
    summary = merge_summaries(parts)
    if summary.failed:
        reasons = [{"clip": clip, "reason": why} for clip, why in summary.failed.items()]
        write_text(plan.folder / FAILED, json.dumps({"clips": summary.clips, "failed": reasons}, indent=1))
    if stopped:
        raise Preempted(f"stopped after {summary.frames + summary.already} frames; --resume goes on.")
    if summary.failed:
        broken = f"{len(summary.failed)} of {summary.clips} clips failed or are incomplete"
        raise PartialError(f"{broken}; {plan.folder / FAILED} says why.", summary)
    return summary


class ClipExport:
    """One clip, from its first missing frame to its files."""

    def __init__(
        self,
        predictor: Predictor,
        plan: ClipPlan,
        clip: Clip,
        sources: Mapping[str, str],
        summary: ClipSummary,
        workers: int,
        stop: Event,
        progress: bool,
    ) -> None:
        self.predictor, self.plan, self.clip, self.sources, self.summary = predictor, plan, clip, sources, summary
        self.workers, self.stop, self.show = workers, stop, progress
        self.work = plan.work(clip)
        self.stopped = self.broken = False
        self.done = Progress.read(self.work / PROGRESS)
        self.resumed, self.written = self.done.frames, len(self.done.times)
        self.boundary = self.resumed + SEGMENT
        self.live = isinstance(clip.source, LiveCamera)
        self.depth_heads = sorted({sources[format] for format in plan.formats} | {
            head for head in sources.values() if predictor.card.outputs[head].output_kind.is_depth
        })  # fmt: skip
        self.part_kinds = sorted({(format.part, sources[name]) for name, format in plan.formats.items()})
        self.stabilizers = self.build_stabilizers()
        self.camera: Focal | None = None
        self.camera_set = False
        self.unpredicted: deque[VideoFrame] = deque()  # given to the windows of a model with motion blocks
        self.waiting: deque[tuple[VideoFrame, Maps]] = deque()  # given to the stabiliser, and not back yet
        self.ready: dict[str, deque[Any]] = {head: deque() for head in self.stabilizers}
        self.parts: dict[tuple[str, str], Any] = {}
        self.opened = ExitStack()
        self.images: deque[Future[int]] = deque()

    def build_stabilizers(self) -> dict[str, Stabilizer]:
        if self.plan.stabilize is None:
            return {}
        options = dict(self.plan.stabilize)
        if self.live:
            options["future"] = 0
        specs = self.predictor.card.outputs
        return {head: Stabilizer(specs[head].kind, limits=specs[head].range, **options) for head in self.depth_heads}

    def set_camera(self, image: np.ndarray) -> None:
        """Set the camera of all frames, once their size is known: the given one, else an estimate by the first."""
        if self.camera_set:
            return
        self.camera_set = True
        if self.plan.intrinsics is not None:
            self.camera = focal_of_matrix(self.plan.intrinsics.matrix((image.shape[0], image.shape[1])))
        elif self.predictor.cameras.estimates:
            self.done.focal = self.done.focal or self.predictor.estimate_focal(image)
            self.camera = self.done.focal
        if self.camera is not None:
            for stabilizer in self.stabilizers.values():
                stabilizer.focal = focal_numbers(self.camera)[0]

    def run(self) -> None:
        try:
            self.predict_and_write()
        except DataError as error:
            self.summary.failed[self.clip.given] = str(error).removeprefix(f"{self.clip.given}: ")
            self.remove_empty_folders()
            return
        problems = self.clip.source.problems
        if problems:
            more = f" and {len(problems) - 3} more" if len(problems) > 3 else ""
            self.summary.failed[self.clip.given] = "; ".join(problems[:3]) + more + "."
        if self.stopped and not self.live:
            return
        self.stopped = False
        if not self.done.times:
            beyond = self.clip.source.length(self.plan.span) == 0 and self.clip.source.length()
            why = f"ends before --start {self.plan.span.start:g} s" if beyond else "no frame could be read"
            self.summary.failed.setdefault(self.clip.given, f"{why}.")
            self.remove_empty_folders()
            return
        self.join()

    def remove_empty_folders(self) -> None:
        if not self.done.times:
            shutil.rmtree(self.work, ignore_errors=True)
            with suppress(OSError):
                (self.plan.folder / self.clip.name).rmdir()

    def predict_and_write(self) -> None:
        """Everything up to the parts and the files of single frames."""
        make_folder(self.work)
        remove_stale_temporaries(self.work)
        if self.plan.writers:
            make_folder(self.plan.folder / self.clip.name)
            remove_stale_temporaries(self.plan.folder / self.clip.name)
        batch = self.predictor.batch_size
        memory = max((s.past for s in self.stabilizers.values()), default=0)
        begin = max(0, self.done.frames - memory) // batch * batch  # the same batches as an uninterrupted export
        windows: ClipWindows | None = None
        if moves := sees_motion(self.predictor):
            begin = 0  # a window depends on all before it
        frames = self.clip.source.frames(self.plan.span, skip=begin)
        ahead = 2 * batch + 2
        pending: deque[Future[None]] = deque()
        with (
            self.opened,
            closing(prefetch_iterator(frames, ahead)) as decoded,
            ThreadPoolExecutor(self.workers, "encode") as self.pool,
            ThreadPoolExecutor(1, "stabilise") as after,
            self.bar() as bar,
        ):
            for group in groups_of(decoded, batch):
                if self.stop.is_set():
                    self.stopped = True
                    break
                self.set_camera(group[0].image)
                if moves and windows is None:
                    windows = motion_windows(self.predictor, self.camera, causal=self.live)
                for frame, maps in self.predicted(group, windows):
                    pending.append(after.submit(self.accept, frame, maps))
                    bar.update(frame.index >= self.resumed)
                while len(pending) > ahead:
                    pending.popleft().result()
            if windows is not None and (not self.stopped or self.live):
                for maps in windows.flush():
                    pending.append(after.submit(self.accept, self.unpredicted.popleft(), self.chosen(maps)))
            while pending:
                pending.popleft().result()
            if not self.stopped or self.live:
                after.submit(self.flush).result()
        self.summary.frames += len(self.done.times) - self.written
        self.summary.already += self.written
        self.summary.out_of_range += self.done.out_of_range
        self.summary.estimated += self.done.focal is not None

    def predicted(self, group: list[VideoFrame], windows: ClipWindows | None) -> Iterator[tuple[VideoFrame, Maps]]:
        """Frames with their maps: those of the group, or of a model with motion blocks those that are ready."""
        if windows is None:
            maps = self.predictor.predict_arrays(stack([frame.image for frame in group]), camera=self.camera)
            for i, frame in enumerate(group):
                yield frame, self.chosen(self.predictor.unbatch(maps, i))
            return
        for frame in group:
            self.unpredicted.append(frame)
            for found in windows.push(frame.image):
                yield self.unpredicted.popleft(), self.chosen(found)

    def chosen(self, maps: Maps) -> Maps:
        """The maps of the heads that are written."""
        return {head: maps[head] for head in set(self.sources.values())}

    def bar(self) -> tqdm:
        total = None if self.live else self.clip.source.length(self.plan.span)
        options: dict[str, Any] = {"unit": "frame", "disable": not self.show, "desc": self.clip.name[:24]}
        return tqdm(total=total, initial=self.resumed, **options)

    def accept(self, frame: VideoFrame, maps: Maps) -> None:
        """The maps of the next frame, in order; runs in its own thread, and after an error does nothing more."""
        if self.broken:
            return
        self.broken = True
        self.waiting.append((frame, maps))
        for head, stabilizer in self.stabilizers.items():
            self.ready[head].extend(stabilizer.push(frame.image, maps[head]))
        self.write_ready()
        self.broken = False

    def flush(self) -> None:
        """Writes what is still held back, and closes the last segment."""
        for head, stabilizer in self.stabilizers.items():
            self.ready[head].extend(stabilizer.flush())
        self.write_ready()
        self.close_segment()

    def write_ready(self) -> None:
        while self.waiting and all(self.ready.values()):
            frame, maps = self.waiting.popleft()
            self.write(frame, {**maps, **{head: ready.popleft() for head, ready in self.ready.items()}})

    def write(self, frame: VideoFrame, maps: Maps) -> None:
        if frame.index < self.resumed:
            return  # written already: only the stabiliser needed it
        while frame.index >= self.boundary:
            self.close_segment(note=True)
        spec = self.predictor.card.outputs
        shown = {
            head: PredictedMap(values=values, image=frame.image, spec=spec[head], camera=self.plan.intrinsics)
            for head, values in maps.items()
        }
        self.done.size = list(frame.image.shape[:2])
        name = frame.name or f"{frame.index:06d}"
        for key in self.part_kinds:
            if key not in self.parts:
                self.parts[key] = self.open_part(key, shown[key[1]])
            self.done.out_of_range += self.parts[key].add(shown[key[1]], frame.time)
        for format, writer in self.plan.writers.items():
            path = self.plan.frame_path(self.clip, name, format)
            self.images.append(self.pool.submit(writer.write, path, shown[self.sources[format]]))
        while len(self.images) > 4 * self.workers:
            self.done.out_of_range += self.images.popleft().result()
        self.done.times.append(frame.time)
        self.done.names.append(name)

    def part_path(self, kind: str, head: str, segment: int) -> Path:
        return self.work / f"{head}-{segment:06d}{SUFFIX[kind]}"  # type: ignore[index]

    def open_part(self, key: tuple[str, str], first: PredictedMap) -> Any:
        """The next part; it appears under its name when it is complete."""
        kind, head = key
        path = self.opened.enter_context(atomic_path(self.part_path(kind, head, self.done.segments)))
        if kind == "float32":
            return self.opened.enter_context(FloatPart(path))
        if self.done.coding is None:
            scale = next((f.scale for f in self.plan.formats.values() if isinstance(f, Ffv1)), None)
            self.done.coding = asdict(coding_for(first, scale))
        h, w = first.image.shape[:2]
        return self.opened.enter_context(Depth16Part(path, (h, w), Coding(**self.done.coding)))

    def close_segment(self, note: bool = False) -> None:
        """Ends the parts.

        Args:
            note: in `progress.json`, that everything up to the boundary is written.
        """
        while self.images:
            self.done.out_of_range += self.images.popleft().result()
        self.opened.close()
        self.done.segments += bool(self.parts)
        self.parts.clear()
        if note:
            self.done.frames, self.boundary = self.boundary, self.boundary + SEGMENT
            write_text(self.work / PROGRESS, json.dumps(asdict(self.done)))

    def join(self) -> None:
        """Joins the parts into the files of the clip, and removes them."""
        spec = self.predictor.card.outputs
        times = np.array(self.done.times, np.float64)
        size = (self.done.size[0], self.done.size[1])
        for name, format in self.plan.formats.items():
            head = self.sources[name]
            parts = [self.part_path(format.part, head, i) for i in range(self.done.segments)]
            facts = ClipFacts(spec[head], size, times, mean_rate(times))
            with atomic_path(self.plan.path(self.clip, name)) as path:
                format.join(parts, path, facts)
        if self.plan.writers:
            lines = [f"{name},{seconds:.6f}" for name, seconds in zip(self.done.names, self.done.times, strict=True)]
            write_text(self.plan.folder / self.clip.name / TIMES, "\n".join(["name,seconds", *lines, ""]))
        shutil.rmtree(self.work, ignore_errors=True)


def mean_rate(times: np.ndarray) -> float:
    """Frames per second."""
    span = float(times[-1] - times[0]) if len(times) > 1 else 0.0
    return (len(times) - 1) / span if span > 0 else 30.0


def groups_of(frames: Iterator[VideoFrame], size: int) -> Iterator[list[VideoFrame]]:
    """Consecutive frames whose positions share a multiple of `size`: the same groups wherever reading begins."""
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
