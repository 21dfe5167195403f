"""Finds timm's published weights in a local cache, or fails at once where they cannot be downloaded.

Without a network, huggingface_hub retries for most of a minute.
"""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from densevit.errors import CheckpointError, ConfigError
from densevit.utils.network import hub, is_reachable


def check_one_weight_source(pretrained: bool, weights: Path | None) -> None:
    """
    Raises:
        ConfigError: both published weights and a file are given.
    """
    if pretrained and weights:
        raise ConfigError("encoder: pretrained and weights exclude each other; keep one.")


def pretrained_cfg_overlay(name: str, cfg: Any) -> dict[str, str]:
    """Changes of a model's pretrained_cfg so that timm loads weights from the cache.

    Args:
        cfg: timm's PretrainedCfg, or None.

    Raises:
        ConfigError: there are no published weights.
        CheckpointError: they are neither in a cache nor reachable.
    """
    if cfg is None or not (cfg.hf_hub_id or cfg.url):
        raise ConfigError(f"encoder.pretrained: no weights are published for '{name}'; use weights=PATH or false.")
    cached = find_cached(cfg)
    if cached is not None:
        return {"file": str(cached)}
    server = hub() if cfg.hf_hub_id else str(cfg.url)
    if not is_reachable(server):
        why = f"{urlsplit(server).hostname} is out of reach" if server else "HF_HUB_OFFLINE is set"
        raise CheckpointError(
            f"encoder.pretrained: the weights of '{name}' are not on this machine, and {why}. "
            f"Fetch {cfg.hf_hub_id or cfg.url} elsewhere and pass the file as encoder.weights=PATH "
            "(.safetensors or .pth), or set encoder.pretrained=false to train from scratch."
        )
    return {}


def find_cached(cfg: Any) -> Path | None:
    """The file in huggingface_hub's cache, or in torch.hub's for weights with a URL."""
    if not cfg.hf_hub_id:
        from torch.hub import get_dir

        path = Path(get_dir()) / "checkpoints" / Path(urlsplit(cfg.url).path).name
        return path if path.is_file() else None
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = cfg.hf_hub_id.partition("@")
    names = [cfg.hf_hub_filename] if cfg.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    found = (try_to_load_from_cache(repository, name, revision=revision or None) for name in names)
    return next((Path(path) for path in found if isinstance(path, str)), None)
