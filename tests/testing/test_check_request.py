"""check_request against its case tables, the recorded traffic, and arbitrary JSON."""

import ast
import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import evener.testing.check
from evener.testing import Violation, check_request
from evener.testing.check import CHECKS
from tests.corpus import exchanges, needs_corpus
from tests.each import each
from tests.testing import anthropic_cases, responses_cases
from tests.testing.edits import Case, Json

SOURCE = Path(evener.testing.check.__file__).parent
TABLES = {table.WIRE: table for table in (anthropic_cases, responses_cases)}
MODULES = {"anthropic_messages": "anthropic/*.py", "openai_responses": "responses/*.py"}

# What a recorded 400 says, and the rule that must say it. An unknown model is not about the request's shape.
REFUSALS = {
    r"effort level": "effort",
    r"^messages\..*\.source: Input tag": "source.type",
    r"tool output": "call.interleaved",
    r"MIME type|file type": "file.media",
    r"minimum value": "range",
    r"following item": "reasoning.following",
}


def rules(wire: str, body: Any, **options: Any) -> set[str]:
    return {violation.rule for violation in check_request(wire, body, **options)}


def named_rules(pattern: str) -> set[str]:
    """The rule names written in the modules that match, read from their source: each must be a literal."""
    found: set[str] = set()
    for path in SOURCE.glob(pattern):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Violation":
                rule = node.args[1]
                assert isinstance(rule, ast.Constant), f"{path.name}:{node.lineno} names its rule by a variable"
                found.add(str(rule.value))
    return found


def listed(name: str) -> list[Any]:
    return [pytest.param(wire, entry, id=f"{wire}-{entry}") for wire, table in TABLES.items() for entry in getattr(table, name)]


@each(("wire", "case"), listed("CASES"))
def test_an_edit_that_breaks_a_rule_is_reported_and_its_base_is_not(wire: str, case: Case) -> None:
    assert check_request(wire, case.base, **case.options) == []
    assert case.rule in rules(wire, case.body, **case.options)


@each(("wire", "name"), listed("ACCEPTED"))
def test_what_the_api_takes_is_not_reported(wire: str, name: str) -> None:
    body, options = TABLES[wire].ACCEPTED[name]
    assert check_request(wire, body, **options) == []


@pytest.mark.parametrize("wire", TABLES)
def test_the_table_of_a_wire_names_exactly_the_rules_of_its_modules(wire: str) -> None:
    shared = named_rules("*.py")
    tabled = {case.rule for case in TABLES[wire].CASES}
    assert named_rules(MODULES[wire]) - tabled == set()
    assert tabled - named_rules(MODULES[wire]) - shared - {"json", "type", "missing", "enum", "extra_field"} == set()


def test_every_rule_in_the_code_has_a_case() -> None:
    tabled = {case.rule for table in TABLES.values() for case in table.CASES}
    assert named_rules("*.py") | {rule for folder in MODULES.values() for rule in named_rules(folder)} == tabled


@pytest.mark.parametrize(
    ("model", "refused"),
    [
        ("claude-3-7-sonnet-20250219", True),
        ("claude-sonnet-4-20250514", True),
        ("anthropic/claude-opus-4.5", True),
        ("claude-haiku-4-5@20251001", True),
        ("claude-sonnet-4-6", False),
        ("us.anthropic.claude-opus-5-5-v1:0", False),
        ("claude-sonnet-9", False),
        ("house-model", False),
    ],
)
def test_a_model_is_known_whatever_its_name_carries(model: str, refused: bool) -> None:
    body = {**anthropic_cases.PLAIN, "model": model, "thinking": {"type": "adaptive"}}
    assert rules("anthropic_messages", body) == ({"thinking.model"} if refused else set())


def test_a_violation_says_where_which_and_what() -> None:
    body = {"model": "gpt-5.4", "input": "Hello.", "temperature": -1}
    (found,) = check_request("openai_responses", body)
    assert found == Violation("temperature", "range", found.message)
    assert "-1" in found.message


def test_a_body_may_be_given_as_bytes_or_text() -> None:
    for form in (json.dumps(anthropic_cases.LOOP), json.dumps(anthropic_cases.LOOP).encode()):
        assert check_request("anthropic_messages", form) == []


def test_an_unknown_wire_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="anthropic_messages, openai_responses"):
        check_request("telegraph", {})


def test_the_body_is_left_as_it_was() -> None:
    for wire, table in TABLES.items():
        for base in table.BASES:
            before = copy.deepcopy(base)
            check_request(wire, base)
            assert base == before


@needs_corpus
@pytest.mark.parametrize("wire", TABLES)
def test_every_recorded_request_that_was_answered_is_accepted(wire: str) -> None:
    answered = [one for one in exchanges(wire) if one.status == 200 and one.request is not None]
    assert answered
    refused = {one.id: check_request(wire, one.request or {}) for one in answered}
    assert {name: found for name, found in refused.items() if found} == {}


@needs_corpus
@pytest.mark.parametrize("wire", TABLES)
def test_every_recorded_refusal_about_the_shape_is_found(wire: str) -> None:
    # Headers were not recorded; the two refused file sources are only wrong without the beta header (see their rule).
    refused = [one for one in exchanges(wire) if one.status == 400 and "model_not_found" not in str(one.response)]
    assert refused
    for one in refused:
        said = str((one.response or {})["error"]["message"])
        expected = next(rule for pattern, rule in REFUSALS.items() if re.search(pattern, said))
        assert expected in rules(wire, one.request, betas=()), one.id


@pytest.mark.parametrize("wire", TABLES)
@pytest.mark.parametrize("arrays", [True, False])
def test_deep_values_do_not_overflow(wire: str, arrays: bool) -> None:
    nested: Any = "x"
    for _level in range(1000):
        nested = [nested] if arrays else {"properties": nested}
    for base in TABLES[wire].BASES:
        for name in base:
            check_request(wire, {**base, name: nested})
            check_request(wire, {**base, name: [nested]})
    tool = {"type": "function", "name": "t", "strict": True, "input_schema": nested, "parameters": nested}
    check_request(wire, {**TABLES[wire].PLAIN, "tools": [tool, {**tool, "type": "custom"}]})


@pytest.mark.parametrize("wire", TABLES)
@pytest.mark.parametrize("raw", ["[" * 100_000, '{"a":' * 100_000, "", "nul", b"\x80", "1" * 10_000, '"\\ud800"'])
def test_hostile_text_is_a_violation_and_never_an_error(wire: str, raw: str | bytes) -> None:
    assert rules(wire, raw) <= {"json", "type"}
    assert rules(wire, raw)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
WORDS = st.sampled_from(
    (
        *("type", "role", "content", "messages", "input", "tools", "id", "call_id", "text", "user", "assistant"),
        *("tool_use", "tool_result", "function_call", "reasoning", "message", "model", "source", "schema", "$ref"),
    )
)
VALUES = st.recursive(
    LEAVES | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a body with each of its keys."""
    found: list[tuple[Any, Any]] = []
    stack = [value]
    while stack:
        holder = stack.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found.extend((holder, key) for key in keys)
        stack.extend(holder[key] for key in keys)
    return found


ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**5000,
    -(10**5000),
    1.5,
    float("nan"),
    "",
    " ",
    [],
    {},
    [None],
    [{}],
    [[]],
    {"type": []},
    {"type": {}},
)


@pytest.mark.parametrize("wire", TABLES)
def test_any_one_value_of_a_body_may_be_anything(wire: str) -> None:
    for base in TABLES[wire].BASES:
        for number in range(len(places(base))):
            for odd in ODD:
                body = copy.deepcopy(base)
                holder, key = places(body)[number]
                holder[key] = odd
                check_request(wire, body, api_version="2026-10-21", issued={}, betas=())


@given(wire=st.sampled_from(sorted(CHECKS)), body=st.dictionaries(WORDS | st.text(max_size=6), VALUES, max_size=6))
@settings(max_examples=50, deadline=None)
def test_any_json_gives_violations_and_never_an_error(wire: str, body: Json) -> None:
    for found in check_request(wire, body, api_version="2026-10-21", issued={}, betas=()):
        assert found.rule
        assert found.message


@given(data=st.data(), wire=st.sampled_from(sorted(TABLES)))
@settings(max_examples=50, deadline=None)
def test_any_change_to_a_valid_body_never_raises(data: st.DataObject, wire: str) -> None:
    body = copy.deepcopy(data.draw(st.sampled_from(TABLES[wire].BASES)))
    for _change in range(data.draw(st.integers(1, 3))):
        found = places(body)
        if not found:
            break
        holder, key = data.draw(st.sampled_from(found))
        if data.draw(st.booleans()):
            holder[key] = data.draw(VALUES)
        else:
            del holder[key]
    check_request(wire, body)
    check_request(wire, body, api_version="2026-10-21", issued={"sig-1": "x"}, betas=("files-api-2025-04-14",))
