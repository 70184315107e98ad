"""Asks: what is JSON text in them is JSON when they are made."""

from collections.abc import Callable

import pytest

from evener.errors import BadValue
from evener.transcript import Extra, HostedTool, OutputSchema, ToolSpec

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def test_a_schema_is_given_as_a_mapping_or_as_text() -> None:
    given = ToolSpec("add", schema=SCHEMA)  # type: ignore[arg-type]
    assert given == ToolSpec("add", schema='{"type":"object","properties":{"a":{"type":"integer"}}}')
    assert given.input_schema == SCHEMA
    given.input_schema["type"] = "changed"
    assert given.input_schema == SCHEMA
    assert OutputSchema(SCHEMA).schema == given.schema  # type: ignore[arg-type]
    assert OutputSchema().schema == ""
    assert ToolSpec("now").input_schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: ToolSpec(5), "ToolSpec.name"),  # type: ignore[arg-type]
        (lambda: ToolSpec("f", "\ud800"), "ToolSpec.description"),
        (lambda: ToolSpec("f", schema="nope"), "ToolSpec.schema"),
        (lambda: ToolSpec("f", schema={"a": {1}, "b": object()}), "ToolSpec.schema"),  # type: ignore[arg-type]
        (lambda: ToolSpec("f", schema={"maximum": float("inf")}), "ToolSpec.schema"),  # type: ignore[arg-type]
        (lambda: ToolSpec("f", extra="[]"), "ToolSpec.extra"),
        (lambda: HostedTool("w", "nope"), "HostedTool.raw"),
        (lambda: HostedTool("w", "{}", 5), "HostedTool.name"),  # type: ignore[arg-type]
        (lambda: HostedTool(5, "{}"), "HostedTool.wire"),  # type: ignore[arg-type]
        (lambda: OutputSchema("true"), "OutputSchema.schema"),
        (lambda: Extra("w", "[]"), "Extra.body"),
        (lambda: Extra(5), "Extra.wire"),  # type: ignore[arg-type]
    ],
)
def test_text_that_is_no_json_object_is_refused(make: Callable[[], object], match: str) -> None:  # S0.53
    with pytest.raises(BadValue, match=match):
        make()
