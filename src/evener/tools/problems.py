"""What is wrong with the arguments of a call, in words that a model can act on. Pure."""

from collections.abc import Sequence

import msgspec

__all__ = ["Problem", "dotted", "listed", "shown", "told"]

MOST_TOLD = 20
MOST_SHOWN = 80


class Problem(msgspec.Struct, frozen=True):
    """One thing that is wrong. `path` is the place, as in `stops[2].city`; empty for the arguments as a whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path or 'the arguments'}: {self.message}"


def told(name: str, problems: Sequence[Problem]) -> str:
    """All problems of a call, one a line, and what to do."""
    lines = [f"- {problem}" for problem in problems[:MOST_TOLD]]
    if len(problems) > MOST_TOLD:
        lines.append(f"- and {len(problems) - MOST_TOLD} more")
    return "\n".join(
        [f"The tool {name!r} was not run, because its arguments are wrong:", *lines, "Correct them and call it again."]
    )


def dotted(steps: Sequence[str | int]) -> str:
    """A path as text."""
    parts = (f"[{step}]" if isinstance(step, int) else f".{_cut(step)}" for step in steps)
    return "".join(parts).removeprefix(".")


def shown(value: object) -> str:
    """A JSON value, short enough for a message."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str() if len(value) > MOST_SHOWN:
            return msgspec.json.encode(value[:MOST_SHOWN]).decode() + f"... ({len(value):,} characters)"
        case int() if not isinstance(value, bool) and value.bit_length() > 200:
            return "a very large number"
    return msgspec.json.encode(value).decode()


def listed(values: Sequence[object]) -> str:
    """Some values to choose from."""
    words = ", ".join(shown(value) for value in values[:MOST_TOLD])
    return f"{words} and {len(values) - MOST_TOLD} more" if len(values) > MOST_TOLD else words


def _cut(step: str) -> str:
    return step if len(step) <= MOST_SHOWN else f"{step[:MOST_SHOWN]}..."
