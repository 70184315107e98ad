"""Rules, the policy that contains them, the ruling on a call, and the check that tools have the arguments that rules name.
Pure.

A rule about an argument that the tool does not have would silently never apply, so it is an error as soon as the tool is
known. Arguments that a schema leaves open (`additionalProperties`, `allOf`, an object without properties) may exist.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Literal, get_args

import msgspec
from msgspec.structs import force_setattr

from evener.errors import BadValue, UsageError
from evener.events import Effect
from evener.policy.matchers import MISSING, OPAQUE, Certainty, Condition, Matcher, best, judge, matcher_of
from evener.transcript.blocks import ToolCall, as_tuple, check_choice, check_text, check_type, json_object
from evener.transcript.scan import inside, is_deeper, repeated_key, resolve_pointer

Verdict = Literal["allow", "deny", "ask"]
VERDICTS: tuple[str, ...] = get_args(Verdict)
EFFECTS: tuple[str, ...] = get_args(Effect)
Mixing = Literal["ask", "allow"]
MIXINGS: tuple[str, ...] = get_args(Mixing)
STRICTNESS = ("allow", "ask", "deny")
MOST_DEEP = 100
DOT = re.compile(r"(?<!\\)\.")

Seen = dict[str, object] | None
"""The arguments of a call; None when they cannot be read or are not known."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    r"""One rule. `tool` is a pattern for names.

    `arguments` has conditions by dotted path: `options.force`, `files.*.name` for each item of a list or object, `a\.b` for
    a key with a dot. All conditions must hold. Under a `*`, a rule that allows needs at least one value and all values to
    match; other rules need one match. `effect` limits the rule to tools of these effects. `reason` explains the decision to
    the user. A harness refuses a rule about an argument that its tool does not have.
    """

    tool: str
    verdict: Verdict
    arguments: Mapping[str, Condition] = MappingProxyType({})
    effect: tuple[Effect, ...] = ()
    reason: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        for text, where in ((self.tool, "Rule.tool"), (self.reason, "Rule.reason"), (self.name, "Rule.name")):
            check_text(text, where)
        if not self.tool or len(self.tool) > 200:
            raise BadValue("Rule.tool must be a pattern of 1 to 200 characters; '*' is any tool.")
        check_choice(self.verdict, VERDICTS, "Rule.verdict")
        effects = (self.effect,) if isinstance(self.effect, str) else as_tuple(self.effect, "Rule.effect")
        for effect in effects:
            check_choice(effect, EFFECTS, "Each of Rule.effect")
        force_setattr(self, "effect", effects)
        if not isinstance(self.arguments, Mapping):
            raise BadValue("Rule.arguments must be a mapping from dotted paths to conditions.")
        for path in self.arguments:
            check_text(path, "Each path of Rule.arguments")
            if not all(path_steps(path)):
                raise BadValue(f"{path!r} is no path to an argument. Write names with single dots between them.")
        matchers = {path: matcher_of(condition) for path, condition in self.arguments.items()}
        force_setattr(self, "arguments", MappingProxyType(matchers))

    def is_about(self, tool: str, effect: Effect) -> bool:
        """True if the rule's tool and effect match, whatever the arguments are."""
        return fnmatchcase(tool, self.tool) and (not self.effect or effect in self.effect)

    def matches(self, tool: str, effect: Effect, arguments: Seen) -> Certainty:
        """Return whether the rule matches this call. For a rule that allows, the answer is never `unsure`."""
        if not self.is_about(tool, effect):
            return "no"
        answers = {self._holds(path, matcher_of(wanted), arguments) for path, wanted in self.arguments.items()}
        if self.verdict == "allow":
            return "yes" if answers <= {"yes"} else "no"
        return "no" if "no" in answers else "unsure" if "unsure" in answers else "yes"

    def _holds(self, path: str, matcher: Matcher, arguments: Seen) -> Certainty:
        if arguments is None:
            return "unsure"
        answers = [judge(matcher, value) for value in _values(arguments, path_steps(path))]
        if self.verdict == "allow":
            return "yes" if set(answers) == {"yes"} else "no"
        return best(answers)


class Defaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The verdict on calls that no rule matches, by the effect of their tool."""

    read: Verdict = "allow"
    idempotent: Verdict = "ask"
    write: Verdict = "ask"

    def __post_init__(self) -> None:
        for effect, verdict in (("read", self.read), ("idempotent", self.idempotent), ("write", self.write)):
            check_choice(verdict, VERDICTS, f"Defaults.{effect}")

    @classmethod
    def all(cls, verdict: Verdict) -> "Defaults":
        """Return the same verdict for every effect."""
        return cls(read=verdict, idempotent=verdict, write=verdict)

    def of(self, effect: Effect) -> Verdict:
        """Return the verdict for one effect."""
        return self.read if effect == "read" else self.idempotent if effect == "idempotent" else self.write


class Ruling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The verdict on one call, and the reason. `rule` names the rule that decided; empty if none did.

    `sure` is False if the rule was applied because it could not be ruled out.
    """

    verdict: Verdict
    rule: str = ""
    reason: str = ""
    sure: bool = True


class Policy(msgspec.Struct, frozen=True):
    """Rules in order, and the verdicts without one. Names of rules are unique, because a decision names its rule.

    `also` are further policies, which are trusted less: each is applied, too, and the strictest verdict counts. `mixing`: if
    tools that show private data, tools that show text of others, and tools that send data out are used in one run, calls
    that send data out need approval ("ask"), or are judged by the rules alone ("allow").
    """

    rules: tuple[Rule, ...] = ()
    default: Defaults = Defaults()
    also: tuple["Policy", ...] = ()
    mixing: Mixing = "ask"

    def __post_init__(self) -> None:
        force_setattr(self, "rules", as_tuple(self.rules, "Policy.rules"))
        force_setattr(self, "also", as_tuple(self.also, "Policy.also"))
        for policy in self.also:
            check_type(policy, (Policy,), "Each of Policy.also")
        for rule in self.rules:
            check_type(rule, (Rule,), "Each of Policy.rules")
        check_type(self.default, (Defaults,), "Policy.default")
        check_choice(self.mixing, MIXINGS, "Policy.mixing")
        names = [self.named(number) for number in range(len(self.rules))]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UsageError(f"Two rules are called {twice!r}: a decision must name one rule. Rename one of them.")

    def named(self, number: int) -> str:
        """Return the name of the rule at this place, counted from 0: its own name, or `rule 3`."""
        return self.rules[number].name or f"rule {number + 1}"

    def under(self, above: "Policy") -> "Policy":
        """Return this policy restricted by another one: the strictest verdict counts."""
        return msgspec.structs.replace(self, also=(*self.also, above))

    def covers(self, above: "Policy") -> bool:
        """True if this policy contains all rules and defaults of another one, so that it forbids whatever that one forbids."""
        own = self._parts()
        return all(part in own for part in above._parts())

    def _parts(self) -> list[tuple[tuple[Rule, ...], Defaults]]:
        """Return the rules and defaults of this policy and of those above it. Policies that forbid nothing are left out."""
        here = [(self.rules, self.default)] if self.rules or self.default != Defaults.all("allow") else []
        return here + [part for policy in self.also for part in policy._parts()]

    def explain(self, call: ToolCall, *, effect: Effect = "write", approval: bool = False) -> str:
        """Return a sentence about the ruling, and about the rules that did not match. It contains no argument values."""
        decision = decide(call, effect=effect, approval=approval, policy=self)
        words = {"allow": "is allowed", "deny": "is denied", "ask": "waits for approval"}[decision.verdict]
        names = [self.named(number) for number in range(len(self.rules))]
        before = names[: names.index(decision.rule)] if decision.rule in names else names
        by = f"by {decision.rule!r}" if decision.rule else "by no rule"
        doubt = "" if decision.sure else " (which could not be ruled out)"
        passed = f" Not about it: {', '.join(map(repr, before))}." if before else ""
        return f"The call to {call.name!r} {words} {by}{doubt}: {decision.reason.rstrip('.')}.{passed}"


OPEN = Policy(default=Defaults.all("allow"))
"""No rules: every call runs, except calls of tools that need approval."""


def decide(call: ToolCall, *, effect: Effect, approval: bool = False, policy: Policy) -> Ruling:
    """Return the ruling about a call. `approval`: its tool requires approval, unless a rule decides otherwise."""
    others = [decide(call, effect=effect, policy=one) for one in policy.also]
    return strictest((_decide_alone(call, effect, approval, policy), *others))


def _decide_alone(call: ToolCall, effect: Effect, approval: bool, policy: Policy) -> Ruling:
    arguments = _arguments(call)
    for number, rule in enumerate(policy.rules):
        if arguments is None and rule.verdict == "allow":
            continue
        answer = rule.matches(call.name, effect, arguments)
        if answer != "no":
            name = policy.named(number)
            return Ruling(rule.verdict, name, rule.reason or f"The rule {name!r} says {rule.verdict!r}.", answer == "yes")
    verdict = policy.default.of(effect)
    if arguments is None:
        return Ruling("deny", reason="Its arguments are not a JSON object with each key once, so nothing can allow it.")
    if approval and verdict != "deny":
        return Ruling("ask", reason=f"The tool {call.name!r} wants approval before each call.")
    return Ruling(verdict, reason=f"No rule is about it, and the default for the effect {effect!r} is {verdict!r}.")


def strictest(decisions: Sequence[Ruling]) -> Ruling:
    """Return the strictest ruling, the first of equals. So a less trusted policy can forbid, but not permit."""
    if not decisions:
        raise UsageError("There is no decision to choose from. Give at least one.")
    return max(decisions, key=lambda decision: STRICTNESS.index(decision.verdict))


def _arguments(call: ToolCall) -> Seen:
    """Return the arguments if all JSON parsers read them in the same way: no repeated key, no excessive depth."""
    try:
        found = json_object(call.raw, "The arguments")
    except (BadValue, ValueError):
        return None
    return None if is_deeper(found, MOST_DEEP) or repeated_key(call.raw) is not None else found


def path_steps(path: str) -> list[str]:
    """Split a dotted path into the names on the way to an argument."""
    return [step.replace("\\.", ".") for step in DOT.split(path)]


def _values(arguments: object, path: Sequence[str]) -> list[object]:
    """Return the values at a path:

    MISSING for each that does not exist, OPAQUE if the path goes through a value of another type.
    """
    found: list[object] = [arguments]
    for step in path:
        found = [part for value in found for part in _below(value, step)]
    return [MISSING if value is None else value for value in found]


def _below(value: object, step: str) -> list[object]:
    match value:
        case None:
            return [None]
        case dict() if step != "*":
            return [value.get(step)]
        case dict() | list() if step == "*":
            return inside(value) or [None]
    return [OPAQUE]


Node = object
Schema = Mapping[str, object]
OPEN_KEYWORDS = ("allOf", "if", "not", "dependentSchemas", "unevaluatedProperties", "patternProperties", "$dynamicRef")
"""Keywords by which other schemas describe the same object: what is not found may be there."""


def check_arguments(policy: Policy, tools: Iterable[tuple[str, Effect, str]]) -> None:
    """Refuse a rule about an argument that its tool does not have. Tools are given as name, effect and JSON text of the schema.

    A rule for one name is checked against each tool of that name. A pattern such as `pay_*` passes if one of the tools that
    it names has the argument; one for all tools, `*`, always passes.
    """
    known = list(tools)
    for one in (policy, *policy.also):
        for number, rule in enumerate(one.rules):
            if rule.arguments and set(rule.tool) - {"*", "?"}:
                _check(rule, one.named(number), [tool for tool in known if rule.is_about(tool[0], tool[1])])
        if one is not policy and one.also:
            check_arguments(one, known)


def _check(rule: Rule, name: str, tools: list[tuple[str, Effect, str]]) -> None:
    several = any(char in rule.tool for char in "*?[")
    for path in rule.arguments:
        lacking = [(tool, schema) for tool, _, schema in tools if not has_argument(schema, path)]
        if lacking and (not several or len(lacking) == len(tools)):
            tool, schema = lacking[0]
            known = ", ".join(sorted(_names(json_object(schema, "The schema")))) or "none"
            raise UsageError(
                f"The rule {name!r} is about the argument {path!r}, and the tool {tool!r} has none of that name, so it would "
                f"never apply. Its arguments are: {known}. Write the name as it stands in the schema."
            )


def has_argument(schema: str, path: str) -> bool:
    """True if arguments that fit this schema may have something at a dotted path."""
    root = json_object(schema, "The schema")
    found: list[Node] = [root]
    for step in path_steps(path):
        found = [below for node in found for below in _nodes_below(node, step, root, 0)]
    return bool(found)


def _names(node: Node) -> Mapping[str, object]:
    properties = node.get("properties") if isinstance(node, dict) else None
    return properties if isinstance(properties, dict) else {}


def _nodes_below(node: Node, step: str, root: Schema, depth: int) -> list[Node]:
    """Return the schemas of the value with this name, or of all values for `*`; True stands for any value."""
    if depth > MOST_DEEP or not isinstance(node, dict):
        return [] if node is False else [True]
    target = node.get("$ref")
    if isinstance(target, str):
        found_there = resolve_pointer(root, target)
        return _nodes_below(True if found_there is None else found_there, step, root, depth + 1)
    branches = [branch for keyword in ("anyOf", "oneOf") for branch in _list(node.get(keyword))]
    found = [below for branch in branches for below in _nodes_below(branch, step, root, depth + 1)]
    if any(keyword in node for keyword in OPEN_KEYWORDS):
        return [*found, True]
    return [*found, *_inside(node, step, has_branches=bool(branches))]


def _inside(node: Schema, step: str, *, has_branches: bool) -> list[Node]:
    types = set(_list(node.get("type")) or [node.get("type")])
    found: list[Node] = []
    if types & {None, "object"}:
        named, more = _names(node), node.get("additionalProperties")
        found += list(named.values()) if step == "*" else [named[step]] if step in named else []
        if more not in (None, False) or ("properties" not in node and more is None and not has_branches):
            found.append(True if more is None else more)
    if step == "*" and types & {None, "array"}:
        found += [node.get("items", True), *_list(node.get("prefixItems"))]
    return found


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
