"""The system prompt in five parts: role, tools, output format, constraints, and what changes. Pure: time is an argument.

The first four are stable: the same bytes at every rendering, with a cache mark after the last of them, so that no change of the
fifth invalidates what a provider caches. A part is a text, a template that is filled with values, a function, or several of
these. A stable part that differs between two renderings (a time, an id) is refused.
"""

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec
from msgspec.structs import force_setattr, replace

from evener.errors import BadValue, UsageError
from evener.transcript.blocks import CacheTtl, TextBlock, as_tuple, check_text

__all__ = ["Part", "PromptContext", "SystemPrompt", "Template", "check_stable", "check_unchanged", "render"]

STABLE = ("role", "tools", "output", "constraints")
BLANK = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}|[{}]", re.ASCII)
LONGER = 40 * 365 * 86_400.0
"""Seconds between the two times at which a stable part is tried: no date, however coarse, is the same at both."""


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a part may use when it is rendered. `at` is in seconds since 1970; `values` fill templates."""

    thread: str = ""
    run: str = ""
    at: float = 0.0
    deps: object = None
    values: Mapping[str, str] = MappingProxyType({})

    def __post_init__(self) -> None:
        force_setattr(self, "values", MappingProxyType(dict(self.values)))

    def __repr__(self) -> str:
        return f"PromptContext(thread={self.thread!r}, run={self.run!r}, at={self.at})"  # the rest may hold secrets

    @property
    def time(self) -> datetime:
        """The time as a date, in UTC."""
        return datetime.fromtimestamp(self.at, UTC)


class Template(msgspec.Struct, frozen=True):
    """A text with placeholders, as in `Today is {date}.`; doubled braces stand for themselves.

    A placeholder is replaced by a value of the context; `date`, `thread` and `run` are always known.
    """

    text: str

    def __post_init__(self) -> None:
        check_text(self.text, "Template.text")
        stray = next((found for found in BLANK.finditer(self.text) if found[0] in ("{", "}")), None)
        if stray is not None:
            raise BadValue(
                f"A template has a stray {stray[0]!r} at character {stray.start()}. Put a name between the braces, or write "
                "the brace twice."
            )

    def fill(self, context: PromptContext) -> str:
        """Return the text with its placeholders replaced by values."""
        known = {"date": context.time.date().isoformat(), "thread": context.thread, "run": context.run, **context.values}

        def value(found: re.Match[str]) -> str:
            if not found[1]:
                return found[0][0]
            if found[1] not in known:
                names = ", ".join(sorted(known))
                raise UsageError(
                    f"The placeholder {found[1]!r} of a template has no value. Give it in `values`, or use one of these: "
                    f"{names}."
                )
            return known[found[1]]

        return BLANK.sub(value, self.text)


Single = str | Template | Callable[[PromptContext], str]
Part = Single | tuple[Single, ...]


class SystemPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The five parts, in the order in which they are rendered; an empty one is left out. `cache` is the life of the mark.

    `role`, `tools`, `output` and `constraints` are stable. `context` may change whenever it is rendered.
    """

    role: Part = ""
    tools: Part = ""
    output: Part = ""
    constraints: Part = ""
    context: Part = ""
    cache: CacheTtl = "5m"

    def __post_init__(self) -> None:
        for name, part in (*_stable(self), ("context", self.context)):
            singles = _singles(part)
            if not all(isinstance(one, str | Template) or callable(one) for one in singles):
                raise BadValue(
                    f"The part {name!r} of a system prompt must be a text, a template, a function, or several of these."
                )
            for one in singles:
                if isinstance(one, str):
                    check_text(one, f"SystemPrompt.{name}")
            if not isinstance(part, str | Template) and not callable(part):
                force_setattr(self, name, singles)
        TextBlock("", cache=self.cache)


def render(prompt: SystemPrompt, context: PromptContext, *, more: Iterable[str] = ()) -> tuple[TextBlock, ...]:
    """Return the system prompt: a block for each part that is not empty. `more` are texts for the end of the last part.

    The last stable block carries the mark.
    """
    stable = [text for _, text in _render_stable(prompt, context) if text]
    blocks = [TextBlock(text) for text in stable]
    if blocks and prompt.cache:
        blocks[-1] = replace(blocks[-1], cache=prompt.cache)
    texts = (_render_part("context", prompt.context, context), *as_tuple(more, "The texts for the end of a system prompt"))
    changing = "\n\n".join(text for text in texts if text)
    return (*blocks, TextBlock(changing)) if changing else tuple(blocks)


def check_stable(prompt: SystemPrompt, context: PromptContext) -> None:
    """Refuse a prompt whose stable parts hold the time, the thread or the run: they would differ at each rendering.

    Renders them twice. Once per harness is enough; `check_unchanged` finds what a function knows from elsewhere.
    """
    at = context.at + (LONGER + 12_345.678) * (-1 if context.at > LONGER else 1)
    other = replace(context, thread=f"{context.thread}-other", run=f"{context.run}-other", at=at)
    for (name, first), (_, second) in zip(_render_stable(prompt, context), _render_stable(prompt, other), strict=True):
        _compare(name, first, second)


def check_unchanged(before: tuple[TextBlock, ...], after: tuple[TextBlock, ...]) -> None:
    """Refuse two renderings of one prompt whose blocks up to the mark differ."""
    old, new = cut_at_mark(before), cut_at_mark(after)
    for number in range(max(len(old), len(new))):
        first, second = (blocks[number].text if number < len(blocks) else "" for blocks in (old, new))
        _compare(f"block {number + 1}", first, second)


def _stable(prompt: SystemPrompt) -> tuple[tuple[str, Part], ...]:
    return tuple(zip(STABLE, (prompt.role, prompt.tools, prompt.output, prompt.constraints), strict=True))


def _render_stable(prompt: SystemPrompt, context: PromptContext) -> list[tuple[str, str]]:
    return [(name, _render_part(name, part, context)) for name, part in _stable(prompt)]


def _singles(part: Part) -> tuple[Single, ...]:
    if isinstance(part, str | Template) or callable(part):
        return (part,)
    return tuple(part) if isinstance(part, tuple | list) else (part,)


def _render_part(name: str, part: Part, context: PromptContext) -> str:
    texts = (_text(name, one, context) for one in _singles(part))
    return "\n\n".join(text for text in texts if text)


def _text(name: str, part: Single, context: PromptContext) -> str:
    match part:
        case str():
            return part
        case Template():
            return part.fill(context)
    text: object = part(context)
    if isinstance(text, Coroutine):
        text.close()  # else Python warns that it was never awaited
    if not isinstance(text, str):
        raise UsageError(
            f"The function for the part {name!r} of the system prompt returned {type(text).__name__}. "
            "It must return a str, and it cannot be async: gather what it needs into `deps` or `values` first."
        )
    check_text(text, f"The value of the function for the part {name!r}")
    return text


def cut_at_mark(blocks: tuple[TextBlock, ...]) -> tuple[TextBlock, ...]:
    """Return the blocks up to the last mark."""
    last = max((number for number, block in enumerate(blocks, 1) if block.cache), default=0)
    return blocks[:last]


def _compare(name: str, first: str, second: str) -> None:
    if first == second:
        return
    place = next((number for number, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(first), len(second)) if place is None else place
    raise UsageError(
        f"The stable part {name!r} of the system prompt differs between two renderings, from character {at} on. "
        "What changes there (a time, an id, a count) invalidates the provider's cache with each request. "
        "Move it to the part `context`."
    )
