"""The arguments of a call for a page: the whole text, with the escapes of its strings resolved.

Decoding JSON into dicts and floats would round numbers and drop duplicate names. A user who decides must see the exact text.
"""

import json

import msgspec

from evener.toolset.question import ASK_USER
from evener.transcript.blocks import ToolCall


class _Pairs(list[tuple[str, object]]):
    """The fields of an object, including duplicate names."""


class _Number(str):
    """A number as the text spells it."""


def write_arguments(raw: str) -> str:
    """Return the arguments as indented JSON; unchanged if they are not JSON."""
    try:
        value = json.loads(raw, object_pairs_hook=_Pairs, parse_int=_Number, parse_float=_Number, parse_constant=_Number)
        return _write(value, "\n")
    except (ValueError, RecursionError):
        return raw


def _write(value: object, end: str) -> str:
    inner = end + " "
    match value:
        case _Pairs():
            lines = [f"{inner}{_quote(name)}: {_write(one, inner)}" for name, one in value]
            return f"{{{','.join(lines)}{end}}}" if lines else "{}"
        case list():
            lines = [f"{inner}{_write(one, inner)}" for one in value]
            return f"[{','.join(lines)}{end}]" if lines else "[]"
        case _Number():
            return str(value)
        case _:
            return _quote(value)


def _quote(value: object) -> str:
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()  # a lone surrogate stays an escape


class _Question(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    choices: list[str] | None = None


def question_of(call: ToolCall) -> dict[str, object] | None:
    """Return the question that a call asks the user, with its choices; None for any other call."""
    if call.name != ASK_USER:
        return None
    try:
        asked = msgspec.json.decode(call.raw, type=_Question)
    except (msgspec.DecodeError, RecursionError):
        return None
    return {"text": asked.question, "choices": asked.choices or []}
