"""What the encoders share: the frame, the caller's own fields, names and headers. Pure."""

from collections.abc import Callable, Iterable

from evener.transcript.ask import Ask, HostedTool, ToolSpec
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss
from evener.wire.codec import Encoded, Frame
from evener.wire.fold import Fold, Fragment, asks_marks
from evener.wire.names import wire_name
from evener.wire.quirks import Quirks
from evener.wire.text import fields

__all__ = ["frame_of", "headers_of", "marked_in", "names_of", "output_limit", "path_of", "with_extra", "within"]

MakeTool = Callable[[ToolSpec | HostedTool, Quirks, list[Loss]], bytes]
MakePart = Callable[[TextBlock], bytes]


def frame_of(ask: Ask, quirks: Quirks, prior: Encoded | None, tool: MakeTool, part: MakePart) -> Frame:
    """Tools and system prompt as bytes; those of `prior` when nothing about them is new."""
    system = ask.transcript.system_blocks
    source = (ask.tools, system, quirks)
    if prior and all(old is new for old, new in zip(prior.frame.source, source, strict=True)):
        return prior.frame
    losses: list[Loss] = []
    tools: tuple[bytes, ...] = ()
    if ask.tools and not quirks.tools:
        losses.append(Loss("dropped", "tools", "this endpoint takes none"))
    else:
        tools = tuple(tool(one, quirks, losses) for one in ask.tools)
    return Frame(tools, tuple(part(one) for one in system), tuple(losses), source)


def names_of(tools: Iterable[ToolSpec | HostedTool], quirks: Quirks) -> tuple[tuple[str, str], ...]:
    """Tool names on the wire and ours, where they differ."""
    pairs = ((wire_name(tool.name, quirks.name_length), tool.name) for tool in tools if isinstance(tool, ToolSpec))
    return tuple(pair for pair in pairs if pair[0] != pair[1])


def headers_of(ask: Ask, wire: str, *own: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """The wire's headers and the caller's."""
    given = (header for extra in ask.extra if extra.wire == wire for header in extra.headers)
    return (("content-type", "application/json"), *own, *given)


def path_of(ask: Ask, quirks: Quirks, default: str) -> str:
    """The path below the base URL."""
    path = quirks.stream_path if ask.stream and quirks.stream_path else quirks.path
    return (path or default).replace("{model}", ask.target.model)


def output_limit(ask: Ask, quirks: Quirks, losses: list[Loss]) -> int | None:
    """The output limit that was asked for, clamped to what the model can do."""
    limit = ask.settings.max_output_tokens
    if limit is not None and quirks.max_output and limit > quirks.max_output:
        losses.append(Loss("degraded", "setting max_output_tokens", f"clamped to the model's {quirks.max_output}"))
        return quirks.max_output
    return limit


def within(name: str, value: float, most: float, losses: list[Loss]) -> float:
    """A setting between 0 and the most the wire takes."""
    if 0 <= value <= most:
        return value
    losses.append(Loss("degraded", f"setting {name}", f"{value} lies outside 0 to {most}; the bound is sent"))
    return max(0, min(value, most))


def with_extra(body: dict[str, object], ask: Ask, wire: str, nested: Iterable[str], losses: list[Loss]) -> dict[str, object]:
    """The body with the caller's own fields for this wire; those for other wires are reported.

    Fields in `nested` are objects that we write, too: theirs are added to ours.
    """
    for extra in ask.extra:
        if extra.wire != wire:
            losses += (Loss("dropped", f"field {name}", f"only {extra.wire} knows it") for name in fields(extra.body))
            continue
        for name, value in fields(extra.body).items():
            ours = body.get(name)
            body[name] = {**ours, **fields(value)} if name in nested and isinstance(ours, dict) else value
    return body


def marked_in(fold: Fold, last: Fragment | None) -> tuple[int, ...]:
    """The numbers of the fragments that ask for cache marks, the open one included."""
    return (*fold.marked, *((len(fold.fragments),) if last and asks_marks(last) else ()))
