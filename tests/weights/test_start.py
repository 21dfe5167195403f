"""Training from a checkpoint by config alone: what is taken of the file, what is new, what the config still says."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
import small
import timm
import torch
import yaml
from small import small_folder
from toy_room_model import write_toy

import densevit
from densevit.builder import plan as planning
from densevit.builder import training
from densevit.builder.checkpoint import InitCheckpoint, parse_model, restore, without_weights
from densevit.cli.main import main
from densevit.config import schema
from densevit.engine.trainer import Trainer
from densevit.errors import CheckpointError, ConfigError
from densevit.models.heads.base import HEADS
from densevit.preprocess_config import PreprocessConfig
from densevit.utils.network import PACKAGED, PUBLISHED
from densevit.utils.process_group import process_group
from densevit.weights import checkpoint, hub
from densevit.weights.external import ConvertedCheckpoint
from densevit.weights.finetune import filled, other_decoder, other_head
from densevit.weights.readers import read_tensors

METRIC = {"type": "metric", "activation": "log", "max_depth": 10, "align_corners": True}


@pytest.fixture
def relative(tmp_path: Path) -> Path:
    return seeded.saved("depth_anything_v2", tmp_path)


def config(folder: Path, **model: Any) -> Path:
    """The small run, with another model."""
    path = small.small_config(folder)
    tree = yaml.safe_load(path.read_text())
    tree["model"] = model
    path.write_text(yaml.safe_dump({**tree, "steps": 2, "validate_every": 2}))
    return path


def trainer(path: Path) -> Trainer:
    plan = planning.load_plan(path).open()
    with process_group("cpu") as world:
        return training.build_trainer(plan, world)


@pytest.mark.parametrize(("name", "licence"), [("test_vit.r160_in1k", "apache-2.0"), ("test_vit", "unknown")])
def test_the_card_has_the_licence_of_timms_published_weights(name: str, licence: str, tmp_path: Path) -> None:
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "encoder.pth")
    encoder = {"type": "timm", "name": name, "weights": str(tmp_path / "encoder.pth"), "image_size": 64}
    parts = {"decoder": {"type": "linear"}, "heads": {"depth": {"type": "metric"}}}
    assert trainer(config(tmp_path, encoder=encoder, **parts)).card.licence == licence


def test_a_relative_model_becomes_a_metric_one_by_config_alone(
    relative: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, init_from=str(relative), init_family="depth-anything-v2", heads={"depth": METRIC})
    model = trainer(path).model
    said = capsys.readouterr().err
    assert "encoder (174 tensors, 0.73 M parameters)" in said
    assert "decoder (54 tensors, " in said
    assert "new: heads.depth (metric where the file has disparity; 6 tensors, " in said
    state = seeded.read("depth_anything_v2").state()
    assert torch.equal(model.encoder.vit.blocks[7].mlp.fc1.weight, state["pretrained.blocks.7.mlp.fc1.weight"])
    assert torch.equal(model.decoder.fusions[1].out.weight, state["depth_head.scratch.refinenet2.out_conv.weight"])


def test_the_file_is_read_once_and_not_held_in_training(relative: Path, tmp_path: Path, monkeypatch) -> None:
    read = []
    monkeypatch.setattr("densevit.weights.detect.read_tensors", lambda path: read.append(path) or read_tensors(path))
    model = {"init_from": str(relative), "init_family": "depth-anything-v2", "heads": {"depth": METRIC}}
    plan = planning.load_plan(config(tmp_path, **model)).open()
    with process_group("cpu") as world:
        training.build_trainer(plan, world)
        assert read == [relative] and plan.init is not None and plan.init.opened is None
        training.build_trainer(plan, world)  # another model of the same plan asks for them again
    assert len(read) == 2


@pytest.mark.parametrize("why_new", [other_head, other_decoder])
def test_a_head_or_decoder_of_other_classes_or_in_another_order_is_new(why_new: Callable[..., str]) -> None:
    def head(*names: str) -> dict[str, Any]:
        return {"type": "segmentation", "classes": names}

    assert why_new(head("wall", "floor"), head("floor", "wall")) == "class 0 is 'wall' where the file has 'floor'"
    assert why_new(head("wall", "floor"), head("wall", "table")) == "class 1 is 'floor' where the file has 'table'"
    assert why_new(head("crane", "crane"), head("crane", "crane")) == ""
    assert why_new({"type": "segmentation", "classes": 2}, head("floor", "wall")) == ""


@pytest.mark.slow
def test_it_trains_and_its_checkpoint_says_where_it_comes_from(relative: Path, tmp_path: Path) -> None:
    resize = {"mode": "native"}  # the file's own would show the small pictures at 518 pixels
    path = config(
        tmp_path, init_from=str(relative), init_family="depth-anything-v2", resize=resize, heads={"depth": METRIC}
    )
    assert main(["train", str(path)]) == 0
    _, card = restore(tmp_path / "run")
    assert card.source == "densevit, from Depth Anything V2, ViT-64 channels"
    assert (card.outputs["depth"].kind, card.out_indices) == ("metric", (2, 5, 8, 11))
    assert card.config["model"]["init_family"] == "depth-anything-v2"
    assert card.config["model"]["encoder"]["dim"] == 64
    again = trainer(config(tmp_path, init_from=str(tmp_path / "run"), heads={"depth": METRIC}))
    assert again.card.source == card.source  # the first origin, however many trainings


def test_the_files_rule_for_images_is_taken_unless_given(relative: Path, tmp_path: Path) -> None:
    common = {"init_from": str(relative), "init_family": "depth-anything-v2", "heads": {"depth": METRIC}}
    assert trainer(config(tmp_path, **common)).card.resize.mode == "lower_bound"
    assert trainer(config(tmp_path, **common, resize={"mode": "native"})).card.resize.mode == "native"


def test_options_without_a_type_go_over_the_files(relative: Path, tmp_path: Path) -> None:
    path = config(
        tmp_path,
        init_from=str(relative),
        init_family="depth-anything-v2",
        encoder={"drop_path": 0.1},
        heads={"depth": {"type": "disparity", "align_corners": True}},
    )
    plan = planning.load_plan(path).model
    assert (plan.encoder.options["drop_path"], plan.encoder.options["dim"]) == (0.1, 64)


def test_a_head_of_the_same_meaning_is_taken(
    relative: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = {"type": "depth-anything-v2-metric", "max_depth": 20}
    head = {**METRIC, "activation": "sigmoid"}
    model = trainer(config(tmp_path, init_from=str(relative), init_family=family, heads={"depth": head})).model
    assert "heads.depth (6 tensors" in capsys.readouterr().err
    last = seeded.read("depth_anything_v2").state()["depth_head.scratch.output_conv2.2.weight"]
    assert torch.equal(model.heads["depth"].projection.last.weight, last)


def test_another_decoder_is_new_and_another_encoder_an_error(
    relative: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = {"init_from": str(relative), "init_family": "depth-anything-v2", "heads": {"depth": METRIC}}
    trainer(config(tmp_path, **common, decoder={"type": "conv_transpose", "stride": 7, "min_channels": 8}))
    assert "new: decoder ('conv_transpose' where the file has 'dpt'" in capsys.readouterr().err
    trainer(config(tmp_path, **common, decoder={"type": "dpt", "channels": 8}))
    assert "new: decoder (its layers are of other shapes than the file's; 54 tensors" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match=r"encoder: does not fit the model; of 32 weights, 144 unexpected"):
        trainer(config(tmp_path, **common, encoder={"type": "vit", "dim": 32, "depth": 2, "heads": 1}))
    with pytest.raises(CheckpointError, match="its encoder has type vit, and the config asks for timm"):
        trainer(config(tmp_path, **common, encoder={"type": "timm", "name": "test_vit"}))
    for key, theirs, mine in (("heads", 1, 2), ("mlp", "gelu", "quick_gelu")):  # no shape tells
        with pytest.raises(CheckpointError, match=f"its encoder has {key} {theirs}, and the config asks for {mine}"):
            trainer(config(tmp_path, **common, encoder={key: mine}))


def test_without_a_file_the_parts_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.encoder: missing") as caught:
        planning.load_plan(config(tmp_path, heads={"depth": METRIC}, init_family="depth-anything-v2"))
    assert "model.decoder: missing" in str(caught.value)
    assert "no model.init_from whose family" in str(caught.value)


def test_a_run_of_ours_is_a_start_like_any_other(small_run: Path, tmp_path: Path, capsys) -> None:
    model = trainer(config(tmp_path, init_from=str(small_run / "run"), heads={"depth": {"type": "disparity"}})).model
    said = capsys.readouterr().err
    assert "encoder (" in said
    assert "new: heads.depth (disparity where the file has metric" in said
    stored, _ = restore(small_run / "run")
    assert torch.equal(model.encoder.vit.pos_embed, stored.encoder.vit.pos_embed)


def test_the_normalisation_is_the_files_unless_given(small_run: Path, tmp_path: Path) -> None:
    stored = {"type": "vit", "dim": 32, "mean": (0.5, 0.5, 0.5)}
    assert filled({"type": "vit", "dim": 8}, stored) == {**stored, "dim": 8}
    assert filled({"type": "swin"}, stored) == {"type": "swin"}
    model = {"init_from": str(small_run / "run"), "encoder": {"mean": [0.5, 0.4, 0.3]}, "heads": {"depth": METRIC}}
    start = trainer(config(tmp_path, **model))
    assert start.card.mean == (0.5, 0.4, 0.3) == tuple(start.card.model["encoder"]["mean"])
    assert start.card.std == (0.229, 0.224, 0.225)


def test_where_a_files_encoder_once_came_from_is_forgotten() -> None:
    published = ConvertedCheckpoint(
        model={"encoder": {"type": "timm", "name": "test_vit", "pretrained": True}, "decoder": {}, "heads": {}},
        tensors={},
        resize=PreprocessConfig(),
        source="somewhere",
    )
    assert without_weights(published).model["encoder"] == {"type": "timm", "name": "test_vit"}


def test_a_head_on_the_classes_of_a_published_data_set_is_new_for_others(tmp_path: Path) -> None:
    path = seeded.saved("dinov2_segmentation", tmp_path)
    model, card = restore(path)  # the file holds no names, but its 150 classes are those of ADE20K
    init = InitCheckpoint(schema.Model(init_from=str(path)))
    spec = parse_model(card.model, path)
    assert "; nothing is new" in init.load_into(model, spec)
    names = [str(i) for i in range(150)]
    spec = replace(spec, heads={"labels": HEADS.check({**card.model["heads"]["labels"], "classes": names}, "labels")})
    assert "new: heads.labels (class 0 is '0' where the file has 'wall'" in init.load_into(model, spec)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toy in place of the package's weights."""
    folder = write_toy(tmp_path / "toy")
    monkeypatch.setattr(hub, "PACKAGED_FOLDER", folder)
    return folder


def test_it_is_taken_where_no_model_is_named_and_says_what_it_is(
    packaged: Path, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photo, other = sorted((small_folder(here / "photos", 2) / "images").iterdir())
    assert main(["predict", str(photo)]) == 0
    assert "trained on rendered rooms only" in caplog.text and "a field of view of 60 degrees is assumed" in caplog.text
    stem = photo.stem
    names = {f"{stem}.png", f"{stem}.color.png", f"{stem}.overlay.png", f"{stem}.normals.png"}
    assert names <= {path.name for path in (here / "predictions").iterdir()}
    assert densevit.predict(photo, [other], "two", formats="npy").done == 2
    named = densevit.load(PACKAGED)
    metres = named(photo)
    assert metres.dtype == np.float32 and np.array_equal(metres, densevit.load()(photo))
    focal = metres.shape[1] / 2 / np.tan(np.radians(30))
    assert np.allclose(metres, named.with_options(camera=float(focal))(photo), rtol=1e-4)
    with pytest.raises(ConfigError, match="toy is a model; name images"):
        densevit.predict(packaged, output=here / "none")
    with pytest.raises(ConfigError, match=f"{PACKAGED} is a model; name images"):
        densevit.predict(PACKAGED, output=here / "none")


@pytest.mark.skipif(not (hub.PACKAGED_FOLDER / checkpoint.WEIGHTS).exists(), reason="this clone has no weights yet")
def test_the_weights_of_the_package_are_small_and_give_metres() -> None:
    file = hub.PACKAGED_FOLDER / checkpoint.WEIGHTS
    assert file.stat().st_size < 8_000_000
    card = checkpoint.read_card(file)
    assert "does not replace published weights" in card.limitations and PUBLISHED in card.limitations
    assert card.licence == "Apache-2.0" and card.config == {} and set(card.outputs) == {"depth", "normals", "labels"}
    image = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)
    metres = densevit.load(precision="fp32")(image)
    assert metres.shape == (120, 160) and np.isfinite(metres).all() and 0 < metres.min() < metres.max() < 100
