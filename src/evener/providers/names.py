"""Reads the model strings that people write: `provider:model`, `provider/model`, an alias. Pure: no files, no environment.

What is not understood is a UsageError that says what to write instead; nothing is ever guessed.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from types import MappingProxyType

import msgspec

from evener.errors import UsageError
from evener.providers.rows import Provider, Rows, plain_name

__all__ = ["ALIASES", "LOCAL", "ModelName", "parse_model", "resolve_alias"]

LOCAL = "local"
"""The provider of models that run inside Evener: `local:smollm2`, or `local:` and the path of a GGUF file."""

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "claude": "anthropic:claude-opus-5-5",
        "sonnet": "anthropic:claude-sonnet-5-5",
        "haiku": "anthropic:claude-haiku-5-5",
        "gpt": "openai:gpt-6.1-sol",
        "gemini": "google:gemini-3.8-flash",
        "smollm2": "local:smollm2",
    }
)
"""The built-in short names. A config file adds its own, and may give these another meaning."""

# Who makes what, for the advice about a name without a provider. Never used to choose one.
MAKERS = (
    ("claude-*", "anthropic"),
    ("gpt-*", "openai"),
    ("o[134]*", "openai"),
    ("gemini-*", "google"),
    ("grok-*", "xai"),
    ("deepseek-*", "deepseek"),
    ("kimi-*", "kimi"),
    ("glm-*", "zai"),
    ("magistral*", "mistral"),
)

UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MOST = 1000
EXAMPLE = "Write provider:model, for example anthropic:claude-opus-5-5 or local:smollm2; `evener models` lists the providers."


class ModelName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom to ask for which model. `provider` is the name of a row, or `local`; `model` is what that provider calls it."""

    provider: str
    model: str

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


def parse_model(text: str, *, rows: Rows, aliases: Mapping[str, str] = ALIASES) -> ModelName:
    """The provider and the model that a text names.

    The first `:` or `/` ends the provider's name; the model's may hold more of both. An alias stands for the whole text.
    """
    name = resolve_alias(_clean(text), aliases)
    cut = re.search("[:/]", name)
    if cut is None:
        raise _bare(name, rows, aliases)
    provider, mark, model = name[: cut.start()].lower(), cut[0], name[cut.end() :]
    if not _known(provider, rows):
        raise _unknown(name, provider, rows) if mark == ":" else _bare(name, rows, aliases)
    if not model:
        raise UsageError(f"{name!r} names a provider, but no model. {EXAMPLE}")
    return ModelName(provider, model)


def resolve_alias(text: str, aliases: Mapping[str, str]) -> str:
    """What an alias stands for; a text that is none comes back as it is. An alias may stand for another one, once."""
    first = aliases.get(text)
    if first is None:
        return text
    second = aliases.get(first)
    if second is None:
        return first
    if second in aliases:
        chain = " -> ".join((text, first, second))
        loop = " and leads back to itself" if second in (text, first) else ""
        raise UsageError(
            f"The alias {text!r} goes over more than one other alias ({chain}){loop}. Let {text!r} name provider:model itself."
        )
    return second


def _clean(text: str) -> str:
    name = text.strip()
    if not name:
        raise UsageError(f"The name of the model is empty. {EXAMPLE}")
    if UNPRINTABLE.search(name) or len(name) > MOST:
        raise UsageError(f"The name of the model is not a plain text of at most {MOST} characters. {EXAMPLE}")
    return name


def _known(provider: str, rows: Rows) -> bool:
    return provider == LOCAL or any(row.name == provider for row in rows.providers)


def _unknown(name: str, provider: str, rows: Rows) -> UsageError:
    names = [LOCAL, *(row.name for row in rows.providers)]
    near = get_close_matches(provider, names, n=2, cutoff=0.75)
    if near:
        model = name[len(provider) + 1 :]
        advice = f"Did you mean {' or '.join(f'{one}:{model}' for one in near)}?"
    else:  # a name with a tag, as servers of open models have them
        whose = " or ".join(f"{one}:{name}" for one in (*_suggestions(name, rows), "ollama"))
        advice = f"If {name!r} is a model's whole name, write whose: {whose}."
    return UsageError(
        f"There is no provider {provider!r}. {advice} `evener models` lists the providers; a row in a config file adds one."
    )


def _bare(name: str, rows: Rows, aliases: Mapping[str, str]) -> UsageError:
    if _known(name.lower(), rows):
        return UsageError(f"{name!r} is a provider; the model is missing. {EXAMPLE}")
    if name.lower().endswith(".gguf"):
        return UsageError(f"{name!r} names no provider. Write {LOCAL}:{name} to run this file.")
    whose = _suggestions(name, rows)
    if whose:
        return UsageError(f"{name!r} names no provider. Write {' or '.join(f'{one}:{name}' for one in whose)}.")
    near = get_close_matches(name, aliases, n=1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UsageError(f"{name!r} names no provider, and no row knows a model of this name. {hint}{EXAMPLE}")


def _suggestions(name: str, rows: Rows) -> list[str]:
    """Who has such a model: its maker, then whoever the model rows name with it."""
    plain = plain_name(name)
    makers = [provider for pattern, provider in MAKERS if fnmatchcase(plain, pattern) and _known(provider, rows)]
    stated = [provider.name for provider in rows.providers if _states(rows, provider, name)]
    return list(dict.fromkeys([*makers, *stated]))[:3]


def _states(rows: Rows, provider: Provider, name: str) -> bool:
    """Whether a row names this provider with such a model, and none says that the name means another model there."""
    covering = [row for row in rows.models if row.match != ("*",) and row.covers(provider, name)]
    return any(provider.name in row.providers for row in covering) and not any(row.fresh for row in covering)
