"""Matrices that some files keep apart and others as one. Names end in .weight and .bias; rows are outputs."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

State = Mapping[str, Tensor]


def fuse_qkv(state: State) -> dict[str, Tensor]:
    """Queries, keys and values (`.attn.q.`, `.attn.k.`, `.attn.v.`) in one matrix `.attn.qkv.`, in this order."""
    joined = {}
    for name, tensor in state.items():
        found = re.fullmatch(r"(.*\.attn\.)([qkv])(\.weight|\.bias)", name)
        if found is None:
            joined[name] = tensor
        elif found[2] == "q":
            thirds = [state.get(f"{found[1]}{third}{found[3]}", tensor[:0]) for third in "qkv"]
            joined[f"{found[1]}qkv{found[3]}"] = torch.cat(thirds)
    return joined


def split_qkv(state: State) -> dict[str, Tensor]:
    """The inverse of `fuse_qkv`."""
    apart = {}
    for name, tensor in state.items():
        found = re.fullmatch(r"(.*\.attn\.)qkv(\.weight|\.bias)", name)
        if found is None:
            apart[name] = tensor
        else:
            thirds = tensor.chunk(3)
            apart |= {f"{found[1]}{name}{found[2]}": third.clone() for name, third in zip("qkv", thirds, strict=True)}
    return apart


def fuse_swiglu(state: State) -> dict[str, Tensor]:
    """Gate and value of a SwiGLU (`.mlp.fc1_g.`, `.mlp.fc1_x.`) in one matrix `.mlp.fc1.`, in this order."""
    joined = {name: tensor for name, tensor in state.items() if ".mlp.fc1_x." not in name}
    for name in [name for name in joined if ".mlp.fc1_g." in name]:
        halves = [joined.pop(name), state[name.replace("fc1_g", "fc1_x")]]
        joined[name.replace("fc1_g", "fc1")] = torch.cat(halves)
    return joined
