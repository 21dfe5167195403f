#!/usr/bin/env python
"""Looks at nyu_depth_v2_labeled.mat; unpacks it into folders or repacks it for fast random reads.

python datasets/prepare_nyu.py datasets/nyu/nyu_depth_v2_labeled.mat
python datasets/prepare_nyu.py datasets/nyu/nyu_depth_v2_labeled.mat --extract datasets/nyu
python datasets/prepare_nyu.py original.mat --repack datasets/nyu/nyu_depth_v2_labeled.mat
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("mat", type=Path, help="the official labelled file")
    parser.add_argument("--extract", type=Path, metavar="DIR", help="write official_splits/{train,test} here")
    parser.add_argument("--repack", type=Path, metavar="FILE", help="write a copy with one frame a chunk here")
    args = parser.parse_args()

    from densevit.data.prepare import repack_nyu
    from densevit.errors import DensevitError

    try:
        print(repack_nyu.advice(args.mat))
        if args.extract:
            for split, count in repack_nyu.extract(args.mat, args.extract).items():
                print(f"{split}: {count} pairs and a list in {args.extract / f'nyu_labeled_{split}.txt'}")
        if args.repack:
            repack_nyu.repack(args.mat, args.repack)
            print(f"wrote {args.repack}: {repack_nyu.advice(args.repack)}")
    except DensevitError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
