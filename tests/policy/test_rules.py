"""Which rule decides, and what happens without one. (S1.8, S1.14, S2.6)"""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evener.errors import BadValue, UsageError
from evener.events import Effect
from evener.policy import (
    OPEN,
    Between,
    Defaults,
    Given,
    Glob,
    OneOf,
    Policy,
    Regex,
    Rule,
    Ruling,
    Verdict,
    decide,
    strictest,
)
from evener.transcript import Origin, Seal, ToolCall
from tests.patience import ends
from tests.policy.calls import called, decided, verdicts

EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "write")
VERDICTS: tuple[Verdict, ...] = ("allow", "deny", "ask")

HOUSE = Policy(
    (
        Rule(tool="delete_*", verdict="deny", name="no deletion", reason="Nothing is deleted here."),
        Rule(tool="pay", verdict="allow", arguments={"amount": Between(least=0, most=10)}, name="small change"),
        Rule(tool="pay", verdict="ask", name="money"),
        Rule(tool="*", verdict="allow", effect=("idempotent",), name="harmless"),
    )
)


@pytest.mark.parametrize(
    ("tool", "arguments", "effect", "verdict", "rule"),
    [
        ("delete_file", {}, "write", "deny", "no deletion"),
        ("delete_file", {}, "idempotent", "deny", "no deletion"),
        ("pay", {"amount": 5}, "write", "allow", "small change"),
        ("pay", {"amount": 10}, "write", "allow", "small change"),
        ("pay", {"amount": 10.01}, "write", "ask", "money"),
        ("pay", {"amount": "5"}, "write", "ask", "money"),
        ("pay", {"amount": True}, "write", "ask", "money"),
        ("pay", {"amount": None}, "write", "ask", "money"),
        ("pay", {}, "write", "ask", "money"),
        ("put", {}, "idempotent", "allow", "harmless"),
        ("Delete_file", {}, "idempotent", "allow", "harmless"),  # a tool's name is exact: this is another tool
        ("put", {}, "write", "ask", ""),
        ("get", {}, "read", "allow", ""),
    ],
)
def test_s2_6_the_first_rule_that_matches_decides_and_is_recorded(
    tool: str, arguments: dict[str, object], effect: Effect, verdict: Verdict, rule: str
) -> None:
    """S1.8."""
    decision = decided(HOUSE, tool, arguments, effect=effect)
    assert (decision.verdict, decision.rule) == (verdict, rule)
    assert decision.reason


def test_the_reason_of_the_rule_is_the_reason_of_the_decision() -> None:
    assert decided(HOUSE, "delete_file").reason == "Nothing is deleted here."


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(
    ("policy", "verdict"),
    [
        (OPEN, "ask"),
        (Policy(), "ask"),
        (Policy((Rule(tool="t", verdict="allow"),)), "allow"),
        (Policy((Rule(tool="t", verdict="deny"),)), "deny"),
        (Policy((Rule(tool="other", verdict="allow"),)), "ask"),
        (Policy(default=Defaults.all("deny")), "deny"),
    ],
)
def test_s2_6_a_tool_that_wants_approval_asks_unless_a_rule_says_otherwise(
    policy: Policy, verdict: Verdict, effect: Effect
) -> None:
    assert decided(policy, "t", effect=effect, approval=True).verdict == verdict


def test_without_rules_reading_is_allowed_and_the_rest_asks() -> None:
    """S1.8, S1.17."""
    assert [decided(Policy(), "t", effect=effect).verdict for effect in EFFECTS] == ["allow", "ask", "ask"]
    assert [decided(OPEN, "t", effect=effect).verdict for effect in EFFECTS] == ["allow"] * 3
    strict = Policy(default=Defaults(write="deny"))
    assert [decided(strict, "t", effect=effect).verdict for effect in EFFECTS] == ["allow", "ask", "deny"]


# Arguments.

UNREADABLE = [
    "",
    "{",
    "[]",
    '"text"',
    "null",
    "[" * 5_000,
    '{"a":' * 200 + "1" + "}" * 200,
    '{"a":1,"a":2}',
    '{"b":{"c":1,"c":2}}',
]


@pytest.mark.parametrize("raw", UNREADABLE, ids=range(len(UNREADABLE)))
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("name", ["t", "other:t"])
def test_arguments_that_do_not_parse_are_never_allowed(raw: str, effect: Effect, name: str) -> None:
    call = ToolCall("1", name, raw)
    allow = Rule(tool="*", verdict="allow")
    for policy in (OPEN, Policy((allow,)), Policy((allow,), Defaults.all("allow"))):
        assert decide(call, effect=effect, policy=policy).verdict == "deny"
        assert decide(call, effect=effect, approval=True, policy=policy).verdict == "deny"
    for verdict in ("deny", "ask"):
        careful = Rule(tool=name, verdict=verdict, arguments={"a": 1}, name="careful")
        decision = decide(call, effect=effect, policy=Policy((allow, careful)))
        assert (decision.verdict, decision.rule, decision.sure) == (verdict, "careful", False)


DEEP = {
    "files": [{"name": "a.txt"}, {"name": "b.py"}],
    "options": {"force": True, "by.name": 1},
    "rows": [{"tags": ["a"]}, {"tags": []}],
    "none": None,
    "empty": [],
}


@pytest.mark.parametrize(
    ("path", "condition", "allows", "denies"),
    [
        ("options.force", True, True, True),
        ("options.force", False, False, False),
        ("options.force", 1, False, True),  # a truth value is no number
        ("options.by\\.name", 1, True, True),
        ("options.by.name", 1, False, False),
        ("files.*.name", "*.txt", False, True),  # to allow, all must fit
        ("files.*.name", ("*.txt", "*.py"), True, True),
        ("files.*.name", "*.md", False, False),
        ("files.*.size", Between(above=0), False, False),
        ("files.name", "*.md", False, True),  # a list where an object was expected: who knows
        ("options.force.x.*", "a", False, True),
        ("none", "x", False, False),
        ("none.x", "x", False, False),
        ("empty.*", "*", False, False),
        ("empty.*", Given(False), True, True),
        ("rows.*.tags.*", "a", False, True),  # one of them has no tag that fits
        ("options.*", 1, False, True),
        ("missing", "*", False, False),
        ("files", "*", False, True),
    ],
)
def test_a_path_reaches_into_arguments(path: str, condition: object, allows: bool, denies: bool) -> None:
    assert verdicts({path: condition}, DEEP) == (allows, denies)


def test_all_conditions_of_a_rule_must_hold() -> None:
    conditions = {"a": 1, "b": "x*"}
    assert verdicts(conditions, {"a": 1, "b": "xy"}) == (True, True)
    assert verdicts(conditions, {"a": 1, "b": "y"}) == (False, False)
    assert verdicts(conditions, {"a": 1}) == (False, False)


# Laws.

TOOLS = ("read_file", "write_file", "pay", "search")
PATTERNS = ("*", "read_*", "write_file", "p?y", "[a-q]*", "none")
VALUES: tuple[object, ...] = ("src/a", "SRC/a", "etc", 5, 50, "5", True, None, ["src/a"], {"b": 5})
CONDITIONS = (Glob("src/*"), Regex("[a-z]+"), Between(most=10), OneOf((Glob("etc"), Between(above=20))))
PLACES = ("a", "a.b", "a.*", "c")

rules = st.builds(
    Rule,
    tool=st.sampled_from(PATTERNS),
    verdict=st.sampled_from(VERDICTS),
    arguments=st.dictionaries(st.sampled_from(PLACES), st.sampled_from(CONDITIONS), max_size=2),
    effect=st.sets(st.sampled_from(EFFECTS), max_size=2).map(tuple),
)
policies = st.builds(
    Policy,
    st.lists(rules, max_size=6).map(tuple),
    st.builds(Defaults, read=st.sampled_from(VERDICTS), idempotent=st.sampled_from(VERDICTS), write=st.sampled_from(VERDICTS)),
)
calls = st.one_of(
    st.builds(
        lambda name, arguments: ToolCall("1", name, json.dumps(arguments)),
        st.sampled_from(TOOLS),
        st.dictionaries(st.sampled_from(("a", "c")), st.sampled_from(VALUES)),
    ),
    st.builds(lambda name, raw: ToolCall("1", name, raw), st.sampled_from(TOOLS), st.sampled_from(("{", '{"a":1,"a":2}'))),
)


@settings(max_examples=100)
@given(policies, calls, st.sampled_from(EFFECTS), st.booleans())
def test_law_the_decision_is_that_of_the_first_rule_that_decides_alone(
    policy: Policy, call: ToolCall, effect: Effect, approval: bool
) -> None:
    decision = decide(call, effect=effect, approval=approval, policy=policy)
    alone = [decide(call, effect=effect, policy=Policy((rule,))) for rule in policy.rules]
    first = next((number for number, one in enumerate(alone) if one.rule), None)
    if first is None:
        assert decision == decide(call, effect=effect, approval=approval, policy=Policy((), policy.default))
    else:
        assert decision.rule == f"rule {first + 1}"
        assert decision.verdict == policy.rules[first].verdict
    if not call.parses or 'a":1,"a' in call.raw:
        assert decision.verdict != "allow"
    assert decision.sure or decision.verdict != "allow"


@given(policies, calls, st.sampled_from(EFFECTS), st.booleans())
def test_law_a_decision_is_a_document_and_an_explanation_names_its_rule(
    policy: Policy, call: ToolCall, effect: Effect, approval: bool
) -> None:
    decision = decide(call, effect=effect, approval=approval, policy=policy)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=Ruling) == decision
    sentence = policy.explain(call, effect=effect, approval=approval)
    assert repr(decision.rule) in sentence if decision.rule else "by no rule" in sentence


@given(policies, calls, st.sampled_from(EFFECTS))
def test_s1_14_law_where_a_call_came_from_changes_nothing(policy: Policy, call: ToolCall, effect: Effect) -> None:
    origin = Origin("openai_responses", "p", "https://example.org", "m")
    other = msgspec.structs.replace(call, id="other", seal=Seal('{"x":1}', origin), cache="5m")
    assert decide(call, effect=effect, policy=policy) == decide(other, effect=effect, policy=policy)


# Explaining, comparing, refusing.


def test_an_explanation_is_a_sentence_without_the_values() -> None:
    sentence = HOUSE.explain(called("pay", {"amount": 77, "token": "s3cret"}))
    assert sentence == (
        "The call to 'pay' waits for approval by 'money': The rule 'money' says 'ask'. "
        "Not about it: 'no deletion', 'small change'."
    )
    unsure = Policy((Rule(tool="pay", verdict="deny", arguments={"amount": Between(above=50)}, name="much"),))
    assert "'much' (which could not be ruled out)" in unsure.explain(called("pay", {"amount": "lots"}))


def test_the_strictest_of_two_policies_may_forbid_and_not_permit() -> None:
    allow, ask, deny = Ruling("allow"), Ruling("ask"), Ruling("deny")
    assert strictest((allow, ask)) is ask
    assert strictest((deny, ask, allow)) is deny
    assert strictest((allow, Ruling("allow", "later"))) is allow
    with pytest.raises(UsageError):
        strictest(())


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool": "", "verdict": "allow"},
        {"tool": "x" * 201, "verdict": "allow"},
        {"tool": "t", "verdict": "maybe"},
        {"tool": "t", "verdict": "allow", "effect": ("danger",)},
        {"tool": "t", "verdict": "allow", "arguments": {"": 1}},
        {"tool": "t", "verdict": "allow", "arguments": {"a..b": 1}},
        {"tool": "t", "verdict": "allow", "arguments": {"a": None}},
        {"tool": "t", "verdict": "allow", "arguments": {"a": ()}},
        {"tool": "t", "verdict": "allow", "arguments": ["a"]},
        {"tool": "t\ud800", "verdict": "allow"},
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadValue):
        Rule(**wrong)  # type: ignore[arg-type]


def test_two_rules_of_one_name_are_refused() -> None:
    rule = Rule(tool="*", verdict="deny", name="same")
    with pytest.raises(UsageError, match="'same'"):
        Policy((rule, rule))
    with pytest.raises(UsageError, match="'rule 2'"):
        Policy((Rule(tool="*", verdict="deny", name="rule 2"), Rule(tool="*", verdict="ask")))


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (Regex("(a+)+b"), "a" * 100_000),
        (Regex("(a|a)*c"), "a" * 8_000),
        (Regex("(.*a){20}"), "a" * 8_000),
        (Glob("*a" * 100 + "b"), "a" * 100_000),
        (Glob("*"), "\u0301\u0315" * 50_000),
        (Glob("x*"), "\u0315\u0301" * 50_000),
    ],
)
def test_no_pattern_takes_for_ever_on_any_text(condition: Glob | Regex, text: str) -> None:
    with ends():
        verdicts({"a": condition}, {"a": text})
