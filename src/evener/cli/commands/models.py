"""`evener models`: whom can be asked, what they can, and whether the key is there. Shows where a key is, never the key."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from evener.cli.terminal import escape_json, print_table
from evener.providers.config import Config, load_config
from evener.providers.keys import find_key, key_file
from evener.providers.rows import LOCAL, Provider
from evener.wire.quirks import Quirks

__all__ = [
    "Capabilities",
    "KeyState",
    "ModelEntry",
    "capabilities",
    "entries",
    "is_local",
    "run",
]


class Capabilities(msgspec.Struct, frozen=True):
    """What requests to a provider may hold, as far as its row says; single models may differ. Every row can stream.

    `choice`: a tool can be forced. `parallel`: calling several tools at once can be switched off. `json`: any JSON object
    can be demanded. `schema`: the answer can be bound to a JSON Schema. What is missing is degraded, and reported.
    """

    tools: bool
    streaming: bool
    choice: bool
    parallel: bool
    images: bool
    documents: bool
    json: bool
    schema: bool
    effort: bool
    hosted: bool


class KeyState(msgspec.Struct, frozen=True):
    """Whether there is a key, where it was found, and the variables that could hold it."""

    found: bool
    needed: bool
    source: str
    variables: tuple[str, ...]


class ModelFacts(msgspec.Struct, frozen=True):
    """What holds for the models of one pattern here. `window` and `output` are in tokens; 0 is unknown."""

    match: str
    window: int
    output: int
    efforts: tuple[str, ...]


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One row as it is shown."""

    name: str
    wire: str
    vendor: str
    address: str
    local: bool
    key: KeyState
    capabilities: Capabilities
    models: tuple[ModelFacts, ...] = ()


def run(provider: str, *, as_json: bool) -> int:
    """Print the rows, or one of them."""
    environ = os.environ
    config = load_config(environ=environ)
    found = entries(config, environ=environ, file=key_file(environ))
    if provider:
        name = config.rows.provider(provider).name
        found = [_closely(entry, config) for entry in found if entry.name == name]
    if as_json:
        sys.stdout.buffer.write(escape_json(msgspec.json.format(msgspec.json.encode(found), indent=2)) + b"\n")
    elif provider:
        _print_one(found[0], environ)
    else:
        _print_all(found, environ)
    return 0


def entries(config: Config, *, environ: Mapping[str, str], file: Path | None) -> list[ModelEntry]:
    """Every row, in the order of the files."""
    return [_entry(row, environ=environ, file=file) for row in config.rows.providers]


def is_local(row: Provider) -> bool:
    """Whether this machine itself answers."""
    return (
        row.name == LOCAL or re.match(r"https?://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?:[:/]|$)", row.base_url) is not None
    )


def capabilities(quirks: Quirks) -> Capabilities:
    """The columns of the matrix, from a row's deviations."""
    return Capabilities(
        tools=quirks.tools,
        streaming=True,
        choice=quirks.tools and quirks.forced_choice,
        parallel=quirks.tools and quirks.parallel_switch,
        images=quirks.images,
        documents=quirks.documents,
        json=quirks.json_mode,
        schema=quirks.output_schema,
        effort=quirks.effort,
        hosted=quirks.hosted,
    )


def _entry(row: Provider, *, environ: Mapping[str, str], file: Path | None) -> ModelEntry:
    key = find_key(row, environ=environ, file=file)
    state = KeyState(key is not None, not row.keyless, key.source if key else "", row.key_env)
    return ModelEntry(row.name, row.wire, row.vendor, row.base_url, is_local(row), state, capabilities(row.quirks))


def _closely(entry: ModelEntry, config: Config) -> ModelEntry:
    """With what the rows say about models of this provider or of its wire, where they mean the models of that name."""
    row = config.rows.provider(entry.name)
    stated = [one for one in config.rows.models if row.name in one.providers or (row.wire in one.wires and not one.providers)]
    patterns = dict.fromkeys(pattern for one in stated if not one.fresh for pattern in one.match if pattern != "*")
    known = (_known(pattern, row, config) for pattern in patterns)
    return msgspec.structs.replace(entry, models=tuple(one for one in known if one))


def _known(pattern: str, row: Provider, config: Config) -> ModelFacts | None:
    example = re.sub(r"\[!?(.)[^\]]*\]", r"\1", pattern).replace("*", "").replace("?", "0")
    if any(one.fresh and one.covers(row, example) for one in config.rows.models):
        return None
    facts = config.rows.facts(row.name, example)
    return ModelFacts(pattern, facts.window, facts.quirks.max_output, facts.quirks.efforts)


def _print_all(found: list[ModelEntry], environ: Mapping[str, str]) -> None:
    shown = [field for field in Capabilities.__struct_fields__ if field not in ("streaming", "documents", "hosted")]
    lines = []
    for entry in found:
        marks = ["yes" if value else "-" for value in (msgspec.structs.asdict(entry.capabilities)[name] for name in shown)]
        lines.append([entry.name, entry.wire, *marks, _key(entry.key)])
    print_table(["PROVIDER", "WIRE", *(name.upper() for name in shown), "KEY"], lines, environ=environ)


def _print_one(entry: ModelEntry, environ: Mapping[str, str]) -> None:
    able = [name for name, value in msgspec.structs.asdict(entry.capabilities).items() if value]
    lines = [("wire", entry.wire), ("address", entry.address), ("key", _key(entry.key)), ("can", ", ".join(able))]
    print_table(["provider", entry.name], lines, environ=environ)
    if entry.models:
        known = [(one.match, _count(one.window), _count(one.output), ", ".join(one.efforts)) for one in entry.models]
        print()
        print_table(["MODELS", "WINDOW", "OUTPUT", "EFFORTS"], known, environ=environ)


def _count(tokens: int) -> str:
    return f"{tokens:,}" if tokens else "?"


def _key(state: KeyState) -> str:
    if state.found:
        return f"set ({state.source})"
    variables = " or ".join(state.variables)
    return f"missing: {variables}" if state.needed else "not needed"
