"""Packed linear layers: the same answers, and the plain layer wherever it is asked for something else."""

import copy
import pickle

import pytest
import torch
from timm.layers import GluMlp
from timm.layers import Mlp as TimmMlp
from torch import Tensor, nn

from densevit.inference.backends.onednn import PackedConv, PackedLinear, packs, prepack
from densevit.models.decoders.dpt import ResidualUnit
from densevit.models.layers import Mlp
from densevit.models.vit.block import MLPS
from densevit.utils.device import Precision

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
TOLERANCE = {"fp32": 1e-6, "bf16": 1e-2}
BF16 = pytest.param("bf16", marks=pytest.mark.skipif(not packs("bf16"), reason="needs a CPU whose oneDNN packs bf16"))


def ask(model: nn.Module, x: Tensor, precision: str) -> Tensor:
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        answer: Tensor = model(x)
        return answer.float()


def packed_layers(model: nn.Module) -> list[PackedLinear]:
    return [m.forward for m in model.modules() if isinstance(getattr(m, "forward", None), PackedLinear)]


BUILDERS = {
    **{name: (lambda name=name: MLPS[name](24, 96)) for name in MLPS},
    "timm": lambda: TimmMlp(24, 96),
    "gated": lambda: GluMlp(24, 96, act_layer=nn.GELU),
    "a layer without bias": lambda: nn.Sequential(nn.Linear(24, 24, bias=False), nn.GELU()),
}


@pytest.mark.parametrize("precision", ["fp32", BF16])
@pytest.mark.parametrize("name", BUILDERS)
def test_answers_stay_what_they_were(name: str, precision: Precision) -> None:
    torch.manual_seed(0)
    model = BUILDERS[name]().eval()
    x, names = torch.randn(2, 7, 24), list(model.state_dict())
    plain = ask(model, x, precision)
    prepack(model, precision)
    assert packed_layers(model) and list(model.state_dict()) == names
    torch.testing.assert_close(ask(model, x, precision), plain, rtol=TOLERANCE[precision], atol=TOLERANCE[precision])
    assert all(layer.weight is not None for layer in packed_layers(model))


@pytest.fixture
def mlp() -> Mlp:
    torch.manual_seed(0)
    return Mlp(24, 96)


def test_with_gradients_the_plain_layer_answers(mlp: Mlp) -> None:
    plain, x = copy.deepcopy(mlp), torch.randn(3, 5, 24)
    prepack(mlp, "bf16")
    for model in (plain, mlp):
        model(x).square().sum().backward()
    for (name, a), b in zip(plain.named_parameters(), mlp.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), name  # type: ignore[arg-type]


@pytest.mark.parametrize("packed_for", ["fp32", "bf16"])
def test_another_number_format_is_not_given_the_packed_one(mlp: Mlp, packed_for: Precision) -> None:
    plain, x = copy.deepcopy(mlp), torch.randn(3, 5, 24)
    prepack(mlp, packed_for)
    other = {"fp32": "bf16", "bf16": "fp32"}[packed_for]
    assert torch.equal(ask(mlp, x, other), ask(plain, x, other))
    assert all(layer.weight is None for layer in packed_layers(mlp))


def test_new_weights_are_packed_anew(mlp: Mlp) -> None:
    prepack(mlp, "fp32")
    x, other = torch.randn(3, 5, 24), Mlp(24, 96)
    ask(mlp, x, "fp32")
    mlp.load_state_dict(other.state_dict())
    torch.testing.assert_close(ask(mlp, x, "fp32"), ask(other, x, "fp32"))


def test_copies_and_pickles_answer_with_weights_of_their_own(mlp: Mlp) -> None:
    x = torch.randn(3, 5, 24)
    prepack(mlp, "fp32")
    before = ask(mlp, x, "fp32")
    twins = [copy.deepcopy(mlp), pickle.loads(pickle.dumps(mlp))]
    with torch.no_grad():
        mlp.fc1.weight.zero_()
    for twin in twins:
        torch.testing.assert_close(ask(twin, x, "fp32"), before)
    assert not torch.allclose(ask(mlp, x, "fp32"), before)


def test_packing_twice_keeps_the_gelu(mlp: Mlp) -> None:
    x = torch.randn(3, 5, 24)
    plain = ask(mlp, x, "fp32")
    prepack(mlp, "bf16")
    prepack(mlp, "fp32")
    torch.testing.assert_close(ask(mlp, x, "fp32"), plain)


def test_no_tokens_at_all_are_no_reason_to_fall(mlp: Mlp) -> None:
    prepack(mlp, "fp32")
    assert ask(mlp, torch.randn(0, 5, 24), "fp32").shape == (0, 5, 24)


def convolutions() -> nn.Sequential:
    torch.manual_seed(0)
    first, last = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 1)
    units, halved = (ResidualUnit(8, "none"), ResidualUnit(8, "batch")), nn.Conv2d(8, 8, 3, 2, bias=False, groups=2)
    return nn.Sequential(first, nn.ReLU(), *units, halved, last).eval()


@pytest.mark.parametrize("precision", ["fp32", BF16])
def test_convolutions_give_what_they_gave_for_images_of_any_size(precision: Precision) -> None:
    plain, model = convolutions(), convolutions()
    prepack(model, precision)
    packed = [m.forward for m in model.modules() if isinstance(getattr(m, "forward", None), PackedConv)]
    assert [layer.fused for layer in packed] == ["relu", "relu", None, None, None, None, None]
    assert list(model.state_dict()) == list(plain.state_dict())
    for shape in ((2, 3, 13, 17), (1, 3, 9, 20), (2, 3, 13, 17)):
        x = torch.randn(shape)
        for image in (x, x.contiguous(memory_format=torch.channels_last)):
            found, expected = ask(model, image, precision), ask(plain, image, precision)
            torch.testing.assert_close(found, expected, rtol=TOLERANCE[precision], atol=TOLERANCE[precision])
    assert all(layer.weight is not None for layer in packed)


def test_a_plain_convolution_still_has_its_relu() -> None:
    plain, model, x = convolutions(), convolutions(), torch.randn(2, 3, 8, 9)
    prepack(model, "bf16")
    assert torch.equal(model(x), plain(x))  # with gradients, in fp32


def test_a_cpu_without_avx512_predicts_in_bf16_by_the_plain_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    plain, model, x = convolutions(), convolutions(), torch.randn(1, 3, 9, 20)
    prepack(model, "bf16")
    assert torch.equal(ask(model, x, "bf16"), ask(plain, x, "bf16"))
    prepack(model, "fp32")
    assert any(isinstance(module.forward, PackedConv) for module in model.modules())
