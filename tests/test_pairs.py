"""Every pair of features is either run, and each of the two does what it is for, or refused in a sentence with both.

`python tests/test_pairs.py FOLDER` runs those with `compile`: torch.compile cannot look through the shape checks that
tests run under.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from small import small_config
from torch.distributed.device_mesh import init_device_mesh

import densevit
from densevit.api import training as api_training
from densevit.api.training import Run
from densevit.config import parser
from densevit.engine import distributed, trainer
from densevit.errors import DensevitError
from densevit.inference.image_input import ImageInput
from densevit.inference.predictor import Predictor
from densevit.inference.tiling import Tiling
from densevit.inference.video.predict import predict_frames
from densevit.utils.process_group import ProcessGroup
from densevit.weights import checkpoint

Words = dict[str, Any]
CROP = [{"type": "random_crop", "size": [48, 64]}, {"type": "hflip"}]
FOCAL = 70.0
TRAINED: dict[str, Words] = {
    "clips": {"model.conditioning": {"motion": {}}, "data.clip": 2},
    "points": {
        "model.conditioning": {"points": {"hidden": 8}},
        "data.transforms": [*CROP, {"type": "sparse_depth", "count": [20, 400]}],
    },
    "rays": {"model.conditioning": {"rays": {"hidden": 8}}},
    "canonical": {"model.camera": "canonical"},
    "consistency": {"ema": 0.9},
    "cached": {"model.freeze_encoder": True, "data.cache_features.dtype": "fp32"},
    "lora": {"model.encoder.lora": {"rank": 2}},
    "mixture": {},
    "pretraining": {"objective": {"type": "mae", "dim": 16, "depth": 1, "heads": 2}, "probe.steps": 2},
    "fsdp": {"parallel": "fsdp"},
    "compile": {"compile": True},
}
PREDICTED = ("tiles", "flip", "onnx")
PAIRS = list(combinations((*TRAINED, *PREDICTED), 2))
SHORT = {("clips", "consistency"), ("points", "tiles")}
REFUSED = {
    # The frames of a clip share one augmentation; the cache augments each image by itself.
    ("clips", "cached"): "data.cache_features: .* leave data.clip out",
    # A pre-training learns from images alone.
    ("clips", "pretraining"): "data.clip: a pre-training",
    ("points", "pretraining"): "model.conditioning: a pre-training .* leave out points",
    ("rays", "pretraining"): "model.conditioning: a pre-training .* leave out rays",
    ("consistency", "pretraining"): "consistency: objective 'mae' has no teacher",
    # What is learned is the encoder, or its updates; the cache is of outputs that never change.
    ("cached", "pretraining"): "data.cache_features: a pre-training",
    ("cached", "lora"): "model.freeze_encoder: model.encoder.lora freezes",
    # Processes would run other modules in a step, and wait for each other forever.
    ("clips", "fsdp"): "motion: needs parallel ddp",
    ("points", "fsdp"): "points: needs parallel ddp",
    # Blocks that do not run in every process, or weights that are put in from outside.
    ("cached", "fsdp"): "data.cache_features: needs parallel ddp; fsdp",
    ("pretraining", "fsdp"): "parallel: pre-training needs ddp",
    ("consistency", "fsdp"): "consistency: its teacher cannot be combined with parallel: fsdp",
    ("consistency", "compile"): "consistency: its teacher cannot be combined with compile",
    # Windows of frames go through the model by themselves.
    ("clips", "tiles"): "tiling: for single images; a model with motion blocks",
    ("clips", "flip"): "flip: for single images; a model with motion blocks",
    # A tile cannot be predicted without the points around it.
    ("points", "tiles"): "tiling: this model takes points of whole images only",
}


class Session:
    """What was trained, by the features of it: each once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config, self.runs = folder, small_config(folder), dict[str, Run]()
        camera = {"fx": FOCAL, "fy": FOCAL, "cx": 39.5, "cy": 29.5}
        (folder / "data/intrinsics.json").write_text(json.dumps(camera))

    def words(self, *features: str) -> Words:
        read = parser.read(self.config)[0]
        words: Words = {
            "model.decoder": {"type": "dpt", "channels": 8}, "model.encoder": read.model.encoder, "steps": 2,
            "validate_every": 2, "optim.lr": 1e-2, "model.conditioning": {},
        }  # fmt: skip
        for name in features:
            blocks = words["model.conditioning"] | TRAINED[name].get("model.conditioning", {})
            words |= TRAINED[name] | {"model.conditioning": blocks}
        sources = [{"name": "a", "data": read.data.train, "weight": 1, "truth": "metric"}]
        if "mixture" in features:
            sources += [{**sources[0], "name": "b"}]
        if "consistency" in features:
            strong = {"strong": [{"type": "color", "p": 1.0}]}
            sources += [{**sources[0], "name": "web", "truth": "none", "consistency": strong}]
        if len(sources) > 1:
            words["data.train"] = {"type": "mix", "sources": sources}
        if "cached" in features:
            words["data.cache_features.folder"] = str(self.folder / "features")
        return words

    def train(self, *features: str, uncached: bool = False) -> Run:
        """
        Args:
            uncached: the same views of the images, but through the encoder.
        """
        name = "-".join((*features, *["uncached"] * uncached))
        if name not in self.runs:
            with pytest.MonkeyPatch.context() as patch, one_process(patch) as used:
                if uncached:
                    patch.setattr(api_training, "feature_cache", lambda *_: None)
                words = {**self.words(*features), "output": str(self.folder / f"run-{name}")}
                self.runs[name] = densevit.train(self.config, **words)
                assert {"fsdp", "compile"} & set(features) == used
        return self.runs[name]

    def predictor(self, feature: str) -> Predictor:
        more = {"compile": True} if feature == "compile" else {}
        return densevit.load(self.train(feature).last, device="cpu", precision="fp32", **more)


@contextmanager
def one_process(patch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """FSDP in a group of this process alone, whose numbers are those of no group; compilation without kernels."""
    used, compiled = set[str](), torch.compile

    def parallelize(model: Any, world: ProcessGroup, run: Any, precision: str) -> Any:
        if run.parallel != "fsdp":
            return model
        used.add("fsdp")
        return distributed.shard(model, init_device_mesh("cpu", (1,)))

    def compile_cheaply(*args: Any, **options: Any) -> Any:
        used.add("compile")
        return compiled(*args, **options, backend="aot_eager")

    patch.setattr(trainer, "parallelize", parallelize)
    patch.setattr(torch, "compile", compile_cheaply)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield used
    finally:
        dist.destroy_process_group()


def losses(run: Run, name: str = "loss") -> list[float]:
    return [row[name] for row in run.train_log]


def has_learned(run: Run, tensor: str) -> bool:
    weights, _ = checkpoint.read(run.last)
    found = [x for name, x in weights.items() if name.endswith(tensor)]
    return bool(found) and all(x.any() for x in found)


DONE: dict[str, Callable[[Run], bool]] = {
    "clips": partial(has_learned, tensor="proj_out.weight"),
    "points": partial(has_learned, tensor="points.blocks.0.out.weight"),
    "rays": partial(has_learned, tensor="embed.0.2.weight"),
    "canonical": lambda run: checkpoint.read(run.last)[1].outputs["depth"].focal == FOCAL,
    "consistency": lambda run: min(losses(run, "web/silog")) > 0,
    "lora": partial(has_learned, tensor="lora_b"),
    "mixture": lambda run: all(run.train_log[-1][f"{name}/samples"] > 0 for name in "ab"),
    "pretraining": lambda run: min(losses(run, "mae")) > 0 and (run.output / "encoder.safetensors").is_file(),
}
"""What shows in a run that a feature took part."""


def check_training(session: Session, pair: tuple[str, str]) -> None:
    run = session.train(*pair)
    assert np.isfinite(losses(run)).all() and all(np.isfinite(list(row.values())).all() for row in run.val_log)
    for name, other in (pair, pair[::-1]):
        assert DONE.get(name, bool)(run), name
        if name in ("fsdp", "compile"):
            assert losses(run) == pytest.approx(losses(session.train(other)), rel=1e-4), name
        if name == "cached":
            assert losses(run) == pytest.approx(losses(session.train(*pair, uncached=True)), rel=1e-4)


IMAGE = np.random.default_rng(0).integers(0, 255, (48, 64, 3), dtype=np.uint8)


def image_for(predictor: Predictor, image: np.ndarray, *, mirrored: bool = False) -> ImageInput:
    points = np.zeros(image.shape[:2], np.float32)
    points[5::9, 3::7] = np.linspace(1, 5, points[5::9, 3::7].size).reshape(points[5::9, 3::7].shape)
    given = ImageInput(image, FOCAL if predictor.card.needs_camera or "camera" in predictor.model.input_names else None)
    if "points" in predictor.model.input_names:
        given = ImageInput(image, given.camera, points=points)
    if not mirrored:
        return given
    turned = None if given.points is None else np.ascontiguousarray(points[:, ::-1])
    return ImageInput(np.ascontiguousarray(image[:, ::-1]), given.camera, points=turned)


def check_tiles(predictor: Predictor, folder: Path) -> None:
    large = image_for(predictor, np.tile(IMAGE, (2, 2, 1)))
    whole, one, four = (predictor.with_options(tiling=tiling)(large) for tiling in (None, Tiling(128), Tiling(64)))
    np.testing.assert_array_equal(one, whole)
    assert np.isfinite(four).all() and four.shape == (96, 128) and not np.allclose(four, whole, rtol=1e-4)


def check_flip(predictor: Predictor, folder: Path) -> None:
    flipping = predictor.with_options(flip=True)
    mirrored = flipping(image_for(predictor, IMAGE, mirrored=True))[:, ::-1]
    np.testing.assert_allclose(flipping(image_for(predictor, IMAGE)), mirrored, rtol=1e-4)


def check_onnx(predictor: Predictor, folder: Path) -> None:
    given = image_for(predictor, IMAGE)
    options = {} if given.camera is None else {"focal": FOCAL}
    densevit.export(
        predictor, folder / "model.onnx", image_size=(48, 64), flip=predictor.flip, overwrite=True, **options
    )
    loaded = densevit.load(folder / "model.onnx", runtime="onnxruntime", precision="fp32")
    np.testing.assert_allclose(loaded(ImageInput(IMAGE, points=given.points)), predictor(given), rtol=1e-3)


CHECKS = {"tiles": check_tiles, "flip": check_flip, "onnx": check_onnx}


def check_prediction(session: Session, trained: str, predicted: str) -> None:
    predictor = session.predictor(trained)
    if trained == "clips" and predicted != "onnx":  # else it sees single images
        options: Words = {"tiles": {"tiling": Tiling(32)}, "flip": {"flip": True}}[predicted]
        list(predict_frames(predictor.with_options(**options), [IMAGE] * 3, lookahead=1))
    CHECKS[predicted](predictor, session.folder)


def check_predictions(session: Session, pair: tuple[str, str]) -> None:
    """Tiles, mirror images and ONNX files of a model without further features."""
    flipping = "flip" in pair
    predictor = densevit.load(session.train().last, device="cpu", precision="fp32", flip=flipping)
    if pair == ("tiles", "onnx"):
        densevit.export(predictor, session.folder / "any.onnx", image_size="dynamic", overwrite=True)
        large = np.tile(IMAGE, (2, 2, 1))
        loaded = densevit.load(session.folder / "any.onnx", runtime="onnxruntime", precision="fp32", tile_size=64)
        np.testing.assert_allclose(loaded(large), predictor.with_options(tiling=Tiling(64))(large), rtol=1e-3)
    elif pair == ("tiles", "flip"):
        check_flip(predictor.with_options(tiling=Tiling(32)), session.folder)
    else:
        check_onnx(predictor, session.folder)


def check(session: Session, pair: tuple[str, str]) -> None:
    if pair[0] in PREDICTED:
        run = partial(check_predictions, session, pair)
    elif pair[1] in PREDICTED:
        run = partial(check_prediction, session, *pair)
    else:
        run = partial(check_training, session, pair)
    if pair not in REFUSED:
        run()
        return
    with pytest.raises(DensevitError) as refused:
        run()
    lines = [line for line in str(refused.value).splitlines() if re.search(REFUSED[pair], line)]
    assert len(lines) == 1, refused.value


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    return Session(tmp_path_factory.mktemp("pairs"))


@pytest.mark.parametrize(
    "pair",
    [
        pytest.param(p, marks=() if p in SHORT else pytest.mark.slow, id="-".join(p))
        for p in PAIRS
        if "compile" not in p
    ],
)
def test_a_pair(uncorrected: None, session: Session, pair: tuple[str, str]) -> None:
    check(session, pair)


@pytest.mark.slow
def test_pairs_with_compile(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, __file__, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    alone = Session(Path(sys.argv[1]))
    for each in PAIRS:
        if "compile" in each:
            check(alone, each)
