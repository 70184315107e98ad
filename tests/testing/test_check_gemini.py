"""check_request on the Gemini wire: its case table, the recorded traffic, spellings, and arbitrary JSON."""

import copy
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.testing import check_request
from tests.corpus import Exchange, exchanges, needs_corpus, usual_recordings
from tests.each import each
from tests.testing.edits import Case, Json, edited
from tests.testing.gemini_cases import ACCEPTED, BASES, CASES, CONFIGURED, LOOP, PLAIN, SNAKE, WIRE
from tests.testing.test_check_request import ODD, VALUES, named_rules, places, rules

SHARED = named_rules("__init__.py") | named_rules("json_schema.py")
PLATFORMS = {"google": "developer", "google_vertex": "vertex"}
MODELS = ("", "gemini-2.0-flash", "gemini-2.5-pro", "gemini-3-flash-preview", "gemini-3.8-flash")

# What a recorded 400 says that no body shows. Every recorded refusal is of this kind.
BEYOND_THE_BODY = {r"Cannot fetch content from the provided URL": "whether a site lets Google read a URL is up to the site"}


def completions() -> list[Exchange]:
    return [one for one in exchanges(WIRE) if one.request is not None]


def known(exchange: Exchange) -> Json:
    """What the recording says besides its body: the model of its path, and the platform."""
    found = re.search(r"models/([^:]+):", exchange.path)
    assert found is not None
    return {"model": found[1], "dialect": PLATFORMS.get(exchange.provider, "")}


def respelled(value: Any) -> Any:
    """The value with each camelCase key in snake_case; what lies under a name chosen by the user keeps its keys."""
    if isinstance(value, list):
        return [respelled(one) for one in value]
    if not isinstance(value, dict):
        return value
    free = ("args", "response", "properties", "labels", "parametersJsonSchema", "responseJsonSchema")
    return {re.sub("([A-Z])", r"_\1", key).lower(): one if key in free else respelled(one) for key, one in value.items()}


@each("case", CASES)
def test_an_edit_that_breaks_a_rule_is_reported_and_its_base_is_not(case: Case) -> None:
    assert check_request(WIRE, case.base, **case.options) == []
    assert case.rule in rules(WIRE, case.body, **case.options)


@each("case", [case for case in CASES if case.raw is None])
def test_a_broken_rule_is_reported_in_the_other_spelling_too(case: Case) -> None:
    assert check_request(WIRE, respelled(case.base), **case.options) == []
    assert case.rule in rules(WIRE, respelled(case.body), **case.options)


@each("name", ACCEPTED)
def test_what_the_api_takes_is_not_reported(name: str) -> None:
    body, options = ACCEPTED[name]
    assert check_request(WIRE, body, **options) == []
    assert check_request(WIRE, respelled(body), **options) == []


def test_the_table_names_exactly_the_rules_of_the_code() -> None:
    tabled = {case.rule for case in CASES}
    assert named_rules("gemini/*.py") - tabled == set()
    assert tabled - named_rules("gemini/*.py") - SHARED == set()


@needs_corpus
@pytest.mark.parametrize("with_model", [True, False])
def test_every_recorded_request_that_was_answered_is_accepted(with_model: bool) -> None:
    answered = [one for one in completions() if one.status == 200]
    assert answered
    found = {one.id: check_request(WIRE, one.request or {}, **(known(one) if with_model else {})) for one in answered}
    assert {name: violations for name, violations in found.items() if violations} == {}


@usual_recordings
def test_no_recorded_refusal_is_about_the_shape() -> None:
    refused = [one for one in completions() if one.status == 400]
    assert refused
    for one in refused:
        said = str((one.response or {})["error"]["message"])
        assert any(re.search(pattern, said) for pattern in BEYOND_THE_BODY), one.id
        assert rules(WIRE, one.request, **known(one)) == set(), one.id


@pytest.mark.parametrize(
    ("model", "signed"),
    [
        ("gemini-3-flash-preview", True),
        ("models/gemini-3.8-flash", True),
        ("publishers/google/models/gemini-4-argon", True),
        ("gemini-2.5-flash", False),
        ("gemini-flash-latest", False),
        ("", False),
    ],
)
def test_a_model_is_known_whatever_path_its_name_carries(model: str, signed: bool) -> None:
    body = copy.deepcopy(LOOP)
    del body["contents"][1]["parts"][0]["thoughtSignature"]
    assert rules(WIRE, body, model=model) == ({"thought_signature"} if signed else set())
    assert rules(WIRE, {**body, "model": model}) == ({"thought_signature"} if signed else set())


def test_a_violation_is_placed_where_the_api_places_it_whatever_the_spelling() -> None:
    (found,) = check_request(WIRE, edited(SNAKE, {"contents.1.parts.0.function_call.args": "oak"}))
    assert found.path == "contents[1].parts[0].functionCall.args"


def test_an_unknown_platform_is_a_usage_error_that_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="developer, vertex"):
        check_request(WIRE, PLAIN, dialect="openai")


@pytest.mark.parametrize("arrays", [True, False])
def test_deep_values_do_not_overflow(arrays: bool) -> None:
    nested: Any = "x"
    for _level in range(1000):
        nested = [nested] if arrays else {"properties": {"items": nested}}
    for base in BASES:
        for name in base:
            check_request(WIRE, {**base, name: nested})
            check_request(WIRE, {**base, name: [nested]})
    check_request(WIRE, edited(LOOP, {"tools.0.functionDeclarations.0.parametersJsonSchema": nested}))
    check_request(WIRE, edited(CONFIGURED, {"tools.0.functionDeclarations.0.parameters": nested}))


def test_any_one_value_of_a_body_may_be_anything() -> None:
    for base in BASES:
        for number in range(len(places(base))):
            for odd in ODD:
                body = copy.deepcopy(base)
                holder, key = places(body)[number]
                holder[key] = odd
                check_request(WIRE, body, model="gemini-3.8-flash", dialect="developer")


@given(body=st.dictionaries(st.sampled_from([*LOOP, *CONFIGURED, *SNAKE]), VALUES, max_size=6))
@settings(max_examples=50, deadline=None)
def test_any_json_gives_violations_and_never_an_error(body: Json) -> None:
    for found in check_request(WIRE, body, model="gemini-3-flash-preview"):
        assert found.rule
        assert found.message


@given(data=st.data(), model=st.sampled_from(MODELS))
@settings(max_examples=60, deadline=None)
def test_any_change_to_a_valid_body_never_raises(data: st.DataObject, model: str) -> None:
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
    check_request(WIRE, body, model=model)
