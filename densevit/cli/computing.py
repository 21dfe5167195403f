"""Where an evaluation computes, and in which numbers: options that all `eval-*` commands share."""

import argparse


def add_arguments(parser: "argparse._ArgumentGroup | argparse.ArgumentParser") -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N")
    parser.add_argument(
        "--precision",
        default="fp32",
        choices=["fp32", "bf16", "fp16", "auto"],
        help="fp32 (default), since bf16 moves the digits of a score; auto: bf16 where fast",
    )
