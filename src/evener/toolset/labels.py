"""Labels: the source of a result, whether it is trusted, and which tools together could leak data.

A tool may show private data, show text that others wrote, or send data out. With all three, an instruction hidden in
untrusted text could send private data away: `guard_mixing` makes calls that send data out wait for approval in runs where
all three meet.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import wraps
from typing import Literal, TypeVar, get_args

import msgspec
from msgspec.structs import replace

from evener.errors import UsageError
from evener.tools.result import Envelope, envelope_of
from evener.tools.tool import Tool
from evener.transcript.ask import HostedTool
from evener.transcript.blocks import json_text

LABEL = "label"
"""The key of the label in the metadata of a tool and of its results."""

Trait = Literal["private", "untrusted", "outward"]
"""`private`: results hold the user's data. `untrusted`: results hold text that others wrote. `outward`: a call sends data."""
TRAITS: tuple[Trait, ...] = get_args(Trait)
HOSTED: Mapping[str, tuple[Trait, ...]] = {
    "web_search": ("untrusted", "outward"),
    "remote_mcp": ("untrusted", "outward"),
    "file_search": ("private",),
    "code_execution": (),
    "image_generation": (),
}
"""The traits of tools that a provider runs."""


class ToolLabel(msgspec.Struct, frozen=True):
    """The facts of a tool: its name, its set, and its traits."""

    tool: str
    source: str
    traits: tuple[Trait, ...] = ()

    @property
    def trusted(self) -> bool:
        """True if the results contain no text from outside."""
        return "untrusted" not in self.traits


def label(tool: Tool, *traits: Trait, source: str = "files") -> Tool:
    """Return the tool with a label on itself and on each of its results; private if no trait is given."""
    for trait in traits:
        if trait not in TRAITS:
            raise UsageError(f"{trait!r} is no trait of a tool. The traits are {', '.join(TRAITS)}.")
    known = ToolLabel(tool.name, source, traits or ("private",))
    fact = {LABEL: {**msgspec.to_builtins(known), "trusted": known.trusted}}
    inner = tool.function

    def stamp(value: object) -> Envelope:
        made = envelope_of(value)
        return replace(made, meta=json_text({**made.metadata, **fact}, "The metadata of a result"))

    @wraps(inner)
    def labelled(*given: object, **named: object) -> Envelope:
        return stamp(inner(*given, **named))

    @wraps(inner)
    async def labelled_later(*given: object, **named: object) -> Envelope:
        found = inner(*given, **named)
        return stamp(await found if isinstance(found, Awaitable) else found)

    return replace(tool, function=labelled_later if tool.awaits else labelled, metadata={**tool.metadata, **fact})


def label_of(tool: Tool) -> ToolLabel | None:
    """Return the label of a tool; None if it has none."""
    found = tool.metadata.get(LABEL)
    return msgspec.convert(found, ToolLabel) if isinstance(found, Mapping) else None


def traits_of(tool: Tool) -> tuple[Trait, ...]:
    """Return the traits of a tool. One without a label counts as untrusted, and as outward unless it only reads."""
    known = label_of(tool)
    if known is not None:
        return known.traits
    return ("untrusted",) if tool.effect == "read" else ("untrusted", "outward")


def guard_mixing(tools: Iterable[Tool], hosted: Iterable[HostedTool] = ()) -> tuple[Tool, ...]:
    """Return the tools. If all three traits occur among them, calls of outward tools need approval.

    A hosted tool cannot wait for approval, because its provider calls it. So a hosted tool that sends data out is refused then.
    """
    return tuple(_guard(tuple(tools), tuple(hosted), traits_of))


def guard_labelled(tools: Iterable[object], hosted: Iterable[HostedTool] = ()) -> list[object]:
    """Do the same as `guard_mixing`, but ignore tools without labels."""
    return _guard(tuple(tools), tuple(hosted), _find_traits)


def _find_traits(tool: object) -> tuple[Trait, ...]:
    known = label_of(tool) if isinstance(tool, Tool) else None
    return () if known is None else known.traits


T = TypeVar("T")


def _guard(tools: tuple[T, ...], hosted: tuple[HostedTool, ...], traits: Callable[[T], tuple[Trait, ...]]) -> list[T]:
    sent = {one.name: HOSTED.get(one.name, TRAITS) for one in hosted}
    found = {trait for known in (*map(traits, tools), *sent.values()) for trait in known}
    if found < set(TRAITS):
        return list(tools)
    sends = next((name for name, known in sent.items() if "outward" in known), "")
    if sends:
        raise UsageError(
            f"The hosted tool {sends!r} sends data out, and other tools show your data and untrusted text. The provider calls "
            "the hosted tool without asking, so instructions in that text could send your data away. Leave one of them out, "
            'use a tool that runs here (the set "web"), or allow it with Policy(mixing="allow").'
        )
    return [replace(tool, approval=True) if isinstance(tool, Tool) and "outward" in traits(tool) else tool for tool in tools]
