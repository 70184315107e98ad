"""Schemas in every dialect: judged by `evener.testing.check`, which knows nothing of how they were made."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evener.testing.check.gemini.schema import check_json_schema, check_schema
from evener.testing.check.json_schema import ANTHROPIC, OPENAI, check_subset
from evener.transcript import Loss
from evener.transcript.loss import Owner
from evener.wire.schema import ANTHROPIC_STRICT, GEMINI_JSON, GEMINI_SUBSET, OPENAI_STRICT, Dialect, transform
from tests.patience import ends

Json = dict[str, Any]
DIALECTS = {
    "anthropic": ANTHROPIC_STRICT,
    "openai": OPENAI_STRICT,
    "gemini": GEMINI_JSON,
    "gemini_subset": GEMINI_SUBSET,
}


def violations(name: str, schema: object) -> list[object]:
    match name:
        case "anthropic":
            return list(check_subset("", schema, ANTHROPIC))
        case "openai":
            return list(check_subset("", schema, OPENAI))
        case "gemini":
            return list(check_json_schema("", schema))
        case _:
            return list(check_schema("", schema))


def fit(schema: object, dialect: Dialect) -> tuple[Any, tuple[Loss, ...]]:
    text, losses = transform(json.dumps(schema), dialect, Owner("tool", "x"))
    return (None if text is None else json.loads(text)), losses


def closed(**properties: object) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


# What already fits.

FITTING: list[tuple[str, str]] = [
    ("anthropic", '{ "type":"object", "properties":{"a":{"type":"string","format":"uuid"}}, "additionalProperties":false }'),
    ("anthropic", '{"type":"object","properties":{},"additionalProperties":false}'),
    (
        "anthropic",
        json.dumps(closed(a={"allOf": [{"$ref": "#/$defs/A"}], "default": 1}) | {"$defs": {"A": {"enum": [1, None, "x"]}}}),
    ),
    ("openai", json.dumps(closed(a={"type": ["string", "null"], "maxLength": 9}, b={"$ref": "#"}))),
    ("openai", json.dumps(closed(a={"anyOf": [{"const": 1}, {"type": "null"}]}))),
    ("gemini", '{"type":"object","properties":{"a":{"type":"string","default":null,"pattern":"x"}}}'),
    ("gemini", '{"$defs":{"A":{"oneOf":[{"type":"string"}]}},"$ref":"#/$defs/A"}'),
    ("gemini_subset", '{"type":"OBJECT","properties":{"a":{"type":"STRING","nullable":true,"enum":["x"]}},"required":["a"]}'),
]


@pytest.mark.parametrize(("name", "schema"), FITTING)
def test_a_schema_that_fits_passes_byte_for_byte(name: str, schema: str) -> None:
    assert violations(name, json.loads(schema)) == []
    assert transform(schema, DIALECTS[name]) == (schema, ())


# What is rewritten.

REWRITTEN: list[tuple[str, Json, Json, list[str]]] = [
    (
        "anthropic",
        {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "How many."}}},
        {
            "type": "object",
            "properties": {"n": {"type": "integer", "description": "How many.\n(minimum: 1)"}},
            "additionalProperties": False,
        },
        ["minimum: only said in the description", "objects are closed"],
    ),
    (
        "anthropic",
        closed(
            a={"oneOf": [{"type": "string", "format": "color"}, {"type": "array", "items": {"type": "string"}, "minItems": 2}]}
        ),
        closed(
            a={
                "anyOf": [
                    {"type": "string", "description": '(format: "color")'},
                    {"type": "array", "items": {"type": "string"}, "description": "(minItems: 2)"},
                ]
            }
        ),
        ["oneOf is sent as anyOf", "format: only said in the description", "minItems: only said in the description"],
    ),
    (
        "openai",
        {**closed(a={"type": "string"}, b={"type": "string", "default": "x"}, c={"enum": [1]}), "required": ["a"]},
        {
            **closed(
                a={"type": "string"},
                b={"type": ["string", "null"], "default": "x"},
                c={"anyOf": [{"enum": [1]}, {"type": "null"}]},
            ),
            "required": ["a", "b", "c"],
        },
        [f"optional {name}: null stands for absent" for name in "bc"],
    ),
    (
        "openai",
        closed(a={"$ref": "#/$defs/A", "description": "This one."}) | {"$defs": {"A": {"type": "string"}}},
        closed(a={"type": "string", "description": "This one."}) | {"$defs": {"A": {"type": "string"}}},
        [],
    ),
    (
        "openai",
        closed(a={"allOf": [{"$ref": "#/$defs/A"}], "title": "T"}) | {"$defs": {"A": {"type": "string"}}},
        closed(a={"title": "T", "type": "string"}) | {"$defs": {"A": {"type": "string"}}},
        [],
    ),
    ("openai", {"$ref": "#/$defs/A", "$defs": {"A": closed()}}, closed() | {"$defs": {"A": closed()}}, []),
    ("gemini", {"const": "x", "$schema": "s"}, {"enum": ["x"]}, []),
    ("gemini", {"type": "integer", "exclusiveMinimum": 3}, {"type": "integer", "minimum": 4}, []),
    (
        "gemini",
        {"type": "number", "exclusiveMinimum": 3},
        {"type": "number", "description": "(exclusiveMinimum: 3)"},
        ["exclusiveMinimum: only said in the description"],
    ),
    ("gemini_subset", {"type": ["string", "null"]}, {"type": "string", "nullable": True}, []),
    (
        "gemini_subset",
        {"anyOf": [{"type": "integer"}, {"type": "null"}], "title": "T"},
        {"type": "integer", "title": "T", "nullable": True},
        [],
    ),
    ("gemini_subset", {"type": ["string", "integer"]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}, []),
    ("gemini_subset", {"type": "array"}, {"type": "array", "items": {}}, []),
    (
        "gemini_subset",
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer", "enum": [1]}}},
        {"type": "object", "properties": {"a": {"type": "integer", "description": "(enum: [1])"}}},
        ["enum: only said in the description"],
    ),
]


@pytest.mark.parametrize(("name", "schema", "fitted", "losses"), REWRITTEN)
def test_a_schema_is_rewritten_and_what_that_costs_is_said(name: str, schema: Json, fitted: Json, losses: list[str]) -> None:
    found, told = fit(schema, DIALECTS[name])
    assert found == fitted
    assert [loss.why for loss in told] == losses
    assert {(loss.kind, loss.what) for loss in told} <= {("degraded", "schema of tool x")}
    assert violations(name, found) == []


# What cannot be had.

TREE = closed(kids={"type": "array", "items": {"$ref": "#/$defs/T"}})
REFUSED: list[tuple[str, object, str]] = [
    ("anthropic", {"$ref": "#/$defs/T", "$defs": {"T": TREE}}, "refers to itself"),
    ("anthropic", {"type": "object", "additionalProperties": {"type": "string"}}, "takes any property"),
    ("anthropic", {"type": "object"}, "takes any property"),
    ("anthropic", closed(a={}), "any type"),
    ("anthropic", closed(a=True), "any type"),
    ("anthropic", closed(a={"type": "array"}), "a list of anything"),
    ("anthropic", {"type": "object", "patternProperties": {"x": {}}, "properties": {}}, "takes any property"),
    ("openai", {"anyOf": [closed()]}, "one object"),
    ("openai", {"type": "string"}, "one object"),
    ("openai", closed(a={"$ref": "https://x.example/s"}), "leads outside"),
    ("openai", closed(a={"$ref": "#/$defs/gone"}), "leads nowhere"),
    ("openai", closed(a={"allOf": [{"type": "string"}, {"type": "integer"}]}), "occurs twice"),
    ("openai", [], "not an object"),
]


@pytest.mark.parametrize(("name", "schema", "why"), REFUSED)
def test_what_cannot_be_had_is_refused_with_the_reason(name: str, schema: object, why: str) -> None:
    found, (loss,) = fit(schema, DIALECTS[name])
    assert found is None
    assert why in loss.why
    assert (loss.kind, loss.what) == (
        ("dropped", "strict on tool x") if DIALECTS[name].strict else ("degraded", "schema of tool x")
    )


def test_a_recursive_schema_may_stay_where_the_dialect_takes_it() -> None:
    tree = {"$defs": {"T": TREE}, **closed(t={"$ref": "#/$defs/T"})}
    assert fit(tree, OPENAI_STRICT) == (tree, ())
    assert fit(tree, GEMINI_JSON) == (tree, ())
    noted = {"$defs": {"T": closed(kid={"$ref": "#/$defs/T", "description": "d"})}, **closed(t={"$ref": "#/$defs/T"})}
    found, losses = fit(noted, OPENAI_STRICT)
    assert violations("openai", found) == []
    assert [loss.why for loss in losses] == ["what stands beside a recursive reference was dropped"]


def test_growth_and_depth_are_bounded() -> None:
    defs = {
        f"D{n}": closed(a={"$ref": f"#/$defs/D{n + 1}", "title": "a"}, b={"$ref": f"#/$defs/D{n + 1}", "title": "b"})
        for n in range(40)
    }
    doubling = {"$defs": {**defs, "D40": {"type": "string"}}, **closed(a={"$ref": "#/$defs/D0", "title": "x"})}
    deep: Json = {"type": "string"}
    for _ in range(5000):
        deep = {"type": "array", "items": deep}
    wide = closed(**{f"p{n}": {"type": "string"} for n in range(3000)})
    for dialect in DIALECTS.values():
        with ends():
            assert dialect.refs == "any" or fit(doubling, dialect)[0] is None
            text = '{"type":"array","items":' * 5000 + "{}" + "}" * 5000
            assert transform(text, dialect)[0] is None
            assert fit(wide, dialect)[0] is not None


# Any schema at all.

VALUES = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.sampled_from(["", "a", "null", "object"])
NAMES = st.sampled_from(["a", "b", "type", "$ref", "description", "enum"])
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
REFS = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/definitions/a", "#/properties/a", "#/nowhere", "x"])


def nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(inner, max_size=3)
    named = st.dictionaries(NAMES, inner, max_size=3)
    optional: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "properties": named,
        "required": st.lists(NAMES, max_size=3, unique=True),
        "additionalProperties": st.booleans() | inner,
        "items": inner,
        "anyOf": many,
        "oneOf": many,
        "allOf": many,
        "$ref": REFS,
        "$defs": named,
        "enum": st.lists(VALUES, max_size=3),
        "const": VALUES,
        "default": VALUES,
        "minimum": st.integers(0, 5),
        "exclusiveMinimum": st.integers(0, 5) | st.booleans(),
        "minItems": st.integers(0, 3),
        "maxLength": st.integers(0, 5),
        "format": st.sampled_from(["date", "uuid", "color"]),
        "pattern": st.just("x"),
        "not": inner,
        "description": st.just("d"),
        "title": st.just("t"),
        "nullable": st.booleans(),
        "patternProperties": named,
    }
    return st.fixed_dictionaries({}, optional=optional) | closed_nodes(inner)


def closed_nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, inner, max_size=3).map(lambda properties: closed(**properties))


SIMPLE = TYPES.filter(lambda kind: kind not in ("object", "array")).map(lambda kind: {"type": kind})
SCHEMAS = closed_nodes(st.recursive(SIMPLE, nodes, max_leaves=8)) | st.recursive(SIMPLE, nodes, max_leaves=6)


@pytest.mark.parametrize("name", DIALECTS)
@given(schema=SCHEMAS)
def test_any_schema_fits_afterwards_or_is_refused(name: str, schema: Json) -> None:
    text, losses = transform(json.dumps(schema), DIALECTS[name])
    if text is None:
        assert len(losses) == 1
        return
    assert violations(name, json.loads(text)) == []
    assert transform(text, DIALECTS[name]) == (text, ())


JSON = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=8)


@given(schema=st.text(max_size=20) | JSON.map(json.dumps))
def test_nothing_makes_it_raise(schema: str) -> None:
    for dialect in DIALECTS.values():
        found, losses = transform(schema, dialect)
        assert found is not None or len(losses) == 1
