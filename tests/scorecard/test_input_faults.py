"""What users hand over: configs, pictures, lists, folders to write to. All of it may be wrong, none of it may hurt."""

import json
import signal
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from itertools import product
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from forked import ForkServer
from layouts import opened
from layouts.encoders import png
from PIL import Image
from scorecard import zoo
from shell import Shell
from small import contents, small_config
from toy_models import toy_predictor

from densevit.cli.main import main
from densevit.data.io.readers import read_depth
from densevit.data.loading.dataloader import EvalLoader, TrainLoader
from densevit.data.predictions import SavedMaps
from densevit.data.prepare.fetch import unpack
from densevit.data.transforms.geometric import compose
from densevit.errors import DataError
from densevit.preprocess_config import PreprocessConfig

MODEL = Path(__file__).parent / "golden/schema-1/model.safetensors"

# What people write -> what must be suggested.
KEYS = {
    "lr": "optim.lr",
    "wd": "optim.weight_decay",
    "bs": "batch_size",
    "num_workers": "data.workers",
    "max_steps": "steps",
    "ephocs": "epochs",
    "grad_acum_steps": "grad_accum_steps",
    "grad_clip": "optim.clip_grad",
    "output_dir": "output",
    "backbone": "model.encoder",
    "optim.weigth_decay": "weight_decay",
    "schedule.warm_up": "warmup",
    "data.num_workers": "data.workers",
    "model.freeze": "freeze_encoder",
    "tasks.depth.loss": "losses",
    "model.decoder.min_channel": "min_channels",
    "model.heads.depth.maxdepth": "max_depth",
    "model.encoder.img_size": "image_size",
    "data.train.depthscale": "depth_scale",
    "data.transforms.0.crop_size": "size",
}

CPU = torch.device("cpu")


def test_twenty_wrong_keys_are_all_told_at_once_each_with_the_right_one(tmp_path: Path, shell: Shell) -> None:
    lines = shell.refused("train", small_config(tmp_path), *(f"{key}=1" for key in KEYS)).splitlines()
    assert len(lines) == len(KEYS) == 20
    for key, meant in KEYS.items():
        (line,) = (line for line in lines if f" {key}: " in line)
        assert line.removeprefix("error: ").startswith(f"'{key}=1': {key}: no such option."), line
        assert line.endswith((f"Did you mean '{meant}'?", f".{meant}'?")), line
    assert not (tmp_path / "run").exists()


# Overrides that cannot mean anything -> what the message must name: the key, what came, what would fit.
VALUES = {
    "optim.lr=fast": ("optim.lr", "'fast'", "number"),
    "optim.lr=-1": ("optim.lr", "-1", "greater than 0"),
    "optim.lr=.inf": ("optim.lr", "inf", "finite"),
    "steps=1:30": ("steps", "'1:30'", "integer"),
    "steps=8.5": ("steps", "8.5", "integer"),
    "steps=yes": ("steps", "'yes'", "integer"),
    "compile=maybe": ("compile", "'maybe'", "boolean"),
    "seed=-1": ("seed", "-1", "greater than or equal to 0"),
    "model.heads.depth.max_depth=-3": ("max_depth", "-3", "greater than 0"),
    "model.heads.depth.min_depth=20": ("min_depth", "20", "max_depth 10"),
    "data.train.depth_range=[5, 1]": ("depth_range", "[5, 1]", "near < far"),
    "model.encoder={type: vitt}": ("model.encoder", "'vitt'", "'vit'"),
    "model.encoder={type: timm, name: vit_tiny_patch16_22}": ("encoder.name", "patch16_22'", "vit_tiny_patch16_224"),
    "model.encoder.patch_size=0": ("model.encoder.patch_size", "0", "greater than 0"),
    "model.encoder.heads=3": ("heads", "3", "32"),
    "model.resize={mode: fixed, size: [0, 0]}": ("model.resize.size", "(0, 0)", "over 0"),
    "data.transforms.0.size=[0, 64]": ("data.transforms.0.size.0", "0", "greater than 0"),
    "precision=fp8": ("precision", "'fp8'", "'bf16'"),
    "device=gpu": ("device", "gpu", "cuda"),
    "grad_accum_steps=3": ("grad_accum_steps", "3", "4"),
    "batch_size=4294967295": ("batch_size", "4294967295", "1048576"),
    "data.timeout=1e300": ("data.timeout", "1e+300", "1000000"),
    "optim.betas=[1, 0.9]": ("optim.betas.0", "1", "less than 1"),
    "device=meta": ("device", "meta", "cuda"),
    "model.encoder.type=[vit]": ("model.encoder.type", "['vit']", "'vit'"),
    "model.decoder={}": ("model.decoder.type", "missing", "linear"),
    "model.encoder.depth=100000000": ("model.encoder.depth", "100000000", "1024"),
    "model.encoder.mlp_ratio=.inf": ("model.encoder.mlp_ratio", "inf", "finite"),
    "model.encoder.std=[0, 1, 1]": ("'model.encoder.std=[0, 1, 1]': model.encoder.std", "[0.0, 1.0, 1.0]", "over 0"),
    "model.encoder.out_indices=[9]": ("'model.encoder.out_indices=[9]': model.encoder.out_indices", "(9,)", "0 to 1"),
    "tasks.depth.losses.1.weight=.nan": ("tasks.depth.losses.1.weight", "nan", "over 0"),
    "data.transforms.0.size=[32]": ("data.transforms.0.size.1", "missing", ""),
    "data.val.root=/nowhere": ("small.yaml:10: data.val", "/nowhere", "root"),
    "schedule.type=cos": ("schedule.type", "'cos'", "'cosine'"),
    "optim.betas=[0.9, 1.9]": ("optim.betas.1", "1.9", "less than 1"),
}  # fmt: skip


def test_a_wrong_value_is_refused_with_key_value_and_what_would_fit(tmp_path: Path, shell: Shell) -> None:
    config = small_config(tmp_path)
    for word, parts in VALUES.items():
        (line,) = shell.refused("train", config, word).splitlines()
        assert [part for part in parts if part not in line] == [], line
    assert not list(tmp_path.glob("run/*.csv"))


def test_an_image_size_that_no_patches_fill_is_padded(tmp_path: Path) -> None:
    assert main(["train", str(small_config(tmp_path)), "model.encoder.image_size=65", "steps=1"]) == 0


def test_training_evaluation_and_prediction_see_the_same_pixels(tmp_path: Path) -> None:
    folder = zoo.fill(tmp_path / "images", readable=True)
    data, predictor = opened("folder", tmp_path, require_depth=False), toy_predictor()
    assert len(data) == 18
    training = TrainLoader(data, compose([]), seed=0, batch_size=1)
    trained = {batch.names[0]: batch.to(CPU).image for batch, _ in zip(training, range(18), strict=False)}
    evaluated = {
        name: batch.to(CPU).image[i] for batch in EvalLoader(data, batch_size=4) for i, name in enumerate(batch.names)
    }
    for path in sorted(folder.iterdir()):
        answer = predictor(path)
        assert answer.shape == zoo.size_of(path.name), path
        shown = predictor.model.seen[-1]
        assert torch.equal(trained[path.stem], shown) and torch.equal(evaluated[path.stem][None], shown), path


def test_pictures_turned_by_exif_give_the_answer_of_the_upright_one(tmp_path: Path) -> None:
    folder, predictor = zoo.fill(tmp_path / "images"), toy_predictor()
    first = predictor(folder / zoo.EXIF[0])
    assert first.shape == zoo.SIZE and np.ptp(first) > 0.3
    for name in zoo.EXIF[1:]:
        np.testing.assert_array_equal(predictor(folder / name), first, err_msg=name)


@pytest.mark.slow
def test_the_zoo_is_trained_on_evaluated_and_exported(tmp_path: Path, shell: Shell) -> None:
    folder = zoo.fill(tmp_path / "zoo/images", readable=True)
    (tmp_path / "zoo/depths").mkdir()
    for path in folder.iterdir():
        depth = np.linspace(1, 9, int(np.prod(zoo.size_of(path.name))), dtype=np.float32)
        np.save(tmp_path / f"zoo/depths/{path.stem}.npy", depth.reshape(zoo.size_of(path.name)))
    config, root = small_config(tmp_path), tmp_path / "zoo"
    words = [f"data.{split}.root={root}" for split in ("train", "val")]
    assert main(["train", str(config), *words, "steps=5"]) == 0
    assert main(["eval", "--task", "depth", str(MODEL), "--data", "folder", "--root", str(root)]) == 0
    made = zoo.fill(tmp_path / "all")
    said = shell("predict", MODEL, *sorted(made.iterdir()), "--output", tmp_path / "out", code=3)
    failed = json.loads((tmp_path / "out/failed.json").read_text())["failed"]
    assert {Path(entry["image"]).name for entry in failed} == zoo.REFUSED.keys()
    for entry in failed:
        assert zoo.REFUSED[Path(entry["image"]).name] in entry["reason"]
    for name in zoo.ZOO.keys() - zoo.REFUSED.keys():
        assert read_depth(tmp_path / f"out/{Path(name).stem}.png").shape == zoo.size_of(name)
    assert "Traceback" not in said.err + said.out


# Each line: the most that the process ever held, before and after, in kB; and what was said.
BOMBS = """
import json, resource, sys
from densevit.data.io.readers import read_depth, read_image
from densevit.errors import DensevitError
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read_image(sys.argv[1])
before = peak()
for path in sys.argv[2:]:
    try:
        (read_depth if path.endswith((".npz", ".h5")) else read_image)(path)
        said = "read"
    except DensevitError as error:
        said = str(error)
    print(json.dumps([path, said, peak() - before]))
"""


@pytest.mark.slow
def test_bombs_are_refused_by_their_header(tmp_path: Path) -> None:
    (tmp_path / "ok.png").write_bytes(encode_png(8, 8))
    bombs = {
        "square.png": encode_png(20_000, 20_000),
        "tall.tiff": tiff_header(100_000, 100_000),
        "archive.png": b"PK\x03\x04" + bytes(100),
        "paper.jpg": b"%PDF-1.7\n" + bytes(100),
    }
    for name, data in bombs.items():
        (tmp_path / name).write_bytes(data)
    assert len(bombs["square.png"]) < 60_000
    with h5py.File(tmp_path / "sparse.h5", "w") as file:
        file.create_dataset("depth", (100_000, 100_000), np.float32, chunks=(1000, 1000))
    with (
        zipfile.ZipFile(tmp_path / "zeros.npz", "w", zipfile.ZIP_DEFLATED) as file,
        file.open("depth.npy", "w") as entry,
    ):
        np.lib.format.write_array_header_1_0(entry, {"descr": "<f4", "fortran_order": False, "shape": (20_000, 20_000)})
        for _ in range(400):
            entry.write(bytes(4_000_000))
    names = [*bombs, "sparse.h5", "zeros.npz"]
    command = [sys.executable, "-c", BOMBS, *(str(tmp_path / name) for name in ("ok.png", *names))]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=200)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(told) == len(names)
    for path, said, grown in told:
        assert path in said and grown < 200_000, (path, said, grown)
        reason = {"archive.png": "is ZIP", "paper.jpg": "is PDF"}.get(Path(path).name, "(max_pixels)")
        assert reason in said, said


def encode_png(width: int, height: int) -> bytes:
    """One bit a pixel, all black."""
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height), 9)
    return png(struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0), (b"IDAT", rows))


def tiff_header(width: int, height: int) -> bytes:
    tags = [(256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, 1), (262, 3, 1)]
    tags += [(273, 4, 8), (278, 4, height), (279, 4, 1)]
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + entries + bytes(4)


def test_a_strip_is_refused_where_the_resize_rule_would_blow_it_up_and_read_where_not() -> None:
    strip = np.zeros((30_000, 8, 3), np.uint8)
    predictor = toy_predictor(resize=PreprocessConfig(mode="lower_bound", size=(518, 518)))
    with pytest.raises(DataError, match="too thin"):
        predictor(strip)
    assert not predictor.model.seen
    assert toy_predictor()(strip).shape == (30_000, 8)


def pictures(root: Path) -> Path:
    """Ten, of which three share a name and one is cut short."""
    for i, name in enumerate(("a.jpg", "a.png", "s/a.jpg", *(f"{letter}.png" for letter in "bcdefgh"))):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(i).integers(0, 256, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    whole = (root / "d.png").read_bytes()
    (root / "d.png").write_bytes(whole[: len(whole) // 2])
    return root


@pytest.mark.slow
def test_an_export_killed_in_the_middle_is_resumed_to_the_same_bytes(tmp_path: Path, fork_server: ForkServer) -> None:
    words = ["predict", MODEL, pictures(tmp_path / "in"), "--workers", 1, "--output"]
    text = fork_server.run(*words, tmp_path / "whole", code=3)
    whole = contents(tmp_path / "whole")
    maps = {name for name in whole if name.endswith(".png")}
    assert "1 failed" in text
    assert maps == {"a.jpg.png", "a.png.png", "s/a.png", *(f"{letter}.png" for letter in "bcefgh")}
    failed = json.loads(whole["failed.json"])
    assert [Path(entry["image"]).name for entry in failed["failed"]] == ["d.png"]
    fork_server.run(*words, tmp_path / "part", fault="killed_predicting:5", code=-signal.SIGKILL)
    kept = {name: (tmp_path / "part" / name).stat().st_mtime_ns for name in contents(tmp_path / "part") if name in maps}
    assert 0 < len(kept) < 9
    text = fork_server.run(*words, tmp_path / "part", code=2)
    assert "--resume" in text and "--overwrite" in text
    fork_server.run(*words, tmp_path / "part", "--resume", code=3)
    assert contents(tmp_path / "part") == whole
    again = [name for name, stamp in kept.items() if (tmp_path / "part" / name).stat().st_mtime_ns != stamp]
    assert len(again) <= 3  # those that were killed between their file and its row in outputs.jsonl


@pytest.mark.parametrize("where", ["../secret/d.npy", "ABSOLUTE", "link/d.npy", "file:///d.npy", "a\0b.npy"])
def test_a_list_of_saved_maps_may_not_lead_out_of_their_folder(tmp_path: Path, where: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "maps").mkdir()
    np.save(tmp_path / "secret/d.npy", np.ones((3, 4), np.float32))
    (tmp_path / "maps/link").symlink_to(tmp_path / "secret")
    where = where.replace("ABSOLUTE", str(tmp_path / "secret/d.npy"))
    (tmp_path / "list.jsonl").write_text(json.dumps({"name": "d", "prediction": where}))
    with pytest.raises(DataError, match=r"leads out of|expected a file path"):
        SavedMaps(tmp_path / "maps", ["d"], manifest=tmp_path / "list.jsonl")
    if "secret" in where or "link" in where:
        allowed = SavedMaps(tmp_path / "maps", ["d"], manifest=tmp_path / "list.jsonl", allow_outside=True)
        assert allowed.read("d").shape == (3, 4)


# Lists that come with published data sets -> data set, options, the list's path and text with a name that leads out.
LISTS = {
    "voc": ("ImageSets/Segmentation/train.txt", "2007_1\n../../x\n"),
    "pascal_context": ("ImageSets/SegmentationContext/train.txt", "/etc/x\n"),
    "scannet": ("scannetv2_train.txt", "../scene0000_00\n"),
    "ibims": ("imagelist.txt", "corridor_01\n../../x\n"),
    "hypersim": (
        "metadata_images_split_scene_v1.csv",
        "scene_name,camera_name,frame_id,included_in_public_release,split_partition_name\n../../x,cam_00,0,True,train\n",
    ),
}
FOLDERS = ("JPEGImages", "SegmentationClass", "scans/scene0000_00/color", "rgb")


def test_a_published_list_with_a_name_that_leads_out_is_refused(tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
    for name, (where, text) in LISTS.items():
        (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / where).write_text(text)
        with pytest.raises(DataError, match="expected names in the data set"):
            opened(name, tmp_path, **({} if name == "ibims" else {"split": "train"}))


def test_pairs_of_images_that_lie_elsewhere_are_refused(tmp_path: Path, shell: Shell) -> None:
    pair = {"point1": [0, 0], "point2": [1, 1], "closer_point": "point1"}
    (tmp_path / "pairs.json").write_text(json.dumps({"../a.jpg": [pair]}))
    (told,) = shell.refused("eval", "--task", "ordinal", MODEL, "--pairs", tmp_path / "pairs.json").splitlines()
    assert "'../a.jpg'" in told


@pytest.mark.parametrize("kind", ["external", "soft", "virtual", "raw"])
def test_hdf5_never_opens_another_file(tmp_path: Path, kind: str) -> None:
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["depth"] = np.ones((2, 3), np.float32)
    (tmp_path / "secret.bin").write_bytes(np.ones(6, np.float32).tobytes())
    with h5py.File(tmp_path / "link.h5", "w") as file:
        if kind == "external":
            file["depth"] = h5py.ExternalLink("secret.h5", "depth")
        elif kind == "soft":  # by way of a group that is elsewhere
            file["elsewhere"] = h5py.ExternalLink("secret.h5", "/")
            file["depth"] = h5py.SoftLink("/elsewhere/depth")
        elif kind == "virtual":
            layout = h5py.VirtualLayout((2, 3), np.float32)
            layout[:] = h5py.VirtualSource(tmp_path / "secret.h5", "depth", (2, 3))
            file.create_virtual_dataset("depth", layout)
        else:
            file.create_dataset("depth", (2, 3), np.float32, external=[(str(tmp_path / "secret.bin"), 0, 24)])
    with pytest.raises(DataError, match="other files are not followed"):
        read_depth(tmp_path / "link.h5")


def test_no_archive_writes_outside_of_its_folder(tmp_path: Path) -> None:
    leading_out = ["../out.txt", str(tmp_path / "out.txt"), "a/../../out.txt", "..\\out.txt"]
    for name, suffix in product(leading_out, (".zip", ".tar", ".tar.gz")):
        path, folder = tmp_path / f"data{suffix}", tmp_path / "deep/root"
        if suffix == ".zip":
            with zipfile.ZipFile(path, "w") as file:
                file.writestr(name, "x")
        else:
            with tarfile.open(path, "w:gz" if suffix == ".tar.gz" else "w") as file:
                file.addfile(tarfile.TarInfo(name))
        before = contents(tmp_path)
        with pytest.raises(DataError, match="expected names in the data set"):
            unpack(path, folder)
        assert contents(tmp_path) == before


def test_links_in_an_archive_are_not_made_so_nothing_is_written_through_them(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tarfile.TarInfo("door")
    link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "elsewhere")
    with tarfile.open(tmp_path / "data.tar", "w") as file:
        file.addfile(link)
        file.addfile(tarfile.TarInfo("door/x.txt"))
    unpack(tmp_path / "data.tar", tmp_path / "root")
    door = tmp_path / "root/door"
    assert (door / "x.txt").is_file() and not door.is_symlink() and not list((tmp_path / "elsewhere").iterdir())
