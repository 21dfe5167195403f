"""Options of every command that loads a checkpoint: its family, plug-in files, device, precision and runtime."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densevit.data.datasets.base import Dataset
    from densevit.inference.predictor import Predictor
    from densevit.model_card import ModelCard
    from densevit.models.dense import DenseModel

Parser = argparse.ArgumentParser | argparse._ArgumentGroup


def add_plugin_option(parser: Parser) -> None:
    """`main` loads the files before the command runs."""
    parser.add_argument(
        "--plugin",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a Python file that registers components of your own; repeatable",
    )


def add_checkpoint_argument(parser: Parser, *, optional: bool = False, metavar: str = "CHECKPOINT") -> None:
    parser.add_argument(
        "checkpoint",
        nargs="?" if optional else None,
        metavar=metavar,
        help="a run, a checkpoint folder or file, ours or published, or hf:owner/name; to predict with, also an ONNX "
        "file",
    )


def add_checkpoint_options(parser: Parser) -> None:
    parser.add_argument(
        "--family", metavar="NAME", help="of a published checkpoint, where its tensor names fit several"
    )
    parser.add_argument(
        "--family-option",
        action="append",
        default=[],
        metavar="key=value",
        help="what a published file does not say, max_depth=20 for example; repeatable",
    )
    add_plugin_option(parser)


def add_compute_options(parser: Parser, precision: str = "fp32") -> None:
    """
    Args:
        precision: the default.
    """
    parser.add_argument("--device", default="auto", help="auto (default), cpu, cuda, cuda:N, mps")
    parser.add_argument(
        "--precision",
        default=precision,
        choices=["fp32", "tf32", "bf16", "fp16", "int8", "auto"],
        help=f"default {precision}; auto takes bf16 where it is fast; bf16, fp16 and tf32 (GPUs) change the last "
        "digits of a score; int8: of an ONNX file that export-onnx wrote so",
    )
    parser.add_argument(
        "--runtime",
        default="torch",
        choices=["torch", "openvino", "onnxruntime", "auto"],
        help="what computes on a CPU; openvino is the fastest for many images of few sizes, ten seconds first; auto "
        "takes what is fastest for these images, and says so (torch)",
    )


def load(args: argparse.Namespace, *, data: "Dataset | None" = None, **options: Any) -> "Predictor":
    """The checkpoint that is named, as these options say; they then name what `auto` took.

    Args:
        data: what it is for, where that is known: `--runtime auto` chooses by it.
        options: of `Predictor`, and those that shall differ from the command line.
    """
    from densevit import api

    family, family_options = format_options(args)
    chosen = {"device": args.device, "precision": args.precision, "runtime": args.runtime, **options}
    predictor = api.load(args.checkpoint, family, family_options=family_options, **chosen)
    if data is not None and predictor.runtime == "auto":
        from densevit.api.evaluation import choose_for_data

        predictor, why = choose_for_data(predictor, data)
        print(why, file=sys.stderr)
    args.precision, args.device, args.runtime = predictor.precision, str(predictor.device), predictor.runtime
    return predictor


def restore(args: argparse.Namespace) -> "tuple[DenseModel, ModelCard]":
    """The network and the card of the checkpoint that is named."""
    from densevit.builder.checkpoint import restore

    family, options = format_options(args)
    return restore(args.checkpoint, family, **options)


def format_options(args: argparse.Namespace) -> tuple[str | None, dict[str, Any]]:
    """The family, and what its files do not say.

    Raises:
        ConfigError: an option without a value.
    """
    if not args.family_option:
        return args.family, {}
    from densevit.config.yaml_document import YamlDocument

    document = YamlDocument({})
    for item in args.family_option:
        document.override(item)
    return args.family, document.tree
