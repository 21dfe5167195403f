"""The doctor: examines data sets before anyone loses a night on them."""

from densevit.data.doctor.examine import Examination, Patient, examine
from densevit.data.doctor.finding import KINDS, Finding
from densevit.data.doctor.page import write_html
from densevit.data.doctor.report import text, write_json

__all__ = ["KINDS", "Examination", "Finding", "Patient", "examine", "text", "write_html", "write_json"]
