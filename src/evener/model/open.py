"""Opens a model by its name: resolves rows, config, key, address and transport. Reads environment and files; sends nothing."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from msgspec.structs import replace

from evener.encodings import EncodingName
from evener.errors import BadValue, UsageError
from evener.local.transport import LocalTransport
from evener.model.endpoint import Endpoint
from evener.model.model import AskDefaults, Model
from evener.providers.config import Config, load_config
from evener.providers.keys import account_headers, account_values, find_key, key_file, require_key
from evener.providers.rows import LOCAL, Facts, ModelName, parse_model
from evener.transcript.ask import Cache, Effort, ModelSettings, Reasoning, Settings
from evener.transcript.blocks import check_choice
from evener.transcript.loss import refused_codes
from evener.transport.exchange import Auth, Caps, Deadlines, Retries, Transport, header
from evener.transport.http import shared_transport
from evener.transport.limiter import Rate, limiter_for
from evener.transport.secrets import Environment, Secret, fingerprint, note_secret
from evener.wire import CODECS


def open_model(
    name: str = "",
    *,
    config: Config | None = None,
    environ: Mapping[str, str] | None = None,
    transport: Transport | None = None,
    key: str = "",
    auth: Auth | None = None,
    base_url: str = "",
    encoding: EncodingName | None = None,
    deadlines: Deadlines | None = None,
    caps: Caps | None = None,
    retries: Retries | None = None,
    rate: Rate | None = None,
    effort: Effort | None = None,
    thinking: bool | None = None,
    thinking_budget: int | None = None,
    max_output_tokens: int | None = None,
    temperature: float | None = None,
    cache: Cache | None = None,
    refuse_losses: Iterable[str] = (),
    settings: ModelSettings | None = None,
) -> Model:
    """Return the model of this name: `provider:model`, `provider/model`, an alias, or empty for the configured default.

    A key is looked up unless `key` or `auth` is given, and a missing one is an error now, not at the first call.
    `auth` puts credentials on each request itself (fresh tokens, signatures). `base_url` is for a server that speaks the
    row's wire at another address. `rate` limits all calls of this process with the same key. `refuse_losses` names
    losses (docs/losses.md) with which nothing is sent: a call that has one raises LossRefused. `settings` are the defaults of
    all asks; `effort`, `thinking`, `thinking_budget`, `max_output_tokens` and `temperature` are short for fields of them.
    """
    _check(
        name=name, config=config, environ=environ, transport=transport, key=key, auth=auth, base_url=base_url,
        deadlines=deadlines, caps=caps, retries=retries, rate=rate, cache=cache,
    )  # fmt: skip
    check_choice(encoding or "native", get_args(EncodingName), "`encoding`")
    refused: frozenset[str] = refused_codes(refuse_losses) if refuse_losses != () else frozenset()
    given = Secret(key)
    del key  # a traceback may be printed with its locals
    environ = Environment(os.environ if environ is None else environ)
    config = config or load_config(environ=environ)
    note_secret(*(environ.get(variable, "").strip() for row in config.rows.providers for variable in row.key_env))
    chosen = _find_named(name, config)
    facts = config.rows.facts(chosen.provider, chosen.model)
    if base_url:
        if not base_url.startswith(("http://", "https://")):
            raise UsageError("base_url must begin with http:// or https://, as in http://127.0.0.1:8000/v1.")
        if "?" in base_url or "#" in base_url:
            raise UsageError(
                "base_url has a query or a fragment, but paths are added to its end. Leave it out; add a query with `auth`."
            )
        facts = replace(facts, provider=replace(facts.provider, base_url=base_url.rstrip("/"), url_env=()))
    auth, account = _auth(facts, environ, key=given, auth=auth, elsewhere=bool(base_url))
    if rate is not None:
        limiter_for(account, rate)
    provider = facts.provider
    values = account_values(provider, environ=environ, file=key_file(environ)) if provider.url_env else {}
    headers = account_headers(provider, environ=environ, file=key_file(environ)) if provider.header_env else ()
    endpoint = Endpoint(
        facts=facts,
        codec=CODECS[provider.wire],
        url=provider.url(values),
        headers=headers,
        auth=auth,
        transport=transport or (LocalTransport(facts.model) if facts.provider.vendor == LOCAL else shared_transport()),
        account=account,
        encoding=encoding,
        deadlines=deadlines or Deadlines(),
        caps=caps or Caps(),
        retries=retries or Retries(),
    )
    chosen_settings = _settings(settings, effort, thinking, thinking_budget, max_output_tokens, temperature)
    cache = cache or Cache("moving" if facts.quirks.cache_marks else "marks")
    usual = Settings(facts.quirks.usual_output or None, facts.quirks.usual_temperature)
    sampling, reasoning = chosen_settings.sampling(usual), chosen_settings.reasoning(Reasoning())
    return Model(endpoint, defaults=AskDefaults(sampling, reasoning, cache, refused, chosen_settings if settings else None))


TAKES: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "name": (lambda given: isinstance(given, str), 'a text such as "local:smollm2"'),
    "key": (lambda given: isinstance(given, str), "a text"),
    "base_url": (lambda given: isinstance(given, str), "a text such as http://127.0.0.1:8000/v1"),
    "config": (lambda given: isinstance(given, Config), "what load_config returned"),
    "environ": (lambda given: isinstance(given, Mapping), "a mapping such as os.environ"),
    "transport": (lambda given: hasattr(given, "send"), "a Transport, which has the method `send`"),
    "auth": (callable, "a function that is given a Request and returns it with credentials"),
    "deadlines": (lambda given: isinstance(given, Deadlines), "Deadlines(...)"),
    "caps": (lambda given: isinstance(given, Caps), "Caps(...)"),
    "retries": (lambda given: isinstance(given, Retries), "Retries(...)"),
    "rate": (lambda given: isinstance(given, Rate), "Rate(...)"),
    "cache": (lambda given: isinstance(given, Cache), "Cache(...)"),
}


def _check(**given: object) -> None:
    """Refuse the first that is not what it has to be. The value is not shown: it may be a key."""
    for what, value in given.items():
        fits, expected = TAKES[what]
        if value is not None and not fits(value):
            raise UsageError(f"`{what}` takes {expected}, or nothing; not {type(value).__name__}.")


def _find_named(name: str, config: Config) -> ModelName:
    text = name or config.model
    if not text:
        raise UsageError(
            "No model was named, and none is configured. Name one, for example local:smollm2, which needs no key; "
            'or write model = "provider:model" in your config.toml.'
        )
    return parse_model(text, rows=config.rows, aliases=config.aliases)


def _auth(
    facts: Facts, environ: Mapping[str, str], *, key: Secret[str], auth: Auth | None, elsewhere: bool
) -> tuple[Auth, str]:
    """Return the Auth of the endpoint, and the fingerprint under which calls share a rate.

    `elsewhere`: the address is not the row's own. The server there may need no key, so a missing one is no error.
    """
    provider = facts.provider
    if auth is not None:
        return auth, f"{provider.name}:own"
    if not key:
        look = find_key if elsewhere else require_key
        found = look(provider, environ=environ, file=key_file(environ))
        key = Secret(found.secret if found else "")
    if not key:
        return lambda request: request, f"{provider.name}:none"
    return header(provider.auth_header, provider.auth_prefix + key.reveal()), f"{provider.vendor}:{fingerprint(key.reveal())}"


def _settings(
    given: ModelSettings | None,
    effort: Effort | None,
    thinking: bool | None,
    budget: int | None,
    most: int | None,
    temperature: float | None,
) -> ModelSettings:
    """Return the settings with what was given in short over them."""
    if given is not None and not isinstance(given, ModelSettings):
        raise UsageError(f"`settings` takes ModelSettings(...), or None; not {type(given).__name__}.")
    short = ModelSettings(
        effort=effort, thinking=thinking, thinking_budget=budget, max_output_tokens=most, temperature=temperature
    )
    made = short.over(given)
    budget, most = made.thinking_budget, made.max_output_tokens
    if budget is not None and most is not None and most <= budget:
        raise BadValue(f"max_output_tokens is {most} and must exceed thinking_budget, {budget}: thinking counts as output.")
    return made
