"""Runs `densevit export-onnx`; --help lists its options."""

from densevit.cli.main import tool

tool("export-onnx")
