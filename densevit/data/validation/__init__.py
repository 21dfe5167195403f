"""Dataset validation, the library behind `densevit check-data`: finds what would make training or scores worse."""

from densevit.data.validation.issues import ISSUE_TYPES, Issue
from densevit.data.validation.report import format_text, write_html, write_json
from densevit.data.validation.validator import SplitToValidate, ValidationReport, validate

__all__ = [
    "ISSUE_TYPES",
    "Issue",
    "SplitToValidate",
    "ValidationReport",
    "format_text",
    "validate",
    "write_html",
    "write_json",
]
