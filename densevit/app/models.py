"""The checkpoints of a page: what each predicts for an image, its point cloud, and its attention. h x w pixels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import UInt8

from densevit.app.inputs import GivenImage
from densevit.errors import ConfigError
from densevit.inference.attention import compute_attention, overlay_on
from densevit.inference.camera import focal_of_matrix
from densevit.inference.image_input import ImageInput
from densevit.inference.predictor import Predictor
from densevit.inference.writers import PredictedMap
from densevit.inference.writers.labels import classes_of
from densevit.inference.writers.surface import Viewer
from densevit.model_card import HeadSpec
from densevit.ops.segments import PanopticPrediction, SegmentPrediction, exclusive
from densevit.output_kinds import DEPTH_KINDS
from densevit.weights.describe import in_brief

ASSUMED_DEPTH = (1.0, 3.0)  # metres of the near and far end of maps without unit, until the visitor changes them
ATTENTION_SIDE = 768  # pixels


@dataclass(frozen=True)
class ViewOptions:
    """What the visitor chose.

    Attributes:
        head: which map; a model without it shows its own first one.
        limits: the ends of the colours; None are percentiles.
        fov: horizontal field of view in degrees; None is that of EXIF, or an assumption.
        assume_depth: metres of the ends of maps without unit, in point clouds and meshes.
    """

    head: str = ""
    cmap: str = "turbo"
    limits: tuple[float | None, float | None] = (None, None)
    fov: float | None = None
    assume_depth: tuple[float, float] = ASSUMED_DEPTH
    stabilize: bool = False


class ShownAttention(NamedTuple):
    """
    Attributes:
        pixels: the image in grey under the colours of the attention.
        layers, heads: how many there are to choose from.
    """

    pixels: UInt8[np.ndarray, "_ _ 3"]
    caption: str
    layers: int
    heads: int


@dataclass(frozen=True, eq=False)
class AppModel:
    """A checkpoint with its name on the page."""

    name: str
    predictor: Predictor

    @property
    def heads(self) -> dict[str, HeadSpec]:
        return {name: spec for name, spec in self.predictor.card.outputs.items() if not spec.output_kind.auxiliary}

    def about(self) -> tuple[str, str]:
        """Return what the model is: in one line its name, data and first limitation; then the rest."""
        card = self.predictor.card
        heads = ", ".join(spec.output_kind.meaning for spec in self.heads.values())
        parameters = sum(p.numel() for p in self.predictor.model.parameters())
        size = f", {parameters / 1e6:.1f} million parameters" if parameters else ""
        data, limitation, details = in_brief(card)
        line = f"{self.name}: trained on {data or 'unknown data'}. {limitation}".rstrip()
        return line, f"Predicts {heads}{size}; {card.source}; licence: {card.licence}. {details}".rstrip()

    def head(self, wanted: str, kinds: Sequence[str] = ()) -> str | None:
        """Return the wanted head, else `depth`, else the first; of these kinds, if any are given."""
        fitting = [name for name, spec in self.heads.items() if not kinds or spec.kind in kinds]
        return next((name for name in (wanted, "depth", *fitting) if name in fitting), None)

    def predict(self, given: GivenImage, fov: float | None) -> dict[str, Any]:
        """Return the maps of all heads; of classes of pixels their ids, h w, instead of logits, and of segments a
        `PanopticPrediction`."""
        camera = None
        if self.predictor.card.needs_camera:
            lens, _ = given.lens(self.predictor, fov)
            camera = focal_of_matrix(lens.matrix(given.image.shape[:2]))
        maps = self.predictor.predict_all(ImageInput(given.image, camera))
        return {name: self.reduced(name, values, given) for name, values in maps.items()}

    def reduced(self, head: str, values: Any, given: GivenImage) -> np.ndarray | PanopticPrediction:
        spec = self.predictor.card.outputs[head]
        if isinstance(values, SegmentPrediction):
            return exclusive(values)
        plain: np.ndarray = np.asarray(values)
        if spec.kind != "labels":
            return plain
        return classes_of(PredictedMap(values=plain, image=given.image, spec=spec))

    def cloud(self, given: GivenImage, maps: Mapping[str, Any], options: ViewOptions) -> str:
        """Return the page of its point cloud, as format `viewer` writes it. Raises ConfigError: no head gives depth."""
        head = self.head(options.head, DEPTH_KINDS)
        if head is None:
            kinds = ", ".join(self.heads)
            raise ConfigError(f"{self.name} predicts {kinds} and no depth: there is no point cloud.")
        spec = self.heads[head]
        writer = Viewer(assume_depth=None if spec.output_kind.is_metric else options.assume_depth)
        lens, _ = given.lens(self.predictor, options.fov)
        values = maps[head][0] if maps[head].ndim == 3 else maps[head]
        with TemporaryDirectory() as folder:
            path = Path(folder) / (given.path.stem + writer.suffix)
            writer.write(path, PredictedMap(values=values, image=given.image, spec=spec, camera=lens))
            return path.read_text(encoding="utf-8")

    def attention(self, given: GivenImage, at: tuple[float, float], layer: int, what: str) -> ShownAttention:
        """Return the attention of the patch at a pixel. Raises ConfigError: the encoder is no ViT.

        Args:
            layer: from 1; larger than there are is the last.
            what: "mean of heads", "rollout", or "head N"; a head that is not there is the mean.
        """
        seen = compute_attention(self.predictor, given.image, at)
        layers, heads = seen.weights.shape[:2]
        index = min(max(layer, 1), layers) - 1
        maps = {"mean of heads": seen.mean()[index], "rollout": seen.rollout[index]}
        maps |= {f"head {number}": seen.weights[index, number] for number in range(heads)}
        shown = what if what in maps else "mean of heads"
        caption = (
            f"Attention of the {seen.query}, layer {index + 1} of {layers}, {shown}; up to {maps[shown].max():.3f}."
        )
        pixels = overlay_on(given.image, seen, maps[shown], ATTENTION_SIDE, self.predictor.card.resize)
        return ShownAttention(pixels, caption, layers, heads)
