"""A checkpoint as one ONNX file that strangers run: pictures in, maps out, with neither densevit nor torch.

Whatever happens to a picture on its way to the network, and to the answers on their way back, is part of the graph, by
the code that predicts (forward.py). b images, h x w pixels, k numbers per pixel.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from densevit.errors import ConfigError, StorageError
from densevit.inference.backends.onnx_runtimes import OnnxRuntime
from densevit.inference.camera import camera_for
from densevit.inference.forward import checked_box, forward, sensible_size
from densevit.inference.onnx.graph import NamedOutputs, demand, save_graph
from densevit.inference.onnx.metadata import OnnxExportOptions, as_text, described
from densevit.inference.onnx.verify import TOLERANCE, verify_against_torch
from densevit.inference.predictor import Predictor
from densevit.model_card import HeadSpec, ModelCard, PreprocessConfig
from densevit.ops.resize import network_size
from densevit.structures import IGNORE
from densevit.utils import atomic_io

NEEDS = OnnxRuntime.needs


@dataclass(frozen=True)
class Written:
    """
    Attributes:
        paths: the file, and the one beside it that holds weights of over 2 GB.
        gaps: by head, the largest difference from torch as a share of the largest value.
        about: what the file says of itself.
    """

    paths: tuple[Path, ...]
    gaps: Mapping[str, float]
    about: Mapping[str, str]


class Pipeline(nn.Module):
    """From pictures to what the heads of `card` say of them; b k from one that answers for the whole image."""

    def __init__(self, model: nn.Module, card: ModelCard, wanted: OnnxExportOptions) -> None:
        super().__init__()
        self.model, self.card, self.wanted = model, card, wanted
        self.logits = [name for name, spec in card.outputs.items() if spec.kind == "labels"]
        self.camera = camera_for(card.outputs, wanted.focal)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        x = image if self.wanted.floats else image.permute(0, 3, 1, 2).float().div(255)
        how: dict[str, Any] = {"box": self.wanted.box, "flip": self.wanted.flip, "camera": self.camera}
        answers = forward(self.model, x, self.card.resize, self.card.multiple, logits=self.logits, **how)
        return {name: self.told(answers[name], spec) for name, spec in self.card.outputs.items()}

    def told(self, answer: Tensor, spec: HeadSpec) -> Tensor:
        if spec.kind == "class":
            return answer.flatten(1)
        return ids(answer) if self.wanted.labels and spec.kind == "labels" else answer


def ids(logits: Tensor) -> Tensor:
    """Classes of pixels, b h w, in bytes if they fit; IGNORE where logits are not all finite."""
    found = torch.where(logits.isfinite().all(1), logits.argmax(1), IGNORE)
    return found.to(torch.uint8) if logits.shape[1] <= IGNORE else found


def expect(path: Path, *, overwrite: bool = False) -> None:
    """Says what would fail, before a checkpoint is read.

    Raises:
        ConfigError: programs that are not installed, a name that is no ONNX file's, or one that is taken.
        StorageError: no such folder.
    """
    demand(*NEEDS, extra="onnxruntime")
    if path.suffix.lower() != ".onnx":
        raise ConfigError(f"--output: {path} does not end in .onnx.")
    if not path.parent.is_dir():
        raise StorageError(f"{path}: its folder does not exist.")
    taken = [str(file) for file in (path, beside(path)) if file.exists()]
    if taken and not overwrite:
        raise ConfigError(f"--output: {' and '.join(taken)} exists already; --overwrite replaces it.")


def write(model: nn.Module, card: ModelCard, path: Path, wanted: OnnxExportOptions) -> Written:
    """Writes the file, opens it by ONNX Runtime, and keeps it only if it says what torch says.

    Raises:
        ConfigError, DataError: no such head, a size that does not fit, or a network that ONNX cannot say; nothing is
            written.
        StorageError: the disk is full.
    """
    card, wanted = chosen(card, wanted)
    assert wanted.size is not None
    count, (h, w) = wanted.batch or 2, wanted.size
    example = torch.zeros(count, 3, h, w) if wanted.floats else torch.zeros(count, h, w, 3, dtype=torch.uint8)
    pipeline = Pipeline(model.cpu().float().eval(), card, wanted)
    about = described(card, wanted)
    atomic_io.remove_stale_temporaries(path.parent)
    with atomic_io.temporary_folder(path) as folder:
        made = folder / path.name
        how: dict[str, Any] = {"any_batch": wanted.batch is None, "about": about, "text": as_text(about)}
        save_graph(NamedOutputs(pipeline, list(card.outputs)), example, made, **how)
        box = wanted.box
        looks: dict[str, Any] = {"flip": wanted.flip, "focal": wanted.focal, "window": box and (lambda h, w: box)}
        predictor = Predictor(model, card, device="cpu", precision="fp32", **looks)
        gaps = verify_against_torch(made, predictor, (h, w), wanted.batch, floats=wanted.floats, labels=wanted.labels)
        worst = max(gaps, key=lambda name: gaps[name])
        if not gaps[worst] <= TOLERANCE:
            raise ConfigError(
                f"{worst}: what was written differs from torch by {gaps[worst]:.1e} of the largest value, over "
                f"{TOLERANCE:g}, so it is not kept. --network writes the network without the resizing of pictures."
            )
        return Written(put(made, path), gaps, about)


def chosen(card: ModelCard, wanted: OnnxExportOptions) -> tuple[ModelCard, OnnxExportOptions]:
    """The heads and the way of resizing that the file is to have, every choice checked.

    Raises:
        ConfigError, DataError: see `write`.
    """
    names = wanted.heads or tuple(card.outputs)
    for name in names:
        if name not in card.outputs:
            raise ConfigError(f"--head: this model has no head '{name}'. It has: {', '.join(card.outputs)}.")
    card = replace(card, outputs={name: card.outputs[name] for name in names})
    if wanted.labels and all(spec.kind != "labels" for spec in card.outputs.values()):
        raise ConfigError("--labels: no head here classifies pixels.")
    size = wanted.size
    if wanted.network:
        if size is None and card.resize.size is not None:
            size = network_size(card.resize.size, card.resize, card.multiple)
        same = PreprocessConfig(padding=card.resize.padding, single_resize=card.resize.single_resize)
        card, wanted = replace(card, resize=same), replace(wanted, floats=True)
    if size is None:
        raise ConfigError("--image-size: say height and width of the pictures that the file is for, as 480,640.")
    if card.resize.window is not None and wanted.batch is None:
        raise ConfigError("--batch-size: this model looks through a sliding window; say a number of pictures.")
    y0, y1, x0, x1 = (0, size[0], 0, size[1]) if wanted.box is None else checked_box(wanted.box, size)
    sensible_size((y1 - y0, x1 - x0), card.resize, card.multiple)
    camera_for(card.outputs, wanted.focal)
    return card, replace(wanted, size=size)


def beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.data")


def put(made: Path, path: Path) -> tuple[Path, ...]:
    """Moves what was proven into place, weights of their own first; those of a replaced file go."""
    if not beside(made).exists():
        with atomic_io.atomic_path(path) as place:
            made.replace(place)
        atomic_io.remove(beside(path))
        return (path,)
    with atomic_io.atomic_path(path) as place, atomic_io.atomic_path(beside(path)) as weights:
        beside(made).replace(weights)
        made.replace(place)
    return path, beside(path)
