"""Weights of linear layers as matrices: LoRA's update, joined queries, keys and values. i inputs, o outputs."""

import re
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor


def merge_lora(
    weight: Float[Tensor, "o i"],
    a: Float[Tensor, "r i"],
    b: Float[Tensor, "o r"],
    scale: float,
    magnitude: Float[Tensor, " o"] | None = None,
) -> Float[Tensor, "o i"]:
    """Return w + scale B A (LoRA, Hu et al. 2022); with a magnitude its rows are rescaled to it (DoRA, Liu et al.
    2024).

    Computed in fp32, whatever the type of the weight, which it is given back in.
    """
    merged = weight.float() + scale * (b.float() @ a.float())
    if magnitude is not None:
        merged = merged * (magnitude.float() / merged.norm(dim=1))[:, None]
    return merged.to(weight.dtype)


State = Mapping[str, Tensor]


def fuse_qkv(state: State) -> dict[str, Tensor]:
    """Join queries, keys and values (`.attn.q.`, `.attn.k.`, `.attn.v.`) in one matrix `.attn.qkv.`, in this order."""
    fused = {}
    for name, tensor in state.items():
        match = re.fullmatch(r"(.*\.attn\.)([qkv])(\.weight|\.bias)", name)
        if match is None:
            fused[name] = tensor
        elif match[2] == "q":
            tensors = [state.get(f"{match[1]}{letter}{match[3]}", tensor[:0]) for letter in "qkv"]
            fused[f"{match[1]}qkv{match[3]}"] = torch.cat(tensors)
    return fused


def split_qkv(state: State) -> dict[str, Tensor]:
    """Return the inverse of `fuse_qkv`."""
    split = {}
    for name, tensor in state.items():
        match = re.fullmatch(r"(.*\.attn\.)qkv(\.weight|\.bias)", name)
        if match is None:
            split[name] = tensor
        else:
            chunks = tensor.chunk(3)
            split |= {f"{match[1]}{name}{match[2]}": chunk.clone() for name, chunk in zip("qkv", chunks, strict=True)}
    return split


def fuse_swiglu(state: State) -> dict[str, Tensor]:
    """Return the gate and value of a SwiGLU (`.mlp.fc1_g.`, `.mlp.fc1_x.`) in one matrix `.mlp.fc1.`, in this order."""
    fused = {name: tensor for name, tensor in state.items() if ".mlp.fc1_x." not in name}
    for name in [name for name in fused if ".mlp.fc1_g." in name]:
        tensors = [fused.pop(name), state[name.replace("fc1_g", "fc1_x")]]
        fused[name.replace("fc1_g", "fc1")] = torch.cat(tensors)
    return fused
