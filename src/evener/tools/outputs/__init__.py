"""Structured answers: the shape that a user asks for, how an answer is held against it, and what is there of it so far."""

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
