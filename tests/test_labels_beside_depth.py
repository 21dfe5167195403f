"""Work on classes alone leaves depth files alone, whose unit nobody has said."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small import small_config

import densevit
from densevit.cli.main import main
from densevit.data.datasets.base import Part
from densevit.data.datasets.folder import Folder
from densevit.errors import DataError

LABELS = ["model.heads={labels: {type: segmentation}}", "tasks={labels: {type: segmentation}}", "steps=2"]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "score"), [("panoptic", "pq"), ("instances", "ap")])
def test_training_and_evaluation_of_segments_need_no_scale_of_depth(tmp_path: Path, kind: str, score: str) -> None:
    config, root = small_config(tmp_path), tmp_path / "data"
    (root / "segments").mkdir()
    for i in range(6):
        Image.fromarray(1 + np.indices((60, 80))[1].astype(np.uint8) // 40).save(root / f"segments/{i:03d}.png")
    rows = [f"{i:03d},{segment},{segment - 1}" for i in range(6) for segment in (1, 2)]
    (root / "segments.csv").write_text("\n".join(["image,id,class", *rows]))
    (root / "classes.json").write_text('[{"id": 0, "name": "left"}, {"id": 1, "name": "right", "thing": true}]')
    data = f"{{type: folder, root: {root}}}"
    model = ["model.encoder.out_indices=1", "model.decoder={type: eomt, queries: 4, blocks: 1, segments: true}"]
    task = [f"model.heads={{{kind}: {{type: {kind}}}}}", f"tasks={{{kind}: {{type: {kind}}}}}", "validate_every=2"]
    assert main(["train", str(config), *model, *task, f"data.train={data}", f"data.val={data}", "steps=2"]) == 0
    assert score in densevit.evaluate(tmp_path / "run", root).scores


@pytest.mark.slow
def test_training_and_evaluation_of_classes_need_no_scale_of_depth(tmp_path: Path) -> None:
    config, root = small_config(tmp_path), tmp_path / "data"
    (root / "labels").mkdir()
    for i in range(6):
        Image.fromarray(np.indices((60, 80))[1].astype(np.uint8) // 40).save(root / f"labels/{i:03d}.png")
    (root / "classes.txt").write_text("left\nright\n")
    data = f"{{type: folder, root: {root}}}"
    with pytest.raises(DataError, match="depth_scale"):
        Folder(root=root).read(0)
    mix = f"{{type: mix, sources: [{{name: a, truth: labels, weight: 1, data: {data}}}]}}"
    for name, train in (("plain", data), ("mix", mix)):
        words = [f"data.train={train}", f"data.val={data}", "validate_every=2", f"output={tmp_path / name}"]
        assert main(["train", str(config), *LABELS, *words]) == 0
        assert "miou" in densevit.Run(tmp_path / name).scores
    assert set(densevit.evaluate(tmp_path / "mix", root).per_class) == {"left", "right"}
    opened = Folder(root=root)
    assert opened.without_depth().read(0).depth is None and opened.reads_depth
    assert Part(opened, [1]).without_depth().read(0).depth is None
