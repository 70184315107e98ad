"""A call as a JSON object: the words of the envelope, and how its parts are read once they are whole. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from evener.wire.text import dumps, text_in

__all__ = ["ANSWER", "ARGUMENTS", "CALLS", "TOOL", "VALUE", "arguments_of", "named_arguments", "unwrapped", "without_nulls"]

TOOL, ARGUMENTS, CALLS, ANSWER, VALUE = "tool", "arguments", "calls", "answer", "value"
NAMES = ("name", TOOL, "function")
INPUTS = (ARGUMENTS, "parameters", "input")

_objects: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def _fields(text: str) -> Mapping[str, msgspec.Raw]:
    try:
        return _objects.decode(text)
    except BROKEN:
        return {}


def arguments_of(raw: str) -> str:
    """The arguments that a value stands for. Some models write them as a text that holds JSON."""
    if raw[:1] != '"':
        return raw
    try:
        return msgspec.json.decode(raw, type=str)
    except BROKEN:
        return raw


def named_arguments(text: str) -> tuple[str, str] | None:
    """Name and arguments of a call that is one object with both; None when it is not."""
    found = _fields(text)
    name = next((text_in(found[key]) for key in NAMES if key in found), "")
    given = next((found[key] for key in INPUTS if key in found), msgspec.Raw(b"{}"))
    return (name, arguments_of(bytes(given).decode())) if name else None


def unwrapped(text: str) -> str:
    """The value that was asked for under a name of its own, because only objects can be; the text itself if it is not there."""
    found = _fields(text)
    return bytes(found[VALUE]).decode() if VALUE in found else text


def without_nulls(raw: str, optional: Collection[str]) -> str:
    """Arguments without the nulls that stand for absent ones, where the schema had to demand every property."""
    found = _fields(raw)
    absent = [name for name, value in found.items() if name in optional and bytes(value) == b"null"]
    return dumps({name: value for name, value in found.items() if name not in absent}).decode() if absent else raw
