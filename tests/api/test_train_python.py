"""Training from Python: the bits of the command, objects where names stand, and messages that say what would fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from small import small_config
from torch import Tensor, nn

import densevit
from densevit.cli.main import main
from densevit.config.parser import Draft, find_config
from densevit.config.yaml_document import YamlDocument
from densevit.engine.logger import read_csv
from densevit.engine.monitors import COLUMNS as SPEED
from densevit.errors import CheckpointError, ConfigError, DataError
from densevit.models.encoders.module import ModuleEncoder
from densevit.ops.geometry import pinhole
from densevit.structures import Sample

SHORT = {"steps": 2, "validate_every": 2}


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    """The config, its data, and a run of the command."""
    words = [f"{key}={value}" for key, value in SHORT.items()]
    assert main(["train", str(small_config(folder)), *words, f"output={folder / 'command'}"]) == 0
    return folder


def same_run(run: densevit.Run, other: Path) -> None:
    mine, theirs = (load_file(path / "model.safetensors") for path in (run.best, densevit.Run(other).best))
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    assert run.scores == densevit.Run(other).scores
    for name in ("train", "val"):
        rows = [
            [{**row, **dict.fromkeys(("seconds", *SPEED), 0)} for row in read_csv(path / f"{name}.csv")]
            for path in (run.output, other)
        ]
        assert rows[0] == rows[1]


def pairs(folder: Path, as_arrays: bool) -> list[tuple[Any, Any]]:
    files = sorted((folder / "data/images").iterdir())
    found = [(path, folder / f"data/depths/{path.stem}.png") for path in files]
    if not as_arrays:
        return found
    return [(Image.open(i), np.asarray(Image.open(d)).astype(np.float32) / 1000) for i, d in found]


@pytest.mark.parametrize(
    "given",
    [
        lambda folder: (folder / "small.yaml", {}),
        lambda folder: (YamlDocument.read(folder / "small.yaml").tree, {"optim.lr": np.float64(1e-3)}),
        lambda folder: (folder / "small.yaml", {"data": dict.fromkeys(("train", "val"), pairs(folder, True))}),
    ],
    ids=["a file", "a dict", "lists of pairs"],
)
def test_weights_scores_and_logs_are_those_of_the_command(
    folder: Path, tmp_path: Path, given: Callable[[Path], tuple[Any, dict[str, Any]]]
) -> None:
    config, overrides = given(folder)
    same_run(densevit.train(config, output=tmp_path / "python", **SHORT, **overrides), folder / "command")


def test_files_in_pairs_are_read_by_their_scale(folder: Path, tmp_path: Path) -> None:
    data = densevit.Pairs(pairs(folder, False), depth_scale=1000)
    assert data.names[:2] == ["000", "001"]
    run = densevit.train(folder / "small.yaml", data={"train": data, "val": data}, output=tmp_path, **SHORT)
    same_run(run, folder / "command")
    with pytest.raises(ConfigError, match=r"validated on a Python object \(densevit.*Pairs\); give it as `data`"):
        densevit.evaluate(run.best)


@pytest.mark.slow
def test_a_run_tells_of_itself_and_goes_on(folder: Path, tmp_path: Path) -> None:
    run = densevit.train(folder / "small.yaml", output=tmp_path, **SHORT)
    assert run.best == run.last and run.best.name == "step-00000002"
    assert [row["step"] for row in run.train_log] == [1, 2] and run.val_log[0]["d1"] == pytest.approx(run.scores["d1"])
    assert run.report is not None and "Training of" in run.report.read_text()
    assert run.config["steps"] == 2 and run.config["model"]["encoder"]["dim"] == 32
    depth = run.predictor(np.zeros((20, 30, 3), np.uint8))
    assert depth.shape == (20, 30) and depth.dtype == np.float32
    with pytest.raises(ConfigError, match="already holds a run"):
        densevit.train(folder / "small.yaml", output=tmp_path, **SHORT)
    further = densevit.train(folder / "small.yaml", output=tmp_path, steps=4, validate_every=2, resume=True)
    assert further.last.name == "step-00000004" and [row["step"] for row in further.train_log] == [1, 2, 3, 4]
    with pytest.raises(CheckpointError, match="no training run"):
        densevit.Run(tmp_path / "elsewhere")


@pytest.mark.slow
def test_epochs_of_a_run_that_resumes_with_larger_steps_are_those_of_the_data(folder: Path, tmp_path: Path) -> None:
    """Six images: two epochs in 6 steps of 2, then two in 2 steps of 6."""
    epochs = {"steps": None, "output": tmp_path, "data.val": None}
    densevit.train(folder / "small.yaml", **epochs, epochs=2, batch_size=2)
    further = densevit.train(folder / "small.yaml", **epochs, epochs=4, batch_size=6, resume=True)
    assert further.last.name == "step-00000008" and further.config["steps"] == 8


class Pyramid(nn.Module):
    """Maps at strides 4 and 8, of 8 and 16 channels; `last` puts the channels last."""

    def __init__(self, *, last: bool = False, fixed: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 16, 2, 2)
        self.last, self.fixed = last, fixed

    def forward(self, image: Tensor) -> list[Tensor]:
        assert not self.fixed or image.shape[-1] == 64, f"{image.shape[-1]} is not 64"
        first = self.first(image)
        maps = [first, self.second(first)]
        return [m.permute(0, 2, 3, 1) for m in maps] if self.last else maps


def test_any_module_is_an_encoder(folder: Path, tmp_path: Path) -> None:
    net = Pyramid()
    before = net.first.weight.detach().clone()
    overrides: dict[str, Any] = {"model": {"encoder": net}, **SHORT}
    run = densevit.train(folder / "small.yaml", output=tmp_path, **overrides)
    assert not torch.equal(net.first.weight, before)  # trained in place
    assert run.config["model"]["encoder"] == {"type": "object", "name": f"{Pyramid.__module__}.Pyramid"}
    image = np.random.default_rng(0).integers(0, 256, (30, 42, 3), np.uint8)
    again = densevit.load(tmp_path, encoder=Pyramid())
    assert np.array_equal(run.predictor(image), again(image))
    with pytest.raises(CheckpointError, match=r"its encoder is a Python object, .*Pyramid"):
        densevit.load(tmp_path)
    with pytest.raises(ConfigError, match=r"model.encoder: stands for a Python object"):
        densevit.train(run.config, output=tmp_path / "again")
    run.report.unlink()  # was written with images of the best checkpoint
    assert densevit.train(folder / "small.yaml", output=tmp_path, resume=True, **overrides).report is not None


def test_a_module_is_probed_for_channels_strides_and_layout() -> None:
    encoder, channels_last = ModuleEncoder(Pyramid()), ModuleEncoder(Pyramid(last=True))
    assert [(f.channels, f.stride) for f in encoder.features] == [(8, 4), (16, 8)]
    assert channels_last.features == encoder.features and encoder.patch_size == 8
    channels_last.load_state_dict(encoder.state_dict())
    image = torch.rand(2, 3, 20, 30)
    out, other = encoder(image), channels_last(image)
    assert out.image_size == (24, 32) and [tuple(m.shape) for m in out.maps] == [(2, 8, 6, 8), (2, 16, 3, 4)]
    assert all(torch.equal(a, b) for a, b in zip(out.maps, other.maps, strict=True))
    encoder.module.no_weight_decay = lambda: {"first.weight", "cls_token"}  # the second is not there
    assert encoder.no_weight_decay() == {"module.first.weight"}
    with pytest.raises(ConfigError, match="fails on an image of 128 x 192"):
        ModuleEncoder(Pyramid(fixed=True))
    with pytest.raises(ConfigError, match="not feature maps"):
        ModuleEncoder(nn.Sequential(nn.Flatten(), nn.LazyLinear(3)))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"optim": {"lrr": 3}}, r"optim.lrr: no such option. Did you mean 'optim.lr'?"),
        ({"model.encoder": 3}, "model.encoder: a component {type: ...} or an nn.Module, got int"),
        ({"model.decoder": nn.Identity()}, "Objects may stand at model.encoder"),
        ({"data": {"train": 3}}, "data.train: int is no data"),
        ({"data": {"val": [3]}}, "data.val: sample 0 is int; a sample is (image, depth)"),
        ({"data": {"train": [{"img": 1}]}}, "data.train: sample 0: no part 'img'. Did you mean 'image'?"),
        ({"data": {"train": []}}, "data.train: the sequence of samples is empty"),
        ({"data": {"train": [(np.zeros((9, 9, 3), np.uint8), np.ones((9, 9), np.uint16))]}}, "depth_scale=1000"),
    ],
)
def test_what_does_not_fit_is_said_as_on_the_command_line(
    folder: Path, tmp_path: Path, overrides: dict[str, Any], message: str
) -> None:
    with pytest.raises((ConfigError, DataError)) as caught:
        densevit.train(folder / "small.yaml", output=tmp_path, **SHORT, **overrides)
    assert message in str(caught.value)
    assert not list(tmp_path.glob("*.csv"))


def test_a_config_is_a_path_a_name_or_a_dict() -> None:
    with pytest.raises(ConfigError, match="a config is a file, the name of a recipe or a dict, got NoneType"):
        find_config(None)  # type: ignore[arg-type]


def test_nested_overrides_merge_and_components_replace(folder: Path) -> None:
    overrides = {"optim": {"lr": 0.5}, "model": {"decoder": {"type": "linear"}, "encoder": {"dim": 64}}}
    run = Draft.from_python(folder / "small.yaml", overrides).run
    assert run.optim.lr == 0.5 and run.model.decoder == {"type": "linear"}
    assert run.model.encoder is not None and (run.model.encoder["dim"], run.model.encoder["depth"]) == (64, 2)


def test_pairs_of_samples_are_these_samples() -> None:
    given = Sample(
        name="a", image=np.zeros((4, 6, 3), np.uint8), depth=np.ones((4, 6), np.float32), valid=np.eye(4, 6) > 0,
        depth_kind="affine", normals=np.ones((4, 6, 3), np.float32), pose=np.eye(4),
    )  # fmt: skip
    data = densevit.Pairs([given])
    for name, value in vars(given).items():
        np.testing.assert_array_equal(getattr(data.read(0), name), value)
    assert data.depth_kind(0) == "affine"


def test_pairs_take_labels_names_and_cameras() -> None:
    image, ids = np.zeros((4, 6, 3), np.uint8), np.array([[0, 1, 255, 1, 0, 0]] * 4)
    camera = np.array([[5.0, 0, 3], [0, 5, 2], [0, 0, 1]])
    data = densevit.Pairs([{"image": image, "labels": ids, "name": "a", "intrinsics": camera}], classes=["sky", "road"])
    sample = data.read(0)
    assert data.names == ["a"] and sample.depth is None and sample.intrinsics is not None
    assert np.array_equal(sample.labels, ids)
    with pytest.raises(DataError, match="has no class for"):
        densevit.Pairs([{"image": image, "labels": ids + 1}], classes=["sky", "road"]).read(0)
    larger, shares = pinhole(10, 10, 6, 4), pinhole(0.2, 0.3, 0.5, 0.5)  # of an image twice as large; of its size
    for wrong, reason in ((larger, "lies outside this image of 4x6"), (shares, "which no photo has")):
        with pytest.raises(DataError, match=reason):
            densevit.Pairs([{"image": image, "intrinsics": wrong}]).read(0)
    depth = np.full((1, 4, 6), 2.0)
    depth[0, 0] = np.nan
    sample = densevit.Pairs([(image, torch.tensor(depth))]).read(0)  # tensors 1 h w
    assert sample.depth[1, 0] == 2 and not sample.valid[0].any()
    with pytest.raises(DataError, match="sizes differ"):
        densevit.Pairs([(image, np.ones((5, 6)))]).read(0)
    with pytest.raises(DataError, match="sizes differ"):
        densevit.Pairs([(image, np.ones((0, 6)))]).read(0)
    with pytest.raises(DataError, match="several named a"):
        densevit.Pairs([{"image": image, "name": "a"}] * 2)
