"""Predictor: pictures in, numpy maps out. Device, precision and gradient mode are chosen here and nowhere deeper."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Literal, overload

import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from torch import Tensor, nn

from densevit.errors import ConfigError, DataError
from densevit.inference.backends.onednn import prepack_linears
from densevit.inference.backends.onnx_runtimes import (
    RUNTIMES,
    ExternalRuntimeModule,
    RuntimeName,
    resolve_device_and_precision,
)
from densevit.inference.camera import Focal, camera_for, zoomed
from densevit.inference.forward import checked_box, forward
from densevit.inference.images import Picture, Rgb, are_several, as_rgb
from densevit.inference.tiling import Tiling, demand_depth, paste, predict_tiled, together
from densevit.inference.tta import checked_scales
from densevit.model_card import Kind, ModelCard
from densevit.structures import IGNORE, Box
from densevit.utils.precision import autocast
from densevit.weights import hub as saving

Map = Float32[np.ndarray, "..."]
"""h w, or k h w from a head with k > 1 channels: metres from a metric head, no unit from affine and disparity heads.
k logits from a head that classifies the image, k h w logits from one that classifies its pixels."""


MEANINGS = {
    "metric": "metric depth",
    "affine": "depth up to scale and shift",
    "disparity": "disparity",
    "class": "classes of whole images",
    "labels": "classes of pixels",
}
"""What heads give, by kind."""


class Predictor:
    """A model with what it takes to use it.

    >>> predictor = densevit.load("runs/rooms/best")    # doctest: +SKIP
    >>> depth = predictor("photo.jpg")                  # doctest: +SKIP

    Attributes:
        card: what the weights mean.
        runtime: the program that computes.
        device: where the model runs.
        precision: "fp32", "bf16" or "fp16".
        focal: of the camera, where metres depend on it; may be set anew before each picture.
        tiling: how larger pictures are cut up; None looks at each as a whole.
    """

    def __init__(
        self,
        model: nn.Module,
        card: ModelCard,
        *,
        device: str | torch.device = "auto",
        precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto",
        flip: bool = False,
        scales: Sequence[float] = (1.0,),
        batch_size: int = 1,
        window: Callable[[int, int], Box | None] | None = None,
        focal: Focal | None = None,
        tiling: Tiling | int | None = None,
        compile: bool = False,
        runtime: RuntimeName = "torch",
    ) -> None:
        """Moves the model to the device and switches it to evaluation.

        Args:
            device: auto is CUDA, else MPS, else the CPU.
            precision: auto is bf16 where the device computes in it, else fp32; maps are float32 always.
            flip: average with the mirrored image's mirrored prediction; twice the time.
            scales: average over the picture seen so many times larger; with `flip` both ways at each.
            batch_size: neighbours of one size go through the model together, so many at most.
            window: height and width of a picture -> the part that the model sees, where no `box` is given.
            focal: of the camera, in pixels of its pictures; only models that cannot give metres without it ask for it.
            tiling: pictures with a longer side are seen in overlapping tiles (inference/tiled.py), of this side.
            compile: by torch.compile, at the first picture of each size; `densevit benchmark --compile` says what that
                takes and gives.
            runtime: `openvino` or `onnxruntime` compute on a CPU in place of torch, from the first picture of each
                size on (inference/runtime.py).

        Raises:
            ConfigError: no such device, number format or runtime, or not together.
            DataError: a batch size under 1.
        """
        if batch_size < 1:
            raise DataError(f"batch_size is {batch_size}; it is 1 or more.")
        self.runtime = runtime
        self.device, self.precision = resolve_device_and_precision(runtime, device, precision, compiled=compile)
        self.model = model.eval().to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.card = card
        self.flip, self.scales = flip, checked_scales(scales)
        self.logits = [name for name, spec in card.outputs.items() if spec.kind == "labels"]
        self.batch_size = batch_size
        self.window = window
        self.focal = focal
        self.tiling = Tiling(tiling) if isinstance(tiling, int) else tiling
        self.network: nn.Module = self.model
        if runtime != "torch":
            self.network = ExternalRuntimeModule(self.model, list(card.outputs), RUNTIMES[runtime], self.precision)
        elif compile:
            self.model.compile()
        elif self.device.type == "cpu":
            prepack_linears(self.model, self.precision)

    @overload  # a path in a `str` is an Iterable[Picture], too, but no typo: it is one picture
    def __call__(self, image: Picture, *, head: str | None = None, box: Box | None = None) -> Map: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, image: Iterable[Picture], *, head: str | None = None, box: Box | None = None) -> list[Map]: ...
    def __call__(self, image: object, *, head: str | None = None, box: Box | None = None) -> Map | list[Map]:
        """The map of one picture, or a list of maps for several; see `predict`."""
        if are_several(image):
            return self.predict(image, head=head, box=box)
        return self.predict([as_rgb(image)], head=head, box=box)[0]

    def predict(self, images: Iterable[Picture], *, head: str | None = None, box: Box | None = None) -> list[Map]:
        """The maps of several pictures, in their order, each at the size of its picture.

        Args:
            images: paths (EXIF orientation respected), uint8 arrays h w 3 in RGB, PIL images.
            head: which head, where the model has several.
            box: the model sees only this window of each picture; outside it maps are NaN.

        Raises:
            DataError: a picture cannot be read or is none, or no such head.
        """
        name = self.head(head)
        if self.tiling is not None:
            demand_depth({name: self.card.outputs[name].kind})
        return [answer[name] for answer in self.stream(map(as_rgb, images), box=box)]

    def predict_all(self, image: Picture, *, box: Box | None = None) -> dict[str, Map]:
        """The maps of every head for one picture."""
        return next(self.stream([as_rgb(image)], box=box))

    def stream(self, images: Iterable[Rgb], *, box: Box | None = None) -> Iterator[dict[str, Map]]:
        """Answers one by one, holding no more than a batch: neighbours of one size share it."""
        for _, neighbours in groupby(images, lambda image: image.shape):
            while batch := list(islice(neighbours, self.batch_size)):
                answers = self.run(as_batch(batch), box=box)
                yield from (self.taken_apart(answers, i) for i in range(len(batch)))

    def taken_apart(self, answers: Mapping[str, Map], index: int) -> dict[str, Map]:
        """What the heads said of one picture of a batch."""
        return {name: squeezed(values[index], self.card.outputs[name].kind) for name, values in answers.items()}

    @torch.inference_mode()
    def classes(self, image: Picture, head: str | None = None) -> Int64[np.ndarray, "h w"]:
        """The class of each pixel of one picture; IGNORE where the logits are not all finite.

        Args:
            head: which one, where several classify pixels.

        Raises:
            ConfigError: no head does, or several.
        """
        name = self.label_head(head, "classes")
        ids: Int64[np.ndarray, "b h w"] = classified(self.answers(as_rgb(image)[None])[name])
        return np.asarray(ids[0])

    def run(self, images: UInt8[np.ndarray, "b h w 3"], *, box: Box | None = None) -> dict[str, Map]:
        """One pass through the model, or tile by tile: b k h w per head."""
        if self.tiling is None or max(images.shape[1:3]) <= self.tiling.side:
            return as_arrays(self.answers(images, box=box))
        h, w = images.shape[1:3]
        y0, y1, x0, x1 = inside = checked_box(box or (self.window and self.window(h, w)) or (0, h, 0, w), (h, w))
        kinds = {name: spec.kind for name, spec in self.card.outputs.items()}
        found = [predict_tiled(self.look, image[y0:y1, x0:x1], kinds, self.tiling, self.batch_size) for image in images]
        for name, values in ((name, values) for maps in found for name, values in maps.items()):
            if (span := self.card.outputs[name].range) is not None:
                np.clip(values, *span, out=values)  # a tile that was put right by the whole may have left it
        return {name: together([paste(maps[name], inside, (h, w)) for maps in found]) for name in found[0]}

    def look(self, images: UInt8[np.ndarray, "b h w 3"], zoom: float = 1.0) -> dict[str, Map]:
        """One pass over whole pictures that were made smaller by `zoom`: the same, whatever `window` says."""
        return as_arrays(self.answers(images, box=(0, images.shape[1], 0, images.shape[2]), zoom=zoom))

    @torch.inference_mode()
    def answers(
        self, images: UInt8[np.ndarray, "b h w 3"], *, box: Box | None = None, zoom: float = 1.0
    ) -> dict[str, Float[Tensor, "b _ _ _"]]:
        """The same, on the device."""
        if box is None and self.window is not None:
            box = self.window(*images.shape[1:3])
        with autocast(self.precision, self.device):
            return forward(
                self.network,
                self.to_unit(images),
                self.card.resize,
                self.card.multiple,
                box=box,
                flip=self.flip,
                scales=self.scales,
                logits=self.logits,
                camera=camera_for(self.card.outputs, zoomed(self.focal, zoom)),
            )

    def head(self, name: str | None = None) -> str:
        """The head that is meant: the only one, `depth` among several, or the one that is named."""
        known = list(self.card.outputs)
        name = name or (known[0] if len(known) == 1 else "depth")
        if name not in known:
            raise DataError(f"this model has no head '{name}'. It has: {', '.join(known)}.")
        return name

    def head_for(self, kinds: Collection[str], wanted: Collection[str] = (), what: str = "this") -> str:
        """The head of one of these kinds: the only one, the one that is wanted, or `depth`.

        Raises:
            ConfigError: none or several, or no such head; `what` is who asks.
        """
        for name in wanted:
            if name not in self.card.outputs:
                raise ConfigError(f"{what}: this model has no head '{name}'. It has: {', '.join(self.card.outputs)}.")
        fitting = [name for name, spec in self.card.outputs.items() if spec.kind in kinds]
        meant = [name for name in fitting if name in wanted] or [name for name in fitting if name == "depth"] or fitting
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise ConfigError(f"{what}: several heads fit, {', '.join(meant)}; choose one by --head.")
        have = ", ".join(f"{name} gives {MEANINGS[spec.kind]}" for name, spec in self.card.outputs.items())
        needed = " or ".join(MEANINGS[kind] for kind in kinds)
        raise ConfigError(f"{what}: there is no map to write or score, for this needs {needed}; {have}.")

    def label_head(self, name: str | None, what: str) -> str:
        """The head that classifies pixels: the only one, or the one that is named.

        Raises:
            ConfigError: as `head_for`; or the named one gives something else.
        """
        head = self.head_for(("labels",), [name] if name else (), what)
        if name not in (None, head):
            given = MEANINGS[self.card.outputs[name].kind]
            raise ConfigError(f"{what}: head '{name}' gives {given}; classes of pixels come from '{head}'.")
        return head

    def save_pretrained(self, folder: str | Path) -> None:
        """Saves weights and card into a new folder that `densevit.load` reads.

        Raises:
            CheckpointError: something stands there.
        """
        saving.save_pretrained(Path(folder), self.model.state_dict(), self.card)

    def push_to_hub(self, repository: str, *, private: bool = False) -> str:
        """Saves to `owner/name` on the Hugging Face hub; returns the address that `densevit.load` takes.

        Raises:
            CheckpointError: out of reach, or refused.
        """
        return saving.push_to_hub(repository, self.model.state_dict(), self.card, private=private)

    def to_unit(self, images: UInt8[np.ndarray, "b h w 3"]) -> Float[Tensor, "b 3 h w"]:
        # Bytes cross to the device, not floats; the permuted view is channels-last, which convolutions like.
        return torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float().div_(255)


def classified(logits: Float[Tensor, "b k h w"]) -> Int64[np.ndarray, "b h w"]:
    return np.asarray(torch.where(logits.isfinite().all(1), logits.argmax(1), IGNORE).cpu())


def as_batch(images: Sequence[Rgb]) -> UInt8[np.ndarray, "b h w 3"]:
    """Pictures of one size together; a single one stays where it is, if torch may look at it there."""
    flags = images[0].flags
    return images[0][None] if len(images) == 1 and flags.c_contiguous and flags.writeable else np.stack(images)


def as_arrays(answers: Mapping[str, Float[Tensor, "b _ _ _"]]) -> dict[str, Map]:
    return {name: values.float().cpu().numpy() for name, values in answers.items()}


def squeezed(values: Float32[np.ndarray, "k h w"], kind: Kind) -> Map:
    """One map or row of numbers out of what a head of this kind says of a picture."""
    # np.array copies: a view would keep its whole batch alive.
    if len(values) == 1:
        alone = values.base is not None and values.base.size == values.size
        return values[0] if alone else np.array(values[0])
    return np.array(values[:, 0, 0] if kind == "class" else values)
