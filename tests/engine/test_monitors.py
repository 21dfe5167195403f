from dataclasses import replace

import pytest
import torch
from torch import nn

from densevit.config.schema import Data, Model, TrainConfig
from densevit.engine.monitors import LossSpikeMonitor, OutputSaturationMonitor, explain_step_errors, memory_advice
from densevit.errors import ConfigError
from densevit.utils.process_group import ProcessGroup


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


def test_a_head_at_one_end_of_its_range_is_told_once_and_one_that_uses_its_range_is_not() -> None:
    for value, end in ((0.0, "lower"), (10.0, "upper")):
        alarm = OutputSaturationMonitor({"depth": (0.0, 10.0), "labels": None})
        told = [list(alarm({"depth": torch.full((2, 1, 4, 4), value)})) for _ in range(5)]
        assert [len(lines) for lines in told] == [0, 0, 1, 0, 0]
        assert f"100.0% of the predictions lie at the {end} end of the head's range (0 to 10)" in told[2][0]
    alarm, spread = OutputSaturationMonitor({"depth": (0.0, 10.0)}), torch.linspace(0, 10, 32).view(2, 1, 4, 4)
    assert not [line for _ in range(5) for line in alarm({"depth": spread})]


GB = 2**30
RUN = TrainConfig(model=Model(encoder={}, decoder={}, heads={}), data=Data(train={}), batch_size=32)


def test_out_of_memory_says_what_to_change_and_by_how_much() -> None:
    # 5 GB before the step; 16 images of 32 had been reckoned with when 75 GB were full: 70 / 32 GB an image at least,
    # so that 0.9 * 80 - 5 = 67 GB hold 30, of which 16 divide 32 evenly.
    said = memory_advice(RUN, 1, total=80 * GB, fixed=5 * GB, used=75 * GB)
    assert "a step of 32 images at once does not fit into memory (80.0 GB; 5.0 before the step, 75.0 when" in said
    assert "Take grad_accum_steps=2 (16 images at once" in said
    assert "model.grad_checkpointing=true" in said and "batch_size=16 (another training)" in said


def test_out_of_memory_on_several_gpus_counts_the_images_of_one() -> None:
    said = memory_advice(replace(RUN, batch_size=64, grad_accum_steps=2), 4, total=80 * GB, fixed=40 * GB, used=79 * GB)
    assert "a step of 8 images at once" in said  # 39 / 8 GB an image: 32 GB hold 6, and 4 divide the 16 of a process
    assert "grad_accum_steps=4 (4 images at once" in said and "batch_size=32" in said and "parallel=fsdp" in said


def test_where_nothing_is_left_to_share_out_the_model_is_too_large() -> None:
    small = replace(RUN, batch_size=1, model=replace(RUN.model, grad_checkpointing=True))
    clips = replace(RUN, batch_size=24, data=replace(RUN.data, clip=6))
    assert "grad_accum_steps=2 (12 images at once" in memory_advice(clips, 1, total=0, fixed=0, used=0)
    assert "Take a smaller model" in memory_advice(small, 1, total=0, fixed=0, used=0)


def test_an_error_of_another_kind_passes_and_one_of_memory_keeps_its_cause() -> None:
    with pytest.raises(RuntimeError, match="shapes"), explain_step_errors(RUN, ProcessGroup()):
        raise RuntimeError("shapes do not fit")
    with pytest.raises(ConfigError, match="grad_accum_steps=2") as caught, explain_step_errors(RUN, ProcessGroup()):
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert isinstance(caught.value.__cause__, torch.OutOfMemoryError)


def test_one_image_at_once_is_too_few_for_batch_norm() -> None:
    run = replace(RUN, batch_size=2, grad_accum_steps=2)
    message = "needs two images at once, and 2 over 1 processes x 2 micro-batches are one"
    with pytest.raises(ConfigError, match=message), explain_step_errors(run, ProcessGroup()):
        nn.BatchNorm2d(3)(torch.zeros(1, 3, 1, 1))
