import math

import pytest
import torch
from torch import nn

from densevit.config.schema import Model, Optim, Schedule
from densevit.engine.optim import (
    build_optimizer,
    freeze,
    learning_rates,
    parameter_groups,
    set_evaluation_mode,
    set_learning_rate,
    step_unless,
)
from densevit.engine.train_state import EMA
from densevit.errors import ConfigError
from densevit.models.lora import Lora, add_lora


class Layered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 1)
        self.token = nn.Parameter(torch.zeros(1, 1, 2))

    def layer_groups(self) -> list[list[nn.Parameter]]:
        return [[*self.stem.parameters(), self.token], list(self.block.parameters())]

    def no_weight_decay(self) -> set[str]:
        return {"token"}


def test_groups_follow_depth_and_spare_biases_and_tokens_from_decay() -> None:
    model = Layered()
    optim = Optim(encoder_lr_scale=0.1, layer_decay=0.5, weight_decay=0.3)
    found = {
        parameter: (group["scale"], group["weight_decay"])
        for group in parameter_groups(model, model, optim)
        for parameter in group["params"]
    }
    assert len(found) == len(list(model.parameters()))
    assert found[model.stem.weight] == (0.05, 0.3)  # 0.1 * 0.5^(2 - 1 - 0)
    assert found[model.stem.bias] == (0.05, 0.0)
    assert found[model.token] == (0.05, 0.0)
    assert found[model.block.weight] == (0.1, 0.3)
    assert found[model.head.weight] == (1.0, 0.3)


def test_frozen_parameters_are_in_no_group() -> None:
    model = Layered()
    model.stem.requires_grad_(False)
    groups = parameter_groups(model, model, Optim())
    assert all(parameter.requires_grad for group in groups for parameter in group["params"])


def test_what_alone_is_trained_leaves_weights_below_updates_and_a_frozen_encoder_as_they_are() -> None:
    def model() -> nn.ModuleDict:
        encoder = nn.ModuleDict(
            {"blocks": nn.ModuleList([nn.ModuleDict({"attn": nn.ModuleDict({"proj": nn.Linear(8, 8)})})])}
        )
        add_lora(encoder, Lora(rank=2))
        decoder = nn.Sequential(nn.Linear(8, 8), nn.Dropout())
        return nn.ModuleDict({"encoder": encoder, "decoder": decoder, "head": nn.BatchNorm1d(8)})

    updated, frozen, empty = model(), model(), model()
    freeze(updated, Model(trainable=["encoder", "head"]))
    trained = {name for name, parameter in updated.named_parameters() if parameter.requires_grad}
    assert {name.rpartition(".")[2] for name in trained} == {"lora_a", "lora_b", "weight", "bias"}
    assert all(name.startswith("head.") or "lora" in name for name in trained)
    options = Model(trainable=["encoder", "head"], freeze_encoder=True)
    freeze(frozen, options)
    set_evaluation_mode(frozen.train(), options)
    assert {name for name, parameter in frozen.named_parameters() if parameter.requires_grad} == {
        "head.weight",
        "head.bias",
    }
    assert frozen["head"].training and not any(module.training for module in frozen["encoder"].modules())
    assert frozen["decoder"].training and not frozen["decoder"][1].training  # it gives extras, and drops nothing
    with pytest.raises(ConfigError, match=r"model\.trainable: encoder has no weights that are not frozen"):
        freeze(empty, Model(trainable=["encoder"], freeze_encoder=True))


@pytest.mark.parametrize("kind", ["cosine", "poly", "one_cycle", "constant"])
def test_every_schedule_rises_to_the_rate_and_falls_to_its_end(kind: str) -> None:
    final = 1.0 if kind == "constant" else 0.01
    rate, _ = learning_rates(Optim(lr=2.0), Schedule(type=kind, warmup=10.0, min_lr_ratio=final), 110)
    rises = [rate(n) for n in range(11)]
    assert rises == sorted(rises) and rises[0] > 0
    assert rate(10) == pytest.approx(2.0)
    assert rate(110) == pytest.approx(2.0 * final)
    falls = [rate(n) for n in range(10, 110)]
    assert falls == sorted(falls, reverse=True)


def test_schedules_pass_through_hand_calculated_points() -> None:
    one = Optim(lr=1.0)
    # Half-way: cosine 1/2, poly 0.5^0.9. A share of 0.1 of 100 steps is 10 steps of warm-up.
    cycle = Schedule(type="one_cycle", warmup=9.0, warmup_start_factor=0.0)
    for schedule, step, expected in (
        (Schedule(type="cosine", warmup=0.0), 50, 0.5),
        (Schedule(type="poly", warmup=0.0), 50, 0.5**0.9),
        (Schedule(warmup=0.1), 4, 5 / 11),
        (cycle, 4, (1 - math.cos(math.pi / 2)) / 2),
    ):
        assert learning_rates(one, schedule, 100)[0](step) == pytest.approx(expected)


def test_an_encoder_with_a_warm_up_of_its_own_rests_first_and_then_has_the_whole_curve() -> None:
    # EoMT: rates of the new parts rise over 4 steps and fall as (1 - (n - 4) / 20)^0.9; the encoder's are 0 for 4,
    # rise over 5, and fall as (1 - (n - 9) / 15)^0.9. By hand, of 24 steps:
    schedule = Schedule(type="poly", power=0.9, warmup=4.0, encoder_warmup=5.0)
    new, old = learning_rates(Optim(lr=1.0), schedule, 24)
    assert [new(n) for n in (0, 3, 4, 14, 24)] == pytest.approx([1 / 5, 4 / 5, 1, 0.5**0.9, 0])
    assert [old(n) for n in (0, 3, 4, 8, 9, 12, 24)] == pytest.approx([0, 0, 1 / 6, 5 / 6, 1, 0.8**0.9, 0])
    shares = Schedule(type="poly", power=0.9, warmup=1 / 6, encoder_warmup=5 / 24)
    same = learning_rates(Optim(lr=1.0), shares, 24)[1]
    assert [same(n) for n in range(25)] == [old(n) for n in range(25)]
    new, old = learning_rates(Optim(), Schedule(type="poly", warmup=4.0), 24)
    assert old(6) == new(6)


def test_an_encoder_apart_shares_no_group_with_the_new_parts() -> None:
    model = Layered()
    optim = Optim(lr=2.0, layer_decay=0.5)  # the last block learns as the head does, at a scale of 1
    optimizer = build_optimizer(parameter_groups(model, model, optim, split=True), optim)
    set_learning_rate(optimizer, 0.8, encoder_rate=0.2)
    rates = {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    assert len(rates) == len(list(model.parameters()))
    assert rates[model.head.weight] == rates[model.head.bias] == 0.8
    assert rates[model.block.weight] == rates[model.block.bias] == 0.2
    assert rates[model.stem.weight] == rates[model.token] == 0.1


def test_the_average_is_the_weighted_sum_of_the_past() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 0.0)
    ema = EMA(model, 0.5)
    for value in (4.0, 8.0):
        nn.init.constant_(model.weight, value)
        ema.update(1000)
    assert ema.average["weight"].item() == pytest.approx(0.25 * 0 + 0.25 * 4 + 0.5 * 8)
    with ema.applied():
        assert model.weight.item() == pytest.approx(5.0)
    assert model.weight.item() == 8.0


def test_sgd_is_momentum_over_the_gradient_with_its_decay() -> None:
    weight, late = (nn.Parameter(torch.tensor([[2.0]])) for _ in range(2))
    optim = Optim(type="sgd", lr=0.1, momentum=0.5, weight_decay=0.1)
    optimizer = build_optimizer([{"params": [weight, late], "scale": 1.0, "weight_decay": 0.1}], optim)
    expected, velocity = [2.0, 2.0], [0.0, 0.0]
    for step, gradient in enumerate((1.0, -3.0, 0.5)):
        for i, parameter in enumerate((weight, late)[: 1 + step]):  # the second has its first gradient a step later
            parameter.grad = torch.tensor([[gradient]])
            velocity[i] = 0.5 * velocity[i] + gradient + 0.1 * expected[i]
            expected[i] -= 0.1 * velocity[i]
        step_unless(optimizer, torch.tensor(0.0))
        assert [weight.item(), late.item()] == pytest.approx(expected)
