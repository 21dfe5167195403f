"""ZoeDepth N, K and NK beside isl-org/ZoeDepth: its models with the numbers of its configs, by its `infer_pil`.

The MiDaS within is that of the case `midas`, as `torch.hub` would fetch it. K is built for 80 m, as its training and
evaluation do; its `torch.hub` entry forgets that and gives 10 m.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from checkpoint_cases.case import Case, Map, Original, imported, scatter
from checkpoint_cases.midas import TIMM, lively
from PIL import Image
from torch import nn


class Config(dict[str, Any]):
    """Read by key and by attribute, as theirs."""

    __getattr__ = dict.__getitem__


def make(repository: Path, work: Path, version: str, small: bool, favour: str = "", **infer: bool) -> Original:
    package = "zoedepth_nk" if version == "NK" else "zoedepth"
    model_class = imported(repository, f"zoedepth.models.{package}.{package}_v1")
    config = read_config(repository, version)
    core = model_class.MidasCore(
        lively(repository.parent / "MiDaS", "beitl16_384", small), img_size=config["img_size"], keep_aspect_ratio=True
    )
    core.output_channels = [64 if small else 256] * 5
    model = getattr(model_class, "ZoeDepthNK" if version == "NK" else "ZoeDepth")(core, **config).eval()
    liven(model)
    if favour:
        with torch.no_grad():
            model.mlp_classifier[2].bias[["nyu", "kitti"].index(favour)] += 100
    torch.save({"model": model.state_dict()}, work / "model.pt")
    options = {ours: infer[its] for its, ours in OPTIONS if its in infer}
    return Original(work / "model.pt", partial(predict, model, infer), options, model=model)


@torch.no_grad()
def liven(model: nn.Module) -> None:
    """As torch begins it, every pixel gets every bin at much the same share, and so the same depth."""
    parts = [child for name, child in model.named_children() if name != "core"]
    scatter(nn.ModuleList(parts), amount=0.1)
    for module in (module for part in parts for module in part.modules()):
        if isinstance(module, nn.Conv2d):
            # A gain of 2 whatever the width: at 3, one rounding error grows to 1e-4 of the range, in both alike.
            module.weight.mul_(2 / (module.weight.std() * module.in_channels**0.5))
    for name, module in model.named_modules():
        if name.endswith("mlp.2") and "conditional" in name:
            module.bias.copy_(torch.tensor([0.0, 0.0, -3.0, 3.0]))  # two of a chance, two of a temperature: cool


OPTIONS = (("pad_input", "margin"), ("with_flip_aug", "flip"))


def read_config(repository: Path, version: str) -> dict[str, Any]:
    models = repository / "zoedepth" / "models"
    if version == "NK":
        config = json.loads((models / "zoedepth_nk" / "config_zoedepth_nk.json").read_text())["model"]
        return {**config, "bin_conf": [Config(domain) for domain in config["bin_conf"]]}
    config = json.loads((models / "zoedepth" / "config_zoedepth.json").read_text())["model"]
    if version == "K":
        of_kitti = json.loads((models / "zoedepth" / "config_zoedepth_kitti.json").read_text())["model"]
        config = {**config, **of_kitti, "min_depth": 1e-3, "max_depth": 80}
    return config


def predict(model: Any, infer: dict[str, bool], path: Path) -> Map:
    depth: np.ndarray = model.infer_pil(Image.open(path).convert("RGB"), **infer)
    return depth


def case(name: str, version: str, *, small: bool = True, **options: Any) -> Case:
    return Case(
        family=f"zoedepth-{version.lower()}",
        name=name,
        make=partial(make, version=version, small=small, **options),
        code="ZoeDepth, MiDaS, timm 0.6.13",
        repository="ZoeDepth",
        needs=("MiDaS", TIMM),
        slow=not small,
    )


PLAIN = {"pad_input": False, "with_flip_aug": False}
CASES = [
    case("small", "N"),
    case("small, no margin, no flip", "N", **PLAIN),
    case("small", "K"),
    case("small, no margin, no flip", "K", **PLAIN),
    case("small, no margin, no flip", "NK", **PLAIN),
    case("small, rooms", "NK", favour="nyu"),
    case("small, streets", "NK", favour="kitti"),
    case("BEiT-L", "N", small=False, **PLAIN),
    case("BEiT-L", "K", small=False, **PLAIN),
    case("BEiT-L", "NK", small=False, **PLAIN),
]
