"""Structured answers: the requested shape, the validation of an answer, and partial answers during streaming."""

from evener.tools.outputs.partial import PartialReader
from evener.tools.outputs.shape import Accepted, OutputShape
from evener.tools.outputs.verdict import Calls, Correct, Final, Unexpected, Verdict, judge

__all__ = [
    "Accepted",
    "Calls",
    "Correct",
    "Final",
    "OutputShape",
    "PartialReader",
    "Unexpected",
    "Verdict",
    "judge",
]
