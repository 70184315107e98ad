"""The tools of a run: an immutable mapping from names, in the order they were given. Adding one makes another box."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType

from evener.errors import UsageError
from evener.tools.result import Envelope, failed
from evener.tools.tool import Tool, tool
from evener.transcript.ask import ToolSpec

__all__ = ["Toolbox"]

MOST_NAMED = 50


class Toolbox(Mapping[str, Tool]):
    """Name -> tool. A function that is no tool yet is made one."""

    __slots__ = ("_specs", "_tools")

    def __init__(self, tools: Iterable[Tool | Callable[..., object]] = ()) -> None:
        held: dict[str, Tool] = {}
        for given in tools:
            one = given if isinstance(given, Tool) else tool(given)
            if one.name in held:
                raise UsageError(f"Two tools are named {one.name!r}. Give one of them another name with tool(..., name=...).")
            held[one.name] = one
        self._tools: Mapping[str, Tool] = MappingProxyType(held)
        self._specs = tuple(one.spec for one in held.values())

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is told of them; the same tuple each time."""
        return self._specs

    def add(self, *tools: Tool | Callable[..., object]) -> "Toolbox":
        """A box with these tools as well."""
        return Toolbox((*self._tools.values(), *tools))

    def without(self, *names: str) -> "Toolbox":
        """A box without the tools of these names."""
        for name in names:
            if name not in self._tools:
                raise UsageError(f"There is no tool {name!r} to take out. The tools are {self._named()}.")
        return Toolbox(one for one in self._tools.values() if one.name not in names)

    def unknown(self, name: str) -> Envelope:
        """What a model gets that calls a tool which is not here."""
        near = get_close_matches(name[:200], self._tools, n=3)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        return failed(f"There is no tool {name[:200]!r}. {hint}The tools are: {self._named()}.", retry=True)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"

    def _named(self) -> str:
        names = ", ".join(list(self._tools)[:MOST_NAMED])
        more = len(self._tools) - MOST_NAMED
        return f"{names} and {more} more" if more > 0 else names or "none"
