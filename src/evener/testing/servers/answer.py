"""An answer as data, before it is bytes on a socket: a head, frames, and what else happens on the way. Opens nothing."""

import json
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

__all__ = ["Action", "Answer", "Filler", "Hang", "Pause", "Repeat", "Sever", "Voice"]

Header = tuple[str, str]
MARKER = "@filler@"
_SLICES = 4


class Pause(msgspec.Struct, frozen=True):
    """Nothing happens for so many seconds."""

    seconds: float


class Hang(msgspec.Struct, frozen=True):
    """Nothing more happens until the client goes or the server closes."""


class Filler(msgspec.Struct, frozen=True):
    """`size` times the byte `letter`, made while it is written and never held as a whole."""

    size: int
    letter: bytes = b"a"


class Repeat(msgspec.Struct, frozen=True):
    """The same bytes again and again, `every` so many seconds, `times` at most."""

    frame: bytes
    every: float
    times: int


class Sever(msgspec.Struct, frozen=True):
    """The connection ends here: after a proper end of the body, in the middle of a chunk, or by a reset."""

    how: Literal["clean", "chunk", "reset"]


Action = bytes | Pause | Hang | Filler | Repeat | Sever


class Voice(Protocol):
    """How one wire says, in one mode, what a fault needs to say: each is a frame of the body."""

    @property
    def streamed(self) -> bool:
        """Whether frames are events; if not, they are slices of one JSON body."""
        ...

    def failure(self, status: int, message: str) -> Sequence[bytes]:
        """An error after the head was sent: what the provider would write in the rest of its stream."""
        ...

    def unknown(self, filler: str = "") -> bytes:
        """A well-formed event of a kind that nobody knows."""
        ...

    def nothing(self) -> bytes:
        """A sign of life that carries nothing."""
        ...

    def error(self, status: int, message: str, *, wait: float | None = None) -> Mapping[str, object]:
        """The body of an HTTP error. `wait` is how long the client should stay away, for wires that say so in the body."""
        ...


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP answer.

    The last `ending` frames are the wire's terminal mark, or the tail of a whole body. `before` happens ahead of the head.
    With `length_off` a length is announced that is wrong by so much. `write` is the most bytes to write at once (0: any),
    `lost` the bytes missing at the end of a compressed body (None: not compressed). `hang_up` closes the connection
    afterwards, saying so in a header or not.
    """

    status: int
    headers: tuple[Header, ...]
    frames: tuple[Action, ...]
    ending: int = 1
    before: tuple[Action, ...] = ()
    length_off: int | None = None
    write: int = 0
    lost: int | None = None
    hang_up: Literal["", "said", "silent"] = ""
    chunked: bool = False


def json_bytes(value: object) -> bytes:
    """Compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def whole(status: int, value: object, headers: Sequence[Header] = ()) -> Answer:
    """A JSON answer with its length."""
    return Answer(status=status, headers=(("content-type", "application/json"), *headers), frames=(json_bytes(value),))


def streamed(events: Sequence[bytes], *, ending: int, headers: Sequence[Header] = ()) -> Answer:
    """A chunked answer of events."""
    kind = ("content-type", "text/event-stream; charset=utf-8")
    return Answer(status=200, headers=(kind, *headers), frames=tuple(events), ending=ending, chunked=True)


def event(payload: Mapping[str, object] | str, *, name: str = "", line: str = "\n") -> bytes:
    """One server-sent event."""
    text = payload if isinstance(payload, str) else json_bytes(payload).decode()
    head = f"event: {name}{line}" if name else ""
    return f"{head}data: {text}{line}{line}".encode()


def sliced(answer: Answer) -> Answer:
    """A whole answer whose body lies in a few frames, so that faults can strike between them."""
    body = b"".join(frame for frame in answer.frames if isinstance(frame, bytes))
    size = max(1, -(-len(body) // _SLICES))
    frames = tuple(body[start : start + size] for start in range(0, len(body), size))
    return msgspec.structs.replace(answer, frames=frames, ending=1)
