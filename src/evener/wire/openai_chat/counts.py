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
    total = int(read.prompt_tokens or 0)
    cached = int(prompt.cached_tokens or read.prompt_cache_hit_tokens or read.cached_tokens or read.num_cached_tokens or 0)
    written = int(prompt.cache_write_tokens or 0)
    said = int(read.completion_tokens or 0)
    thought = int(output.reasoning_tokens or read.reasoning_tokens or 0)
    if apart:
        whole = max(said + thought, int(read.total_tokens or 0) - total)
        said, thought = whole, thought or whole - said
    return Usage(total, max(0, total - cached - written), cached, written, said, thought)
