"""The doctor: examines data sets before anyone loses a night on them."""

from densevit.data.validation.html_report import write_html
from densevit.data.validation.issues import KINDS, Finding
from densevit.data.validation.report import text, write_json
from densevit.data.validation.validator import SplitToValidate, ValidationReport, examine

__all__ = ["KINDS", "Finding", "SplitToValidate", "ValidationReport", "examine", "text", "write_html", "write_json"]
