"""Refuses values that cannot exist, at the moment they are made and not when they are sent. Pure; shared by all values."""

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import TypeVar

import msgspec

from evener.errors import BadValue

__all__ = ["as_tuple", "check_choice", "check_number", "check_object", "check_text", "check_type", "json_object", "json_text"]

T = TypeVar("T")
_json: msgspec.json.Decoder[dict[str, object]] = msgspec.json.Decoder(dict[str, object])
_objects: msgspec.json.Decoder[dict[str, msgspec.Raw]] = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_text(text: object, where: str) -> None:
    """Only a str that can be written as UTF-8."""
    if type(text) is not str:
        raise BadValue(f"{where} must be a str, not {type(text).__name__}. Convert it first.")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadValue(
                f"{where} holds a lone surrogate at position {error.start}, which no provider accepts. "
                "Decode the source correctly, or replace it with text.encode(errors='replace').decode()."
            ) from None


def check_type(value: object, kinds: tuple[type, ...], where: str) -> None:
    """Only these types themselves: a subclass (a bool as an int, a block with more fields) could not be read back."""
    if type(value) not in kinds:
        names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise BadValue(f"{where} must be {names}, not {type(value).__name__}. Make one of those first.")


def check_choice(value: object, allowed: tuple[str, ...], where: str) -> None:
    """Only one of these words."""
    if value not in allowed:
        raise BadValue(f"{where} must be one of {', '.join(map(repr, allowed))}, not {value!r:.80}. Pick one of them.")


def check_number(value: object, where: str, *, least: float | None = None, whole: bool = False) -> None:
    """Refuse what is neither None nor a finite number of the right kind."""
    if value is None:
        return
    right = (int,) if whole else (int, float)
    if type(value) not in right:
        kind = "a whole number" if whole else "a number"
        raise BadValue(f"{where} must be {kind} or None, not {type(value).__name__}. Convert it first.")
    if isinstance(value, float) and not isfinite(value):
        raise BadValue(f"{where} must be a finite number, not {value}. No provider takes that.")
    if least is not None and isinstance(value, (int, float)) and value < least:
        raise BadValue(f"{where} must be at least {least}, not {value}.")


def check_object(text: object, where: str) -> None:
    """Only a str that is the JSON text of an object."""
    check_text(text, where)
    try:
        _objects.decode(str(text))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise BadValue(f"{where} must be the JSON text of an object ({error}). Encode a dict with json.dumps first.") from None


def as_tuple(values: Iterable[T], where: str) -> tuple[T, ...]:
    """Any collection but a text or a mapping, frozen."""
    if type(values) is tuple:
        return values
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise BadValue(f"{where} must be a collection of values, not a {type(values).__name__}. Put it into a tuple.")
    return tuple(values)


def json_text(value: Mapping[str, object], where: str) -> str:
    """The JSON text of a mapping. A number that JSON has not is refused; it would silently become null."""
    try:
        text = msgspec.json.encode(dict(value)).decode()
        wrong = next((key for key in value if type(key) is not str), None)
        infinite = "null" in text and _holds_infinity(msgspec.to_builtins(dict(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise BadValue(f"{where} must be a JSON object: {error}. Convert it first.") from None
    if wrong is not None or infinite:
        what = "NaN or an infinity" if infinite else f"the key {wrong!r}, which is not a str"
        raise BadValue(f"{where} must be a JSON object, but it holds {what}. Convert it first.")
    return text


def json_object(text: str, what: str, *names: str) -> dict[str, object]:
    """The object that a JSON text is, decoded afresh. `what` it is has a place for each of the names."""
    try:
        return _json.decode(text)
    except (msgspec.MsgspecError, RecursionError) as error:
        named = what.format(*names) if names else what
        raise BadValue(f"{named} is not a JSON object ({error}). Read the text itself for what was written.") from None


def _holds_infinity(value: object) -> bool:
    left = [value]
    while left:
        match left.pop():
            case float() as number if not isfinite(number):
                return True
            case dict() as fields:
                left += fields.values()
            case list() | tuple() as items:
                left += items
    return False
