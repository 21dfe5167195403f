import argparse
import json
import os
import random
import shutil
import zipfile
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from densevit.api.checkpoint import description
from densevit.errors import CheckpointError
from densevit.model_card import HeadSpec, ModelCard
from densevit.utils.state_dict import load_strict
from densevit.weights import checkpoint
from densevit.weights.checkpoint import Manifest
from densevit.weights.readers import read_pickled, read_tensors

CARD = ModelCard(outputs={"depth": HeadSpec(kind="metric", range=(0.001, 10.0))}, multiple=14, out_indices=(2, 5))


@pytest.fixture
def step(tmp_path: Path) -> Path:
    folder = tmp_path / "step-00000010"
    state = {"optimizer": {"lr": 0.1, "m": torch.arange(5.0)}, "random": [1, 2]}
    manifest = Manifest(step=10, samples=80, scores={"abs_rel": 0.5})
    checkpoint.write(folder, {"w": torch.arange(6.0).view(2, 3)}, CARD, "steps: 10\n", state, manifest)
    return folder


def test_what_was_written_reads_back(step: Path) -> None:
    tensors, card = checkpoint.read(step)
    assert torch.equal(tensors["w"], torch.arange(6.0).view(2, 3))
    assert card == CARD
    assert checkpoint.verify(step).scores == {"abs_rel": 0.5}
    assert torch.equal(checkpoint.read_state(step)["optimizer"]["m"], torch.arange(5.0))


def test_every_flipped_byte_and_a_missing_file_are_noticed_and_named(step: Path) -> None:
    draw = random.Random(0)
    for name in (checkpoint.WEIGHTS, checkpoint.STATE, checkpoint.CONFIG, checkpoint.MANIFEST):
        path = step / name
        good = path.read_bytes()
        for _ in range(20):
            place = draw.randrange(len(good))
            path.write_bytes(good[:place] + bytes([good[place] ^ 1 << draw.randrange(8)]) + good[place + 1 :])
            with pytest.raises(CheckpointError, match=name):
                checkpoint.read(step)
        if name != checkpoint.CONFIG:
            path.unlink()
            with pytest.raises(CheckpointError, match=name):
                checkpoint.verify(step)
        path.write_bytes(good)


@pytest.mark.parametrize("name", ["mine.safetensors", "MINE.SAFETENSORS"])
def test_the_bare_weights_file_is_complete_for_inference(step: Path, tmp_path: Path, name: str) -> None:
    shutil.copy(step / checkpoint.WEIGHTS, tmp_path / name)
    assert checkpoint.has_card(tmp_path / name) and checkpoint.read_card(tmp_path / name) == CARD
    assert checkpoint.read(tmp_path / name)[1] == CARD


@pytest.mark.parametrize("name", ["pipe.safetensors", "pipe.pth", "pipe.onnx"])
def test_a_pipe_is_refused_unopened(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(CheckpointError, match="no such file"):
        description(tmp_path / name, as_json=False)


def test_foreign_and_broken_files_are_refused_in_words(tmp_path: Path) -> None:
    safetensors.torch.save_file({"w": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "empty").mkdir()
    (tmp_path / "run/checkpoints/step-00000001").mkdir(parents=True)
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8")
    for name, message in {
        "foreign.safetensors": "no densevit card",
        "text.safetensors": "not a readable safetensors file",
        "empty": "no checkpoint here",
        "photo.jpg": "not a densevit checkpoint",
        "gone": "no checkpoint at .* Found in .*: run\\.",
    }.items():
        with pytest.raises(CheckpointError, match=message):
            checkpoint.read(tmp_path / name)


def test_a_newer_schema_and_a_manifest_of_brackets_are_refused(step: Path) -> None:
    manifest = step / checkpoint.MANIFEST
    newer = json.dumps({**json.loads(manifest.read_text()), "schema": checkpoint.SCHEMA + 1})
    for text, told in ((newer, "newer densevit"), ("[" * 100_000, "damaged")):
        manifest.write_text(text)
        with pytest.raises(CheckpointError, match=told):
            checkpoint.verify(step)


def test_plain_values_beside_weights_are_read_and_stay_plain(tmp_path: Path) -> None:
    arguments = argparse.Namespace(lr=np.float64(0.5), steps=np.int32(7), root=Path("/data"), name=np.str_("vit"))
    held = {
        "hyper_parameters": arguments,
        "weights": np.arange(6.0).reshape(2, 3).T,
        "state_dict": {"w": torch.ones(2)},
    }
    torch.save(held, tmp_path / "last.ckpt")
    assert read_tensors(tmp_path / "last.ckpt")["w"].tolist() == [1, 1]
    read = read_pickled(tmp_path / "last.ckpt")
    assert vars(read["hyper_parameters"]) == {"lr": 0.5, "steps": 7, "root": PurePosixPath("/data"), "name": "vit"}
    assert read["weights"].values.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert type(read["hyper_parameters"].lr) is float
    assert argparse.Namespace not in torch.serialization.get_safe_globals()  # for others nothing has changed


@pytest.mark.parametrize(
    "odd", [np.array([Path("x")], dtype=object), np.zeros(1, [("a", "f4")]), np.random.default_rng]
)
def test_numpys_objects_are_refused(tmp_path: Path, odd: object) -> None:
    torch.save({"state_dict": {"w": torch.ones(2)}, "odd": odd}, tmp_path / "last.ckpt")
    with pytest.raises(CheckpointError, match=r"last.ckpt: (refused|not a readable PyTorch file)"):
        read_tensors(tmp_path / "last.ckpt")


def test_foreign_state_dicts_lose_wrappers_and_launcher_prefixes(tmp_path: Path) -> None:
    weights = {"module._orig_mod.a.w": torch.ones(2), "module._orig_mod.b": torch.zeros(1)}
    torch.save({"model": weights, "epoch": 3}, tmp_path / "ours.pth")
    assert set(read_tensors(tmp_path / "ours.pth")) == {"a.w", "b"}


@pytest.mark.parametrize("name", ["net", "weights"])
def test_a_state_dict_under_any_name_is_found_where_it_is_the_only_one(tmp_path: Path, name: str) -> None:
    state, moments = {"w": torch.ones(2)}, {"state": {0: {"step": torch.ones(1)}}}
    torch.save({name: state, "optimizer": moments, "epoch": 3}, tmp_path / "A.PTH")
    assert set(read_tensors(tmp_path / "A.PTH")) == {"w"}
    torch.save({name: state, "average": state}, tmp_path / "two.pth")
    with pytest.raises(CheckpointError, match=f"its keys are {name}, average"):
        read_tensors(tmp_path / "two.pth")


def test_what_downloads_leave_in_place_of_weights_is_told(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\n"
    torch.save({"w": torch.zeros(1000)}, tmp_path / "whole.pth")
    whole = (tmp_path / "whole.pth").read_bytes()
    for name, content, message in (
        ("a.pth", b"", "ends too early"),
        ("a.pth", pointer, "Git LFS pointer"),
        ("a.safetensors", pointer, "Git LFS pointer"),
        ("a.pth", b"\n<!DOCTYPE html>", "web page"),
        ("a.pth", whole[: len(whole) // 2], r"a\.pth: "),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            read_tensors(tmp_path / name)


def test_programs_and_files_without_weights_say_what_they_hold(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/constants.pkl", b"")
    with pytest.raises(CheckpointError, match="TorchScript program"):
        read_tensors(tmp_path / "a.pt")
    for content, message in (([1, 2], "holds a list"), ({"epoch": 3}, "holds no tensors; its keys are epoch")):
        torch.save(content, tmp_path / "a.pt")
        with pytest.raises(CheckpointError, match=message):
            read_tensors(tmp_path / "a.pt")


def test_weights_that_are_no_usual_numbers_are_refused() -> None:
    for weight, message in (
        (torch.ones(3, 2, dtype=torch.int8), r"cannot be converted: weight \(file int8, model float32\)"),
        (torch.ones(3, 2).to_sparse(), "file float32, sparse_coo, model float32"),
        (torch.full((3, 2), torch.nan), "1 not finite: weight"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_strict(nn.Linear(2, 3), {"weight": weight, "bias": torch.zeros(3)}, "a.pth")


def test_a_run_folder_means_its_best_then_its_last_then_its_newest(step: Path, tmp_path: Path) -> None:
    run = tmp_path / "run" / "checkpoints"
    run.mkdir(parents=True)
    for n in (10, 20, 30):
        shutil.copytree(step, run / f"step-{n:08d}")
    assert checkpoint.locate(tmp_path / "run").name == "step-00000030"
    (run / "last").symlink_to("step-00000020")
    assert checkpoint.locate(tmp_path / "run").name == "step-00000020"
    (run / "best").symlink_to("step-00000010")
    assert checkpoint.locate(tmp_path / "run").name == "step-00000010"
    assert checkpoint.locate(run / "last").resolve().name == "step-00000020"
