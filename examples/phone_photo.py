"""From a phone's photo to a metric point cloud, with the focal length that the phone wrote into it.

python examples/phone_photo.py CHECKPOINT PHOTO.jpg [--output DIR]
"""

import argparse
from pathlib import Path

import densevit
from densevit.data.io.exif import exif_focal


def main(checkpoint: str, photo: Path, output: Path) -> Path:
    focal = exif_focal(photo)
    print(f"{photo}: " + (f"focal length {focal:.0f} pixels, from EXIF" if focal else "EXIF does not tell the lens"))
    if focal is None:
        raise SystemExit("measure it, or look up the phone's field of view: densevit predict ... --fov DEGREES")
    print(densevit.predict(checkpoint, photo, output, formats=["ply", "color"], overwrite=True))
    return output / f"{photo.stem}.ply"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("photo", type=Path)
    parser.add_argument("--output", type=Path, default=Path("cloud"))
    print(main(**vars(parser.parse_args())))
