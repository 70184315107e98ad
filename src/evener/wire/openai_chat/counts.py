"""Token counts, wherever a dialect puts them. Pure.

The prompt includes what was cached and written, the output includes reasoning (sheet 7); where a row says that reasoning is
counted apart, only the total knows it all.
"""

import msgspec

from evener.transcript.usage import Usage

__all__ = ["read_usage"]

Count = int | float | None


class _Prompt(msgspec.Struct):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class _Output(msgspec.Struct):
    reasoning_tokens: Count = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: _Prompt | None = None
    completion_tokens_details: _Output | None = None
    prompt_cache_hit_tokens: Count = None
    cached_tokens: Count = None
    num_cached_tokens: Count = None
    reasoning_tokens: Count = None


_usages = msgspec.json.Decoder(_Usage)


def read_usage(raw: bytes, *, apart: bool) -> Usage:
    """The counts in neutral words. `apart`: reasoning is not in the output count."""
    read = _usages.decode(raw)
    prompt, output = read.prompt_tokens_details or _Prompt(), read.completion_tokens_details or _Output()
    total = _first(read.prompt_tokens)
    cached = _first(prompt.cached_tokens, read.prompt_cache_hit_tokens, read.cached_tokens, read.num_cached_tokens)
    written = _first(prompt.cache_write_tokens)
    said = _first(read.completion_tokens)
    thought = _first(output.reasoning_tokens, read.reasoning_tokens)
    if apart:
        whole = max(said + thought, _first(read.total_tokens) - total)
        said, thought = whole, thought or whole - said
    return Usage(total, max(0, total - cached - written), cached, written, said, thought)


def _first(*counts: Count) -> int:
    """The first count that is stated and not zero."""
    return next((int(count) for count in counts if count), 0)
