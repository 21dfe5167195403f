"""Makes the synthetic `rooms` data set; needs `pip install 'densevit[rooms]'`. Run it with --help."""

import argparse
import sys
from pathlib import Path


def main() -> int:
    args = parse()
    from densevit.errors import DataError, DensevitError
    from densevit_rooms.generate import generate
    from densevit_rooms.layouts import write_as  # not at the top: --help answers at once

    scenes = {"train": args.train_scenes, "val": args.val_scenes, "test": args.test_scenes}
    try:
        if args.layout == "rooms":
            size = args.size or (192, 256)
            generate(
                args.root,
                scenes,
                args.frames,
                size,
                args.seed,
                args.workers,
                args.overwrite,
                mount=args.mount,
                fov=args.fov and tuple(args.fov),
                views=args.views,
                baseline=args.baseline and tuple(args.baseline),
                normals=args.normals,
                fps=args.fps,
                movers=args.movers,
                variety=args.variety,
            )
        else:
            if args.fov or args.views != 1 or args.baseline or args.normals or args.fps or args.variety != "demo":
                raise DataError("--fov, --views, --baseline, --normals, --fps and --variety go with --layout rooms.")
            write_as(args.layout, args.root, scenes, args.frames, args.size, args.seed)
    except DensevitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{sum(scenes.values()) * args.frames * args.views} frames in {args.root}")
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Makes the synthetic `rooms` data set. The same arguments make the same data set, whatever the "
        "number of workers, and finish one that was interrupted; more scenes add to it."
    )
    add = parser.add_argument
    add("--root", type=Path, default=Path("datasets/rooms"), help="where to (default: %(default)s)")
    add("--train-scenes", type=int, default=150, metavar="N", help="default: %(default)s")
    add("--val-scenes", type=int, default=20, metavar="N", help="default: %(default)s")
    add("--test-scenes", type=int, default=20, metavar="N", help="default: %(default)s")
    add("--frames", type=int, default=4, metavar="N", help="per scene (default: %(default)s)")
    add(
        "--size", type=size, metavar="HxW", help="of the images (default: 192x256, or what the layout's originals have)"
    )
    add("--seed", type=int, default=0, metavar="N", help="another seed, other rooms (default: %(default)s)")
    add(
        "--mount",
        choices=("hand", "robot", "level", "any"),
        help="how cameras are held: by hand, on a robot's mast, level 0.4 m over the floor, or in any way "
        "(default: hand, or any with --variety wide)",
    )
    add(
        "--variety",
        choices=("demo", "wide"),
        default="demo",
        help="wide: more kinds of rooms, corridors, open doors, clutter, figures of people, materials, light, lenses "
        "(default: %(default)s)",
    )
    add(
        "--fov",
        type=float,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="degrees that horizontal fields of view are drawn from (default: the mount's, 55 75 by hand)",
    )
    add(
        "--views",
        type=int,
        default=1,
        metavar="N",
        help="camera poses of the place that each frame shows; 2 and more write poses.json (default: %(default)s)",
    )
    add(
        "--baseline",
        type=float,
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="metres from the first of these poses to the others (default: 0.3 1.2)",
    )
    add("--normals", action="store_true", help="write exact surface normals, too")
    add(
        "--fps",
        type=float,
        metavar="RATE",
        help="each scene is a walk of a camera, so many frames a second: poses.json and optical flow, too",
    )
    add(
        "--movers",
        type=int,
        default=2,
        metavar="N",
        help="with --fps: things that move, at most (default: %(default)s)",
    )
    add("--workers", type=int, default=1, metavar="N", help="processes, layout rooms only (default: %(default)s)")
    add("--overwrite", action="store_true", help="replace another `rooms` data set at --root")
    add(
        "--layout",
        choices=("rooms", "nyu", "nyu_labeled", "kitti"),
        default="rooms",
        help="on disk: ours, or that of a real data set, whose test takes the val scenes (default: %(default)s)",
    )
    return parser.parse_args()


def size(text: str) -> tuple[int, int]:
    height, cross, width = text.lower().partition("x")
    if not (cross and height.isdigit() and width.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is no size; write height x width, 192x256 say.")
    return int(height), int(width)


if __name__ == "__main__":
    sys.exit(main())
