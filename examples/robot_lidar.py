"""From a calibrated robot camera and a LiDAR to metric point clouds: the LiDAR's points correct every frame.

    python examples/robot_lidar.py CHECKPOINT FRAMES --lidar CLOUDS --intrinsics FX,FY,CX,CY [--pose FILE]

FRAMES is a folder of images, CLOUDS one with NAME.ply for each, in the LiDAR's own frame; FILE a 4 x 4 matrix from that
frame to the camera's (right, down, forward), metres.
"""

import argparse
from pathlib import Path

import densevit


def main(
    checkpoint: str,
    frames: Path,
    lidar: Path,
    intrinsics: tuple[float, float, float, float],
    pose: Path | None,
    output: Path,
) -> Path:
    summary = densevit.predict(
        checkpoint,
        frames,
        output,
        formats=["ply", "png16"],
        intrinsics=intrinsics,
        points=lidar,
        points_pose=pose,
        overwrite=True,
    )
    print(summary)  # with how far the model was off at the LiDAR's points, before and after
    return output


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("frames", type=Path)
    parser.add_argument("--lidar", type=Path, required=True)
    parser.add_argument("--intrinsics", type=lambda text: tuple(map(float, text.split(","))), required=True)
    parser.add_argument("--pose", type=Path)
    parser.add_argument("--output", type=Path, default=Path("clouds"))
    print(main(**vars(parser.parse_args())))
