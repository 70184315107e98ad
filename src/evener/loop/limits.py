"""What a run may use up, what it has used, and what the model is told when little is left. Pure."""

from decimal import Decimal
from math import inf

import msgspec

from evener.errors import BadValue
from evener.events import Nested
from evener.transcript.usage import Usage

__all__ = ["Limits", "Spent", "exceeded", "near"]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The allowance of one run; None is no limit. A run that stops at a limit can be resumed with a fresh allowance.

    `seconds` is time at work: waiting for a decision or for a process to come back does not count.
    `retries` are further tries of one model after an answer failed or broke off; `corrections` are answers sent back because
    their form was wrong. `warn_at` is the part of a limit after which the model is told, once.
    `repeats` and `repeats_stop`: how often the same call in a row is answered before the model is told, and before the end.
    """

    requests: int | None = 50
    tool_calls: int | None = 200
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None
    seconds: float | None = None
    retries: int = 2
    corrections: int = 2
    warn_at: float = 0.8
    repeats: int = 3
    repeats_stop: int = 6

    def __post_init__(self) -> None:
        for name in ("requests", "tool_calls", "input_tokens", "output_tokens", "cost", "seconds"):
            value = self.__getattribute__(name)
            if value is not None and not _is_amount(value):
                raise BadValue(f"Limits.{name} must be more than 0, or None for no limit; it is {value}.")
        if min(self.retries, self.corrections) < 0 or not 0 < self.warn_at <= 1 or not 0 < self.repeats <= self.repeats_stop:
            raise BadValue("Limits: retries and corrections are 0 or more, warn_at is in (0, 1], repeats <= repeats_stop.")


def _is_amount(value: object) -> bool:
    if isinstance(value, Decimal) and value.is_nan():
        return False  # it cannot even be compared
    return isinstance(value, int | float | Decimal) and 0 < value < inf


class Spent(msgspec.Struct, frozen=True):
    """What a run has used. `exact` is False where a price was not known, so that the cost is a lower bound; and where a request
    was given up: if money is limited, it counts with the most that it may have cost.
    """

    requests: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    seconds: float = 0.0

    def with_nested(self, nested: Nested, counted: Nested | None = None) -> "Spent":
        """With what runs inside a call used, of which so much was counted before."""
        before = counted or UNCOUNTED
        return Spent(
            self.requests + nested.requests - before.requests,
            self.tool_calls + nested.tool_calls - before.tool_calls,
            self.usage + (_less(nested.usage, before.usage) if counted else nested.usage),
            self.cost + nested.cost - before.cost,
            self.exact and nested.exact,
            self.seconds,
        )

    def since(self, earlier: "Spent") -> "Spent":
        """What was used after another point of the same run."""
        return Spent(
            self.requests - earlier.requests,
            self.tool_calls - earlier.tool_calls,
            _less(self.usage, earlier.usage),
            self.cost - earlier.cost,
            self.exact,
            self.seconds - earlier.seconds,
        )


UNCOUNTED = Nested()


def _less(ours: Usage, theirs: Usage) -> Usage:
    return Usage(
        ours.input_total - theirs.input_total,
        ours.uncached - theirs.uncached,
        ours.cache_read - theirs.cache_read,
        ours.cache_write - theirs.cache_write,
        ours.output_total - theirs.output_total,
        ours.reasoning - theirs.reasoning,
    )


def _measures(limits: Limits, spent: Spent) -> list[tuple[str, str, Decimal | float, Decimal | float]]:
    """Key, name for people, limit, used: for each limit that there is."""
    found: list[tuple[str, str, Decimal | float, Decimal | float]] = []
    if limits.requests is not None:
        found.append(("requests", "model requests", limits.requests, spent.requests))
    if limits.tool_calls is not None:
        found.append(("tool_calls", "tool calls", limits.tool_calls, spent.tool_calls))
    if limits.input_tokens is not None:
        found.append(("input_tokens", "input tokens", limits.input_tokens, spent.usage.input_total))
    if limits.output_tokens is not None:
        found.append(("output_tokens", "output tokens", limits.output_tokens, spent.usage.output_total))
    if limits.cost is not None:
        found.append(("cost", "US dollars", limits.cost, spent.cost))
    if limits.seconds is not None:
        found.append(("seconds", "seconds", limits.seconds, spent.seconds))
    return found


def exceeded(limits: Limits, spent: Spent) -> str:
    """The sentence for the first limit that leaves no room for another model request; empty when there is room."""
    for key, name, limit, used in _measures(limits, spent):
        if used >= limit and key != "tool_calls":
            return f"The run has used {_shown(used)} of {_shown(limit)} {name}."
    return ""


def near(limits: Limits, spent: Spent) -> list[tuple[str, str]]:
    """Key and sentence for each limit that little is left of."""
    found = []
    for key, name, limit, used in _measures(limits, spent):
        if float(used) >= limits.warn_at * float(limit):
            left = limit - used if limit > used else 0  # type: ignore[operator] # both are of one kind
            found.append((f"near:{key}", f"Only {_shown(left)} of {_shown(limit)} {name} are left. Come to an end soon."))
    return found


def _shown(value: Decimal | float) -> str:
    match value:
        case int():
            return str(value)
        case Decimal():
            return f"{value:.4f}".rstrip("0").rstrip(".")
        case _:
            return f"{value:.1f}".removesuffix(".0")
