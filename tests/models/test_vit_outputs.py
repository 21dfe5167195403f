"""What can be asked of a ViT, and nothing more computed than asked."""

from typing import Any

import pytest
import torch

from densevit.models.vit.vision_transformer import VisionTransformer


@pytest.fixture
def vit() -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(24, 4, 3, 8, grid=(4, 4), registers=2, layer_scale=0.1).eval()


IMAGE = torch.linspace(-1, 1, 3 * 32 * 32).view(1, 3, 32, 32)


def test_no_block_after_the_last_that_is_asked_for_runs(vit: Any) -> None:
    ran = []
    for index, block in enumerate(vit.blocks):
        block.register_forward_pre_hook(lambda *_, index=index: ran.append(index))
    (output,) = vit.block_outputs(IMAGE, [1])
    assert ran == [0, 1]
    expected = vit.blocks[1](vit.blocks[0](vit.embed(IMAGE)))
    torch.testing.assert_close(torch.cat([output.prefix, output.patches], dim=1), expected)
