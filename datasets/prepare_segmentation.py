#!/usr/bin/env python
"""Unpacks and converts the published data sets of label maps; `densevit check-data NAME` says what is missing.

python datasets/prepare_segmentation.py ade20k datasets/ade20k --unpack ~/Downloads
python datasets/prepare_segmentation.py voc datasets/voc --convert          SBD's .mat as PNG, and trainaug.txt
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    from densevit.data.prepare.convert_mat_labels import CONVERTERS
    from densevit.data.prepare.fetch import ARCHIVES, unpack_all
    from densevit.errors import DensevitError

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("name", choices=ARCHIVES, help="the data set")
    parser.add_argument("root", type=Path, help="its folder")
    parser.add_argument("--unpack", type=Path, metavar="DIR", help="take the archives from here")
    parser.add_argument("--convert", action="store_true", help=f"MATLAB files to PNG, of {' and '.join(CONVERTERS)}")
    args = parser.parse_args()
    try:
        if args.unpack:
            print(*unpack_all(args.name, args.unpack, args.root), sep="\n")
        if args.convert and args.name in CONVERTERS:
            print(f"{CONVERTERS[args.name](args.root):,} label maps converted")
    except DensevitError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
