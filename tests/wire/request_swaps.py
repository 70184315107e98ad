"""Recorded requests with one field made odd: what of them must still be read. For the tests and for `python -m bench requests`.

Every field of every recorded request gets another type, a word that nobody knows, and every object a field that nobody knows.
Reading must not fail for it, and the fields beside it must be read as before. Only the carrying fields may be refused: without
them there is no conversation to speak of.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from evener.errors import WireError
from evener.transcript import Ask, HostedBlock, Origin, TextBlock, ToolSpec, Transcript
from evener.wire import CODECS, Quirks
from tests.corpus import Exchange, Json, exchanges
from tests.wire import chat, gemini, normal
from tests.wire.normal import text_of
from tests.wire.wires import WIRES, rows

Path = tuple[str | int, ...]

CARRYING = frozenset(
    {
        *("messages", "input", "contents", "content", "parts", "system", "output"),  # what was said
        *("text", "refusal", "arguments", "args", "response", "reasoning", "reasoning_content"),
        *("data", "url", "file_id", "file_data", "file_url", "image_url", "document_url", "fileUri", "file_uri"),  # media
        *("mimeType", "mime_type", "thought"),  # what sort of block a part is
        *("role", "type"),  # who said it, and what it is
        *("id", "call_id", "tool_call_id", "tool_use_id"),  # which result belongs to which call
        *(
            "tools",
            "functionDeclarations",
            "function_declarations",
            "name",
            "function",
            "custom",
            "tool_calls",
        ),  # what is offered
        *("functionCall", "functionResponse", "function_call", "function_response"),
        "model",
    }
)
"""Fields whose loss would change what is said or called: odd ones may be refused."""

ROUTING = frozenset(
    {"type", "role", "mode", "execution", "responseMimeType", "response_mime_type", "responseSchema", "response_schema"}
)
"""Fields that say what the fields beside them mean: where they are odd, these go with them."""

SORTS = frozenset({("input_audio", "format")})
"""So do these, which have the names of others: the type of a sound, without which its bytes mean nothing elsewhere."""

DATA = frozenset(
    {
        *("input_schema", "parameters", "schema", "parametersJsonSchema", "parameters_json_schema", "responseSchema"),
        *("response_schema", "responseJsonSchema", "response_json_schema", "args", "response", "output_schema", "metadata"),
    }
)
"""Objects whose fields are the client's own: they are swapped as a whole."""

NORMAL: dict[str, Callable[[Json], Json]] = {
    "anthropic_messages": normal.anthropic,
    "openai_responses": normal.responses,
    "openai_chat": chat.normal,
    "gemini": gemini.normal,
}


ODD_WORD, ODD_NAME = "odd_word", "odd_field"
ODDITIES: tuple[Any, ...] = (ODD_WORD, -7, True, 0.5, [], ["x"], {}, {ODD_NAME: 1}, None)


@dataclass(frozen=True)
class Swap:
    """A recorded request with one field changed. `path` leads to it; for an added field, to the object it was added to."""

    exchange: Exchange
    path: Path
    value: Any
    added: bool = False

    @property
    def pattern(self) -> tuple[str, ...]:
        """The path without places in lists: swaps of one pattern are of one kind."""
        return tuple("[]" if isinstance(step, int) else step for step in self.path)

    @property
    def body(self) -> Json:
        changed: Json = _changed(self.exchange.request, self.path, self.value, self.added)
        return changed

    @property
    def may_fail(self) -> bool:
        return not self.added and (self.path[-1] in CARRYING or isinstance(self.path[-1], int))

    def __str__(self) -> str:
        what = "a new field in" if self.added else f"{self.value!r} at"
        return f"{self.exchange.wire}/{self.exchange.id}: {what} {'.'.join(map(str, self.path)) or 'the body'}"


def _changed(node: Any, path: Path, value: Any, added: bool) -> Any:
    if not path:
        return {**node, ODD_NAME: value} if added else value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        return [*node[:step], _changed(node[step], rest, value, added), *node[step + 1 :]]
    return {**node, step: _changed(node[step], rest, value, added)}


def places(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field and every object of a request, with its path."""
    yield path, node
    if path and path[-1] in DATA:
        return
    if path[-1:] == ("input",) and isinstance(node, dict):  # the arguments of a call
        return
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, value in inner:
        yield from places(value, (*path, step))


def swaps(exchange: Exchange) -> Iterator[Swap]:
    """Every swap of one request."""
    for path, value in places(exchange.request):
        if path and not isinstance(path[-1], int):
            kind = type(value)
            yield from (Swap(exchange, path, odd) for odd in ODDITIES if type(odd) is not kind or odd == ODD_WORD)
        if isinstance(value, dict) and path[-1:] != ("input",) and not set(path) & DATA:
            yield Swap(exchange, path, {"a": 1}, added=True)


def requests(wire: str) -> list[Exchange]:
    return [one for one in exchanges(wire) if one.request is not None]


def sample(wire: str) -> Iterator[Swap]:
    """One swap of each kind: the first in the recordings."""
    seen: set[tuple[object, ...]] = set()
    for exchange in requests(wire):
        for swap in swaps(exchange):
            key = (swap.pattern, str(swap.value), swap.added)
            if key not in seen:
                seen.add(key)
                yield swap


def quirks_of(exchange: Exchange) -> Quirks:
    """What the rows say of whom the request was for."""
    if exchange.wire == "gemini":
        return rows().quirks(gemini.ROWS[exchange.provider], gemini.model_of(exchange))
    if exchange.wire == "openai_chat":
        return rows().quirks(chat.ROWS[exchange.provider], (exchange.request or {}).get("model", "unknown"))
    return WIRES[exchange.wire].quirks(exchange)


def target(exchange: Exchange) -> Origin:
    """Whom a recorded request was for."""
    if exchange.wire == "gemini":
        return Origin("gemini", gemini.ROWS[exchange.provider], model=gemini.model_of(exchange))
    if exchange.wire == "openai_chat":
        return Origin("openai_chat", chat.ROWS[exchange.provider], model=(exchange.request or {}).get("model", "unknown"))
    return WIRES[exchange.wire].target(exchange)


def read(exchange: Exchange, body: Json) -> Ask:
    return CODECS[exchange.wire].read_request(json.dumps(body).encode(), quirks_of(exchange), Origin(exchange.wire, "maker"))


def with_messages(home: Ask, other: Ask) -> Ask:
    """An ask with the messages of another."""
    return replace(home, transcript=Transcript(tuple(other.transcript), home.transcript.system_blocks))


# What was read, as facts that can be compared one by one.


def facts(ask: Ask) -> dict[str, object]:
    """Everything neutral that an ask says, by name. What belongs together to its wire is one fact."""
    found: dict[str, object] = {
        "model": ask.target.model,
        "system": tuple(block.text for block in ask.transcript.system_blocks),
        "choice": (ask.choice.mode, ask.choice.names, ask.choice.stated),
        "parallel": ask.choice.parallel,
        "thinking": (ask.reasoning.mode, ask.reasoning.budget),
        "effort": ask.reasoning.effort,
        "show": ask.reasoning.show,
        "output": ask.output,
        "cache": (ask.cache.mode, ask.cache.ttl),
        "cache key": ask.cache.key,
        "state": (ask.state.mode, ask.state.id),
        "store": ask.state.store,
        "sealed": ask.state.sealed,
        "stream": ask.stream,
    }
    found |= {f"setting {name}": getattr(ask.settings, name) for name in ask.settings.__struct_fields__}
    for number, tool in enumerate(ask.tools):
        if isinstance(tool, ToolSpec):
            for name in ("name", "description", "schema", "strict", "cache"):
                found[f"tool {number} {name}"] = getattr(tool, name)
        else:
            found[f"tool {number} name"] = tool.name
    for place, message in enumerate(ask.transcript):
        found[f"message {place} role"] = message.role
        for number, block in enumerate(message.blocks):
            fields = () if isinstance(block, HostedBlock) else block.__struct_fields__
            for name in ("kind", *fields):
                if name != "seal":
                    found[f"message {place} block {number} {name}"] = _bare(getattr(block, name))
    ids = [name for name in found if name.endswith(" id")]
    made = {str(found[name]): str(place) for place, name in enumerate(ids)}
    return {name: made.get(str(value), value) if name.endswith(("call_id", " id")) else value for name, value in found.items()}


def _bare(value: object) -> object:
    """The content of a result, without its seals."""
    if isinstance(value, tuple):
        return [type(one)(one.text) if isinstance(one, TextBlock) else one.kind for one in value if hasattr(one, "kind")]
    return value


def silence(swap: Swap) -> str:
    """What of a swapped request comes back otherwise on its own wire although nothing says so; empty when nothing does.

    Carrying fields aside: of those, one that is null or empty is read as if it were absent.
    """
    exchange = swap.exchange
    last = swap.path[-1] if swap.path else ""
    if swap.may_fail or (not swap.added and last in DATA | {"systemInstruction", "system_instruction"}):
        return ""
    if swap.added and exchange.wire == "gemini" and "tools" in swap.pattern[:1]:
        return ""  # a tool of its own, beside which the API wants a flag
    quirks, codec, form = quirks_of(exchange), CODECS[exchange.wire], NORMAL[exchange.wire]
    ask = codec.read_request(json.dumps(swap.body).encode(), quirks, target(exchange))
    encoded = codec.encode(ask, quirks, None)
    if encoded.losses or text_of(form(json.loads(encoded.body))) == text_of(form(swap.body)):
        return ""
    return f"{swap}: comes back otherwise, and no loss says so"


@lru_cache(4)
def recorded_facts(exchange: Exchange) -> dict[str, object]:
    """What the request says as it was recorded."""
    return facts(read(exchange, exchange.request or {}))


def problem(swap: Swap) -> str:
    """What is wrong with the way a swapped request is read; empty when nothing is."""
    try:
        ask = read(swap.exchange, swap.body)
    except WireError as error:
        return "" if swap.may_fail else f"{swap}: {error}"
    before, after = recorded_facts(swap.exchange), facts(ask)
    names = before.keys() if swap.added else before.keys() | after.keys()  # an empty text may hold the new field
    changed = {name for name in names if before.get(name) != after.get(name)}
    if swap.added and swap.exchange.wire == "gemini" and "tools" in swap.pattern[:1]:
        return ""  # there, each field of an entry is a tool of its own
    if swap.added:
        return f"{swap}: {sorted(changed)} changed" if changed else ""
    was = swap.exchange.request
    for step in swap.path:
        was = was[step]  # type: ignore[index]
    if isinstance(was, dict | list) or swap.path[-1] in ROUTING | CARRYING or swap.path[-2:] in SORTS:
        return ""
    return f"{swap}: {sorted(changed)} changed" if len(changed) > 1 else ""
