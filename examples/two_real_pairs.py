"""Train, evaluate and export on two real pairs each of NYU Depth v2 and KITTI, laid out as the official data sets are.

    python examples/two_real_pairs.py FOLDER [--work DIR]

FOLDER holds `nyu_v2/{rgb,depth}` (rgb_00000.jpg, sync_depth_00000.png) and `kitti/{rgb,depth}` (0000000005.png, the
improved annotated depth under the same names). The script copies them into the official layouts below DIR, trains a
small model on each two pairs (or fine-tunes a checkpoint of yours: --init), evaluates it by the paper's protocol,
exports PNG16 maps and scores those, too. It ends with exit code 1 if a score is over its bound.
"""

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

from densevit.cli.main import main as densevit

CONFIG = Path(__file__).with_name("two_pairs.yaml")
BOUND = 0.05  # AbsRel on the two training pairs
AGREE = 1e-3  # between the model's score and that of its exported maps
EXTRA: list[str] = []  # further overrides of the training
DATE, DRIVE = "2011_09_26", "2011_09_26_drive_0001_sync"


def lay_out_nyu(source: Path, root: Path) -> None:
    """sync/SCENE/ to train on, official_splits/test/SCENE/ to test on, and lists of both."""
    images = sorted((source / "rgb").glob("rgb_*.jpg"))
    for home in ("sync", "official_splits/test"):
        scene = root / home / "room_0001"
        scene.mkdir(parents=True, exist_ok=True)
        for image in images:
            depth = f"sync_depth_{image.stem.removeprefix('rgb_')}.png"
            shutil.copyfile(image, scene / image.name)
            shutil.copyfile(source / "depth" / depth, scene / depth)
    lines = [f"room_0001/{i.name} room_0001/sync_depth_{i.stem.removeprefix('rgb_')}.png 518.8579" for i in images]
    (root / "two.txt").write_text("\n".join(lines) + "\n")


def lay_out_kitti(source: Path, root: Path) -> None:
    """Raw images, improved annotated depth, and a list of both."""
    images = root / DATE / DRIVE / "image_02/data"
    depths = root / "data_depth_annotated/train" / DRIVE / "proj_depth/groundtruth/image_02"
    for folder, kind in ((images, "rgb"), (depths, "depth")):
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted((source / kind).glob("*.png")):
            shutil.copyfile(file, folder / file.name)
    lines = [
        f"{DATE}/{DRIVE}/image_02/data/{p.name} {DRIVE}/proj_depth/groundtruth/image_02/{p.name} 721.5377"
        for p in sorted(images.glob("*.png"))
    ]
    (root / "two.txt").write_text("\n".join(lines) + "\n")


CASES = {
    # name: layout, protocol, its window for export, training overrides, images to export
    "nyu": (
        lay_out_nyu,
        "nyu_eigen",
        [],
        ["data.train={type: nyu, split: train, source: sync, list_file: two.txt}",
         "data.val={type: nyu, split: test, source: sync, list_file: two.txt}"],
        "official_splits/test",
    ),
    "kitti": (
        lay_out_kitti,
        "kitti_eigen_garg",
        ["--crop", "kb"],
        ["data.train={type: kitti, split: train, crop: kb, list_file: two.txt}",
         "data.val={type: kitti, split: test, list_file: two.txt}",
         "model.heads.depth.max_depth=80"],
        f"{DATE}/{DRIVE}/image_02/data",
    ),
}  # fmt: skip


def call(*command: str) -> None:
    print("\n$ densevit " + " ".join(f'"{word}"' if " " in word else word for word in command), flush=True)
    code = densevit(command)
    if code:
        sys.exit(code)


def run(name: str, source: Path, work: Path) -> bool:
    lay_out, protocol, window, overrides, images = CASES[name]
    root, output = (work / name).absolute(), work / f"run_{name}"
    for old in (root, output):
        shutil.rmtree(old, ignore_errors=True)
    lay_out(source, root)
    begun = time.monotonic()
    where = [f"data.{part}.root={root}" for part in ("train", "val")]
    call("train", str(CONFIG), f"output={output}", f"tasks.depth.protocol={protocol}", *overrides, *where, *EXTRA)
    seconds = time.monotonic() - begun
    data = ["--data", name, "--root", str(root), "--data-options", "list_file=two.txt", "--protocol", protocol]
    call("eval", str(output), *data, "--output", str(output / "eval"))
    maps = str(output / "maps")
    call("predict", str(output), str(root / images), "--output", maps, "--precision", "fp32", *window)
    call("eval", *data, "--predictions", maps, "--output", str(output / "eval_maps"))
    model, saved = (
        json.loads((output / part / "metrics.json").read_text())["metrics"]["abs_rel"] for part in ("eval", "eval_maps")
    )
    good = model <= BOUND and abs(model - saved) <= AGREE
    print(f"\n{name}: AbsRel {model:.4f} (bound {BOUND}), of the exported maps {saved:.4f}, trained in {seconds:.0f} s")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=Path, default=Path("runs/two_real_pairs"))
    parser.add_argument("--only", choices=CASES)
    parser.add_argument("--init", metavar="CHECKPOINT", help="fine-tune this one, ours or published, not train anew")
    parser.add_argument("--init-family", metavar="NAME", help="whose it is, where its keys cannot tell")
    parser.add_argument("--steps", type=int, help="of training (180)")
    args = parser.parse_args()
    sources = {"nyu": args.folder / "nyu_v2", "kitti": args.folder / "kitti"}
    if missing := [str(path) for path in sources.values() if not (path / "rgb").is_dir()]:
        print(f"{args.folder} lacks {', '.join(missing)}; it should hold nyu_v2/{{rgb,depth}} and kitti/{{rgb,depth}}.")
        return 2
    EXTRA.extend(f"steps={args.steps}" for _ in range(args.steps is not None))
    if args.init:  # encoder and decoder are the file's, a head for metres is new
        EXTRA.extend(["model.encoder=null", "model.decoder=null", "model.resize={mode: native}"])
        EXTRA.extend(
            [f"model.init_from={args.init}", *(f"model.init_family={name}" for name in [args.init_family] if name)]
        )
    results = [run(name, source, args.work) for name, source in sources.items() if args.only in (None, name)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
