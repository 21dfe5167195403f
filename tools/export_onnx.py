"""The door to `densevit export-onnx`; run it with --help."""

from densevit.cli.main import tool

tool("export-onnx")
