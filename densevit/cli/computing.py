"""Where and by what a model computes, and in which numbers: options that several commands share."""

import argparse
from typing import Any

RUNTIMES = ("torch", "openvino", "onnxruntime")


def add_arguments(parser: "argparse._ArgumentGroup | argparse.ArgumentParser") -> None:
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


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """Those options, as `build.load` takes them."""
    return {name: getattr(args, name) for name in ("device", "precision", "runtime")}
