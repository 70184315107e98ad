"""W3C trace context: the `traceparent` of a caller, and the one that is sent to providers, tools and MCP servers.

Ids are those of the log, or hashes of its content, so a span has the same id whenever it is exported. Nothing is sent unless
a caller gave a `traceparent`: by default, requests have no such header.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha256

import msgspec

from evener.errors import UsageError

FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
SAMPLED = "01"
DIGITS = 32
"""How long the ids of a log are, in hex."""
HEX = b"0123456789abcdef"
ZEROS = 16 * "0"
KNOWN = 0b11
"""Flags that are passed on: sampled, and random. All others are set to zero, as the specification wants."""


class TraceContext(msgspec.Struct, frozen=True):
    """A position in a trace: hex ids of the trace and of the span. `passed_on`: requests and tools get it."""

    trace: str
    span: str
    flags: str = SAMPLED
    passed_on: bool = False

    @property
    def header(self) -> str:
        """The value of a `traceparent` header."""
        return f"00-{self.trace}-{self.span}-{self.flags}"


class InnerSpan(msgspec.Struct, frozen=True):
    """The position of a request or a call in a run's trace. `outer` is the position of what is around the run.

    It has the attributes of a `TraceContext`. Most tools never read its ids: they are computed on demand.
    """

    run: str
    what: str
    outer: "TraceContext | InnerSpan | None" = None

    @property
    def trace(self) -> str:
        """The hex id of the trace."""
        return trace_id(self.run) if self.outer is None else self.outer.trace

    @property
    def span(self) -> str:
        """The hex id of the span."""
        return span_id(self.run, self.what)

    @property
    def flags(self) -> str:
        """The flags of the trace."""
        return SAMPLED if self.outer is None else self.outer.flags

    @property
    def passed_on(self) -> bool:
        """True if requests and tools are told of it."""
        return self.outer is not None and self.outer.passed_on

    @property
    def header(self) -> str:
        """The value of a `traceparent` header."""
        return f"00-{self.trace}-{self.span}-{self.flags}"


current_trace: ContextVar[TraceContext | InnerSpan | None] = ContextVar("evener_trace", default=None)
"""The span that the present code runs in; None outside of a run that no caller traces."""


def trace_id(run: str) -> str:
    """Return the id of the trace that a run begins: the run's own, which is random."""
    return _digits_of(run) or sha256(f"evener trace\0{run}".encode()).hexdigest()[:32]


def span_id(run: str, what: str = "") -> str:
    """Return the id of a span of this run: the first digits of the id of the run, or of a request's id or a call's key.

    `what` is all that tells other spans of a run from each other, and is hashed.
    """
    id = what or run
    try:
        if len(id) == DIGITS and bytes.fromhex(id).hex() == id and not id.startswith(ZEROS):
            return id[:16]
    except ValueError:
        pass
    return sha256(f"evener span\0{run}\0{what}".encode()).hexdigest()[:16]


def are_ids(whats: Sequence[str]) -> bool:
    """True if the span ids made of these are their first digits. False is possible for these, too."""
    joined = "".join(whats)
    if not joined.isascii() or joined.encode().translate(None, HEX):
        return False
    return ZEROS not in joined and {DIGITS}.issuperset(map(len, whats))


def _digits_of(id: str) -> str:
    """Return an id if it is hex digits of the usual length, and not zeros; else nothing."""
    if len(id) != DIGITS or id.startswith(ZEROS):
        return ""
    try:
        return id if bytes.fromhex(id).hex() == id else ""
    except ValueError:
        return ""


def parse_traceparent(text: str) -> TraceContext | None:
    """Return what a `traceparent` says; None if it is not valid: such a header is to be ignored (W3C Trace Context, 3.2.2)."""
    found = FORM.fullmatch(text.strip())
    if found is None or found[1] == "ff" or not int(found[2], 16) or not int(found[3], 16):
        return None
    if found[1] == "00" and len(text.strip()) != 55:
        return None
    return TraceContext(found[2], found[3], f"{int(found[4], 16) & KNOWN:02x}", passed_on=True)


@contextmanager
def join_trace(traceparent: str) -> Iterator[TraceContext]:
    """Let the runs inside this block be part of the caller's trace, and tell providers and tools of it."""
    found = parse_traceparent(traceparent)
    if found is None:
        raise UsageError(
            f"{traceparent[:80]!r} is no traceparent. It has the form 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, "
            "and neither id is all zeros."
        )
    token = current_trace.set(found)
    try:
        yield found
    finally:
        current_trace.reset(token)


def trace_header() -> tuple[tuple[str, str], ...]:
    """Return the header for a request that is made here; empty where no caller traces."""
    found = current_trace.get()
    return () if found is None or not found.passed_on else (("traceparent", found.header),)
