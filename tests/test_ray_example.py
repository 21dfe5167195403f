"""examples/ray_export.py on a Ray cluster of one machine: the files of `densevit predict`, byte by byte."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from small import contents, small_config

from densevit.cli.main import main

ROOT = Path(__file__).parents[1]
RAY = pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    """A trained run; five images in a folder, one of them damaged, and two in an archive."""
    assert main(["train", str(small_config(folder)), "steps=2", "validate_every=2", "schedule.warmup=0"]) == 0
    images = sorted((folder / "data/images").iterdir())
    (folder / "photos/sub").mkdir(parents=True)
    with tarfile.open(folder / "photos/shard.tar", "w") as tar:
        for image in images[4:]:
            tar.add(image, f"more/{image.name}")
    for i, image in enumerate(images[:4]):
        (folder / "photos" / ("sub" if i % 2 else "") / image.name).write_bytes(image.read_bytes())
    (folder / "photos/damaged.jpg").write_bytes(images[0].read_bytes()[:300])
    return folder


def ray_export(run: Path, output: Path, *words: str) -> subprocess.CompletedProcess[str]:
    fixed = [str(run / "run"), "--output", str(output), "--device", "cpu", "--precision", "fp32", "--workers", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "RAY_memory_usage_threshold": "1"}
    command = [sys.executable, str(ROOT / "examples/ray_export.py"), *fixed, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)


def test_folders_and_archives_become_the_files_of_export_depth(run: Path) -> None:
    options = ["--formats", "png16,color", "--fov", "60", "--batch-size", "2"]
    done = ray_export(run, run / "theirs", str(run / "photos"), *options, "--actors", "2", "--cpus", "0.5")
    assert done.returncode == 3, done.stderr  # one image is damaged
    assert "1 of 7 images failed" in done.stderr and "damaged.jpg" in (run / "theirs/failed.json").read_text()
    fixed = ["--device", "cpu", "--precision", "fp32", "--output", str(run / "ours")]
    assert main(["predict", str(run / "run"), str(run / "photos"), *fixed, *options]) == 3
    ours, theirs = contents(run / "ours"), contents(run / "theirs")
    assert len(ours) == 2 * 6 + 3
    assert ours == theirs
    (run / "theirs/000.png").unlink()
    refused = ray_export(run, run / "theirs", str(run / "photos"), *options)
    assert refused.returncode == 2 and "already there" in refused.stderr


def test_parquet_of_bytes_and_of_hugging_face_images(run: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    paths = sorted((run / "data/images").iterdir())[:3]
    rows = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
    names = [f"kitchen/{path.name}" for path in paths]
    (run / "tables").mkdir()
    parquet.write_table(arrow.table({"image": rows[:2], "file": names[:2]}), run / "tables/0.parquet")
    parquet.write_table(
        arrow.table({"image": [rows[2], None], "file": [names[2], "none.jpg"]}), run / "tables/1.parquet"
    )
    done = ray_export(run, run / "maps", str(run / "tables"), "--parquet", "image", "--name", "file")
    assert done.returncode == 3, done.stderr
    (failed,) = json.loads((run / "maps/failed.json").read_text())["failed"]
    assert failed["image"] == "none.jpg"
    whole = contents(run / "maps")
    (run / f"maps/kitchen/{paths[0].stem}.png").unlink()
    again = ray_export(run, run / "maps", str(run / "tables"), "--parquet", "image", "--name", "file", "--resume")
    assert "2 were already there" in again.stdout and contents(run / "maps") == whole
    fixed = ["--device", "cpu", "--precision", "fp32", "--output", str(run / "plain")]
    assert main(["predict", str(run / "run"), *map(str, paths), *fixed]) == 0
    for path in paths:
        made = run / f"maps/kitchen/{path.stem}.png"
        assert made.read_bytes() == (run / f"plain/{path.stem}.png").read_bytes()
