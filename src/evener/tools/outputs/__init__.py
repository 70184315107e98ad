"""Structured answers: the shape that a user asks for, the check of an answer against it, and an answer while it arrives."""

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
