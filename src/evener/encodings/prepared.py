"""The output of `prepare`: the ask for the codec, its losses, and what the next turn and the reader need. Pure values."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from evener.transcript.ask import Ask, Choice, Extra, HostedTool, OutputForm, OutputSchema, Settings, ToolSpec
from evener.transcript.blocks import Origin, TextBlock
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.transcript import Node, Transcript

EncodingName = Literal["native", "json_schema", "xml", "react"]
"""How tools reach the model."""

Final = Literal["text", "object", "value"]
"""What ends a turn in a JSON envelope: a text, an object of the caller's shape, or another value of it."""


class OwnTool(msgspec.Struct, frozen=True):
    """A tool that the model was trained on, by its type; `names` are the standard tools that it stands for, and their names.

    `screen` is the size of the screen that it shows, if it does; `browses`: that of a browser.
    """

    type: str
    names: tuple[tuple[str, str], ...]
    screen: tuple[int, int] = (0, 0)
    browses: bool = False


class TextStyle(msgspec.Struct, frozen=True):
    """Everything that affects the rewritten form of a history. A history that was rewritten in another style cannot be
    reused.
    """

    encoding: EncodingName
    target: Origin
    foreign: str
    offered: bool = False
    final: Final = "text"
    wrapped: bool = False
    listed: bool = False  # one call is a list of calls, too
    own: tuple[OwnTool, ...] = ()  # natively: which calls go out in the forms of their maker


class Past(msgspec.Struct, frozen=True):
    """A history up to `node`, rewritten. `waiting` are the calls without a result so far, by id and name (natively: by id, with
    the call as it went out)."""

    style: TextStyle
    node: Node | None
    transcript: Transcript
    waiting: tuple[tuple[str, str], ...] = ()
    losses: tuple[Loss, ...] = ()


class Plan(msgspec.Struct, frozen=True):
    """The rewritten ask without its messages: the same from turn to turn while nothing else changes.

    `source` is the value from which it was made. `wanted` is the choice that the answer is checked against. `optional`
    names, by tool, the arguments for which null means absent.
    """

    source: tuple[object, ...]
    encoding: EncodingName
    form: OutputForm
    losses: tuple[Loss, ...]
    tools: tuple[ToolSpec | HostedTool, ...]
    choice: Choice
    output: OutputSchema | None
    settings: Settings
    system: tuple[TextBlock, ...]
    style: TextStyle | None = None
    wanted: Choice = Choice()
    wrapped: bool = False  # the answer is an object that holds the value
    untouched: bool = False  # the ask goes on as it is
    optional: Mapping[str, frozenset[str]] = {}
    forced: OutputSchema | None = None  # the output while the model must call before it answers
    examples: tuple[Message, ...] = ()  # calls that were never made, to show how
    extra: tuple[Extra, ...] = ()  # what hosted tools need beside their declarations


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """One model call as the codec gets it. Pass it as `prior` to the next call of the same conversation.

    `form` is the way in which a structured answer was requested, empty if none was. The ids of calls are derived from
    `seed`.
    """

    ask: Ask
    losses: tuple[Loss, ...]
    encoding: EncodingName
    form: OutputForm
    plan: Plan | None = None
    past: Past | None = None
    seed: str = ""
