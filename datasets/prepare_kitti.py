#!/usr/bin/env python
"""Checks that KITTI lies as the reader expects it, says what is missing, and lists what is there.

python datasets/prepare_kitti.py datasets/kitti
python datasets/prepare_kitti.py datasets/kitti --write-lists      kitti_available_train.txt, ..._test.txt
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("root", type=Path, help="folder with the raw images and the annotated depth")
    parser.add_argument("--depth-root", type=Path, metavar="DIR", help="where the annotated depth is, if elsewhere")
    parser.add_argument("--write-lists", action="store_true", help="list the complete pairs, for the option list_file")
    args = parser.parse_args()

    from densevit.data.prepare.completeness import check_kitti as check
    from densevit.errors import DensevitError

    try:
        complete = check(args.root, args.depth_root, write_lists=args.write_lists)
    except DensevitError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    sys.exit(0 if complete else 2)


if __name__ == "__main__":
    main()
