"""Where and by what a model computes, and in which numbers: options that several commands share."""

import argparse
from typing import Any

RUNTIMES = ("torch", "openvino", "onnxruntime")


def add_compute_options(parser: "argparse._ArgumentGroup | argparse.ArgumentParser") -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    parser.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "bf16", "fp16", "auto"],
        help="fp32 (default), since bf16 moves the digits of a score; auto: bf16 where fast",
    )
    add_runtime(parser)


def add_runtime(parser: "argparse._ArgumentGroup | argparse.ArgumentParser") -> None:
    parser.add_argument(
        "--runtime",
        default="torch",
        choices=RUNTIMES,
        help="what computes on a CPU; openvino is the fastest for many images of few sizes, ten seconds first (torch)",
    )


def device(args: argparse.Namespace) -> str:
    """The device that is asked for; `auto` is the CPU where only that will do."""
    return "cpu" if args.runtime != "torch" and args.device == "auto" else str(args.device)


def compute_kwargs(args: argparse.Namespace) -> dict[str, Any]:
    """Those options, as `build.load` takes them."""
    return {name: getattr(args, name) for name in ("device", "precision", "runtime")}


def add_format_options(parser: Any) -> None:
    parser.add_argument("--family", metavar="NAME", help="whose published checkpoint it is, where its keys cannot tell")
    parser.add_argument(
        "--family-option",
        action="append",
        default=[],
        metavar="key=value",
        help="what a published file cannot say, as max_depth=20; repeatable",
    )


def format_kwargs(args: argparse.Namespace) -> dict[str, Any]:
    """`family` and `family_options` for `densevit.load`.

    Raises:
        ConfigError: an option without a value.
    """
    from densevit.config.yaml_document import YamlDocument

    document = YamlDocument({})
    for item in args.family_option:
        document.override(item)
    return {"family": args.family, "family_options": document.tree}
