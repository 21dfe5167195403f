"""Creates timm models by name, with published weights from a local cache or the network, and converts checkpoints.

Imported, as timm is, when a model is built. Without a network, huggingface_hub retries for most of a minute; here
loading fails at once. b images, h x w pixels.
"""

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import timm
import torch
from jaxtyping import Float
from safetensors import SafetensorError
from timm.models import SwinTransformer, SwinTransformerV2
from torch import Tensor, nn

from densevit.errors import CheckpointError, ConfigError, first_line
from densevit.models.vit.checkpoints import grid_of
from densevit.models.vit.embeddings import resample_pos_embed
from densevit.utils.network import hub, is_reachable

PretrainedCfg = Any  # timm's; None for a model without one


def create_model_kwargs(
    arguments: Mapping[str, Any] | None, drop_path: float, image_size: int | tuple[int, int] | None
) -> dict[str, Any]:
    """Return the arguments of `timm.create_model` for a model without classifier. Raises ConfigError for those by which
    timm itself loads weights."""
    if loading := {"checkpoint_path", "pretrained"} & (arguments or {}).keys():
        raise ConfigError(f"encoder.arguments: {loading.pop()} loads weights; use encoder.weights or .pretrained.")
    size = {} if image_size is None else {"img_size": image_size}
    return {**(arguments or {}), "num_classes": 0, "drop_path_rate": drop_path, **size}


def pretrained_cfg_of(name: str) -> PretrainedCfg:
    """Raise ConfigError: no such model, or no such weights of it."""
    model, _, tag = name.partition(".")
    if not timm.is_model(model):
        near = difflib.get_close_matches(model, timm.list_models(), n=4)
        raise ConfigError(f"encoder.name: timm has no model '{model}'. Nearest: {', '.join(near) or 'none'}.")
    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError:
        tags = [full.partition(".")[2] for full in timm.list_pretrained(f"{model}.*")]
        raise ConfigError(f"encoder.name: '{model}' has no weights '{tag}'. Known: {', '.join(tags)}.") from None


def licence_of(name: str, pretrained: bool, weights: Path | None) -> str:
    """Return timm's `license` of published weights; of a local file, if `name` has the tag of published weights."""
    is_published = pretrained or (weights is not None and "." in name)
    cfg = pretrained_cfg_of(name) if is_published else None
    return (cfg and cfg.license) or "unknown"


def create_on_meta(name: str, kwargs: Mapping[str, Any]) -> torch.nn.Module:
    """Return the model on the meta device, for checks before anything is built or downloaded."""
    try:
        with torch.device("meta"):
            return timm.create_model(name, **kwargs)
    except TypeError as error:
        raise ConfigError(f"encoder: timm's '{name}' does not take these arguments: {error}.") from None


def create_model(name: str, cfg: PretrainedCfg, with_weights: bool, kwargs: Mapping[str, Any]) -> Any:
    """Raise CheckpointError: weights that are neither in a cache nor reachable, or damaged."""
    overlay = pretrained_cfg_overlay(name, cfg) if with_weights else {}
    try:
        return timm.create_model(name, pretrained=with_weights, pretrained_cfg_overlay=overlay, **kwargs)
    except (OSError, RuntimeError, SafetensorError) as error:  # pickled code is refused by timm
        if not with_weights:
            raise
        raise CheckpointError(f"encoder.pretrained: the weights of '{name}': {first_line(error)}") from error


def pretrained_cfg_overlay(name: str, cfg: Any) -> dict[str, str]:
    """Return changes of a model's pretrained_cfg so that timm loads weights from the cache. `cfg`: timm's
    PretrainedCfg, or None. Raises ConfigError if there are no published weights. Raises CheckpointError if they are
    neither in a cache nor reachable."""
    if cfg is None or not (cfg.hf_hub_id or cfg.url):
        raise ConfigError(f"encoder.pretrained: no weights are published for '{name}'; use weights=PATH or false.")
    cached = find_cached(cfg)
    if cached is not None:
        return {"file": str(cached)}
    server = hub() if cfg.hf_hub_id else str(cfg.url)
    if not is_reachable(server):
        why = f"{urlsplit(server).hostname} is unreachable" if server else "HF_HUB_OFFLINE is set"
        raise CheckpointError(
            f"encoder.pretrained: the weights of '{name}' are not on this machine, and {why}. "
            f"Fetch {cfg.hf_hub_id or cfg.url} elsewhere and pass the file as model.encoder.weights=PATH "
            "(.safetensors or .pth), or set model.encoder.pretrained=false to train from scratch."
        )
    return {}


def find_cached(cfg: Any) -> Path | None:
    """Return the file in huggingface_hub's cache, or in torch.hub's for weights with a URL."""
    if not cfg.hf_hub_id:
        path = Path(torch.hub.get_dir()) / "checkpoints" / Path(urlsplit(cfg.url).path).name
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = cfg.hf_hub_id.partition("@")
    names = [cfg.hf_hub_filename] if cfg.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    paths = (try_to_load_from_cache(repository, name, revision=revision or None) for name in names)
    return next((Path(path) for path in paths if isinstance(path, str)), None)


def convert(model: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert by timm's `checkpoint_filter_fn`, which reads original files and interpolates position embeddings."""
    tensors = dict(sys.modules[type(model).__module__].checkpoint_filter_fn(dict(state), model))
    return {name: on_grid(model, tensor) if name == "pos_embed" else tensor for name, tensor in tensors.items()}


def on_grid(model: Any, positions: Float[Tensor, "1 n d"]) -> Float[Tensor, "1 n d"]:
    """Return position embeddings of as many cells as the model has on its grid: timm takes those of a square for
    them."""
    h, w = grid = model.patch_embed.grid_size
    first = positions.shape[1] - h * w
    if h == w or first < 0 or positions.shape != model.pos_embed.shape:
        return positions
    cells = positions[:, first:]
    return torch.cat([positions[:, :first], resample_pos_embed(cells, grid_of(cells, grid), grid)], dim=1)


def create_swin(name: str, with_weights: bool, kwargs: Mapping[str, Any]) -> Any:
    """Return a Swin of timm that takes any image size, without classifier and final norm. `kwargs`: arguments of
    `timm.create_model`. Raises ConfigError: no such model, one of another kind, or arguments it does not take. Raises
    CheckpointError: weights that are neither in a cache nor reachable."""
    cfg = pretrained_cfg_of(name)
    kwargs = {**kwargs, "strict_img_size": False}
    if not name.startswith("swin"):
        raise ConfigError(f"encoder.name: '{name}' is no Swin Transformer; for plain ViTs use encoder 'timm'.")
    meta_model = create_on_meta(name, kwargs)
    if not isinstance(meta_model, SwinTransformer | SwinTransformerV2):
        raise ConfigError(f"encoder.name: '{name}' is a {type(meta_model).__name__}; would fit: swin_*, swinv2_*.")
    swin = create_model(name, cfg, with_weights, kwargs)
    swin.norm = swin.head = nn.Identity()
    return swin


def forward_stages(swin: Any, image: Float[Tensor, "b 3 h w"]) -> list[Float[Tensor, "b _ _ _"]]:
    """Return the map after each stage."""
    x, maps = swin.patch_embed(image), []
    for stage in swin.layers:
        x = stage(x)
        maps.append(x.permute(0, 3, 1, 2))
    return maps
