"""Two images and a JSON file of COCO's format to a trained, scored and exported model, by commands."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from pycocotools.coco import COCO

import densevit
from densevit.cli.main import main

SMALL = (
    "model.encoder={type: vit, dim: 32, depth: 3, heads: 2, patch_size: 8, image_size: 64, out_indices: 1}",
    "model.decoder.queries=6", "model.decoder.blocks=1", "optim.layer_decay=1", "optim.lr=3e-3", "schedule.warmup=0",
    "precision=fp32", "device=cpu", "data.workers=0", "batch_size=1", "steps=30", "validate_every=30", "ema=null",
)  # fmt: skip


def tins(root: Path, stuff: bool) -> Path:
    """A photograph of a tin on the left and one of a lid on the right, on a table."""
    root.mkdir()
    annotations = []
    for i in range(2):
        pixels = np.full((64, 80, 3), 60, np.uint8)
        pixels[20:50, 10 + 30 * i : 40 + 30 * i] = (220, 60 + 150 * i, 40)
        Image.fromarray(pixels).save(root / f"{i}.png")
        x = 10 + 30 * i
        outlines = {1 + i: [x, 20, x + 30, 20, x + 30, 50, x, 50], 9: [0, 0, 80, 0, 80, 15, 0, 15]}
        annotations += [
            {"id": len(annotations) + k, "image_id": 7 + i, "category_id": category, "segmentation": [outline],
             "area": 900, "bbox": [x, 20, 30, 30], "iscrowd": 0}
            for k, (category, outline) in enumerate(outlines.items(), 1) if stuff or category != 9
        ]  # fmt: skip
    names = {1: "tin", 2: "lid", **({9: "wall"} if stuff else {})}
    tree = {
        "images": [{"id": 7 + i, "file_name": f"{i}.png", "height": 64, "width": 80} for i in range(2)],
        "annotations": annotations,
        "categories": [{"id": k, "name": name, "isthing": int(k != 9)} for k, name in names.items()],
    }
    (root / "annotations.json").write_text(json.dumps(tree))
    return root


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["instances", "panoptic"])
def test_two_images_are_trained_scored_predicted_and_exported(
    kind: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tins(here / "tins", stuff=kind == "panoptic")
    assert main(["init", "tins"]) == 0
    assert main(["train", "tins.yaml", *SMALL]) == 0
    assert main(["eval", "runs/tins", "--output", "scores"]) == 0
    assert {"instances": "ap75", "panoptic": "pq_things"}[kind] in capsys.readouterr().out
    assert json.loads(Path("scores/metrics.json").read_text())["task"] == kind
    assert main(["export", "runs/tins", "tins.onnx", "--image-size", "64,80", "--heads", kind]) == 0
    outputs = [output.name for output in onnxruntime.InferenceSession("tins.onnx").get_outputs()]
    assert outputs == [kind, f"{kind}/classes"]
    formats = {"instances": ["coco", "yolo"], "panoptic": ["panoptic"]}[kind]
    found = densevit.load("runs/tins", device="cpu", precision="fp32")
    densevit.predict(found, root, "out", formats=[*formats, "segments", "crops"], annotations="tins/annotations.json")
    file = f"out/{kind}.json"
    assert main(["eval", "--predictions", file, "--data", "tins", "--output", "again"]) == 0
    scores = densevit.evaluate(found, {"type": "coco", "root": str(root)}).scores
    assert densevit.evaluate(predictions=file, data="tins").scores == pytest.approx(scores, abs=1e-6)
    if kind == "instances":
        COCO("tins/annotations.json").loadRes(file)
