"""Google's .npz files of Vision Transformers (vision_transformer and big_vision) under timm's names.

JAX kernels are input x output and keep heads separate: query is in x heads x c, out is heads x c x d.
"""

import re
from collections.abc import Mapping

from torch import Tensor

State = Mapping[str, Tensor]

PREFIX = re.compile(r"^(opt/target/|params/img/|params/)")
STEM = {
    "embedding/kernel": "patch_embed.proj.weight", "embedding/bias": "patch_embed.proj.bias",
    "cls": "cls_token", "pos_embedding": "pos_embed", "Transformer/posembed_input/pos_embedding": "pos_embed",
    "Transformer/encoder_norm/scale": "norm.weight", "Transformer/encoder_norm/bias": "norm.bias",
}  # fmt: skip
# Within a block. vision_transformer numbers LayerNorms and attention in one sequence
# (0, 1, 2, 3), big_vision each kind separately.
LAYERS = (
    (r"LayerNorm_0/", "norm1."),
    (r"LayerNorm_[12]/", "norm2."),
    (r"MultiHeadDotProductAttention_[01]/(q|k|v)(uery|ey|alue)/", r"attn.\1."),
    (r"MultiHeadDotProductAttention_[01]/out/", "attn.proj."),
    (r"MlpBlock_[03]/Dense_0/", "mlp.fc1."),
    (r"MlpBlock_[03]/Dense_1/", "mlp.fc2."),
)
UNUSED = ("head/", "MAPHead_0/", "pre_logits/", "opt/state/")
KINDS = {"kernel": "weight", "scale": "weight", "bias": "bias"}


def is_google_npz(state: State) -> bool:
    return any(name.endswith("embedding/kernel") for name in state)


def rename(state: State) -> dict[str, Tensor]:
    """Return timm's names and torch's axes, with q, k and v separate.

    Text towers, poolings and classifiers are dropped.
    """
    renamed: dict[str, Tensor] = {}
    two_towers = any(name.startswith("params/img/") for name in state)
    for path, tensor in state.items():
        if two_towers and not path.startswith("params/img/"):
            continue
        name = PREFIX.sub("", path)
        if name in STEM:
            renamed[STEM[name]] = to_torch_layout(STEM[name], tensor)
        elif match := re.match(r"Transformer/encoderblock_(\d+)/(.*)", name):
            add_block_tensor(renamed, f"blocks.{match[1]}.", match[2], tensor)
        elif name.startswith("Transformer/encoderblock/"):  # all blocks stacked, for jax.lax.scan
            for index, layer in enumerate(tensor):
                add_block_tensor(renamed, f"blocks.{index}.", name.removeprefix("Transformer/encoderblock/"), layer)
        elif not name.startswith(UNUSED):
            renamed[path] = tensor
    return renamed


def add_block_tensor(renamed: dict[str, Tensor], block: str, path: str, tensor: Tensor) -> None:
    layer, _, kind = path.rpartition("/")
    names = (re.sub(pattern, ours, f"{layer}/") for pattern, ours in LAYERS if re.fullmatch(pattern, f"{layer}/"))
    name = next(names, f"{layer}/") + KINDS.get(kind, kind)
    renamed[block + name] = to_torch_layout(name, tensor)


def to_torch_layout(name: str, tensor: Tensor) -> Tensor:
    """Turn JAX's axes to torch's, with heads concatenated."""
    if name.endswith("bias"):
        return tensor.flatten()
    if not name.endswith(".weight") or tensor.ndim == 1:
        return tensor
    if tensor.ndim == 4:
        return tensor.permute(3, 2, 0, 1)  # h w c d
    if name.endswith("attn.proj.weight"):
        return tensor.flatten(0, 1).T  # heads c d
    return tensor.flatten(1).T
