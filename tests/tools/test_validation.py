"""Local validation: the common keywords are enforced, the others are named, and problems read well. (S1.19, S1.20, S2.30)"""

import json
from typing import Literal

import pytest

from evener.errors import UsageError
from evener.tools import Validator

Schema = dict[str, object]

CITY: Schema = {"properties": {"city": {}}, "additionalProperties": False}

CASES: list[tuple[Schema, object, str]] = [
    ({"type": "string"}, "a", ""),
    ({"type": "string"}, 1, "the arguments: expected a string, found a number"),
    ({"type": "integer"}, 1.0, ""),
    ({"type": "integer"}, 1.5, "the arguments: expected a whole number, found 1.5"),
    ({"type": "integer"}, True, "the arguments: expected a whole number, found a boolean"),
    ({"type": "number"}, 1, ""),
    ({"type": "boolean"}, 0, "the arguments: expected true or false, found a number"),
    ({"type": ["string", "null"]}, None, ""),
    ({"type": ["string", "null"]}, 3, "the arguments: expected a string or null, found a number"),
    ({"type": "string", "nullable": True}, None, ""),
    ({"enum": ["c", "f"]}, "k", 'the arguments: must be one of "c", "f"; found "k"'),
    ({"enum": [1]}, True, "the arguments: must be one of 1; found true"),
    ({"enum": [1]}, 1.0, ""),
    ({"const": {"a": [1]}}, {"a": [1.0]}, ""),
    ({"const": 1}, 2, "the arguments: must be 1; found 2"),
    ({"minimum": 1}, 0, "the arguments: must be at least 1; found 0"),
    ({"maximum": 1}, 2, "the arguments: must be at most 1; found 2"),
    ({"exclusiveMinimum": 1}, 1, "the arguments: must be above 1; found 1"),
    ({"exclusiveMaximum": 1}, 1, "the arguments: must be below 1; found 1"),
    ({"minimum": 1}, "text", ""),
    ({"multipleOf": 0.1}, 0.3, ""),
    ({"multipleOf": 3}, 7, "the arguments: must be a multiple of 3; found 7"),
    ({"minLength": 2}, "a", "the arguments: must have at least 2 characters; found 1"),
    ({"maxLength": 2}, "abc", "the arguments: must have at most 2 characters; found 3"),
    ({"maxLength": 2}, "\U0001f600\U0001f600", ""),
    ({"pattern": "^a+$"}, "b", 'the arguments: must match the pattern ^a+$; found "b"'),
    ({"minItems": 1}, [], "the arguments: must have at least 1 items; found 0"),
    ({"maxItems": 1}, [1, 2], "the arguments: must have at most 1 items; found 2"),
    ({"uniqueItems": True}, [1, True, "1"], ""),
    ({"uniqueItems": True}, [{"a": 1}, {"a": 1.0}], "the arguments: must not repeat items, but items 0 and 1 are equal"),
    ({"uniqueItems": False}, [1, 1], ""),
    ({"minProperties": 1}, {}, "the arguments: must have at least 1 fields; found 0"),
    ({"items": {"type": "integer"}}, [1, "2"], "[1]: expected a whole number, found a string"),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "[1]: must not be given"),
    ({"items": [{"type": "string"}], "additionalItems": False}, ["a", 1], "[1]: must not be given"),
    ({"prefixItems": [{"type": "string"}]}, [1], "[0]: expected a string, found a number"),
    ({"properties": {"a": {"type": "string"}}}, {"a": 1}, "a: expected a string, found a number"),
    ({"required": ["a"]}, {}, "a: required, but missing"),
    ({"properties": {"city": {}}, "additionalProperties": False}, {"cty": 1}, "cty: unknown field; did you mean city?"),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"zzz": 1}, "zzz: unknown field; the fields are a"),
    ({"additionalProperties": {"type": "integer"}}, {"a": "x"}, "a: expected a whole number, found a string"),
    ({"patternProperties": {"^x": {"type": "null"}}, "additionalProperties": False}, {"x1": None}, ""),
    ({"patternProperties": {"^x": {"type": "null"}}}, {"x1": 1}, "x1: expected null, found a number"),
    ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, "ab: as a name, it must have at most 1 characters; found 2"),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "the arguments: expected a string or null, found a number"),
    ({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "null"}]}, "ab",
     "the arguments: must have at most 1 characters; found 2"),
    ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 3, "the arguments: must fit exactly one of 2 forms, but fits 2"),
    ({"oneOf": [{"minimum": 1}, {"minimum": 2}]}, 1, ""),
    ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, 3, "the arguments: must be at most 2; found 3"),
    ({"not": {"type": "string"}}, "a", "the arguments: has a form that is not allowed"),
    ({"if": {"minimum": 5}, "then": {"multipleOf": 5}, "else": {"maximum": 1}}, 7,
     "the arguments: must be a multiple of 5; found 7"),
    ({"if": {"minimum": 5}, "then": {"multipleOf": 5}, "else": {"maximum": 1}}, 3, "the arguments: must be at most 1; found 3"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, 1, "the arguments: expected a string, found a number"),
    ({"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "null"}}}, None, ""),
    ({"$ref": "#/$defs%2Fcity", "$defs": {"city": CITY}}, {"town": 1}, "town: unknown field; the fields are city"),
    ({"format": "date"}, "2026-02-31", 'the arguments: must be a date such as "2026-01-31"; found "2026-02-31"'),
    ({"format": "uuid"}, "12345678-1234-5678-1234-567812345678", ""),
    ({"format": "decimal"}, "12.50", ""),
    ({"format": "email"}, "a.example.org", 'the arguments: must be an email; found "a.example.org"'),
    ({"format": "uri"}, "https://example.org/a?b#c", ""),
    ({"contains": {"type": "string"}}, ["a", 1], ""),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, "b: required, but missing"),
    ({"items": {"unevaluatedItems": False}}, [[1, 2]], "[0]: must not have more items; found 2 too many"),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, {"b": 1}, "b: unknown field; the fields are a"),
    ({"$ref": "#a", "$defs": {"x": {"$anchor": "a", **CITY}}}, {"cty": 1}, "cty: unknown field; did you mean city?"),
    ({"$id": "http://a/b", "$ref": "c#x", "$defs": {"y": {"$id": "c", "$defs": {"z": {"$anchor": "x", **CITY}}}}}, {"cty": 1},
     "cty: unknown field; did you mean city?"),
    ({"$id": "http://a/b", "allOf": [{"$ref": "c"}], "$defs": {"y": {"$id": "c", "allOf": [{}, {}, CITY]}}}, {"cty": 1},
     "cty: unknown field; did you mean city?"),
    ({"$dynamicRef": "#n", "$defs": {"x": {"$dynamicAnchor": "n", **CITY}}}, {"cty": 1},
     "cty: unknown field; did you mean city?"),
    ({"$id": "http://a/b", "anyOf": [CITY, {"type": "null"}]}, {"cty": 1}, "cty: unknown field; did you mean city?"),
    ({"properties": {"50%/~": CITY}}, {"50%/~": {"cty": 1}}, "50%/~.cty: unknown field; did you mean city?"),
    ({"allOf": [{"$ref": "#/$defs/x"}], "if": {}, "then": {"properties": {"size": {}}}, "dependentSchemas": {"q": {}},
      "$defs": {"x": {"properties": {"city": {}}}}, "unevaluatedProperties": False}, {"siz": 1, "cty": 1},
     "siz: unknown field; did you mean size?\ncty: unknown field; did you mean city?"),
    ({"anyOf": [{"properties": {"a": {"type": "null"}}}, {}], "unevaluatedProperties": False}, {"a": 1},
     "a: unknown field here: the form that describes it does not fit"),
    ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"a": 1},
     "a: unknown field; the fields are those whose names match ^x"),
    ({"properties": {"b": {}}, "patternProperties": {"^x": {}}, "unevaluatedProperties": False}, {"zz": 1},
     "zz: unknown field; the fields are b, and those whose names match ^x"),
    ({"contains": {"type": "string"}}, [1], "the arguments: must have an item of a required form, but has none"),
    ({"contains": {"type": "string"}, "minContains": 2}, ["a"], "the arguments: must have more items of a required form"),
    ({"contains": {"type": "string"}, "maxContains": 1}, ["a", "b"], "the arguments: must have fewer items of a required form"),
    ({"minimum": 1, "exclusiveMinimum": True}, 1, "the arguments: must be above 1; found 1"),  # Draft 4
    ({"maximum": 1, "exclusiveMaximum": False}, 1, ""),
    ({"items": [], "additionalItems": {"type": "string"}}, [1], "[0]: expected a string, found a number"),
    ({"type": "STRING"}, 1, "the arguments: expected a string, found a number"),
    ({"type": "object", "required": ["a", "a"]}, {}, "a: required, but missing"),
    ({"$ref": "#/$defs/List[int]", "$defs": {"List[int]": {"type": "array"}}}, [], ""),
    ({"$ref": "#/$defs/A<größe>", "$defs": {"A<größe>": {"type": "null"}}}, 1, "the arguments: expected null, found a number"),
    ({"format": "decimal"}, "NaN", 'the arguments: must be a decimal number such as "12.50"; found "NaN"'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "said"), CASES, ids=lambda part: json.dumps(part)[:60])
def test_a_keyword_is_enforced(schema: Schema, value: object, said: str) -> None:
    """S1.20: the harness validates again."""
    validator = Validator(schema)
    assert [str(problem) for problem in validator.problems(value)] == said.splitlines()
    assert validator.unenforced == ()


TREE: Schema = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "inner": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}


def test_a_schema_may_contain_itself_and_a_problem_says_where_it_is() -> None:
    value = {"name": "a", "inner": [{"name": "b"}, {"inner": [{"name": 5}]}]}
    assert [str(problem) for problem in Validator(TREE).problems(value)] == [
        "inner[1].name: required, but missing",
        "inner[1].inner[0].name: expected a string, found a number",
    ]


def test_the_nearest_of_several_forms_is_explained() -> None:
    forms = [
        {"type": "object", "properties": {"kind": {"const": kind}, "size": {"type": "integer"}}, "required": ["kind", "size"]}
        for kind in ("a", "b")
    ]
    problems = Validator({"anyOf": forms}).problems({"kind": "b", "size": "x"})
    assert [str(problem) for problem in problems] == ["size: expected a whole number, found a string"]


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"x-order": 3}, "x-order"),
        ({"properties": {"a": {"pattern": "(?=x)"}}}, "properties.a.pattern"),
        ({"properties": {"a": {"format": "int32"}}}, "properties.a.format"),
        ({"patternProperties": {"(?=x)": {}}}, "patternProperties"),
    ],
)
def test_what_is_not_enforced_is_named(schema: Schema, named: str) -> None:
    assert [entry.partition(":")[0] for entry in Validator(schema).unenforced] == [named]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"type": []},
        {"type": 5},
        {"properties": []},
        {"properties": {"a": 5}},
        {"required": "a"},
        {"required": [1]},
        {"enum": "a"},
        {"enum": []},
        {"minimum": "1"},
        {"minLength": -1},
        {"minItems": 1.5},
        {"multipleOf": 0},
        {"uniqueItems": "yes"},
        {"pattern": 5},
        {"description": "\ud800"},
        {"const": "\ud800"},
        {"properties": {"\ud800": {}}},
        {"pattern": "a", "title": "\udfff"},
        {"$ref": "#/$defs/\ud800", "$defs": {"\ud800": {}}},
        {"anyOf": {}},
        {"$ref": "#/$defs/missing"},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#"},
        {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "allOf": [{"$ref": "#a"}]}}},
        {"$id": "http://a/b", "$ref": "c", "$defs": {"x": {"$id": "c", "not": {"$ref": "b"}}}},
        {
            "$id": "http://a/b/",
            "$ref": "c/d",
            "$defs": {"x": {"$id": "c/", "$defs": {"y": {"$id": "d", "anyOf": [{"$ref": "../"}]}}}},
        },
        {"$dynamicRef": "#n", "$defs": {"x": {"$dynamicAnchor": "n", "if": {"$dynamicRef": "#n"}}}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
        {"if": {}, "else": {"$ref": "#"}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"$ref": "#/$defs%2Fa", "$defs": {"a": {"not": {"$ref": "#/$defs%2Fa"}}}},
    ],
    ids=json.dumps,
)
def test_a_schema_that_makes_no_sense_is_refused_when_the_tool_is_made(schema: Schema) -> None:
    with pytest.raises(UsageError, match="schema"):
        Validator(schema)


DEEPER: dict[str, Schema] = {
    "properties": {"properties": {"a": {"$ref": "#/$defs/n"}}},
    "patternProperties": {"patternProperties": {"^a": {"$ref": "#/$defs/n"}}},
    "additionalProperties": {"additionalProperties": {"$ref": "#/$defs/n"}},
    "dependentSchemas": {"dependentSchemas": {"a": {"properties": {"a": {"$ref": "#/$defs/n"}}}}},
    "a condition": {"if": {"type": "object"}, "then": {"properties": {"a": {"$ref": "#/$defs/n"}}}},
    "an anchor": {"properties": {"a": {"$ref": "#n"}}},
    "a dynamic reference": {"properties": {"a": {"$dynamicRef": "#n"}}},
    "prefixItems": {"prefixItems": [{"$ref": "#/$defs/n"}]},
    "items": {"items": {"$ref": "#/$defs/n"}},
}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
@pytest.mark.parametrize("deeper", DEEPER)
def test_a_schema_that_branches_at_each_level_cannot_hold_the_check_up(keyword: str, deeper: str) -> None:
    inner = {"type": ["object", "array"], "required": ["b"], **DEEPER[deeper]}
    branching: Schema = {"$ref": "#/$defs/n", "$defs": {"n": {"$dynamicAnchor": "n", keyword: [inner, inner, inner]}}}
    value: object = {}
    for _ in range(90):
        value = [value] if "tems" in deeper else {"a": value}
    problems = Validator(branching).problems(value)  # 3 ** 90 ways, if each were tried
    assert [str(problem) for problem in problems] == [
        "the arguments: fits none of the allowed forms, and is nested too deeply to say why"
    ]


@pytest.mark.parametrize("keyword", ["anyOf", "allOf", "oneOf", "not", "if", "contains", "propertyNames"])
def test_a_schema_that_refers_to_its_parts_again_and_again_cannot_hold_the_check_up(keyword: str) -> None:
    again: Schema = {f"n{level}": {"allOf": [{"$ref": f"#/$defs/n{level - 1}"}] * 2} for level in range(1, 60)}
    last = {"$ref": "#/$defs/n59"}
    said = last if keyword in ("not", "if", "contains", "propertyNames") else [last]
    value = {"contains": [1], "propertyNames": {"a": 1}}.get(keyword, 1)
    validator = Validator({keyword: said, "then": True, "$defs": {**again, "n0": {"type": "null"}}})
    assert [str(problem) for problem in validator.problems(value)] == [  # 2 ** 59 ways
        "the arguments: is nested too deeply to be checked: the schema applies its parts to it too often"
    ]


def test_a_schema_with_many_ways_checks_the_values_that_go_few() -> None:
    levels: Schema = {
        f"n{level}": {"type": "object", "allOf": [{"properties": {"a": {"$ref": f"#/$defs/n{level - 1}"}}}] * 2}
        for level in range(1, 60)
    }
    validator = Validator({"$ref": "#/$defs/n59", "$defs": {**levels, "n0": {}}})
    assert validator.problems({"a": {"a": {}}}) == ()
    assert {str(problem) for problem in validator.problems({"a": 1})} == {"a: expected an object, found a number"}


def test_many_unknown_fields_are_explained_in_time() -> None:
    schema: Schema = {"properties": {f"field{number}": {} for number in range(1_000)}, "additionalProperties": False}
    problems = Validator(schema).problems({f"feld{number}": 1 for number in range(50_000)})
    assert len(problems) == 100


def test_large_values_are_checked_whole() -> None:
    value = list(range(200_000))
    validator = Validator({"items": {"type": "integer", "minimum": 0}})
    assert validator.problems(value) == ()


@pytest.mark.parametrize("keyword", ["minimum", "enum", "pattern", "required", "additionalProperties"])
def test_without_a_keyword_the_same_value_passes(keyword: Literal["minimum"]) -> None:
    """The twin of the table: each of these keywords is what refuses the value."""
    said: Schema = {"minimum": 5, "enum": [9], "pattern": "z", "required": ["q"], "additionalProperties": False}
    value: object = {"minimum": 1, "enum": 1, "pattern": "a", "required": {}, "additionalProperties": {"a": 1}}[keyword]
    assert Validator({keyword: said[keyword]}).problems(value) != ()
    assert Validator({}).problems(value) == ()
