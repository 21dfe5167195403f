"""Predictor: images in, NumPy maps out. Device, precision and gradient mode are chosen here and nowhere deeper."""

import logging
import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor, nn

from densevit.data.io.exif import exif_focal, exif_fov
from densevit.data.io.rgb import ImageLike, Rgb, as_rgb, is_batch
from densevit.data.io.video import LiveCamera, Span, VideoFrame, open_video
from densevit.errors import ConfigError, DataError
from densevit.inference.backends import auto
from densevit.inference.backends.auto import AutoRuntimeModule
from densevit.inference.backends.onednn import prepack_linears
from densevit.inference.backends.onnx_runtimes import (
    RUNTIMES,
    ExternalRuntimeModule,
    RuntimeName,
    resolve_device_and_precision,
)
from densevit.inference.camera import Focal, as_camera, camera_input, check_focal, lens_warning
from densevit.inference.forward import Network, check_box, forward
from densevit.inference.tiling import Tiling, check_tileable, predict_tiled
from densevit.inference.tta import check_scales
from densevit.inference.video.stabilizer import Stabilizer, stabilize_stream
from densevit.inference.video.windows import ClipNetwork, ClipWindows
from densevit.model_card import HeadSpec, ModelCard
from densevit.ops.anchors import Anchors, anchors_as_map, as_anchors, fit_to_anchors
from densevit.ops.argmax import argmax_or_ignore
from densevit.ops.camera import Camera
from densevit.reporting.predicted_array import PredictedArray
from densevit.structures import Box, EncoderOutput
from densevit.utils import precision as precisions
from densevit.utils.precision import gpu_products
from densevit.weights import hub

log = logging.getLogger(__name__)

Map = Float32[np.ndarray, "..."]
"""h w, or k h w from a head with k > 1 channels: metres from a metric head, no unit from affine and disparity heads.
k logits from a head that classifies the image, k h w logits from one that classifies its pixels; 3 h w from a head of
surface normals: unit vectors in camera axes (right, down, forward), towards the camera."""


Points = Anchors | Float[np.ndarray, "..."]
"""Depth measured at some points of an image: `Anchors`, n 3 of u, v and metres, or h w of metres, 0 where none."""


TILED_POINTS = "tiling: a model with `model.prompt` sees measured points in whole images; leave tiling out."


class Photo(NamedTuple):
    """An image, and the focal length that its EXIF tells, in its pixels, where the model asks for it."""

    image: Rgb
    focal: float | None = None


@dataclass(frozen=True, eq=False)
class VideoDepth:
    """A frame of a video with its map.

    Attributes:
        index: its position among the frames that were asked for.
        time: seconds since the first frame of the file.
    """

    index: int
    time: float
    image: Rgb
    depth: Map


class Predictor:
    """A model, its preprocessing and its device: `predictor(image)` returns a map.

    >>> predictor = densevit.load("runs/rooms/best")    # doctest: +SKIP
    >>> depth = predictor("photo.jpg")                  # doctest: +SKIP

    Attributes:
        card: the heads, their units and the preprocessing.
        runtime: what computes: "torch", "openvino" or "onnxruntime"; "auto" until it is chosen.
        device: where the model runs.
        precision: "fp32", "tf32", "bf16" or "fp16".
        focal: of the camera, where metres depend on it; may be set anew before each image. None takes what the EXIF of
            a photo says, of images given as paths.
        tiling: how larger images are cut into tiles; None predicts each as a whole.
    """

    def __init__(
        self,
        model: nn.Module,
        card: ModelCard,
        *,
        device: str | torch.device = "auto",
        precision: Literal["auto", "fp32", "tf32", "bf16", "fp16"] = "auto",
        flip: bool = False,
        scales: Sequence[float] = (1.0,),
        batch_size: int = 1,
        window: Callable[[int, int], Box | None] | None = None,
        focal: Focal | None = None,
        tiling: Tiling | int | None = None,
        compile: bool = False,
        cast_weights: bool = False,
        runtime: RuntimeName = "torch",
    ) -> None:
        """Moves the model to the device and switches it to evaluation.

        Args:
            device: auto is CUDA, else MPS, else the CPU.
            precision: auto is bf16 where the device computes in it, else fp32 (on older GPUs fp16); tf32 multiplies
                fp32 numbers with 10 bits of mantissa, on GPUs. Maps are float32 always.
            flip: average with the mirrored image's mirrored prediction; twice the time.
            scales: average over the image at these sizes, relative to its own; with `flip` also mirrored at each.
            batch_size: consecutive images of one size go through the model together, so many at most.
            window: height and width of an image -> the part that the model sees, where no `box` is given.
            focal: of the camera, in pixels of its images: a number, two (along x and y), or fx, fy, cx, cy; only models
                whose metres depend on it ask for it. None takes what EXIF says, of photos given by their paths.
            tiling: images with a longer side are predicted in overlapping tiles of this side (inference/tiling.py).
            compile: by torch.compile, at the first image of each size; `densevit benchmark --compile` measures it.
            cast_weights: keeps the weights of linear and convolutional layers in `precision`, which halves their memory
                and changes no number; then the model cannot be saved. On a CPU they are kept so anyway.
            runtime: `openvino` or `onnxruntime` compute on a CPU in place of torch, from the first image of each size
                on (inference/backends/onnx_runtimes.py); `auto` takes one of them
                where it pays (inference/choose_runtime.py).

        Raises:
            ConfigError: no such device, number format or runtime, or not together.
            DataError: a batch size under 1.
        """
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}; it is 1 or more.")
        self.device, self.precision = resolve_device_and_precision(runtime, device, precision, compiled=compile)
        self.model = model.eval().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.card = card
        self.flip, self.scales = flip, check_scales(scales)
        self.batch_size = batch_size
        self.window = window
        self.focal = focal
        self.warned = False  # of a lens that training did not show
        self.tiling = Tiling(tiling) if isinstance(tiling, int) else tiling
        if cast_weights and self.device.type != "cpu":
            precisions.cast_weights(self.model, self.precision)
        self.cast_weights = cast_weights
        if compile:
            self.model.compile()
        self.compiled = compile
        self.use_runtime(runtime)

    def use_runtime(self, runtime: str) -> None:
        """Lets another runtime compute from here on; `auto` is torch where no other one is faster and installed."""
        heads = list(self.card.outputs)
        self.network: nn.Module = self.model
        if runtime == "auto":
            other = None if self.compiled else auto.candidate(self.device, self.precision)
            if other is not None:
                self.network = AutoRuntimeModule(self.model, heads, other, self.precision)
            else:
                runtime = "torch"
        elif runtime != "torch":
            self.network = ExternalRuntimeModule(self.model, heads, RUNTIMES[runtime], self.precision)
        self.runtime = runtime
        if runtime == "torch" and self.device.type == "cpu" and not self.compiled:
            prepack_linears(self.model, self.precision)

    def __repr__(self) -> str:
        heads = ", ".join(f"{name}: {spec.output_kind.meaning}" for name, spec in self.card.outputs.items())
        parts = [getattr(self.model, part, None) for part in ("encoder", "decoder")]
        model = " + ".join(type(part).__name__ for part in parts if part is not None) or type(self.model).__name__
        parameters = sum(p.numel() for p in self.model.parameters())
        size = f", {parameters / 1e6:.1f}M parameters" if parameters else ""  # an ONNX file has none
        runtime = "" if self.runtime == "torch" else f", runtime={self.runtime!r}"
        computed = f"device='{self.device}', precision={self.precision!r}{runtime}"
        return f"Predictor({model}{size}, heads={{{heads}}}, {computed})"

    @overload  # a path in a `str` is an Iterable[ImageLike], too, but no typo: it is one image
    def __call__(  # type: ignore[overload-overlap]
        self, image: ImageLike, *, head: str | None = None, box: Box | None = None, anchors: Points | None = None
    ) -> Map: ...
    @overload
    def __call__(self, image: Iterable[ImageLike], *, head: str | None = None, box: Box | None = None) -> list[Map]: ...
    def __call__(
        self, image: object, *, head: str | None = None, box: Box | None = None, anchors: Points | None = None
    ) -> Map | list[Map]:
        """The map of one image, or a list of maps for several; see `predict`.

        Args:
            anchors: depth measured at some points of one image: `Anchors`, an array n 3 of u, v (pixels, the centre of
                the first one is 0, 0) and metres, or a map h w of metres, 0 where none. A model with `model.prompt`
                takes them as an input; the map of another is fitted to them.
        """
        if anchors is not None:
            if is_batch(image):
                raise DataError("anchors are those of one image; give one image at a time.")
            return self.predict_anchored(image, anchors, head=head, box=box)
        if is_batch(image):
            return self.predict(image, head=head, box=box)
        return self.predict([self.read(image)], head=head, box=box)[0]

    def predict_anchored(
        self, image: object, anchors: Points, *, head: str | None = None, box: Box | None = None
    ) -> Map:
        """The map of one image in metres, from depth measured at some of its points; see `__call__`.

        Raises:
            DataError: points that are no numbers, lie outside of the image, or do not fit the map.
        """
        name, photo = self.card.head(head), self.read(image)
        spec = self.card.outputs[name]
        points = as_anchors(anchors, (photo.image.shape[0], photo.image.shape[1]))
        predictor = self.with_focal(photo.focal)
        given = anchors_as_map(points, photo.image.shape[:2])[None, None] if self.takes_points(name) else None
        values = predictor.unbatch(predictor.predict_arrays(stack([photo.image]), box=box, points=given), 0)[name]
        if given is None:
            values = fit_to_anchors(values, points, spec.kind).depth
        return PredictedArray(values, replace(spec, kind="metric", unit="m"))

    def takes_points(self, head: str) -> bool:
        """Whether measured points are an input of the network that this head's metres come from."""
        if not getattr(self.model, "takes_points", False):
            return False
        return self.card.outputs[head].kind == "metric" and head not in self.card.model.get("decoders", {})

    def predict(
        self, images: Iterable[ImageLike | Photo], *, head: str | None = None, box: Box | None = None
    ) -> list[Map]:
        """The maps of several images, in their order, each at the size of its image.

        Args:
            images: paths (EXIF orientation respected), uint8 arrays h w 3 in RGB, PIL images.
            head: which head, where the model has several.
            box: the model sees only this window of each image; outside it maps are NaN.

        Raises:
            DataError: an image cannot be read or is none, or no such head.
        """
        name = self.card.head(head)
        if self.tiling is not None:
            check_tileable({name: self.card.outputs[name].kind})
        spec = self.card.outputs[name]
        return [PredictedArray(maps[name], spec) for maps in self.stream_all(images, box=box)]

    def predict_all(self, image: ImageLike, *, box: Box | None = None) -> dict[str, Map]:
        """The maps of every head for one image."""
        maps = next(self.stream_all([image], box=box))
        return {name: PredictedArray(values, self.card.outputs[name]) for name, values in maps.items()}

    def stream(
        self,
        frames: Iterable[ImageLike],
        *,
        head: str | None = None,
        box: Box | None = None,
        stabilize: bool = False,
        lookahead: int = 0,
        fuse: bool = True,
    ) -> Iterator[Map]:
        """The map of one frame of a camera or video after another; the next frame is asked for when its map was taken.

        Args:
            frames: without end, too. With a batch size of 1, a map comes before the next frame is read.
            head: which one, where the model has several.
            stabilize: bring each map to the running scale of its neighbours (inference/video/stabilizer.py).
            lookahead: maps come so many frames late, and are stabilised by later frames, too. At 0 a model with motion
                blocks sees earlier frames only; else windows, whose maps come up to a window late.
            fuse: with `stabilize`, average static parts per pixel, too.

        Raises:
            DataError: a frame is no image, or no such head.
            ConfigError: the head to stabilise gives no depth.
        """
        name = self.card.head(head)
        photos: Iterator[Photo] = map(self.read, frames)
        if (first := next(photos, None)) is None:
            return
        film = self.for_film(first)
        photos = chain([first], photos)
        predicted = partial(film.stream_clips, causal=lookahead == 0) if self.takes_clips else film.stream_all
        if not stabilize:
            yield from (maps[name] for maps in predicted(photos, box=box))
            return
        shown: deque[Rgb] = deque()

        def kept() -> Iterator[Photo]:
            for photo in photos:
                shown.append(photo.image)
                yield photo

        maps = (maps[name] for maps in predicted(kept(), box=box))
        yield from stabilize_stream(
            ((shown.popleft(), values) for values in maps), film.stabilizer(name, lookahead=lookahead, fuse=fuse)
        )

    def video(
        self,
        path: str | Path,
        *,
        head: str | None = None,
        start: float = 0.0,
        end: float | None = None,
        every: int = 1,
        stabilize: bool = False,
        lookahead: int = 6,
        fuse: bool = True,
    ) -> Iterator[VideoDepth]:
        """The frames of a video with their times and maps, one after another, in memory that does not grow.

        Args:
            path: a video file, a folder of frames, or `camera:0`. Files need `densevit[video]`.
            start, end, every: seconds to begin and end at, and every how many frames.
            stabilize, lookahead, fuse: as of `stream`; a camera is never looked ahead of.

        Raises:
            DataError: it cannot be read.
        """
        source = open_video(path)
        shown: deque[VideoFrame] = deque()

        def images() -> Iterator[Rgb]:
            for frame in source.frames(Span(start, end, every)):
                shown.append(frame)
                yield frame.image

        ahead = 0 if isinstance(source, LiveCamera) else lookahead
        for depth in self.stream(images(), head=head, stabilize=stabilize, lookahead=ahead, fuse=fuse):
            frame = shown.popleft()
            yield VideoDepth(frame.index, frame.time, frame.image, depth)

    def stabilizer(self, head: str | None = None, **options: Any) -> Stabilizer:
        """A stabiliser for maps of a head; options as of `Stabilizer`."""
        spec = self.card.outputs[self.card.head(head)]
        focal = self.focal[0] if isinstance(self.focal, Sequence) else self.focal
        future = options.pop("lookahead", 0)
        return Stabilizer(spec.kind, future=future, focal=focal, limits=spec.range, **options)

    def stream_all(self, images: Iterable[ImageLike | Photo], *, box: Box | None = None) -> Iterator[dict[str, Map]]:
        """The maps of one image after another, in memory no more than a batch of consecutive images of one size."""
        for (_, focal), alike in groupby(map(self.read, images), lambda photo: (photo.image.shape, photo.focal)):
            while batch := [photo.image for photo in islice(alike, self.batch_size)]:
                maps = self.with_focal(focal).predict_arrays(stack(batch), box=box)
                yield from (self.unbatch(maps, i) for i in range(len(batch)))

    def read(self, image: object) -> Photo:
        """Reads an image given in any way, and where `focal` is not set and would count, the focal length in its EXIF.

        Warns once of a lens that the training of a metric model did not show and that the model cannot know of.

        Raises:
            DataError: it cannot be read or is none, or the model needs its EXIF, which cannot be true of it.
        """
        if isinstance(image, Photo):
            return image
        photo = Photo(as_rgb(image))
        if self.focal is not None or not isinstance(image, (str, os.PathLike)):
            return photo
        if self.card.needs_camera:
            return photo._replace(focal=exif_focal(image))
        if self.card.fov is not None and not self.warned and (angle := exif_fov(image)) is not None:
            warning = lens_warning([angle], self.card)
            self.warned = bool(warning)
            if warning:
                log.warning("%s: %s", image, warning)
        return photo

    def for_film(self, first: Photo) -> "Predictor":
        """This predictor for a film that begins with this frame: where it estimates focal lengths, one for all."""
        known = self.focal is not None or first.focal is not None
        if known or not self.card.needs_camera or self.card.focal_head is None:
            return self
        return self.with_focal(self.estimate_focal(first.image))

    def with_focal(self, focal: float | None) -> "Predictor":
        """This predictor for images of a focal length, in pixels; None changes nothing."""
        if focal is None:
            return self
        other = copy(self)
        other.focal = focal
        return other

    @property
    def takes_clips(self) -> bool:
        """Whether frames of a film are predicted from those around them, too, by motion blocks."""
        return bool(getattr(self.model, "takes_clips", False))

    def stream_clips(
        self, images: Iterable[ImageLike | Photo], *, causal: bool = False, box: Box | None = None
    ) -> Iterator[dict[str, Map]]:
        """The maps of one frame of a film after another, by a model with motion blocks; see `ClipWindows`.

        Raises:
            ConfigError: with tiles, sliding windows, flip, several scales, or a runtime other than torch.
        """
        windows: ClipWindows | None = None
        for photo in map(self.read, images):
            if windows is None:  # a film has one camera
                windows = self.with_focal(photo.focal).clip_windows(causal=causal, box=box)
            yield from windows.push(photo.image)
        if windows is not None:
            yield from windows.flush()

    def clip_windows(self, *, causal: bool = False, box: Box | None = None) -> ClipWindows:
        """What predicts the frames of a film; for models with motion blocks.

        Raises:
            ConfigError: as `stream_clips`.
        """
        given = {
            "tiling": self.tiling is not None, "flip": self.flip or self.card.resize.flip,
            "scales": tuple(self.scales) != (1.0,), f"runtime {self.runtime}": self.runtime != "torch",
            "sliding windows": self.card.resize.window is not None,
        }  # fmt: skip
        if used := [name for name, is_used in given.items() if is_used]:
            raise ConfigError(f"{', '.join(used)}: for single images; a model with motion blocks sees films without.")
        kinds = {name: spec.kind for name, spec in self.card.outputs.items()}
        return ClipWindows(
            partial(self.predict_clip, box=box), self.card.model["temporal"]["frames"], kinds, causal=causal
        )

    def predict_clip(
        self, frames: Sequence[Rgb], known: Sequence[EncoderOutput], *, box: Box | None = None
    ) -> tuple[list[dict[str, Map]], list[EncoderOutput]]:
        """The frames of a clip, and the features of the first of them -> their maps, and the features of the others."""
        network = ClipNetwork(self.model, known)
        maps = as_arrays(self.predict_batch(stack(frames), box=box, network=network))
        return [self.unbatch(maps, i) for i in range(len(frames))], network.new

    def unbatch(self, maps: Mapping[str, Map], index: int) -> dict[str, Map]:
        """The maps of one image of a batch."""
        return {name: squeeze(values[index], self.card.outputs[name]) for name, values in maps.items()}

    @torch.inference_mode()
    def classes(self, image: ImageLike, head: str | None = None) -> Int64[np.ndarray, "h w"]:
        """The class of each pixel of one image; IGNORE where the logits are not all finite.

        Args:
            head: which one, where several classify pixels.

        Raises:
            ConfigError: no head does, or several.
        """
        name = self.card.label_head(head, "classes")
        photo = self.read(image)
        logits = self.with_focal(photo.focal).predict_batch(photo.image[None])[name]
        ids = argmax_or_ignore(logits)[0].cpu().numpy()
        return PredictedArray(ids, self.card.outputs[name])

    def predict_arrays(
        self,
        images: UInt8[np.ndarray, "b h w 3"],
        *,
        box: Box | None = None,
        points: Float32[np.ndarray, "b 1 h w"] | None = None,
    ) -> dict[str, Map]:
        """One pass through the model, or tile by tile: b k h w per head.

        Args:
            points: measured metres, 0 where none, for a model with `model.prompt`.

        Raises:
            ConfigError: points, of an image that is cut into tiles.
        """
        if self.tiling is None or max(images.shape[1:3]) <= self.tiling.side:
            return as_arrays(self.predict_batch(images, box=box, points=points))
        if points is not None:
            raise ConfigError(TILED_POINTS)
        tiled = [self.predict_tiled(image, self.tiling, box) for image in images]
        # Of a single image a view, for it may be large.
        return {
            name: tiled[0][name][None, None] if len(tiled) == 1 else np.stack([maps[name] for maps in tiled])[:, None]
            for name in tiled[0]
        }

    def predict_tiled(self, image: Rgb, tiling: Tiling, box: Box | None) -> dict[str, Float32[np.ndarray, "h w"]]:
        """The maps of one image, tile by tile; NaN outside the box."""
        h, w = image.shape[:2]
        y0, y1, x0, x1 = check_box(box or (self.window and self.window(h, w)) or (0, h, 0, w), (h, w))
        kinds = {name: spec.kind for name, spec in self.card.outputs.items()}
        camera = self.camera_of(image[None])
        part = None if camera is None else camera.cropped(y0, x0)
        maps = predict_tiled(self.predict_whole, image[y0:y1, x0:x1], kinds, tiling, self.batch_size, part)
        for name, values in maps.items():
            if (limits := self.card.outputs[name].metres) is not None:
                np.clip(values, *limits, out=values)  # alignment may have moved values out of the head's range
            if values.shape != (h, w):
                maps[name] = np.pad(values, ((y0, h - y1), (x0, w - x1)), constant_values=np.nan)
        return maps

    def predict_whole(self, images: UInt8[np.ndarray, "b h w 3"], camera: Camera | None = None) -> dict[str, Map]:
        """One pass over whole images, whatever `window` is."""
        whole = (0, images.shape[1], 0, images.shape[2])
        return as_arrays(self.predict_batch(images, box=whole, camera=camera))

    @torch.inference_mode()
    def predict_batch(
        self,
        images: UInt8[np.ndarray, "b h w 3"],
        *,
        box: Box | None = None,
        camera: Camera | None = None,
        network: Network | None = None,
        points: Float32[np.ndarray, "b 1 h w"] | None = None,
    ) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """One pass through the model: b k h w per head, on the device.

        Args:
            camera: of these images; by default as `focal` says.
            network: in place of the model.
            points: measured metres, 0 where none. torch computes then, whatever the runtime.
        """
        if points is not None:
            network = network or self.model
        if box is None and self.window is not None:
            box = self.window(*images.shape[1:3])
        if camera is None:
            camera = self.camera_of(images)
        with gpu_products(tf32=self.precision == "tf32"):
            return forward(
                network or self.network,
                self.to_tensor(images),
                self.card.resize,
                self.card.multiple,
                precision=self.precision,
                box=box,
                flip=self.flip,
                scales=self.scales,
                heads=self.card.outputs,
                points=None if points is None else torch.from_numpy(points).to(self.device),
                camera=None if camera is None else camera_input(self.card, Camera(camera.values.to(self.device))),
            )

    def camera_of(self, images: UInt8[np.ndarray, "b h w 3"]) -> Camera | None:
        """The camera of images of full size; None for a model that needs none.

        Raises:
            DataError: the model needs one, and `focal` is not set, or not above 0.
        """
        if not self.card.needs_camera:
            return None
        check_focal(self.card, self.focal)
        size = (images.shape[1], images.shape[2])
        if self.focal is None:
            return Camera.centred(torch.tensor(self.estimate_focals(images)), size)
        return as_camera(self.focal, size, len(images))

    def estimate_focal(self, image: ImageLike) -> float:
        """The focal length in pixels of an image, as the model's head for it estimates; whatever `focal` or EXIF say.

        Raises:
            ConfigError: the model has no such head.
        """
        return self.estimate_focals(as_rgb(image)[None])[0]

    def estimate_focals(self, images: UInt8[np.ndarray, "b h w 3"]) -> list[float]:
        """Of images of one size; see `estimate_focal`."""
        if self.card.focal_head is None:
            raise ConfigError("this model has no head that estimates the focal length (`type: focal`).")
        h, w = images.shape[1:3]
        _, _, x0, x1 = (self.window and self.window(h, w)) or (0, h, 0, w)
        unknown = Camera(torch.full((len(images), 4), math.nan))
        ratios = self.predict_batch(images, camera=unknown)[self.card.focal_head]
        return [float(ratio) * (x1 - x0) for ratio in ratios.flatten()]

    def save_pretrained(self, folder: str | Path) -> None:
        """Saves weights and card into a new folder that `densevit.load` reads.

        Raises:
            CheckpointError: something stands there.
        """
        self.check_savable()
        hub.save_pretrained(Path(folder), self.model.state_dict(), self.card)

    def push_to_hub(self, repository: str, *, private: bool = False) -> str:
        """Saves to `owner/name` on the Hugging Face hub; returns the address that `densevit.load` takes.

        Raises:
            CheckpointError: out of reach, or refused.
        """
        self.check_savable()
        return hub.push_to_hub(repository, self.model.state_dict(), self.card, private=private)

    def check_savable(self) -> None:
        """
        Raises:
            ConfigError: its weights are not those of a checkpoint.
        """
        if self.cast_weights:
            raise ConfigError("cast_weights: these weights have lost digits; load the checkpoint without, to save it.")
        if not any(True for _ in self.model.parameters()):
            raise ConfigError("an ONNX file has no weights to save; take the checkpoint that it was made from.")

    def to_tensor(self, images: UInt8[np.ndarray, "b h w 3"]) -> Float[Tensor, "b 3 h w"]:
        # Bytes cross to the device, not floats; the permuted view is channels-last, which convolutions like.
        return torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float().div_(255)


def stack(images: Sequence[Rgb]) -> UInt8[np.ndarray, "b h w 3"]:
    """A batch of images of one size; a single one is not copied where torch takes its memory as it is."""
    flags = images[0].flags
    return images[0][None] if len(images) == 1 and flags.c_contiguous and flags.writeable else np.stack(images)


def as_arrays(outputs: Mapping[str, Float[Tensor, "b _ _ _"]]) -> dict[str, Map]:
    return {name: y.float().cpu().numpy() for name, y in outputs.items()}


def squeeze(values: Float32[np.ndarray, "k h w"], spec: HeadSpec) -> Map:
    """The output of a head for one image without axes of length 1: h w, k h w, or k for the whole image."""
    # np.array copies: a view would keep its whole batch in memory.
    if len(values) == 1:
        alone = values.base is not None and values.base.size == values.size
        return values[0] if alone else np.array(values[0])
    return np.array(values[:, 0, 0] if spec.output_kind.image_level else values)
