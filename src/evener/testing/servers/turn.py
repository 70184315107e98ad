"""The script of a fake server in terms that are independent of wires: parts, turns, token counts. Values only."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from evener.testing.servers.faults import Fault

_PIECES = 3


class Text(msgspec.Struct, frozen=True):
    """Text of the answer, streamed in `pieces` deltas."""

    text: str
    pieces: int = _PIECES


class Thinking(msgspec.Struct, frozen=True):
    """Reasoning. The server mints the signature (or encrypted content) and remembers it.

    `redacted` hides the text if the wire has a form for that, and is omitted elsewhere.
    """

    text: str = ""
    pieces: int = _PIECES
    redacted: bool = False


class Call(msgspec.Struct, frozen=True):
    """A call of one of the client's tools. `arguments` as text are sent unchanged, if the wire sends text.

    An empty `id` is minted in the provider's form. `toolset` is the set of the tool, on the wire that has sets.
    """

    name: str
    arguments: Mapping[str, object] | str = {}
    id: str = ""
    pieces: int = _PIECES
    toolset: str = ""

    @property
    def raw(self) -> str:
        """The arguments as JSON text."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)

    @property
    def value(self) -> object:
        """The arguments as JSON, for the wires that carry an object. Text that is no JSON becomes an empty one."""
        if not isinstance(self.arguments, str):
            return dict(self.arguments)
        try:
            return json.loads(self.arguments)
        except ValueError:
            return {}


class Refusal(msgspec.Struct, frozen=True):
    """The model declines. Also sets the stop reason, where the wire has one for it."""

    text: str
    pieces: int = 1


class Native(msgspec.Struct, frozen=True):
    """A block, item or part in the wire's own form: hosted tools, or an unknown kind. On Chat: fields of the message."""

    value: Mapping[str, object]


Part = Text | Thinking | Call | Refusal | Native


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Usage in neutral counts: `input` with what was `cached` and `written` to the cache, `output` with `reasoning`."""

    input: int
    output: int
    cached: int = 0
    written: int = 0
    reasoning: int = 0


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. Make it with `turn`.

    `stop` is empty (the end, or a tool call, depending on the parts), "length", "filter", "stop_sequence", "pause", or a
    word of the wire. Without `usage` the counts are guessed from the lengths. `faults` are applied in their order. A turn
    that `forgets` is the last that the server stores: afterwards all stored answers and conversations are gone.
    """

    parts: tuple[Part, ...]
    stop: str = ""
    usage: Tokens | None = None
    faults: tuple[Fault, ...] = ()
    forgets: bool = False

    @property
    def calls(self) -> list[Call]:
        """The tool calls among the parts."""
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def refused(self) -> bool:
        """True if the model declines."""
        return any(isinstance(part, Refusal) for part in self.parts)

    def tokens(self, body: bytes) -> Tokens:
        """Return the usage to report for a request with this body: the scripted one, or one token for about four letters."""
        if self.usage is not None:
            return self.usage
        thought = sum(_count(part.text) for part in self.parts if isinstance(part, Thinking))
        said = sum(_count(_words(part)) for part in self.parts if not isinstance(part, Thinking))
        return Tokens(input=max(1, len(body) // 4), output=max(1, thought + said), reasoning=thought)


def turn(
    *parts: Part | str, stop: str = "", usage: Tokens | None = None, faults: Sequence[Fault] = (), forgets: bool = False
) -> Turn:
    """Return a turn of these parts, in this order; a bare string is text. `faults`: what goes wrong in delivering it.

    `forgets`: after it, the server has lost all stored answers and conversations.
    """
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Turn(parts=made, stop=stop, usage=usage, faults=tuple(faults), forgets=forgets)


def pieces(text: str, count: int) -> list[str]:
    """Return the text cut into at most `count` pieces of about the same length; nothing for an empty one."""
    if not text:
        return []
    size = -(-len(text) // max(1, min(count, len(text))))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _count(text: str) -> int:
    return -(-len(text) // 4)


def _words(part: Part) -> str:
    match part:
        case Text(text=text) | Refusal(text=text) | Thinking(text=text):
            return text
        case Call():
            return part.name + part.raw
        case Native():
            return json.dumps(part.value)
