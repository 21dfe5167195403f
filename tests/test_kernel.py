"""The kernel offers seams and names no feature: no conditioning, objective, output kind or feature of a source."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import densevit
from densevit.data.datasets.mix import Source
from densevit.output_kinds import OUTPUT_KINDS
from densevit.registries import REGISTRIES

ROOT = Path(densevit.__file__).parent
KERNEL = [
    "engine/trainer.py", "models/dense.py", "inference/forward.py", "inference/predictor.py", "builder/training.py",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "inference/onnx").glob("*.py"))),
]  # fmt: skip
NOT_NAMED = {
    *REGISTRIES.objectives.components, "pretraining", "pretrain", "probe", "teacher", "consistency", "alignment",
    *OUTPUT_KINDS,
    *REGISTRIES.conditionings.components,
    *({field.name for field in fields(Source)} - {"data", "name", "weight", "truth", "transforms", "protocol"}),
}  # fmt: skip
ALLOWED = {"engine/trainer.py": {"metric"}}  # of the logger


def words(file: Path) -> Iterator[str]:
    """Every word of a name or text in the code; not those of docstrings and comments."""
    tree = ast.parse(file.read_text())
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docstrings = [node.body[0].value for node in blocks if node.body and isinstance(node.body[0], ast.Expr)]
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "value"):
            text = getattr(node, field, None)
            if isinstance(text, str) and node not in docstrings:
                yield from re.findall("[a-z]+", re.sub("([A-Z])", r" \1", text).lower())


def test_the_kernel_names_no_feature() -> None:
    allowed = {name: ALLOWED.get(name, set()) for name in KERNEL}
    found = {name: sorted(set(words(ROOT / name)) & NOT_NAMED - allowed[name]) for name in KERNEL}
    assert {name: named for name, named in found.items() if named} == {}
