"""Token counts, in the words of Responses. Pure."""

import msgspec

from evener.transcript.usage import Usage

__all__ = ["Counts", "read_usage"]


class _Cached(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Thought(msgspec.Struct):
    reasoning_tokens: int | None = None


class Counts(msgspec.Struct):
    """The field `usage` of an answer."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Thought | None = None


def read_usage(read: Counts) -> Usage:
    """input_tokens includes what was cached and written, output_tokens includes reasoning (sheet 10)."""
    total = read.input_tokens or 0
    cached = (read.input_tokens_details.cached_tokens if read.input_tokens_details else 0) or 0
    written = (read.input_tokens_details.cache_write_tokens if read.input_tokens_details else 0) or 0
    thought = (read.output_tokens_details.reasoning_tokens if read.output_tokens_details else 0) or 0
    return Usage(total, total - cached - written, cached, written, read.output_tokens or 0, thought)
