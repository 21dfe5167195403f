"""Older cards and configs in today's names. One table; what is in today's names already stays as it is."""

from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")
Tree = dict[str, Any]

# Component -> old option -> new option. "*" holds for every component of the kind.
OPTIONS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "encoder": {"*": {"taps": "out_indices", "resampling": "pos_embed_interpolation"}},
    "decoder": {
        "dpt": {"growth": "fusion_size", "tap_norm": "reassemble_norm", "unit_bias": "residual_bias"},
        "conv_transpose": {"growth": "upsample"},
        "zoedepth": {"fine": "head_hidden"},
    },
    "head": {"*": {"init_depth": "initial_depth", "stretch": "interpolation"}},
}
# New option -> old value -> new value.
VALUES: Mapping[str, Mapping[str, str]] = {
    "fusion_size": {"levels": "next_level", "doubling": "double"},
    "upsample": {"transpose": "deconv"},
}
TYPES: Mapping[str, Mapping[str, str]] = {
    "head": {"labels": "segmentation", "masks": "mask_logits", "metres": "identity_depth", "inverse": "inverse_depth"},
    "loss": {"mask_set": "set_criterion"},
    "data": {"tar": "webdataset", "motorcycle": "middlebury_motorcycle"},
}
RUN = {"balance": "loss_weighting", "accumulate": "grad_accum_steps"}
SUPERVISED = ("loss_weighting", "align_features")  # keys of a run that became options of this objective
STATE = {"balance": "loss_weighting"}
MODEL = {"init": "init_from"}
DATA = {"on_error": "on_corrupt", "max_bad": "max_corrupt_fraction"}
RESIZE = {
    "eight_bit": "round_to_uint8",
    "once": "single_resize",
    "back": "output_interpolation",
    "back_align_corners": "output_align_corners",
}
SCHEDULE = {"final": "min_lr_ratio", "start": "warmup_start_factor"}
# Inputs beside images: old key of `model` -> today's conditioning; and the prefixes of their weights.
CONDITIONING = {"temporal": "motion", "prompt": "points"}
PREFIXES = {
    "rays.": "conditioning.rays.",
    "temporal.": "conditioning.motion.blocks.",
    "prompt.": "conditioning.points.blocks.",
}


def migrate_card(card: Tree) -> Tree:
    """Return a model card as stored, in today's names."""
    card = _renamed(card, {"taps": "out_indices"})
    if card.get("resize"):
        card["resize"] = _renamed(card["resize"], RESIZE)
    for key, migrate in (("model", migrate_model), ("config", migrate_config)):
        if card.get(key):
            card[key] = migrate(card[key])
    return card


def migrate_config(run: Tree) -> Tree:
    """Return a resolved training config as stored, in today's names."""
    run = _renamed(run, RUN)
    if "pretrain" in run:
        pretrain = run.pop("pretrain")
        run["objective"] = pretrain or {"type": "supervised"}
    moved = {name: value for name in SUPERVISED if (value := run.pop(name, None)) is not None}
    if run.get("objective", {}).get("type", "supervised") == "supervised" and moved:
        run["objective"] = {"type": "supervised", **run.get("objective", {}), **moved}
    if isinstance(run.get("model"), dict):
        run["model"] = migrate_model(run["model"])
    if isinstance(run.get("data"), dict):
        data = _renamed(run["data"], DATA)
        run["data"] = data | {key: _data_set(data[key]) for key in ("train", "val", "probe") if data.get(key)}
    if isinstance(run.get("schedule"), dict):
        run["schedule"] = _renamed(run["schedule"], SCHEDULE)
    for name, task in (run.get("tasks") or {}).items():
        losses = [_component(loss, "loss") for loss in task.get("losses") or []]
        run["tasks"] = {**run["tasks"], name: {**task, "losses": losses}}
    return run


def migrate_state(state: Tree) -> Tree:
    """Return the state for resuming as stored, in today's names."""
    state = _renamed(state, STATE)
    if "loss_weighting" in state:
        weighting = state.pop("loss_weighting")
        state["objective"] = {f"loss_weighting.{name}": value for name, value in weighting.items()}
    return state | {key: migrate_tensors(state[key]) for key in ("weights", "raw_weights") if key in state}


def migrate_tensors(tensors: Mapping[str, T]) -> dict[str, T]:
    """Return the weights of a model as stored, by today's names."""
    return {
        next((new + name.removeprefix(old) for old, new in PREFIXES.items() if name.startswith(old)), name): tensor
        for name, tensor in tensors.items()
    }


def migrate_model(model: Tree) -> Tree:
    """Return the `model` section of a config, or of a card, in today's names."""
    model = _conditioned(_renamed(model, MODEL))
    if model.get("resize"):
        model["resize"] = _renamed(model["resize"], RESIZE)
    for key in ("encoder", "decoder"):
        if model.get(key):
            model[key] = _component(model[key], key)
    for key, kind in (("heads", "head"), ("decoders", "decoder")):
        if model.get(key):
            model[key] = {name: _component(component, kind) for name, component in model[key].items()}
    return model


def _conditioned(model: Tree) -> Tree:
    """With inputs beside images under `conditioning`, and what trains alone under `trainable`."""
    conditioning, trainable = dict(model.get("conditioning") or {}), list(model.get("trainable") or [])
    if model.get("camera") == "rays":
        conditioning["rays"] = {"hidden": 64}
        model = {key: value for key, value in model.items() if key != "camera"}
    for old, name in CONDITIONING.items():
        options = model.get(old)
        if options is not None:
            settings = dict(options) if isinstance(options, Mapping) else {}
            conditioning[name] = None if options == "none" else settings
            if settings.pop("freeze_rest", False):
                trainable.append(f"conditioning.{name}")
            settings.pop("type", None)
    model = {key: value for key, value in model.items() if key not in CONDITIONING}
    moved = {"conditioning": conditioning, "trainable": trainable}
    return model | {key: value for key, value in moved.items() if value}


def _data_set(component: Tree) -> Tree:
    """Return a data set's options in today's names, those of a mixture's sources included."""
    component = _component(component, "data")
    if sources := component.get("sources"):
        component["sources"] = [{**source, "data": _data_set(source["data"])} for source in sources]
    return component


def _component(component: Tree, kind: str) -> Tree:
    options = OPTIONS.get(kind, {})
    component = _renamed(component, {**options.get("*", {}), **options.get(component.get("type", ""), {})})
    for option, values in VALUES.items():
        if isinstance(component.get(option), str):
            component[option] = values.get(component[option], component[option])
    if "type" in component:
        component["type"] = TYPES.get(kind, {}).get(component["type"], component["type"])
    return component


def _renamed(tree: Tree, names: Mapping[str, str]) -> Tree:
    """Return a copy with keys renamed, in their order."""
    return {names.get(key, key): value for key, value in tree.items()}
