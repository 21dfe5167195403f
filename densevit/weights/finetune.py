"""Initialises a new model from a checkpoint: options that the config leaves out, and weights that fit."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from densevit.errors import CheckpointError
from densevit.utils.state_dict import load_strict
from densevit.weights.external import ConvertedCheckpoint

Spec = Mapping[str, Any]

NORMALISATION = ("mean", "std")
"""Of images: options of encoders, and among their tensors."""


def filled(spec: Spec | None, stored: Spec) -> dict[str, Any]:
    """Return a component of the config; without a `type` it is the file's, updated with the config's options. With the
    file's `type` only the normalisation is the file's where it is not given."""
    spec = spec or {}
    if spec.get("type", stored["type"]) != stored["type"]:
        return dict(spec)
    return {key: value for key, value in stored.items() if "type" not in spec or key in NORMALISATION} | dict(spec)


class PartialLoader:
    """Loads the parts of a checkpoint that fit a new model, and reports them.

    An encoder is loaded as a whole; a decoder or head if type, activation, classes and shapes are the same.
    """

    def __init__(self, model: nn.Module, spec: Spec, published: ConvertedCheckpoint, source: object) -> None:
        """
        Args:
            spec: of the new model, with every option.
            source: the file, for error messages.
        """
        self.model, self.spec, self.published, self.source = model, spec, published, source
        self.loaded: list[str] = []
        self.new: list[str] = []

    def load_matching(self) -> str:
        """Load, and return a report of what was loaded and what is new. Raises CheckpointError if the encoder is not
        the file's, or a conditioning of the same options does not fit."""
        theirs = self.published.model
        mine, other = self.spec["encoder"], theirs["encoder"]
        for key in ("type", "heads", "mlp"):  # neither the number of heads nor the MLP's activation changes a shape
            if None not in (mine.get(key), other.get(key)) and mine[key] != other[key]:
                raise CheckpointError(
                    f"{self.source}: its encoder has {key} {other[key]}, and the config asks for {mine[key]}; leave "
                    "model.encoder out to take the file's."
                )
        self.load("encoder")
        self.load_or_keep("decoder", other_decoder(self.spec["decoder"], theirs["decoder"]))
        for kind, other_options in (("decoders", other_decoder), ("heads", other_head), ("conditioning", other_input)):
            for name, mine in self.spec.get(kind, {}).items():
                self.load_or_keep(f"{kind}.{name}", other_options(mine, theirs.get(kind, {}).get(name)))
        new = "; new: " + "; ".join(self.new) if self.new else "; nothing is new"
        return f"from {self.source} ({self.published.source}): {', '.join(self.loaded)}{new}."

    def load_or_keep(self, name: str, why: str) -> None:
        """Load a part, unless there is a reason against it; then it keeps its initial weights."""
        module = self.model.get_submodule(name)
        if not why and not name.startswith("conditioning."):
            stored = {key: tensor.shape for key, tensor in self.stored_tensors(name)}
            same = stored == {key: tensor.shape for key, tensor in module.state_dict().items()}
            why = "" if same else "its layers are of other shapes than the file's"
        if why:
            self.new.append(f"{name} ({why}; {count(module)})")
        else:
            self.load(name)

    def load(self, name: str) -> None:
        module = self.model.get_submodule(name)
        # Published files do not have the normalisation, which is among the options.
        normalisation = {key: tensor for key, tensor in module.state_dict().items() if key in NORMALISATION}
        load_strict(module, {**normalisation, **dict(self.stored_tensors(name))}, f"{self.source}: {name}")
        self.loaded.append(f"{name} ({count(module)})")

    def stored_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        for key, tensor in self.published.tensors.items():
            if key.startswith(f"{name}."):
                yield key.removeprefix(f"{name}."), tensor


def other_decoder(mine: Spec, other: Spec | None) -> str:
    """Return why a decoder is new; empty if it is that of the file."""
    if other and other["type"] == mine["type"]:
        return other_class(mine, other)
    theirs = f"'{other['type']}'" if other else "none"
    return f"'{mine['type']}' where the file has {theirs}"


def other_head(mine: Spec, other: Spec | None) -> str:
    """Return why a head is new, by type, activation and classes."""
    if other is None:
        return "the file has none of this name"
    differing = (key for key in ("type", "activation") if key in other and mine.get(key) != other[key])
    reasons = (f"{mine.get(key)} where the file has {other[key]}" for key in differing)
    return next(reasons, other_class(mine, other))


def other_class(mine: Spec, other: Spec) -> str:
    """Return why weights would be those of other classes; empty where the names are the same, or not known."""
    names, theirs = (spec["classes"] if isinstance(spec.get("classes"), list | tuple) else () for spec in (mine, other))
    pairs = enumerate(zip(names, theirs, strict=False))
    return next((f"class {i} is '{one}' where the file has '{two}'" for i, (one, two) in pairs if one != two), "")


def other_input(mine: Spec, other: Spec | None) -> str:
    """Return why a conditioning is new, by its options, but for the frames of a window over a video."""
    if other is None:
        return "the file's model has none"
    differing = (key for key in mine if key in other and key != "frames" and mine[key] != other[key])
    return next((f"{key} {mine[key]} where the file has {other[key]}" for key in differing), "")


def count(module: nn.Module) -> str:
    tensors = list(module.parameters())
    return f"{len(tensors)} tensors, {sum(t.numel() for t in tensors) / 1e6:.2f} M parameters"
