"""Initialises a new model from a checkpoint: options that the config leaves out, and weights that fit."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from densevit.errors import CheckpointError
from densevit.utils.state_dict import load_strict
from densevit.weights.external import ConvertedCheckpoint

Spec = Mapping[str, Any]


def filled(spec: Spec | None, stored: Spec) -> dict[str, Any]:
    """Return a component of the config; without a `type` it is the file's, updated with the config's options."""
    return dict(spec) if spec and "type" in spec else {**stored, **(spec or {})}


class PartialLoader:
    """Loads the parts of a checkpoint that fit a new model, and reports them.

    An encoder is loaded as a whole; a decoder or head if type, activation and shapes are the same.
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
        mine, other = self.spec["encoder"]["type"], theirs["encoder"]["type"]
        if mine != other:
            raise CheckpointError(
                f"{self.source}: holds encoder '{other}', and the config asks for '{mine}'; leave model.encoder out to "
                "take the file's."
            )
        self.load("encoder")
        self.load_or_keep("decoder", self.spec["decoder"], theirs["decoder"])
        for name, decoder in self.spec.get("decoders", {}).items():
            self.load_or_keep(f"decoders.{name}", decoder, theirs.get("decoders", {}).get(name))
        for name, head in self.spec["heads"].items():
            self.head(f"heads.{name}", head, theirs["heads"].get(name))
        stored = theirs.get("conditioning", {})
        for name, options in self.spec.get("conditioning", {}).items():
            self.conditioning(f"conditioning.{name}", options, stored.get(name))
        new = "; new: " + "; ".join(self.new) if self.new else "; nothing is new"
        return f"from {self.source} ({self.published.source}): {', '.join(self.loaded)}{new}."

    def load_or_keep(self, name: str, mine: Spec, other: Spec | None) -> None:
        if other is None or other["type"] != mine["type"]:
            theirs = f"'{other['type']}'" if other else "none"
            self.keep_initial(name, f"'{mine['type']}' where the file has {theirs}")
        elif why := self.other_shapes(name):
            self.keep_initial(name, why)
        else:
            self.load(name)

    def conditioning(self, name: str, mine: Spec, other: Spec | None) -> None:
        """Load a conditioning if its options are the same, but for the frames of a window over a video."""
        if other is None:
            self.keep_initial(name, "the file's model has none")
        elif differing := [key for key in mine if key in other and key != "frames" and mine[key] != other[key]]:
            self.keep_initial(name, f"{differing[0]} {mine[differing[0]]} where the file has {other[differing[0]]}")
        else:
            self.load(name)

    def head(self, name: str, mine: Spec, other: Spec | None) -> None:
        """Load a head if type, activation and shapes are the same."""
        why = self.mismatch(name, mine, other)
        if why:
            self.keep_initial(name, why)
        else:
            self.load(name)

    def mismatch(self, name: str, mine: Spec, other: Spec | None) -> str:
        if other is None:
            return "the file has none of this name"
        for key in ("type", "activation"):
            if key in other and mine.get(key) != other[key]:
                return f"{mine.get(key)} where the file has {other[key]}"
        return self.other_shapes(name)

    def other_shapes(self, name: str) -> str:
        stored, current = dict(self.stored_tensors(name)), self.model.get_submodule(name).state_dict()
        same = {key: t.shape for key, t in stored.items()} == {key: t.shape for key, t in current.items()}
        return "" if same else "its layers are of other shapes than the file's"

    def load(self, name: str) -> None:
        module = self.model.get_submodule(name)
        # Published files do not have the normalisation, which is among the options.
        normalisation = {key: tensor for key, tensor in module.state_dict().items() if key in ("mean", "std")}
        load_strict(module, {**normalisation, **dict(self.stored_tensors(name))}, f"{self.source}: {name}")
        self.loaded.append(f"{name} ({count(module)})")

    def keep_initial(self, name: str, why: str) -> None:
        self.new.append(f"{name} ({why}; {count(self.model.get_submodule(name))})")

    def stored_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        for key, tensor in self.published.tensors.items():
            if key.startswith(f"{name}."):
                yield key.removeprefix(f"{name}."), tensor


def count(module: nn.Module) -> str:
    tensors = list(module.parameters())
    return f"{len(tensors)} tensors, {sum(t.numel() for t in tensors) / 1e6:.2f} M parameters"
