"""The data set `mix`: shares, kinds of ground truth, transforms of a source, joined class lists."""

from pathlib import Path

import numpy as np
import pytest
import torch
from small_scenes import small_scenes

from densevit.data.datasets.base import open_dataset
from densevit.data.datasets.mix import Source, shares_of
from densevit.data.datasets.pairs import Pairs
from densevit.data.labels.joined_classes import join_by_name, join_by_table
from densevit.data.loading.dataloader import TrainLoader
from densevit.data.transforms.geometric import compose
from densevit.errors import ConfigError, DataError
from densevit.losses.ssi import ssi
from densevit.ops.align import disparity_as_depth
from densevit.structures import IGNORE


@pytest.fixture(scope="module")
def root(folder: Path) -> Path:
    for count, name in enumerate("ab", 3):
        small_scenes(folder / name, count=count)
    return folder


def source(root: Path, name: str, **options: object) -> dict:
    return {"name": name, "data": {"type": "folder", "root": str(root / name), "depth_scale": 1000}, **options}


def mix(*sources: dict, **options: object):
    return open_dataset({"type": "mix", "sources": list(sources), **options})


def test_a_share_is_the_weight_or_the_size_to_the_power_of_the_temperature() -> None:
    data = {"type": "x"}
    assert shares_of([Source(data=data, weight=3), Source(data=data, weight=1)], [5, 500], 1.0) == [0.75, 0.25]
    two = [Source(data=data), Source(data=data)]
    assert shares_of(two, [100, 900], 1.0) == [0.1, 0.9]
    assert shares_of(two, [100, 900], 0.5) == [0.25, 0.75]  # 10 : 30
    assert shares_of(two, [100, 900], 0.0) == [0.5, 0.5]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"weight": 1}, {"weight": 0}, r"sources.1.weight: input should be greater than 0, got 0\.$"),
        (
            {"truth": "none", "consistency": {"zzz": 1}},
            {},
            r"consistency.zzz: no such option. Known: confidence, strong",
        ),
        ({"weight": 1}, {}, r"sources.1.weight: missing, where other sources have one"),
        ({"name": "b"}, {}, r"sources.1.name: 'b' comes twice"),
        ({"name": "a/b"}, {}, r"sources.0.name: 'a/b' must not hold"),
        ({"name": "a\nb"}, {}, r"sources.0.name: 'a\\nb' must not hold .* line breaks"),
        ({"name": "@SUM(1)"}, {}, r"sources.0.name: '@SUM\(1\)' must not .* begin with '\+', '-' or '@'"),
        ({"transforms": [{"type": "hflop"}]}, {}, r"sources.0.transforms.0.type: no transform 'hflop'"),
        ({"data": {"type": "folde"}}, {}, r"sources.0.data.type: no data set 'folde'. Did you mean 'folder'"),
        ({"data": {"type": "mix", "sources": []}}, {}, "a mixture within a mixture"),
    ],
)
def test_a_mixture_that_cannot_be_drawn_from_is_refused(root: Path, first: dict, second: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mix(source(root, "a") | first, source(root, "b") | second)


def test_a_source_gives_the_ground_truth_that_it_is_said_to_have_and_no_other(root: Path) -> None:
    data = mix(*(source(root, "a") | {"name": str(i), "truth": t} for i, t in enumerate(
        ["metric", "relative", "labels", "none", ["disparity", "labels"], None])))  # fmt: skip
    samples = [data.read(i) for i in range(0, 18, 3)]
    plain = open_dataset(source(root, "a")["data"]).read(0)
    assert [s.depth_kind for s in samples] == ["metric", "relative", "metric", "metric", "disparity", "metric"]
    assert [s.depth is not None for s in samples] == [True, True, False, False, True, True]
    assert [s.labels is not None for s in samples] == [False, False, True, False, True, True]
    assert [s.source for s in samples] == list("012345") and samples[3].name == "3/000"
    np.testing.assert_array_equal(samples[1].depth, plain.depth)
    np.testing.assert_array_equal(samples[5].labels, plain.labels)
    unknown_unit = {"data": {"type": "folder", "root": str(root / "a")}, "truth": "labels"}  # of depth that is not read
    assert mix(unknown_unit).read(0).labels is not None


def test_a_loss_of_aligned_disparity_is_that_of_the_stored_disparity() -> None:
    draw = np.random.default_rng(0)
    stored, valid = draw.uniform(5, 900, (20, 30)).astype(np.float32), draw.random((20, 30)) < 0.8
    depth = disparity_as_depth(stored, valid)
    assert (depth[~valid] == 0).all() and 0.9 < depth[valid].min() < depth[valid].max() < 10.001
    pred = torch.rand(1, 1, 20, 30)
    mask = torch.from_numpy(valid)[None, None]
    ours = ssi(pred, torch.from_numpy(depth)[None, None], mask)
    reference = ssi(pred, torch.from_numpy(stored)[None, None], mask, space="depth")
    assert float(ours) == pytest.approx(float(reference), rel=1e-5)
    assert (disparity_as_depth(np.full((2, 2), 3.0, np.float32), np.ones((2, 2), bool)) == 10).all()


def test_transforms_of_a_source_come_before_those_of_all_and_touch_no_other(root: Path) -> None:
    data = mix(source(root, "a", transforms=[{"type": "crop_box", "rows": [0, 30], "columns": [0, 80]}]),
               source(root, "b"))  # fmt: skip
    loader = TrainLoader(data, compose([]), seed=0, batch_size=1)
    sizes = {batch.sources[0]: tuple(batch.image.shape[-2:]) for batch, _ in zip(loader, range(12), strict=False)}
    assert sizes == {"a": (30, 80), "b": (60, 80)}


def named(*classes: str) -> Pairs:
    return Pairs([{"image": np.zeros((2, 2, 3), np.uint8)}], classes=classes)


def test_classes_are_joined_by_name_whatever_case_and_spaces() -> None:
    joined = join_by_name({"a": named("Wall", "floor_mat"), "b": named("sky", "wall", "Floor mat")})
    assert joined.names == ("Wall", "floor_mat", "sky")
    ids = np.array([[0, 1, 2, IGNORE]])
    assert joined.map_ids("a", ids).tolist() == [[0, 1, IGNORE, IGNORE]]
    assert joined.map_ids("b", ids).tolist() == [[2, 0, 1, IGNORE]]


def test_a_table_joins_classes_and_ignores_what_it_leaves_out(tmp_path: Path) -> None:
    table = tmp_path / "classes.csv"
    table.write_text("class,a,b\nperson,rider|person,people\nroad,road,\n")
    lists = {"a": named("road", "rider", "person", "sky"), "b": named("people", "wall")}
    joined = join_by_table(table, lists)
    assert joined.names == ("person", "road")
    assert joined.map_ids("a", np.array([[0, 1, 2, 3]])).tolist() == [[1, 0, 0, IGNORE]]
    assert joined.map_ids("b", np.array([[0, 1, IGNORE]])).tolist() == [[0, IGNORE, IGNORE]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("class,a\nx,road\n", "no column for b"),
        ("class,a,b,c\nx,road,people,\n", "column 'c' is no source"),
        ("class,a,b\nx,rod,people\n", "'a' has no class 'rod'. Did you mean 'road'"),
        ("class,a,b\nx,road,people\ny,road,\n", "'road' of 'a' stands in the rows x and y"),
        ("class,a,b\nx,road,people\nx,,\n", ":3: a class needs a name of its own"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "classes.csv"
    table.write_text(text)
    with pytest.raises(DataError, match=message):
        join_by_table(table, {"a": named("road"), "b": named("people")})
