import pytest
import torch

from densevit.engine.monitors import LossSpikeMonitor, OutputSaturationMonitor


def test_a_falling_and_noisy_loss_raises_no_alarm() -> None:
    alarm = LossSpikeMonitor()
    noise = torch.rand(500, generator=torch.Generator().manual_seed(0)).tolist()
    assert [alarm(2.0 / (1 + i / 50) + x) for i, x in enumerate(noise)] == [None] * 500


def test_a_spike_is_told_and_does_not_become_the_usual() -> None:
    alarm = LossSpikeMonitor()
    for i in range(20):
        assert alarm(1.0 + 0.1 * (i % 3)) is None
    assert alarm(100.0) == "the loss is 100, where 1.1 was usual"
    assert alarm(100.0) is not None and alarm(1.1) is None
    assert alarm.count == 2


def test_a_loss_that_stays_high_is_the_new_usual() -> None:
    alarm = LossSpikeMonitor()
    told = [alarm(1.0) for _ in range(20)] + [alarm(50.0) for _ in range(100)]
    assert sum(line is not None for line in told) < 60
    assert told[-1] is None


@pytest.mark.parametrize(("value", "end"), [(0.0, "lower"), (10.0, "upper")])
def test_a_head_at_one_end_of_its_range_is_told_once(value: float, end: str) -> None:
    alarm = OutputSaturationMonitor((0.0, 10.0))
    told = [alarm(torch.full((2, 1, 4, 4), value)) for _ in range(5)]
    assert [line is not None for line in told] == [False, False, True, False, False]
    assert f"100.0% of the predictions lie at the {end} end of the head's range (0 to 10)" in str(told[2])


def test_a_head_that_uses_its_range_is_not() -> None:
    alarm = OutputSaturationMonitor((0.0, 10.0))
    spread = torch.linspace(0, 10, 32).view(2, 1, 4, 4)
    assert [alarm(spread) for _ in range(5)] == [None] * 5
