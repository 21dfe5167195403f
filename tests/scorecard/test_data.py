"""Data sets that are bad, turn bad, or take the process that reads them along."""

import os
from io import BytesIO
from pathlib import Path

import h5py
import layouts
import numpy as np
import pytest
from forked import ForkServer
from layouts.encoders import DEPTH_WRITERS
from small import small_config, small_folder

from densevit.cli.main import main
from densevit.data.prepare import repack_nyu
from densevit.engine.logger import read_csv
from densevit.inference.writers import DEPTH_FORMATS
from densevit.inference.writers.base import PredictedMap
from densevit.model_card import HeadSpec
from densevit.structures import Sample

# Data sets whose sample 3 goes wrong while it is read.
PLUGIN = """
import os
import signal
import time

from torch.utils.data import get_worker_info

from densevit.data.datasets.base import DATASETS
from densevit.data.datasets.folder import Folder


@DATASETS.register("rotting")
class Rotting(Folder):
    def read(self, index):
        if index == 3:
            path = self.samples[index].image
            os.truncate(path, min(path.stat().st_size, 700))
        return super().read(index)


class Deadly(Folder):
    def read(self, index):
        if index == 3 and get_worker_info() is not None:
            self.end()
        return super().read(index)


@DATASETS.register("killed")
class Killed(Deadly):
    def end(self):
        os.kill(os.getpid(), signal.SIGKILL)


@DATASETS.register("segfault")
class Segfault(Deadly):
    def end(self):
        os.kill(os.getpid(), signal.SIGSEGV)


@DATASETS.register("stuck")
class Stuck(Deadly):
    def end(self):
        time.sleep(600)
"""


def words(folder: Path, kind: str) -> list[object]:
    """The training of a small folder through one of these."""
    config = small_config(folder)
    (folder / "plugin.py").write_text(PLUGIN)
    return ["train", config, f"plugins=[{folder / 'plugin.py'}]", f"data.train.type={kind}", "data.val=null"]


def flip(path: Path, at: int) -> None:
    """One bit, as a tired disk would: neither size nor time of the file tells."""
    before, data = path.stat(), bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_recorded_sums_tell_every_flip_also_behind_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DENSEVIT_CACHE", str(tmp_path / "cache"))
    root = small_folder(tmp_path / "data", count=10)
    check = ["check-data", str(root), "--data-options", "depth_scale=1000"]
    check += ["--checksums", str(tmp_path / "sums"), "--output", str(tmp_path)]
    main(check)
    assert "differ" not in capsys.readouterr().out
    files = sorted(path for path in root.rglob("*") if path.is_file())
    draw = np.random.default_rng(0)
    for path in files:
        flip(path, int(draw.integers(path.stat().st_size)))
    assert main(check) == 2
    report = (tmp_path / "report.json").read_text()
    assert len(files) == 20 and all(str(path) in report for path in files)


@pytest.mark.slow
def test_a_file_that_turns_bad_ends_the_run_and_is_named_first(tmp_path: Path, fork_server: ForkServer) -> None:
    text = fork_server.run(*words(tmp_path, "rotting"), code=2)
    (line,) = (line for line in text.splitlines() if "error:" in line)
    assert "sample 3 ('003')" in line and str(tmp_path / "data/images/003.jpg") in line


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_two_processes_take_the_same_steps_when_one_skips_a_file(
    tmp_path: Path, fork_server: ForkServer, workers: int
) -> None:
    skip = ["data.on_corrupt=skip", f"data.workers={workers}"]
    children = fork_server.finish(2, *words(tmp_path, "rotting"), *skip)
    assert [row["step"] for row in read_csv(tmp_path / "run/train.csv")] == list(range(1, 9))
    skipped = [child.err.read_text().count("skipped: sample 3") for child in children]
    assert sum(skipped) in (5, 6)  # 32 samples of 6 are five epochs and a bit; the last batches are fetched ahead


@pytest.mark.slow
def test_too_many_bad_files_on_one_process_end_both(tmp_path: Path, fork_server: ForkServer) -> None:
    children = fork_server.together(
        2, *words(tmp_path, "rotting"), "data.on_corrupt=skip", "data.max_corrupt_fraction=0"
    )
    codes = [child.wait() for child in children]
    told = [child.err.read_text() for child in children]
    assert 2 in codes and 0 not in codes, told
    assert any("1 unreadable samples in epoch 0, where 0 of about 3 may be skipped" in text for text in told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason"), [("killed", "worker died"), ("segfault", "worker died"), ("stuck", "within 3 s")]
)
def test_a_worker_that_ends_or_hangs_is_told_with_its_files_and_leaves_nothing(
    tmp_path: Path, fork_server: ForkServer, kind: str, reason: str
) -> None:
    child = fork_server.start(*words(tmp_path, kind), "data.workers=2", "data.timeout=3")
    assert child.wait() == 2
    text = child.err.read_text()
    assert reason in text and "Traceback" not in text
    for file in ("images/003.jpg", "depths/003.png"):
        assert f"{tmp_path / 'data' / file}" in text, text
    with pytest.raises(ProcessLookupError):  # the group that it led is empty
        os.killpg(child.pid, 0)


@pytest.fixture(scope="module")
def mat(folder: Path) -> Path:
    """NYU's file as we repack it, of four frames."""
    draw = np.random.default_rng(0)
    samples = []
    for i in range(4):  # of which the official split has the first two for testing
        depth = draw.uniform(1, 9, (480, 640)).astype(np.float32)
        image = draw.integers(0, 256, (480, 640, 3), dtype=np.uint8)
        samples.append(
            Sample(name=f"study/{i}", image=image, depth=depth, valid=depth > 0, labels=np.ones((480, 640), np.int64))
        )
    layouts.write_nyu_labeled(folder / "old.mat", samples)
    repack_nyu.repack(folder / "old.mat", folder / "nyu_depth_v2_labeled.mat")
    return folder / "nyu_depth_v2_labeled.mat"


@pytest.mark.parametrize("key", ["images", "rawDepths"])
def test_a_flip_in_an_hdf5_file_is_told_by_the_examination(
    mat: Path, tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / mat.name
    path.write_bytes(mat.read_bytes())
    with h5py.File(path) as file:
        chunk = file[key].id.get_chunk_info(1)
    flip(path, chunk.byte_offset + chunk.size // 2)
    told = ["--data-options", "subset=available", "--splits", "test", "--no-cache", "--output"]
    assert main(["check-data", "--data", "nyu", "--root", str(path), *told, str(tmp_path / "report")]) == 2
    report = (tmp_path / "report/report.json").read_text()
    assert f"{path}: frame 1 of '{key}' is damaged" in report
    capsys.readouterr()


def test_every_hdf5_file_of_ours_has_checksums(mat: Path, tmp_path: Path) -> None:
    depth = np.ones((6, 8), np.float32)
    shown = PredictedMap(values=depth, image=np.zeros((6, 8, 3), np.uint8), spec=HeadSpec(kind="metric"))
    DEPTH_FORMATS.check({"type": "h5"}, "h5").build().write(tmp_path / "a.h5", shown)
    written: dict[str, object] = {
        "export": tmp_path / "a.h5",
        "folder": BytesIO(DEPTH_WRITERS[".h5"](depth, 1.0)),
        "nyu": mat,
    }
    for name, place in written.items():
        with h5py.File(place) as file:
            maps = [file[key] for key in ("depth", "depths", "images") if key in file]
            assert maps and all(data.fletcher32 for data in maps), name


@pytest.mark.slow
def test_an_unreadable_validation_image_that_may_be_skipped_ends_no_run(
    tmp_path: Path, fork_server: ForkServer
) -> None:
    config, other = small_config(tmp_path), small_folder(tmp_path / "other", count=2)
    (other / "images/001.jpg").write_bytes(b"no image")
    folder = f"type: folder, root: {other}, depth_scale: 1000"
    for val in (f"{{{folder}}}", f"{{type: mix, sources: [{{data: {{{folder}}}}}]}}"):
        text = fork_server.run(
            "train", config, f"data.val={val}", "data.on_corrupt=skip", f"output={tmp_path / str(len(val))}"
        )
        assert text.count("not validated: sample 1 (") == 2  # of two validations
