"""Prints graphs and breaks of compiled blocks; a program, for the type checks of tests cannot be compiled."""

import json
from functools import partial

import torch
import torch.distributed as dist
from test_fsdp import small_model
from torch import nn
from torch._dynamo.utils import counters
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

from densevit.engine import distributed
from densevit.engine.monitors import compile_blocks
from densevit.models.encoders.base import ENCODERS
from densevit.models.encoders.vit import ViTEncoder

torch.compile = partial(torch.compile, backend="eager")  # generates no code
found: dict[str, list[float]] = {}


def count(name: str, model: nn.Module, *, sharded: bool = False, bf16: bool = False) -> None:
    torch._dynamo.reset()
    counters.clear()
    compile_blocks(model.train())
    if sharded:
        distributed.shard(model, mesh)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        out = model(torch.rand(1, 3, 64, 64))
    maps = out.values() if isinstance(out, dict) else out.maps
    torch.autograd.backward(sum(x.float().mean() for x in maps))
    breaks = sum(counters["graph_break"].values()) + len(counters["unimplemented"])
    found[name] = [counters["stats"]["unique_graphs"], breaks]


dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
mesh = init_device_mesh("cpu", (8,))
count("alone", small_model())
count("bf16", small_model(), bf16=True)
count("fsdp", small_model(), sharded=True)
count("fsdp, dpt", small_model(type="dpt", channels=8), sharded=True)
count("fsdp, upernet", small_model(type="upernet", channels=8, norm="layer"), sharded=True)
spec = {"type": "timm", "name": "vit_small_patch16_dinov3", "image_size": 64, "out_indices": [0, 1]}
count("dinov3", ENCODERS.check(spec, "encoder").build())
count("drop_path", ViTEncoder(dim=32, depth=12, heads=2, patch_size=16, image_size=64, drop_path=0.3))
image, plain, compiled = torch.rand(1, 3, 32, 32), small_model(), small_model()
compile_blocks(compiled)
found["error"] = [float((plain(image)["depth"] - compiled(image)["depth"]).abs().max())]
assert plain.state_dict().keys() == compiled.state_dict().keys()
dist.destroy_process_group()
print(json.dumps(found))
