"""Permission: rules by tool and arguments that allow, deny or ask. Pure; decided here whatever wire a call came over."""

from evener.policy.matchers import Between, Condition, Exactly, Given, Glob, Matcher, OneOf, Regex, Within
from evener.policy.reading import read_policy
from evener.policy.rules import OPEN, Decision, Defaults, Policy, Rule, Verdict, decide, decide_hosted, strictest

__all__ = [
    "OPEN",
    "Between",
    "Condition",
    "Decision",
    "Defaults",
    "Exactly",
    "Given",
    "Glob",
    "Matcher",
    "OneOf",
    "Policy",
    "Regex",
    "Rule",
    "Verdict",
    "Within",
    "decide",
    "decide_hosted",
    "read_policy",
    "strictest",
]
