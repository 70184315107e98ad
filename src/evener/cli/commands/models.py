"""`evener models`: lists models, or providers with capabilities and keys. Prints where a key is, never the key."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from evener.cli.terminal import print_json, print_table, say
from evener.providers.config import Config, load_config
from evener.providers.keys import find_key, key_file
from evener.providers.rows import LOCAL, Provider
from evener.wire.quirks import Quirks


class Capabilities(msgspec.Struct, frozen=True):
    """What requests to a provider may contain, as its row says; single models may differ. All providers stream.

    `choice`: a tool can be forced. `parallel`: parallel tool calls can be switched off. `json`: JSON mode. `schema`: the answer
    can be bound to a JSON Schema. A missing capability is emulated or dropped, and reported as a loss.
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
    """Whether a key was found, where, and the variables that could hold it."""

    found: bool
    needed: bool
    source: str
    variables: tuple[str, ...]


class ModelFacts(msgspec.Struct, frozen=True):
    """What is known of the models that match a pattern. `window` and `output` are in tokens; 0 is unknown."""

    match: str
    window: int
    output: int
    efforts: tuple[str, ...]


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One provider as it is printed."""

    name: str
    wire: str
    vendor: str
    address: str
    local: bool
    key: KeyState
    capabilities: Capabilities
    models: tuple[ModelFacts, ...] = ()


class KnownModel(msgspec.Struct, frozen=True):
    """One model that can be named. `ready`: it needs no key, or has one. `window` and `output` are in tokens; 0 is unknown."""

    name: str
    ready: bool
    window: int
    output: int
    alias: str = ""


def run(words: tuple[str, ...], provider: str, *, providers: bool, as_json: bool) -> int:
    """Print the models, all providers, or one of them."""
    environ = os.environ
    config = load_config(environ=environ)
    if not provider and not providers:
        return _list_models(config, words, as_json=as_json)
    file = key_file(environ)
    found = [_entry(row, environ=environ, file=file) for row in config.rows.providers]
    if provider:
        name = config.rows.provider(provider).name
        found = [_add_models(entry, config) for entry in found if entry.name == name]
    if as_json:
        print_json(found)
    elif provider:
        _print_one(found[0])
    else:
        _print_all(found)
    return 0


def find_models(config: Config) -> list[KnownModel]:
    """Return the models of the aliases, of this machine, and of the price list (extra `prices`), those with a key first."""
    from evener.local.weights import BUNDLES
    from evener.observe.cost import listed_models

    environ, file = os.environ, key_file(os.environ)
    aliases = {target: alias for alias, target in sorted(config.aliases.items())}
    names = [*aliases, *(f"{LOCAL}:{name}" for name in BUNDLES)]
    names += [f"{row.name}:{name}" for row in config.rows.providers for name in listed_models(row.name, row.wire)]
    ready = {row.name: row.keyless or find_key(row, environ=environ, file=file) is not None for row in config.rows.providers}
    found = []
    for name in dict.fromkeys(names):
        provider, _, model = name.partition(":")
        if provider in ready:
            facts = config.rows.facts(provider, model)
            found.append(KnownModel(name, ready[provider], facts.window, facts.quirks.max_output, aliases.get(name, "")))
    return sorted(found, key=lambda one: not one.ready)


def _list_models(config: Config, words: tuple[str, ...], *, as_json: bool) -> int:
    known = find_models(config)
    found = [one for one in known if all(word.lower() in f"{one.name} {one.alias}".lower() for word in words)]
    shown = found if words or as_json else [one for one in found if one.ready or one.alias]
    if as_json:
        print_json(shown)
        return 0
    lines = [[one.name, one.alias, *map(_format_count, (one.window, one.output)), KEYS[one.ready]] for one in shown]
    print_table(["MODEL", "ALIAS", "WINDOW", "OUTPUT", "KEY"], lines, styles={KEYS[True]: "green", KEYS[False]: "yellow"})
    sys.stdout.flush()  # a reader that has gone ends the command here
    if len(shown) < len(found):
        say(f"{len(found) - len(shown)} more models belong to providers without a key. `evener models WORD` finds them.")
    say("Any other model of a provider can be named as provider:model; `evener models --providers` lists the providers.")
    return 0


KEYS = {True: "ready", False: "no key"}


def is_local(row: Provider) -> bool:
    """True if the provider runs on this machine."""
    return (
        row.name == LOCAL or re.match(r"https?://(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?:[:/]|$)", row.base_url) is not None
    )


def capabilities(quirks: Quirks) -> Capabilities:
    """Return the capabilities that the quirks of a row leave."""
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


def _add_models(entry: ModelEntry, config: Config) -> ModelEntry:
    """Return the entry with what the rows say about models of this provider, or of its wire."""
    row = config.rows.provider(entry.name)
    stated = [one for one in config.rows.models if row.name in one.providers or (row.wire in one.wires and not one.providers)]
    patterns = dict.fromkeys(pattern for one in stated if not one.fresh for pattern in one.match if pattern != "*")
    known = (_find_facts(pattern, row, config) for pattern in patterns)
    return msgspec.structs.replace(entry, models=tuple(one for one in known if one))


def _find_facts(pattern: str, row: Provider, config: Config) -> ModelFacts | None:
    example = re.sub(r"\[!?(.)[^\]]*\]", r"\1", pattern).replace("*", "").replace("?", "0")
    if any(one.fresh and one.covers(row, example) for one in config.rows.models):
        return None
    facts = config.rows.facts(row.name, example)
    return ModelFacts(pattern, facts.window, facts.quirks.max_output, facts.quirks.efforts)


def _print_all(found: list[ModelEntry]) -> None:
    shown = [field for field in Capabilities.__struct_fields__ if field not in ("streaming", "documents", "hosted")]
    lines = []
    for entry in found:
        marks = ["yes" if value else "-" for value in (msgspec.structs.asdict(entry.capabilities)[name] for name in shown)]
        lines.append([entry.name, entry.wire, *marks, _format_key(entry.key)])
    print_table(["PROVIDER", "WIRE", *(name.upper() for name in shown), "KEY"], lines)


def _print_one(entry: ModelEntry) -> None:
    able = [name for name, value in msgspec.structs.asdict(entry.capabilities).items() if value]
    lines = [
        ("wire", entry.wire),
        ("address", entry.address),
        ("key", _format_key(entry.key)),
        ("supports", ", ".join(able)),
    ]
    print_table(["provider", entry.name], lines)
    if entry.models:
        known = [
            (one.match, _format_count(one.window), _format_count(one.output), ", ".join(one.efforts)) for one in entry.models
        ]
        print()
        print_table(["MODELS", "WINDOW", "OUTPUT", "EFFORTS"], known)


def _format_count(tokens: int) -> str:
    return f"{tokens:,}" if tokens else "?"


def _format_key(state: KeyState) -> str:
    if state.found:
        return f"set ({state.source})"
    variables = " or ".join(state.variables)
    return f"missing: {variables}" if state.needed else "not needed"
