"""`check_request` reports why a real API would answer a request with a 400, without calling it. Pure: no network, no encoder.

The rules come from the wire sheets, the recordings, and (where a comment says so) the providers' own error texts in public
reports. A wire is one module with a `check` function and one line in `CHECKS`.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from evener.testing.check import chat, gemini
from evener.testing.check.anthropic.body import check as check_anthropic
from evener.testing.check.responses.body import check as check_responses
from evener.testing.check.scope import Scope
from evener.testing.check.shape import Violation, fields

__all__ = ["CHECKS", "DIALECTS", "Scope", "Violation", "check_request"]

Check = Callable[[Mapping[str, object], Scope], Iterator[Violation]]

CHECKS: Mapping[str, Check] = {
    "anthropic_messages": check_anthropic,
    "openai_responses": check_responses,
    "openai_chat": chat.check,
    "gemini": gemini.check,
}

# The wires that several servers speak, and the names of those servers.
DIALECTS: Mapping[str, Collection[str]] = {"openai_chat": frozenset(chat.DIALECTS), "gemini": frozenset(gemini.PLATFORMS)}


def check_request(
    wire: str,
    body: dict[str, Any] | bytes | str,
    *,
    api_version: str = "",
    issued: Mapping[str, str] | None = None,
    betas: Collection[str] | None = None,
    dialect: str = "",
    model: str = "",
    bound: Mapping[str, str] | None = None,
) -> list[Violation]:
    """Return every reason why the API behind `wire` would answer this body with a 400; empty if it would accept it.

    If neither the body nor the caller states a fact, rules about it are not applied. `api_version` is Anthropic's version
    header, `betas` the names in its beta header (`None`: not known). `issued` maps each signature or encrypted content to the
    exact text that it came with, so that a changed text is found. `dialect` is the server of the wire, which adds its own
    rules (see `DIALECTS`; empty: the one that the model's name suggests). `model` is the model if the body does not name it,
    as on Gemini. `bound` maps the id of each item to that of the reasoning it was made with. No JSON value makes this raise;
    a wire that is not in `CHECKS`, or a dialect that the wire does not have, is a ValueError.
    """
    check = CHECKS.get(wire)
    if check is None:
        raise ValueError(f"unknown wire {wire!r}: expected one of {', '.join(CHECKS)}")
    if dialect and dialect not in DIALECTS.get(wire, ()):
        known = ", ".join(sorted(DIALECTS.get(wire, ()))) or "none"
        raise ValueError(f"unknown dialect {dialect!r} of wire {wire!r}: expected one of {known}")
    parsed: object = body
    if isinstance(body, bytes | str):
        try:
            parsed = json.loads(body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            return [Violation("", "json", f"The request body is not valid JSON: {error}")]
    if not isinstance(parsed, dict):
        return [Violation("", "type", "The request body should be a JSON object.")]
    scope = Scope(api_version=api_version, issued=issued, betas=betas, dialect=dialect, model=model, bound=bound)
    return list(check(fields(parsed), scope))


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
