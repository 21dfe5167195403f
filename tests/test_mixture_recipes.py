"""The recipes of mixtures, shrunk: a tiny encoder, two steps, and a few images of each data set as it lies on disk."""

from pathlib import Path

import numpy as np
import pytest
from layouts import write_diml, write_folder, write_hypersim, write_kitti, write_nyu_sync, write_vkitti2

from densevit.cli.main import main
from densevit.engine.logger import read_csv
from densevit.structures import Sample

SHRUNK = [
    "model.encoder={type: vit, dim: 16, depth: 2, heads: 2, patch_size: 14, image_size: 28, out_indices: 2}",
    "model.decoder={type: conv_transpose, stride: 4, min_channels: 8}",
    "model.resize={mode: fixed, size: [28, 42]}",
    "data.transforms=[{type: random_crop, size: [28, 42]}]",
    "data.workers=0",
    "steps=2",
    "batch_size=4",
    "log_every=1",
    "validate_every=2",
    "device=cpu",
]


def samples(size: tuple[int, int], scene: str = "scene_0001", count: int = 2) -> list[Sample]:
    draw = np.random.default_rng(sum(size))
    depth = [draw.uniform(1, 9, size).astype(np.float32) for _ in range(count)]
    image = draw.integers(0, 256, (*size, 3), dtype=np.uint8)
    return [Sample(name=f"{scene}/{i + 1:05d}", image=image, depth=d, valid=d > 0) for i, d in enumerate(depth)]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    root = tmp_path_factory.mktemp("recipes")
    nyu, kitti = samples((480, 640)), samples((375, 1242), count=1)
    nyu_list, kitti_list = write_nyu_sync(root / "nyu", nyu), write_kitti(root / "kitti", kitti)
    write_hypersim(root / "hypersim", samples((768, 1024)))
    for scene in ("Scene01", "Scene20"):
        write_vkitti2(root / "vkitti2", kitti, scene)
    write_folder(root / "megadepth", samples((60, 80)), depth=".npy")
    write_folder(root / "redweb", samples((60, 80)), depth=".png")
    (root / "redweb/depths").rename(root / "redweb/disparities")
    write_diml(root / "diml", samples((100, 120)))
    sets = {
        "nyu": f"{{type: nyu, root: {root / 'nyu'}, split: train, source: sync, list_file: {nyu_list}}}",
        "kitti": f"{{type: kitti, root: {root / 'kitti'}, split: train, list_file: {kitti_list}}}",
        "hypersim": f"{{type: hypersim, root: {root / 'hypersim'}}}",
    }
    places = {
        "midas": {"val": ["nyu", "kitti"], "train": ["", "", "", "nyu", "kitti"]},
        "zoedepth_nyu_kitti": {"val": ["nyu", "kitti"], "train": ["nyu", "kitti"]},
        "depth_anything_v2_synthetic_vitl": {"val": ["hypersim", ""], "train": ["hypersim", ""]},
    }
    roots = {
        "midas": [f"data.train.sources.{i}.data.root={root / name}" for i, name in enumerate(("redweb", "megadepth"))]
        + [f"data.train.sources.2.data={{type: diml, split: train, root: {root / 'diml'}}}"],
        "depth_anything_v2_synthetic_vitl": [
            *(f"data.{split}.sources.1.data.root={root / 'vkitti2'}" for split in ("train", "val")),
            "data.train.sources.1.data.scenes=[Scene01]",
        ],
    }
    return {
        name: roots.get(name, [])
        + [
            f"data.{split}.sources.{i}.data={sets[data]}"
            for split, chosen in of_recipe.items()
            for i, data in enumerate(chosen)
            if data
        ]
        for name, of_recipe in places.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["midas", "zoedepth_nyu_kitti", "depth_anything_v2_synthetic_vitl"])
def test_a_recipe_of_a_mixture_trains_and_scores_each_set(
    recipe: str, words: dict[str, list[str]], tmp_path: Path
) -> None:
    assert main(["train", f"mixture/{recipe}", *SHRUNK, *words[recipe], f"output={tmp_path / 'run'}"]) == 0
    train, val = read_csv(tmp_path / "run/train.csv")[-1], read_csv(tmp_path / "run/val.csv")[-1]
    assert sum(n for name, n in train.items() if name.endswith("/samples")) == 8
    expected = {
        "midas": {"nyu/abs_rel", "kitti/abs_rel"},
        "zoedepth_nyu_kitti": {"nyu/nyu/abs_rel", "kitti/kitti/abs_rel"},  # each head on its own set
        "depth_anything_v2_synthetic_vitl": {"hypersim/abs_rel", "vkitti2/abs_rel"},
    }
    assert {name for name in val if name.endswith("abs_rel")} == expected[recipe]
