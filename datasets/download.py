#!/usr/bin/env python
"""Fetches published data sets whose terms allow it: checked by checksum, unpacked, resumed where it stopped.

python datasets/download.py diode
python datasets/download.py voc --parts voc2012,sbd --accept-terms
python datasets/download.py --list
"""

import argparse
import sys
from pathlib import Path


def main() -> None:
    from densevit.data.prepare.download import BY_HAND, SOURCES, download
    from densevit.errors import DensevitError

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("name", nargs="?", help="the data set, as in a config")
    parser.add_argument("--root", type=Path, help="its folder (NAME in $DENSEVIT_DATASETS, else in ./datasets)")
    parser.add_argument("--parts", default="", metavar="NAMES", help="comma-separated; --list names them")
    parser.add_argument("--accept-terms", action="store_true", help="you agree to the data set's terms of use")
    parser.add_argument("--keep-archives", action="store_true", help="do not remove them once they are unpacked")
    parser.add_argument("--list", action="store_true", help="what can be fetched, and where the rest is")
    args = parser.parse_args()
    if args.list or not args.name:
        for name, source in SOURCES.items():
            parts = ", ".join(f"{part} ({archive.gigabytes:g} GB)" for part, archive in source.parts.items())
            print(f"{name:15} {parts}; {source.terms}")
        for name, (page, why) in BY_HAND.items():
            print(f"{name:15} by hand: {page} ({why})")
        return
    try:
        parts = [part for part in args.parts.split(",") if part]
        options = {"accept_terms": args.accept_terms, "keep_archives": args.keep_archives}
        print(f"{args.name}: in {download(args.name, args.root, parts=parts, **options)}")
    except DensevitError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
