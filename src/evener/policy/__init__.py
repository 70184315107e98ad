"""Permission: rules by tool and arguments that allow, deny or ask. Pure; the wire of a call does not matter."""

from evener.policy.config import read_policy
from evener.policy.matchers import Between, Condition, Exactly, Given, Glob, Matcher, OneOf, Regex, Within
from evener.policy.rules import OPEN, Defaults, Policy, Rule, Ruling, Verdict, decide, strictest

__all__ = [
    "OPEN",
    "Between",
    "Condition",
    "Defaults",
    "Exactly",
    "Given",
    "Glob",
    "Matcher",
    "OneOf",
    "Policy",
    "Regex",
    "Rule",
    "Ruling",
    "Verdict",
    "Within",
    "decide",
    "read_policy",
    "strictest",
]
