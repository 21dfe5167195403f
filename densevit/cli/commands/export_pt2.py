"""Compile a checkpoint to an AOTInductor package, which C++ programs run by libtorch, without Python or densevit.

It takes images as they are decoded, and gives maps of their size. It is compiled for this machine's processor, run, and
compared with torch before it is kept.
"""

import argparse

from densevit.cli.options import checkpoint, model_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model_file.add_export_options(parser, ".pt2", dynamic=False)
    checkpoint.add_checkpoint_options(parser.add_argument_group("model"))
    parser.set_defaults(precision="fp32")  # the only one


def run(args: argparse.Namespace) -> int:
    from densevit.inference.pt2.export import check_output, export_pt2

    check_output(args.output, overwrite=args.overwrite)
    options = model_file.export_options(args)
    exported = export_pt2(*checkpoint.restore(args), args.output, options)
    model_file.show([exported.path], exported.metadata, exported.errors)
    return 0
