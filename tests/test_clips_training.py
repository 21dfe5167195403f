"""Learning from clips, from the config to a checkpoint: an image model gets motion blocks and stays what it was."""

from pathlib import Path
from typing import Any

import pytest
import torch
from shell import Shell
from small import small_config

import densevit
from densevit.builder.checkpoint import restore
from densevit.config import parser
from densevit.errors import ConfigError, DataError

DPT = {"type": "dpt", "channels": 8}
LOSSES = [{"type": "silog"}, {"type": "temporal_gradient", "space": "log_depth"}]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_config(tmp_path_factory.mktemp("temporal"))


@pytest.fixture(scope="module")
def image_model(config: Path) -> Path:
    run(config, "image")
    return config.parent / "image"


def run(config: Path, name: str, **more: Any) -> None:
    output = str(config.parent / name)
    densevit.train(config, output=output, steps=2, validate_every=2, **{"model.decoder": DPT, **more})


def clips(image_model: Path, **more: Any) -> dict[str, Any]:
    return {
        "model.init_from": str(image_model), "model.conditioning": {"motion": {}},
        "model.trainable": ["conditioning.motion"], "data.clip": 2, "tasks.depth.losses": LOSSES, **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def video_model(config: Path, image_model: Path) -> Path:
    run(config, "video", **clips(image_model))
    return config.parent / "video"


def test_motion_blocks_learn_and_single_images_are_predicted_as_before(image_model: Path, video_model: Path) -> None:
    image, _ = restore(image_model)
    video, card = restore(video_model)
    assert card.conditioning == {"motion": {"heads": 8, "frames": 2}} and card.clip_frames == 2
    frames = torch.rand(4, 3, 48, 64)
    with torch.inference_mode():
        assert torch.equal(video.eval()(frames)["depth"], image.eval()(frames)["depth"])
        assert not torch.equal(
            video(frames, {"clips": torch.tensor([[0, 1], [2, 3]])})["depth"], image(frames)["depth"]
        )


def test_inspect_names_the_motion_blocks(video_model: Path, shell: Shell) -> None:
    assert "conditioning:     motion (heads 8, frames 2" in shell("inspect", video_model).out


@pytest.mark.slow
def test_motion_blocks_start_from_those_of_a_checkpoint(
    config: Path, video_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(config, "more", **{**clips(video_model), "model.conditioning": {}, "data.clip": 4})
    said = capsys.readouterr().err
    assert "conditioning.motion (88 tensors" in said and "nothing is new" in said
    _, card = restore(config.parent / "more")
    assert card.clip_frames == 4


def test_what_does_not_go_together_is_refused_before_the_first_step(config: Path, image_model: Path) -> None:
    for changes, why in (
        ({"data.clip": 1}, r"model\.conditioning\.motion: learns from clips; set data\.clip"),
        ({"data.clip": 3}, r"data\.clip: 4 images a step hold no whole clips of 3\."),
    ):
        with pytest.raises(ConfigError, match=why):
            run(config, "refused", **{**clips(image_model), **changes})
    with pytest.raises(DataError, match=r"data\.clip: a clip of 4 frames, 3 apart, spans 10 frames, and the longest"):
        run(config, "refused", **clips(image_model, **{"data.clip": 4, "data.clip_stride": 3}))
    train = {**parser.read(config)[0].data.train, "val_fraction": 0.5}
    with pytest.raises(DataError, match=r"data\.clip: clips need frames that follow one another.* Folder do not"):
        run(config, "refused", **clips(image_model, **{"data.train": train}))
    assert not (config.parent / "refused").exists()
