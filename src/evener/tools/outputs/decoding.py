"""Reads JSON text of any kind strictly: no keys that stand twice, no NaN, nothing too deep, nothing around it. Pure.

It never guesses and never raises on what a model wrote: whatever is wrong is a Problem with its place.
"""

import msgspec

from evener.tools.arguments import MOST_BYTES, MOST_DEEP
from evener.tools.problems import Problem
from evener.transcript.scan import is_deeper, path_at, repeated_key

__all__ = ["Accepted", "decoded"]

TOO_DEEP = f"nested deeper than {MOST_DEEP} levels"
FENCE = "```"


class Accepted(msgspec.Struct, frozen=True):
    """An answer that fits, as a value of the type that was asked for."""

    value: object


def decoded(text: str) -> Accepted | tuple[Problem, ...]:
    """The value that a JSON text is, or the problem that it is none."""
    if len(text) > MOST_BYTES:
        return (Problem("", f"it has {len(text):,} characters, of at most {MOST_BYTES:,}"),)
    if not text.strip():
        return (Problem("", "it is empty; expected JSON"),)
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        return (Problem("", TOO_DEEP),)
    except (msgspec.DecodeError, UnicodeError, ValueError) as error:
        return (_malformed(text, error),)
    if is_deeper(value, MOST_DEEP):
        return (Problem("", TOO_DEEP),)
    twice = repeated_key(text)
    return Accepted(value) if twice is None else (Problem(twice, "this key stands twice in its object"),)


def _malformed(text: str, error: Exception) -> Problem:
    if text.lstrip().startswith(FENCE):
        return Problem("", "not JSON: it stands in a code fence")
    why = str(error).partition(" - at `")[0].removeprefix("JSON is malformed: ")
    place = why.rpartition("(byte ")[2].rstrip(")")
    body = text.encode(errors="replace")
    byte = int(place) if place.isdigit() else len(body)
    if body[byte : byte + 8].lstrip(b"-").startswith((b"NaN", b"Inf")):
        why = f"NaN and Infinity are not JSON (byte {byte})"
    return Problem(path_at(body, byte), f"not JSON: {why}")
