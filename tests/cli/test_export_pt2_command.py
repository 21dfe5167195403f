"""The options of `densevit export-pt2` become those of the export."""

import argparse

from densevit.cli.commands import export_pt2
from densevit.cli.options.model_file import export_options
from densevit.inference.onnx.metadata import OnnxExportOptions


def test_options_are_those_of_an_onnx_file() -> None:
    parser = argparse.ArgumentParser()
    export_pt2.add_arguments(parser)
    args = parser.parse_args(
        ["model", "--output", "a.pt2", "--image-size", "40,60", "--batch-size", "2", "--argmax", "--flip"]
    )
    assert export_options(args) == OnnxExportOptions(size=(40, 60), batch=2, labels=True, flip=True)
