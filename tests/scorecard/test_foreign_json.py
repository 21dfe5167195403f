"""Cards and JSON that somebody else wrote: 500 damaged versions of each kind load, or are one error of their file."""

import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
from onnx import TensorProto, helper
from PIL import Image
from toy_models import toy_network

from densevit.builder.checkpoint import restore
from densevit.data.datasets.folder import with_intrinsics
from densevit.data.datasets.pseudo_labels import PseudoLabels
from densevit.data.datasets.recording import Recording
from densevit.data.datasets.rooms import VERSION, Rooms
from densevit.data.index.manifest import read_manifest
from densevit.data.index.paths import SampleFiles
from densevit.data.io.coco import read_annotations
from densevit.data.labels.class_lists import read_classes
from densevit.errors import DensevitError
from densevit.evaluation.compare import scored_by
from densevit.evaluation.depth.ordinal import read_pairs
from densevit.inference.onnx.load import load_onnx
from densevit.inference.predict.cameras import with_cameras
from densevit.inference.predict.inputs import Item
from densevit.inference.pt2 import KEY, load_pt2
from densevit.speed.report import Report
from densevit.weights.checkpoint import verify, with_checksum
from densevit.weights.detect import read_json as read_config

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

NETWORK, CARD = toy_network()
CAMERA = {"fx": 500.0, "fy": 500.0, "cx": 320.0, "cy": 240.0}
POSE = np.eye(4).tolist()
HUGE, DEEP = 10**30, "[" * 100_000
Reader = Callable[[Path, str], object]


def in_file(name: str, read: Callable[[Path], object]) -> Reader:
    """What reads a text as the file of this name; the reader is handed the file."""

    def run(folder: Path, text: str) -> object:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return read(path)

    return run


def read_card(folder: Path, text: str) -> object:
    safetensors.torch.save_file(NETWORK.state_dict(), folder / "model.safetensors", {"densevit": text})
    return restore(folder / "model.safetensors")


def read_onnx(folder: Path, text: str) -> object:
    """`text`: all metadata; what is no object of texts is the card."""
    try:
        facts = json.loads(text)
        assert all(isinstance(value, str) for value in facts.values())
    except (ValueError, RecursionError, AttributeError, AssertionError):
        facts = {"card": text}
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 28, 28])
    depth = helper.make_tensor_value_info("depth", TensorProto.FLOAT, [1, 3, 28, 28])
    graph = helper.make_graph([helper.make_node("Identity", ["image"], ["depth"])], "g", [image], [depth])
    model = helper.make_model(graph, producer_name="densevit", opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {key.replace("\0", ""): value for key, value in facts.items()})
    onnx.save(model, folder / "model.onnx")
    return load_onnx(folder / "model.onnx")


def read_package(folder: Path, text: str) -> object:
    with zipfile.ZipFile(folder / "mine.pt2", "w") as archive:
        archive.writestr("data/a.wrapper_metadata.json", text)
    return load_pt2(folder / "mine.pt2")


def read_step(folder: Path, text: str) -> object:
    """`text` with the checksum that fits it, as somebody who means harm would write it."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        tree = None
    (folder / "manifest.json").write_text(with_checksum(tree) if isinstance(tree, dict) else text)
    return verify(folder)


OURS = {"inputs": {"image": ["uint8", [1, 28, 28, 3]]}, "outputs": ["depth"], "torch": "2.12", "licence": "none"}
MAPS = {"head": "depth", "kind": "metric", "range": [0.1, 10.0], "classes": [], "palette": []}
ROW = {"section": "a", "case": "b", "who": "c", "value": [1.0, 0.9, 1.1], "unit": "ms", "faster": None}
CASES: dict[str, tuple[Any, Reader]] = {
    "card": (asdict(CARD), read_card),
    "onnx": ({"card": json.dumps(asdict(CARD)), "precision": "fp32", "image_size": "28,28"}, read_onnx),
    "pt2": ({KEY: json.dumps(OURS), "AOTI_CPU_ISA": "AVX2"}, read_package),
    "pt2-card": (OURS, lambda folder, text: read_package(folder, json.dumps({KEY: text, "AOTI_CPU_ISA": ""}))),
    "manifest": ({"step": 3, "samples": 9, "files": {"a": "0"}, "scores": {"x": 1.0}, "schema": 2}, read_step),
    "config.json": (
        {"architectures": ["X"], "model_type": "dpt", "image_size": 384},
        in_file("config.json", read_config),
    ),
    "dataset.json": (
        {"version": VERSION, "frames": 2, "views": 1, "fps": None, "scenes": {"train": 1}},
        in_file("rooms/dataset.json", lambda path: Rooms(root=path.parent)),
    ),
    "pseudo-labels": (
        {"teacher": {"name": "t", "licence": "l"}, "maps": {"depth": MAPS}, "shard_size": None},
        in_file("labels/manifest.json", lambda path: PseudoLabels(root=path.parent).read(0)),
    ),
    "images.jsonl": (
        {"name": "a", "image": "a.png"},
        in_file("labels/images.jsonl", lambda path: PseudoLabels(root=path.parent).read(0)),
    ),
    "table": (
        {"image": "a.png", "depth": "a.png", **CAMERA, "time": 1.0},
        in_file("list.jsonl", lambda path: read_manifest(path, path.parent, allow_outside=False)),
    ),
    "cameras": (
        [{"name": "a", **CAMERA, "width": 640, "height": 480}, {"name": "b", "fov": 60}],
        in_file("cameras.json", lambda path: with_cameras([Item(path.parent / "a.png", "a")], path)),
    ),
    "intrinsics": (
        {"a": CAMERA, "b": {"intrinsic_matrix": [500, 0, 0, 0, 500, 0, 320, 240, 1]}},
        in_file("intrinsics.json", lambda path: with_intrinsics([SampleFiles("a", path)], path)),
    ),
    "nerf": (
        {"fl_x": 500, "fl_y": 500, "cx": 1, "cy": 1,
         "frames": [{"file_path": "a.png", "depth_file_path": "d.png", "transform_matrix": POSE}]},
        in_file("nerf/transforms.json", lambda path: Recording(root=path.parent)),
    ),
    "classes": ([{"id": 1, "name": "wall", "color": [1, 2, 3]}], in_file("classes.json", read_classes)),
    "coco": (
        {"images": [{"id": 1, "file_name": "a"}], "annotations": [{"id": 1}], "categories": [{"id": 1, "name": "x"}]},
        in_file("coco.json", read_annotations),
    ),
    "pairs": (
        {"a.png": [{"point1": [1, 2], "point2": [3, 4], "closer_point": "point1"}]},
        in_file("pairs.json", read_pairs),
    ),
    "scores": (
        {"counts": {"images": 9, "scored": 9}, "protocol": {"name": "plain", "range": [0, 1]}, "source": {}},
        in_file("eval/metrics.json", lambda path: scored_by(path.parent)),
    ),
    "benchmark": (
        {"date": "d", "command": "c", "machine": {}, "rows": [ROW], "absent": []},
        in_file("bench.json", Report.read),
    ),
}  # fmt: skip


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield from places(tree[key], (*path, key))


def changed(tree: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy of the tree with a change at a place, below its root."""
    tree = json.loads(json.dumps(tree))
    parent = tree
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return tree


def damaged(tree: Any) -> Any:
    """A strategy of texts: another value, a missing or renamed key somewhere; a cut text; or no JSON at all."""
    tree = json.loads(json.dumps(tree))
    leaves = (
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
        | st.sampled_from(["../../evil", "", HUGE, -HUGE, 1e400, "a\0b", "nan"])
    )  # fmt: skip
    values = st.recursive(
        leaves, lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3)
    )
    inside = st.sampled_from([path for path in places(tree) if path])
    text = json.dumps(tree)

    def replaced(path: tuple[Any, ...], value: Any) -> str:
        return json.dumps(changed(tree, path, lambda parent, key: parent.__setitem__(key, value)))

    def removed(path: tuple[Any, ...]) -> str:
        return json.dumps(changed(tree, path, lambda parent, key: parent.pop(key)))

    return st.one_of(
        st.builds(replaced, inside, values),
        st.builds(replaced, inside, values),
        st.builds(removed, inside),
        st.builds(json.dumps, values),
        st.integers(0, len(text) - 1).map(lambda n: text[:n]),
        st.sampled_from([DEEP, '{"a":' * 100_000, "", "\ufeff{}", "NaN"]),
    )


@pytest.fixture(scope="module")
def folder(folder: Path) -> Path:
    labels = folder / "labels"
    (folder / "rooms/train/scene_00000").mkdir(parents=True)
    labels.mkdir()
    (folder / "nerf").mkdir()
    for place in (folder, labels, folder / "nerf"):
        Image.new("RGB", (640, 480)).save(place / "a.png")
    np.savez(labels / "a.depth.npz", depth=np.ones((480, 640), np.float32), confidence=np.ones((480, 640), np.uint8))
    (labels / "images.jsonl").write_text(json.dumps({"name": "a", "image": "a.png"}))
    (labels / "manifest.json").write_text(json.dumps(CASES["pseudo-labels"][0]))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_damaged_json_loads_or_is_one_error_of_its_file(kind: str, folder: Path) -> None:
    tree, read = CASES[kind]

    @hypothesis.settings(max_examples=500, derandomize=True, database=None, deadline=None)
    @hypothesis.given(damaged(tree))
    def run(text: str) -> None:
        try:
            read(folder, text)
        except DensevitError as error:
            assert str(folder) in str(error) and len(str(error)) < 2000, error

    try:
        run()
    finally:
        for name in ("images.jsonl", "manifest.json"):
            sound = {"images.jsonl": "images.jsonl", "manifest.json": "pseudo-labels"}[name]
            (folder / "labels" / name).write_text(json.dumps(CASES[sound][0]))
