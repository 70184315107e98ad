"""check_request on the Chat wire: its case table, the recorded traffic, dialects, and arbitrary JSON."""

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.testing import check_request
from evener.testing.check import DIALECTS
from tests.corpus import Exchange, exchanges, needs_corpus, usual_recordings
from tests.each import each
from tests.testing.chat_cases import ACCEPTED, BASES, CASES, CLONE, LOOP, PLAIN, WIRE
from tests.testing.edits import Case, Json, edited
from tests.testing.test_check_request import ODD, VALUES, named_rules, places, rules

NAMES = sorted(DIALECTS[WIRE])
SHARED = {rule for name in ("__init__", "shape", "json_schema", "openai") for rule in named_rules(f"{name}.py")}

# What a recorded 400 says, and the rule that must say it.
REFUSALS = {
    r"Content blocks are expected": "audio.model",
    r"Unknown parameter": "extra_field",
    r"does not support 'developer'": "role.model",
}
# What a recorded 400 says that no body shows.
BEYOND_THE_BODY = {
    r"Tool call validation failed": "the model wrote a call that does not fit its tool; the request was fine",
    r"^Invalid file data: 'file_id'": "the uploaded file's type lies on the server, the body holds its id only",
}


def completions() -> list[Exchange]:
    """Recorded requests with a body, without the echo endpoint that answers 200 to anything."""
    return [one for one in exchanges(WIRE) if one.request is not None and "not_a_completion" not in one.tags]


def named(exchange: Exchange) -> str:
    """The dialect of a recording; a provider that the sheet does not know has none."""
    return exchange.provider if exchange.provider in NAMES else ""


@each("case", CASES)
def test_an_edit_that_breaks_a_rule_is_reported_and_its_base_is_not(case: Case) -> None:
    assert check_request(WIRE, case.base, **case.options) == []
    assert case.rule in rules(WIRE, case.body, **case.options)


@each("name", ACCEPTED)
def test_what_the_api_takes_is_not_reported(name: str) -> None:
    body, options = ACCEPTED[name]
    assert check_request(WIRE, body, **options) == []


def test_the_table_names_exactly_the_rules_of_the_code() -> None:
    tabled = {case.rule for case in CASES}
    assert named_rules("chat/*.py") - tabled == set()
    assert tabled - named_rules("chat/*.py") - SHARED == set()


@needs_corpus
@pytest.mark.parametrize("with_dialect", [True, False])
def test_every_recorded_request_that_was_answered_is_accepted(with_dialect: bool) -> None:
    answered = [one for one in completions() if one.status == 200]
    assert answered
    found = {one.id: check_request(WIRE, one.request or {}, dialect=named(one) if with_dialect else "") for one in answered}
    assert {name: violations for name, violations in found.items() if violations} == {}


@needs_corpus
@pytest.mark.parametrize("with_dialect", [True, False])
def test_every_recorded_refusal_about_the_shape_is_found(with_dialect: bool) -> None:
    refused = [one for one in completions() if one.status == 400]
    assert refused
    for one in refused:
        said = str((one.response or {})["error"]["message"])
        if any(re.search(pattern, said) for pattern in BEYOND_THE_BODY):
            continue
        expected = next(rule for pattern, rule in REFUSALS.items() if re.search(pattern, said))
        assert expected in rules(WIRE, one.request, dialect=named(one) if with_dialect else ""), one.id


@usual_recordings
def test_no_exception_is_kept_for_a_refusal_that_is_not_recorded() -> None:
    said = [str((one.response or {})["error"]["message"]) for one in completions() if one.status == 400]
    for pattern in (*REFUSALS, *BEYOND_THE_BODY):
        assert any(re.search(pattern, one) for one in said), pattern


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_request_passes_everywhere(name: str) -> None:
    assert check_request(WIRE, {**PLAIN, "model": "house-model"}, dialect=name) == []


@pytest.mark.parametrize(
    ("model", "strict"),
    [
        ("gpt-4o", True),
        ("o3-mini", True),
        ("openai.gpt-5.4", True),
        ("openai/gpt-4o", False),
        ("openai.gpt-oss-120b", False),
        ("gpt-oss:20b", False),
        ("house-model", False),
    ],
)
def test_without_a_dialect_the_name_of_the_model_tells_whose_rules_apply(model: str, strict: bool) -> None:
    body = {**PLAIN, "model": model, "top_k": 7}
    assert rules(WIRE, body) == ({"extra_field"} if strict else set())


def test_a_dialect_overrules_the_name_of_the_model() -> None:
    assert rules(WIRE, {**PLAIN, "model": "house-model", "top_k": 7}, dialect="openai") == {"extra_field"}
    assert rules(WIRE, {**PLAIN, "top_k": 7}, dialect="openrouter") == set()


@pytest.mark.parametrize(("wire", "dialect"), [(WIRE, "telegraph"), ("anthropic_messages", "openai")])
def test_an_unknown_dialect_is_a_usage_error_that_names_the_known_ones(wire: str, dialect: str) -> None:
    with pytest.raises(ValueError, match="openai, openrouter" if wire == WIRE else "expected one of none"):
        check_request(wire, PLAIN, dialect=dialect)


def test_a_violation_is_placed_the_way_the_api_places_it() -> None:
    (found,) = check_request(WIRE, edited(LOOP, {"messages.1.tool_calls.0.function.name": "look up"}))
    assert found.path == "messages[1].tool_calls[0].function.name"


@pytest.mark.parametrize("arrays", [True, False])
def test_deep_values_do_not_overflow(arrays: bool) -> None:
    nested: Any = "x"
    for _level in range(1000):
        nested = [nested] if arrays else {"properties": nested}
    for base in BASES:
        for name in base:
            check_request(WIRE, {**base, name: nested})
            check_request(WIRE, {**base, name: [nested]})
    check_request(WIRE, edited(LOOP, {"tools.0.function.parameters": nested}))
    check_request(WIRE, edited(LOOP, {"messages.1.tool_calls.0.function.arguments": "[" * 100_000}))


@pytest.mark.parametrize("dialect", ["", *NAMES])
def test_any_one_value_of_a_body_may_be_anything(dialect: str) -> None:
    for base in BASES if not dialect else (LOOP, CLONE):
        for number in range(len(places(base))):
            for odd in ODD:
                body = copy.deepcopy(base)
                holder, key = places(body)[number]
                holder[key] = odd
                check_request(WIRE, body, dialect=dialect)


@given(body=st.dictionaries(st.sampled_from([*PLAIN, *LOOP, "tool_choice", "response_format", "stop"]), VALUES, max_size=6))
@settings(max_examples=50, deadline=None)
def test_any_json_gives_violations_and_never_an_error(body: Json) -> None:
    for found in check_request(WIRE, body):
        assert found.rule
        assert found.message


@given(data=st.data(), dialect=st.sampled_from(["", *NAMES]))
@settings(max_examples=60, deadline=None)
def test_any_change_to_a_valid_body_never_raises(data: st.DataObject, dialect: str) -> None:
    body = copy.deepcopy(data.draw(st.sampled_from(BASES)))
    for _change in range(data.draw(st.integers(1, 3))):
        found = places(body)
        if not found:
            break
        holder, key = data.draw(st.sampled_from(found))
        if data.draw(st.booleans()):
            holder[key] = data.draw(VALUES)
        else:
            del holder[key]
    check_request(WIRE, body, dialect=dialect)
