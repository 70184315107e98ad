"""What the tests of structured answers share: types to ask for, and how a model answers in each form."""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from evener.encodings import Prepared, prepare
from evener.encodings.forms import FINAL_RESULT
from evener.tools.outputs import OutputShape
from evener.transcript import Block, Reply, Stop, StopReason, TextBlock, ToolCall
from evener.transcript.ask import OutputForm
from evener.wire import Quirks
from tests.encodings.talk import asked

FORMS: tuple[OutputForm, ...] = ("native", "tool", "prompted")


@dataclass
class Trip:
    """Where to go.

    Args:
        city: the nearest one
    """

    city: str
    days: Annotated[int, Meta(ge=1, le=10)] = 3


@dataclass
class Cat:
    lives: int


@dataclass
class Dog:
    tricks: list[str]


TRIP = OutputShape.of(Trip)
NUMBER = OutputShape.of(int)
NAMES = OutputShape.of(list[str])
PET = OutputShape.of(Cat | Dog)


def prepared_for(shape: OutputShape, form: OutputForm, wire: str = "openai_chat") -> Prepared:
    """An ask for such an answer, with three tools, as a codec gets it."""
    return prepare(asked(wire, output=shape.spec(form)), Quirks())


def written(shape: OutputShape, form: OutputForm, text: str) -> str:
    """The JSON text of an answer, as a model must write it in this form."""
    return text if shape.is_object or form == "prompted" else f'{{"value": {text}}}'


def final(raw: str, id: str = "f1") -> ToolCall:
    return ToolCall(id, FINAL_RESULT, raw)


def answered(shape: OutputShape, form: OutputForm, text: str) -> Block:
    """The block that is the answer."""
    raw = written(shape, form, text)
    return final(raw) if form == "tool" else TextBlock(raw)


def reply(*blocks: Block, stop: StopReason = "done", detail: str = "") -> Reply:
    return Reply(blocks, Stop(stop, detail=detail))
