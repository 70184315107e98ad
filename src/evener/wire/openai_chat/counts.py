"""Token counts, wherever a dialect puts them. Pure.

The prompt includes what was cached and written, the output includes reasoning (sheet 7); where a row says that reasoning is
counted apart, only the total knows it all.
"""

import msgspec

from evener.transcript.usage import Usage
from evener.wire.lenient import Count

__all__ = ["Counts", "usage_of"]


class _Prompt(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _Output(msgspec.Struct, gc=False):
    reasoning_tokens: Count = None


class Counts(msgspec.Struct, gc=False):
    """The counts in this wire's words."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: _Prompt | None = None
    completion_tokens_details: _Output | None = None
    prompt_cache_hit_tokens: Count = None
    cached_tokens: Count = None
    num_cached_tokens: Count = None
    reasoning_tokens: Count = None


NO_PROMPT, NO_OUTPUT = _Prompt(), _Output()


def usage_of(read: Counts, *, apart: bool) -> Usage:
    """The counts in neutral words. `apart`: reasoning is not in the output count."""
    prompt, output = read.prompt_tokens_details or NO_PROMPT, read.completion_tokens_details or NO_OUTPUT
    cached = prompt.cached_tokens or read.prompt_cache_hit_tokens or read.cached_tokens or read.num_cached_tokens or 0
    thought = output.reasoning_tokens or read.reasoning_tokens or 0
    total, cached, written = int(read.prompt_tokens or 0), int(cached), int(prompt.cache_write_tokens or 0)
    said, thought = int(read.completion_tokens or 0), int(thought)
    if apart:
        whole = max(said + thought, int(read.total_tokens or 0) - total)
        said, thought = whole, thought or whole - said
    return Usage(total, max(0, total - cached - written), cached, written, said, thought)
