"""Predictor: images in, NumPy maps out. Device, precision and gradient mode are chosen here and nowhere deeper."""

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn

from densevit.data.io.readers import ImageLike, as_rgb, is_batch, stack
from densevit.errors import ConfigError, DataError
from densevit.inference.backends import auto
from densevit.inference.backends.onnx_runtimes import RuntimeName
from densevit.inference.camera import CameraNumbers, CameraPolicy, Lens
from densevit.inference.forward import Network, check_box, forward
from densevit.inference.image_input import ImageInput, Map, batches_of
from densevit.inference.tiling import Tiling, check_tileable, predict_images
from densevit.model_card import HeadSpec, ModelCard
from densevit.model_inputs import NO_INPUTS, ModelInputs, check_tileable_inputs
from densevit.output_kinds import argmax_or_ignore
from densevit.reporting.figures import PredictedArray
from densevit.structures import Box
from densevit.utils.device import Pending, download, gpu_products, read_pending, upload
from densevit.utils.device import cast_weights as cast_in_place
from densevit.weights import hub

MAX_SCALE = 8
CHANGEABLE = ("card", "flip", "scales", "batch_size", "window", "camera", "assumed_fov", "tiling", "runtime")


class Predictor:
    """A model, its preprocessing and its device: `predictor(image)` returns a map.

    A predictor never changes, so threads can share one; `with_options` makes another one on the same model.

    >>> predictor = densevit.load("runs/rooms/best")    # doctest: +SKIP
    >>> depth = predictor("photo.jpg")                  # doctest: +SKIP

    Attributes:
        card: the heads, their units and the preprocessing.
        runtime: what computes: "torch", "openvino", "onnxruntime" or "cuda_graphs"; "auto" until it is chosen.
        cameras: where the focal length of an image comes from, for models whose metres depend on it.
    """

    flip: bool
    scales: tuple[float, ...]
    batch_size: int
    tiling: Tiling | None

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
        camera: CameraNumbers | Lens | None = None,
        tiling: Tiling | int | None = None,
        compile: bool = False,
        cast_weights: bool = False,
        runtime: RuntimeName = "torch",
    ) -> None:
        """Move the model to the device and switch it to evaluation. Options without a line here are those of
        `densevit.load`. Raises ConfigError for a device, number format or runtime that does not exist or does not fit,
        DataError for a batch size under 1.

        Args:
            window: height and width of an image -> the part that the model sees, where no `box` is given.
            camera: `focal` of `densevit.load`; None takes what EXIF says, of photos given by their paths.
            tiling: how larger images are cut into tiles; a number is their side (inference/tiling.py).
        """
        self.device, self.precision = auto.resolve_device_and_precision(runtime, device, precision, compiled=compile)
        self.model = model.eval().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.card = card
        self.cameras = CameraPolicy(card, camera)
        vars(self).update(checked({"flip": flip, "scales": scales, "batch_size": batch_size, "tiling": tiling}))
        self.window = window
        if cast_weights and self.device.type != "cpu":
            cast_in_place(self.model, self.precision)
        self.cast_weights = cast_weights
        if compile:
            self.model.compile(dynamic=False)  # as in training
        self.compiled = compile
        self.network, self.runtime = self.network_for(runtime)

    def __setattr__(self, name: str, value: object) -> None:
        if "runtime" in vars(self):  # which `__init__` sets last
            raise AttributeError(
                f"{name}: a Predictor does not change, since threads may share it. predictor.with_options(flip=True, "
                "camera=2900) gives another one on the same model."
            )
        super().__setattr__(name, value)

    def with_options(self, **options: Any) -> "Predictor":
        """Return a predictor on the same model with some options changed.

        Args:
            options: card, flip, scales, batch_size, window, camera, tiling or runtime, as in `__init__`; assumed_fov,
                as in `CameraPolicy`.

        Raises:
            TypeError: another option.
            ConfigError: a runtime that does not exist or does not fit.
        """
        if unknown := options.keys() - CHANGEABLE:
            raise TypeError(f"{', '.join(sorted(unknown))}: options that change are {', '.join(CHANGEABLE)}.")
        options = checked(options)
        if (runtime := options.get("runtime")) is not None:
            auto.resolve_device_and_precision(runtime, self.device, self.precision, compiled=self.compiled)
            options["network"], options["runtime"] = self.network_for(runtime)
        other = copy(self)
        cameras = replace(
            self.cameras,
            card=options.get("card", self.card),
            override=options.pop("camera", self.cameras.override),
            assumed_fov=options.pop("assumed_fov", self.cameras.assumed_fov),
        )
        vars(other).update(options, cameras=cameras)
        return other

    def network_for(self, runtime: str) -> tuple[nn.Module, str]:
        """Return the model as a runtime computes it, and the name of the runtime: `auto` may be torch."""
        heads = list(self.card.outputs)
        return auto.network_for(self.model, heads, runtime, self.device, self.precision, compiled=self.compiled)

    def __repr__(self) -> str:
        heads = ", ".join(f"{name}: {spec.output_kind.meaning}" for name, spec in self.card.outputs.items())
        modules = [getattr(self.model, name, None) for name in ("encoder", "decoder")]
        model = " + ".join(type(m).__name__ for m in modules if m is not None) or type(self.model).__name__
        parameters = sum(p.numel() for p in self.model.parameters())
        size = f", {parameters / 1e6:.1f}M parameters" if parameters else ""  # an ONNX file has none
        runtime = "" if self.runtime == "torch" else f", runtime={self.runtime!r}"
        coarse = " (8 bits of mantissa; 'fp32' to compare)" if self.precision == "bf16" else ""
        computed = f"device='{self.device}', precision={self.precision!r}{coarse}{runtime}"
        return f"Predictor({model}{size}, heads={{{heads}}}, {computed})"

    @overload  # a path in a `str` is an Iterable[ImageLike], too, but no typo: it is one image
    def __call__(  # type: ignore[overload-overlap]
        self, image: ImageLike | ImageInput, *, head: str | None = None, box: Box | None = None, **known: Any
    ) -> Map: ...
    @overload
    def __call__(
        self, image: Iterable[ImageLike | ImageInput], *, head: str | None = None, box: Box | None = None
    ) -> list[Map]: ...
    def __call__(self, image: object, *, head: str | None = None, box: Box | None = None, **known: Any) -> Any:
        """Return the map of one image, or a list of maps for several; see `predict`.

        Args:
            known: of one image, fields of `ImageInput`: its camera, say.
        """
        names = [field.name for field in fields(ImageInput)][1:]
        if unknown := known.keys() - names:
            raise TypeError(f"{', '.join(sorted(unknown))}: what a call knows of an image is {', '.join(names)}.")
        if not is_batch(image):
            return self.predict([replace(self.read(image), **known)], head=head, box=box)[0]
        if known:
            raise DataError(f"{', '.join(known)}: of one image; give one at a time, or several `ImageInput`.")
        return self.predict(image, head=head, box=box)

    def predict(
        self, images: Iterable[ImageLike | ImageInput], *, head: str | None = None, box: Box | None = None
    ) -> list[Any]:
        """Return the predictions for several images, in their order: maps at the size of the image, or what its kind
        makes.

        Args:
            images: paths (EXIF orientation respected), uint8 arrays h w 3 in RGB, PIL images.
            head: which head, where the model has several.
            box: the model sees only this window of each image; outside it maps are NaN.

        Raises:
            DataError: an image cannot be read or is none, or no such head.
        """
        name = self.card.head(head)
        self.check_tileable([name])
        return [maps[name] for maps in self.stream_all(images, box=box, heads=[name], ahead=True)]

    def check_tileable(self, heads: Iterable[str]) -> None:
        """Raise ConfigError if there are tiles, and one of these heads is not for depth."""
        if self.tiling is not None:
            check_tileable({head: self.card.outputs[head].kind for head in heads})

    def predict_all(self, image: ImageLike | ImageInput, *, box: Box | None = None) -> dict[str, Any]:
        """Return the maps of every head for one image."""
        return next(self.stream_all([image], box=box))

    def stream_all(
        self,
        images: Iterable[ImageLike | ImageInput],
        *,
        box: Box | None = None,
        heads: Collection[str] | None = None,
        ahead: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield the maps of one image after another, in memory no more than a batch of consecutive images of one size.

        Args:
            heads: None: all.
            ahead: on a GPU, start the next batch before the maps of one are read.
        """
        started = (
            (self.start(stack([x.image for x in batch]), box=box, camera=batch[0].camera, inputs=inputs), batch)
            for batch, inputs in batches_of(map(self.read, images), self.batch_size)
        )
        for maps, batch in read_pending(started, ahead=ahead):
            for i, image in enumerate(batch):
                outputs = self.unbatch(maps, i)
                yield {name: image.finish(name, outputs, self.model, self.card) for name in heads or outputs}

    def read(self, image: object) -> ImageInput:
        """Read an image given in any way, and of a file the focal length that `cameras` finds. Raises DataError if it
        cannot be read or is none, or if the model needs its EXIF, which cannot be true of it."""
        if isinstance(image, ImageInput):
            return replace(image, image=as_rgb(image.image)).prepare(self.model, self.card)
        pixels = as_rgb(image)
        return ImageInput(pixels, self.cameras.of_file(image) if isinstance(image, (str, os.PathLike)) else None)

    def unbatch(self, maps: Mapping[str, Map], index: int) -> dict[str, Map]:
        """Return the maps of one image of a batch."""
        return {name: squeeze(values[index], self.card.outputs[name]) for name, values in maps.items()}

    @torch.inference_mode()
    def classes(self, image: ImageLike | ImageInput, head: str | None = None) -> Int64[np.ndarray, "h w"]:
        """Return the class of each pixel of one image; IGNORE where the logits are not all finite. Raises ConfigError
        if no head classifies pixels, or several do and `head` names none; and for tiles."""
        name = self.card.label_head(head, "classes")
        self.check_tileable([name])
        image = self.read(image)
        images = stack([image.image])
        logits = self.predict_batch(images, inputs=self.with_cameras(images, image.inputs, image.camera))[name]
        return PredictedArray(argmax_or_ignore(logits)[0].cpu().numpy(), self.card.outputs[name])

    def start(
        self,
        images: UInt8[np.ndarray, "b h w 3"],
        *,
        box: Box | None = None,
        camera: CameraNumbers | None = None,
        inputs: ModelInputs = NO_INPUTS,
    ) -> Pending:
        """Queue one pass through the model, or predict tile by tile: `read` of what is returned gives b k h w per head.
        Raises ConfigError for an input that is not for tiles, with images that are cut into them.

        Args:
            camera: of all these images; None leaves it to `cameras`.
            inputs: further ones of the model, for these images.
        """
        h, w = images.shape[1:3]
        if self.tiling is None or max(h, w) <= self.tiling.side:
            return download(self.predict_batch(images, box=box, inputs=self.with_cameras(images, inputs, camera)))
        check_tileable_inputs(inputs)
        inputs = self.with_cameras(images, inputs, camera)
        box = check_box(box or (self.window and self.window(h, w)) or (0, h, 0, w), (h, w))
        one = self.with_options(window=None)  # shows the model whole tiles

        def predict(tiles: UInt8[np.ndarray, "b h w 3"], inputs: ModelInputs) -> dict[str, Map]:
            return download(one.predict_batch(tiles, inputs=inputs)).read()

        maps = predict_images(predict, images, box, self.card.outputs, self.tiling, self.batch_size, inputs)
        return Pending(lambda: maps)

    @torch.inference_mode()
    def predict_batch(
        self,
        images: UInt8[np.ndarray, "b h w 3"],
        *,
        box: Box | None = None,
        inputs: ModelInputs = NO_INPUTS,
        network: Network | None = None,
    ) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """Return one pass through the model: b k h w per head, on the device.

        Args:
            inputs: of these images; where the camera is not among them, it is left to `cameras`.
            network: in place of the model.
        """
        if inputs.keys() - {"camera"}:  # torch computes then, whatever the runtime
            network = network or self.model
        if box is None and self.window is not None:
            box = self.window(*images.shape[1:3])
        inputs = self.with_cameras(images, inputs)
        with gpu_products(tf32=self.precision == "tf32"):
            return forward(
                network or self.network,
                self.to_tensor(images),
                self.card.resize,
                self.card.multiple,
                {name: upload(x, self.device) for name, x in inputs.items()},
                device=self.device,
                precision=self.precision,
                box=box,
                flip=self.flip,
                scales=self.scales,
                heads=self.card.outputs,
            )

    def with_cameras(
        self, images: UInt8[np.ndarray, "b h w 3"], inputs: ModelInputs, numbers: CameraNumbers | None = None
    ) -> ModelInputs:
        """Return the inputs with the cameras of the images, where predictions depend on them; see `CameraPolicy`."""
        if "camera" in inputs or not self.card.needs_camera:
            return inputs
        camera = self.cameras.of_batch(numbers, images.shape[:3], partial(self.estimate_cameras, images))
        return {**inputs, "camera": camera.values}

    def estimate_camera(self, image: ImageLike) -> float:
        """Return the focal length in pixels of an image, as the model's head for it estimates; whatever `cameras` say.
        Raises ConfigError if the model has no such head."""
        return self.estimate_cameras(stack([as_rgb(image)]))[0]

    def estimate_cameras(self, images: UInt8[np.ndarray, "b h w 3"]) -> list[float]:
        """Estimate the cameras of images of one size; see `estimate_camera`."""
        if self.card.camera_head is None:
            raise ConfigError("this model has no head that estimates the camera.")
        h, w = images.shape[1:3]
        _, _, x0, x1 = (self.window and self.window(h, w)) or (0, h, 0, w)
        unknown = {"camera": torch.full((len(images), 4), math.nan)}
        ratios = self.predict_batch(images, inputs=unknown)[self.card.camera_head]
        return [ratio * (x1 - x0) for ratio in ratios.flatten().tolist()]

    def to_tensor(self, images: UInt8[np.ndarray, "b h w 3"]) -> Float[Tensor, "b 3 h w"]:
        """Move images to the device, but for those that the CPU resizes as bytes."""
        # Bytes cross to the device, not floats; the permuted view is channels-last, which convolutions like.
        there = torch.device("cpu") if self.card.resize.round_to_uint8 else self.device
        return upload(torch.from_numpy(images), there).permute(0, 3, 1, 2).float().div_(255)

    def save_pretrained(self, folder: str | Path) -> None:
        """Save weights and card into a new folder that `densevit.load` reads; one that exists is a CheckpointError."""
        self.check_savable()
        hub.save_pretrained(Path(folder), self.model.state_dict(), self.card)

    def push_to_hub(self, repository: str, *, private: bool = False) -> str:
        """Save to `owner/name` on the Hugging Face hub; return the address that `densevit.load` takes. Raises
        CheckpointError if the hub is unreachable or refuses."""
        self.check_savable()
        return hub.push_to_hub(repository, self.model.state_dict(), self.card, private=private)

    def check_savable(self) -> None:
        """Raise ConfigError if the weights are not those of a checkpoint."""
        if self.cast_weights:
            raise ConfigError("cast_weights: these weights have lost digits; load the checkpoint without, to save it.")
        if not any(True for _ in self.model.parameters()):
            raise ConfigError("an ONNX file has no weights to save; take the checkpoint that it was made from.")


def checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a `Predictor` as it keeps them. Raises DataError: one of these cannot be so."""
    options = dict(options)
    if (flip := options.get("flip", False)) not in (True, False, None):
        raise DataError(f"flip is {flip!r}; it is True or False.")
    if "flip" in options:
        options["flip"] = bool(flip)  # one of NumPy, say
    if not isinstance(count := options.get("batch_size", 1), Integral) or count < 1:
        raise DataError(f"batch_size is {count!r}; it is a whole number, 1 or more.")
    if "scales" in options:
        given = options["scales"]
        zooms: tuple[float, ...] = tuple(given) if isinstance(given, Iterable) else ()
        if not zooms or not all(isinstance(scale, Real) and 0 < scale <= MAX_SCALE for scale in zooms):
            raise DataError(f"scales are {given}; they are one or more numbers over 0 and up to {MAX_SCALE}.")
        options["scales"] = tuple(map(float, zooms))
    if not isinstance(options.get("tiling"), Tiling | None):
        options["tiling"] = Tiling(options["tiling"])
    return options


def squeeze(values: Map, spec: HeadSpec) -> Map:
    """Return the output for one image, k h w, without axes of length 1: h w, k h w, or k for the whole image. It is a
    copy, because a view would keep its whole batch in memory."""
    if len(values) == 1:
        fills_base = values.base is not None and values.base.size == values.size
        only: Map = values[0]
        return only if fills_base else only.copy()
    return values[:, 0, 0].copy() if spec.output_kind.image_level else values.copy()
