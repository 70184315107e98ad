"""Spans of requests and of calls as they are written, made in one step when they end: nearly all spans of a log. Pure.

What many spans have in common is JSON that is encoded once, and a line has it as a whole: the value of a `Raw` field goes on
with further fields. So a line can only be encoded, and `span_of` reads what was written.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from operator import attrgetter

import msgspec
from msgspec import UNSET, Raw, UnsetType, field
from msgspec.structs import astuple, fields

from evener.observe.conventions import Attribute, SpanKind

SEQ = attrgetter("seq")
OPEN = 0.0
"""The end of a span that has none. This very object is not written."""
ENCODER = msgspec.json.Encoder()


class TraceSpan(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One span. Times are seconds since 1970; `end` is 0 while it is open. `seq` is the number of the event that began it.

    `error` is the class of the error. `content` has attributes with texts of the conversation: they are exported only if
    capturing content is switched on.
    """

    kind: SpanKind
    name: str
    trace: str
    span: str
    parent: str = ""
    start: float
    end: float = OPEN
    seq: int = 0
    error: str = ""
    attributes: dict[str, Attribute] = {}
    content: dict[str, str] = {}


class AnswerAttributes(msgspec.Struct, gc=False):
    """The attributes of a request that was answered. `asked` begins with them all that were known when it was sent."""

    asked: Raw = field(name="gen_ai.operation.name")
    previous: str | UnsetType = field(name="gen_ai.request.previous_response.id")
    input: int = field(name="gen_ai.usage.input_tokens")
    output: int = field(name="gen_ai.usage.output_tokens")
    cache_read: int | UnsetType = field(name="gen_ai.usage.cache_read.input_tokens")
    cache_write: int | UnsetType = field(name="gen_ai.usage.cache_write.input_tokens")
    cache_creation: int | UnsetType = field(name="gen_ai.usage.cache_creation.input_tokens")
    reasoning: int | UnsetType = field(name="gen_ai.usage.reasoning.output_tokens")
    finishes: tuple[str] = field(name="gen_ai.response.finish_reasons")
    first: float = field(name="gen_ai.response.time_to_first_chunk")
    cost: float = field(name="evener.cost.usd")
    model: str | UnsetType = field(name="gen_ai.response.model")
    address: str | UnsetType = field(name="server.address")
    port: int | UnsetType = field(name="server.port")
    reply: str | UnsetType = field(name="gen_ai.response.id", default=UNSET)
    tries: int | UnsetType = field(name="evener.tries", default=UNSET)
    losses: tuple[str, ...] | UnsetType = field(name="evener.losses", default=UNSET)
    compacted: bool | UnsetType = field(name="gen_ai.conversation.compacted", default=UNSET)


class CallAttributes(msgspec.Struct, gc=False):
    """The attributes of a call that has its result. `tool` and `about` are what all calls of the tool have in common."""

    tool: Raw = field(name="gen_ai.operation.name")
    call: str = field(name="gen_ai.tool.call.id")
    about: Raw = field(name="gen_ai.conversation.id")
    outcome: str = field(name="evener.outcome")
    error: str | UnsetType = field(name="error.type", default=UNSET)
    cost: float | UnsetType = field(name="evener.nested.cost.usd", default=UNSET)


class SpanLine(msgspec.Struct, gc=False):
    """A span that has ended, in the form in which it is written. `named` is kind, name and trace."""

    named: Raw = field(name="kind")
    span: str
    parent: str | UnsetType
    start: float
    end: float
    seq: int
    error: str | UnsetType
    attributes: AnswerAttributes | CallAttributes


def share(values: Mapping[str, Attribute]) -> bytes:
    """Return fields with these values as the value of the first of them, with which the others go on."""
    name = next(iter(values))
    return ENCODER.encode(values)[len(name) + 4 : -1]


def own_attributes(said: AnswerAttributes | CallAttributes) -> dict[str, Attribute]:
    """Return the attributes that a span has for itself."""
    found = zip(_names_of(type(said)), astuple(said), strict=True)
    return {name: value for name, value in found if value is not UNSET and type(value) is not Raw}


@cache
def _names_of(kind: type[AnswerAttributes | CallAttributes]) -> tuple[str, ...]:
    return tuple([one.encode_name for one in fields(kind)])


def texts_in(values: Iterable[Attribute]) -> list[str]:
    """Return all texts in values of attributes."""
    texts: list[str] = []
    for one in values:
        if type(one) is str:
            texts.append(one)
        elif type(one) is tuple:
            texts += one
    return texts


def encode_spans(spans: Iterable[TraceSpan | SpanLine]) -> bytes:
    """Return spans as lines of JSON."""
    return ENCODER.encode_lines(spans)
