"""Token counts, in the words of Responses. Pure."""

import msgspec

from evener.transcript.usage import Usage
from evener.wire.lenient import Count

__all__ = ["Counts", "read_usage"]


class _Cached(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _Thought(msgspec.Struct, gc=False):
    reasoning_tokens: Count = None


class Counts(msgspec.Struct, gc=False):
    """The field `usage` of an answer."""

    input_tokens: Count = None
    output_tokens: Count = None
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Thought | None = None


def read_usage(read: Counts) -> Usage:
    """input_tokens includes what was cached and written, output_tokens includes reasoning (sheet 10)."""
    cached = written = thought = 0
    if (taken := read.input_tokens_details) is not None:
        cached, written = int(taken.cached_tokens or 0), int(taken.cache_write_tokens or 0)
    if (given := read.output_tokens_details) is not None:
        thought = int(given.reasoning_tokens or 0)
    total = int(read.input_tokens or 0)
    return Usage(total, max(0, total - cached - written), cached, written, int(read.output_tokens or 0), thought)
