"""`evener tools`: lists the built-in tool sets, and describes their tools. Runs none of them."""

import os
from collections.abc import Sequence

import msgspec

from evener.cli.terminal import print_json, print_table
from evener.tools.tool import Tool
from evener.toolset.hosted import NAMED
from evener.toolset.labels import HOSTED, traits_of
from evener.toolset.sets import SETS, tools_named


class ToolEntry(msgspec.Struct, frozen=True):
    """One tool of a set, as it is when the set is used by itself."""

    set: str
    name: str
    effect: str
    asks: bool
    traits: tuple[str, ...]
    description: str
    schema: msgspec.Raw


def run(names: Sequence[str], as_json: bool) -> int:
    """Print a table of all sets, or all that is known of the named ones."""
    wanted = names or (*SETS, *NAMED)
    entries = [_entry(name, tool) for name in wanted if name not in NAMED for tool in tools_named([name], root=os.getcwd())]
    entries += [_describe_hosted(name) for name in wanted if name in NAMED]
    if as_json:
        print_json(entries)
    elif names:
        _describe(entries)
    else:
        rows = [(one.set, one.name, one.effect, "asks" if one.asks else "", one.description) for one in entries]
        print_table(("set", "tool", "effect", "approval", "description"), rows)
    return 0


def _entry(name: str, tool: Tool) -> ToolEntry:
    description = tool.description.strip().partition("\n")[0]
    return ToolEntry(
        name, tool.name, tool.effect, tool.approval, traits_of(tool), description, msgspec.Raw(tool.schema.encode())
    )


def _describe_hosted(name: str) -> ToolEntry:
    about = (NAMED[name].__doc__ or "").partition(";")[0].rstrip(".")
    return ToolEntry(name, name, "hosted", False, HOSTED[name], f"{about}. The provider runs it.", msgspec.Raw(b"{}"))


def _describe(entries: Sequence[ToolEntry]) -> None:
    for set in dict.fromkeys(one.set for one in entries):
        print(f"{set}: {SETS[set].description if set in SETS else 'a tool that the provider runs'}")
        for one in entries:
            if one.set == set:
                print(f"  {one.name} ({', '.join([one.effect, *one.traits, *(['asks first'] if one.asks else [])])})")
                print(f"    {one.description}")
                for name, about in _arguments(one.schema):
                    print(f"    - {name}: {about}" if about else f"    - {name}")


class _Property(msgspec.Struct):
    description: str = ""


class _Schema(msgspec.Struct):
    properties: dict[str, _Property] = {}


def _arguments(schema: msgspec.Raw) -> list[tuple[str, str]]:
    found = msgspec.json.decode(schema, type=_Schema)
    return [(name, about.description) for name, about in found.properties.items()]
