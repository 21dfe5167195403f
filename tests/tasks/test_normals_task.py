"""Surface normals as a task: where their ground truth comes from, scores, panel; and a training by config."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from shell import Shell
from small import CONFIG, small_folder

from densevit.data.datasets.base import open_dataset
from densevit.data.datasets.pairs import Pairs
from densevit.data.loading.augmented import AugmentedDataset, cutmix
from densevit.data.loading.collate import collate
from densevit.data.recordings.distortion import Distortion
from densevit.data.transforms.geometric import Resize
from densevit.evaluation import normals as metrics
from densevit.losses.normals import NORMAL_LOSSES
from densevit.model_card import HeadSpec
from densevit.ops.geometry import backproject, pinhole_from_fov, scale
from densevit.scorers.normals import true_normals
from densevit.structures import Batch, Sample
from densevit.tasks.normals import NormalsTask

SIZE = (24, 32)
K = pinhole_from_fov(SIZE, 70)
NORMAL = np.array([0.2, -0.4, -1]) / np.linalg.norm([0.2, -0.4, -1])


def sample(name: str, *, normals: bool = False, depth: bool = False, camera: bool = False) -> Sample:
    metres = (-2 / (backproject(np.ones(SIZE), K) @ NORMAL)).astype(np.float32)
    return Sample(
        name=name,
        image=np.full((*SIZE, 3), 90, np.uint8),
        depth=metres if depth else None,
        valid=metres > 0 if depth else None,
        normals=np.tile(np.float32([0, 0, -1]), (*SIZE, 1)) if normals else None,
        intrinsics=K if camera else None,
    )


def task() -> NormalsTask:
    output = HeadSpec(kind="normals", unit="")
    losses = [("angular", 1.0, NORMAL_LOSSES.components["angular"]())]
    return NormalsTask("normals", output, losses, metrics.as_row, metrics.pooled_scores)


def mixed() -> Batch:
    given = [
        sample("own", normals=True, depth=True, camera=True),
        sample("of depth", depth=True, camera=True),
        sample("no camera", depth=True),
        sample("nothing"),
    ]
    return collate(given, range(4))


@pytest.mark.parametrize("case", ["folder", "truth", "cutmix", "lens", "pairs"])
def test_normals_are_fitted_to_depth_before_it_is_resampled(tmp_path: Path, case: str) -> None:
    """Those of enlarged depth faced the camera, and those of an image that was scaled by 1.25 leaned to it."""
    h, w = SIZE[0] * 8, SIZE[1] * 8
    rays, camera = backproject(np.ones(SIZE), K), scale(8, 8) @ K
    facts = {"fx": camera[0, 0], "fy": camera[1, 1], "cx": camera[0, 2], "cy": camera[1, 2]}
    if case == "lens":
        facts |= {"k1": 0.05, "k2": -0.02, "is_fisheye": True, "w": w, "h": h}
        lens = Distortion("fisheye", (0.05, -0.02), fisheye=True)
        rays[..., :2] = lens.undistort(rays[..., :2].reshape(-1, 2)).reshape(*SIZE, 2)
    for folder in ("images", "depths", "normals"):
        (tmp_path / folder).mkdir()
    for name in ("0", "1"):
        Image.new("RGB", (w, h)).save(tmp_path / f"images/{name}.png")
        np.save(tmp_path / f"depths/{name}.npy", (-2 / (rays @ NORMAL)).astype(np.float32))
        if case == "truth":  # which asks for depth alone
            np.save(tmp_path / f"normals/{name}.npy", np.tile(np.float32([0, 0, -1]), (h, w, 1)))
    (tmp_path / "intrinsics.json").write_text(json.dumps(facts))
    folder = {"type": "folder", "root": str(tmp_path)}
    data = {
        "truth": lambda: open_dataset({"type": "mix", "sources": [{"data": folder, "truth": "metric"}]}),
        "cutmix": lambda: open_dataset({"type": "mix", "sources": [{"data": folder, "cutmix": 0.999}]}),
        "pairs": lambda: Pairs([sample("0", depth=True, camera=True)]),
    }.get(case, lambda: open_dataset(folder))()
    resize = Resize(size=(SIZE[0] * 10, SIZE[1] * 10))
    resized = AugmentedDataset(data.with_normals(), resize, seed=0).read(0, (0, 0))
    assert (resized.pasted is not None) == (case == "cutmix")
    target, known = task().ground_truth(collate([resized], [0]))
    assert known.all()
    off = (target[0].double() * torch.from_numpy(NORMAL)[:, None, None]).sum(0).clamp(-1, 1).arccos().rad2deg()
    assert off.mean() < (1 if case == "lens" else 0.01)


def test_the_truth_is_the_data_sets_else_that_of_depth_with_a_camera_else_none() -> None:
    target, known = task().ground_truth(mixed())
    assert torch.equal(target[0], torch.tensor([0.0, 0, -1])[:, None, None].expand(3, *SIZE))
    assert torch.allclose(target[1], torch.from_numpy(NORMAL).float()[:, None, None].expand(3, *SIZE), atol=1e-4)
    assert known[:2].all() and not known[2:].any()
    assert not task().ground_truth(collate([sample("nothing")], [0]))[1].any()


def test_depth_with_an_unknown_shift_has_no_normals() -> None:
    kinds = ("metric", "relative", "affine", "disparity")
    given = [replace(sample(kind, depth=True, camera=True), depth_kind=kind) for kind in kinds]
    known = task().ground_truth(collate(given, range(4)))[1]
    assert known.flatten(1).any(1).tolist() == [True, True, False, False]
    assert [true_normals(one) is not None for one in given] == [True, True, False, False]


def test_what_cutmix_pasted_has_the_normals_of_its_own_camera_up_to_the_border() -> None:
    first = sample("a", depth=True, camera=True)
    wide = np.diag([0.5, 0.5, 1.0]) @ K
    second = replace(
        first, intrinsics=wide, depth=(1 / (backproject(np.ones(SIZE), wide) @ -NORMAL)).astype(np.float32)
    )
    batch = collate([cutmix(first, second, np.random.default_rng(1)), first], [0, 1])
    target, known = task().ground_truth(batch)
    assert batch.pasted is not None and batch.pasted[0].any() and known.all()
    assert torch.allclose(target, torch.from_numpy(NORMAL).float()[:, None, None].expand(2, 3, *SIZE), atol=1e-4)
    unknown = collate([cutmix(first, replace(second, intrinsics=None), np.random.default_rng(1))], [0])
    assert task().ground_truth(unknown)[1][0, 0].equal(~batch.pasted[0])


def test_scores_are_angles_and_images_without_truth_have_none() -> None:
    facing = torch.tensor([0.0, 0, -1])[:, None, None].expand(4, 3, *SIZE)
    rows = task().image_scores(facing, mixed())
    off = np.degrees(np.arccos(-NORMAL[2]))
    first, second = (task().dataset_scores([row]) for row in rows[:2])
    assert first["mean"] < 1e-5 and first["within_5"] == 100
    assert second["mean"] == pytest.approx(off, abs=0.01)
    assert rows[2] == rows[3] == {}
    assert task().dataset_scores(rows)["mean"] == pytest.approx(off / 2, abs=0.01)
    assert task().losses(facing, mixed(), 0)["angular"].item() == pytest.approx(np.radians(off) / 4, abs=1e-4)
    assert task().panel(facing, mixed()).shape[1] % (4 * SIZE[1]) == 0


def normals_config(folder: Path, camera: bool) -> Path:
    root = small_folder(folder / "data")
    if camera:
        (root / "intrinsics.json").write_text('{"fx": 60, "fy": 60, "cx": 39.5, "cy": 29.5}')
    text = CONFIG.format(root=root, output=folder / "run")
    text = text.replace("heads: {depth:", "heads: {normals: {type: normals, hidden: 8}, depth:")
    text = text.replace("tasks:\n", "tasks:\n  normals: {type: normals, losses: [{type: angular}, {type: l1}]}\n")
    path = folder / "normals.yaml"
    path.write_text(text)
    return path


@pytest.mark.slow
def test_a_config_trains_normals_beside_depth_and_eval_normals_scores_both(tmp_path: Path, shell: Shell) -> None:
    shell("train", normals_config(tmp_path, camera=True))
    table = (tmp_path / "run/val.csv").read_text()
    assert "normals/mean" in table and "normals/within_11.25" in table
    command = ["eval", "--task", "normals", "--protocol", "marigold", "--output"]
    for head in ("normals", "depth"):
        out = tmp_path / f"scores_{head}"
        assert "within_11.25" in shell(*command, out, tmp_path / "run", "--head", head).out
        assert {path.name for path in out.iterdir()} == {"metrics.json", "per_image.csv", "report.html"}
    shell("predict", tmp_path / "run", tmp_path / "data/images", "--formats", "normals", "--output", tmp_path / "maps")
    saved = ["--predictions", tmp_path / "maps", "--suffix", ".normals.png", "--data", "folder"]
    root = ["--root", tmp_path / "data", "--data-options", "depth_scale=1000"]
    shell(*command, tmp_path / "scores_saved", *saved, *root)
    refused = shell.refused(*command, tmp_path / "scores_other", *saved, *root, "--axes", "opengl")
    assert "export.json says that `predict` wrote --axes opencv; name these" in refused
    scores = [(tmp_path / f"scores_{name}/per_image.csv").read_text().splitlines()[1:] for name in ("normals", "saved")]
    for ours, theirs in zip(*scores, strict=True):
        assert float(ours.split(",")[1]) == pytest.approx(float(theirs.split(",")[1]), abs=0.01)


def test_data_without_normals_and_without_a_camera_is_refused_before_training(tmp_path: Path, shell: Shell) -> None:
    assert "no normals to learn from" in shell.refused("train", normals_config(tmp_path, camera=False))
