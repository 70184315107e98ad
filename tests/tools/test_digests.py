"""The digest of a call: the same for the same call, and nothing of what a model made up is kept."""

import tracemalloc

import pytest

from evener.tools.call import digest_of
from evener.transcript.blocks import ToolCall


@pytest.mark.parametrize(
    ("other", "schema", "same"),
    [
        (ToolCall("2", "go", '{"b": 2, "a": 1}'), "{}", True),
        (ToolCall("1", "go", '{"a":1,"b":3}'), "{}", False),
        (ToolCall("1", "come", '{"a":1,"b":2}'), "{}", False),
        (ToolCall("1", "go", '{"a":1,"b":2}'), "", False),
    ],
)
def test_it_is_of_tool_arguments_and_schema(other: ToolCall, schema: str, same: bool) -> None:
    assert (digest_of(ToolCall("1", "go", '{"a":1,"b":2}'), "{}") == digest_of(other, schema)) is same


def test_names_of_tools_that_are_not_there_are_not_kept() -> None:
    tracemalloc.start()
    try:
        for number in range(20):
            digest_of(ToolCall("1", f"{number}{'x' * 100_000}"), "")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000
