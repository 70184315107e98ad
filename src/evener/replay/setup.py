"""The setup of a recorded driver, from its log: models, tools, limits, questions, and its budget. Pure."""

from collections.abc import Sequence
from decimal import Decimal

from msgspec.structs import replace

from evener import events as ev
from evener.budget import Budget
from evener.events import Limits
from evener.loop.plan import ApprovalGate, Setup
from evener.loop.state import RunState, Spent
from evener.replay.moments import ENDLESS, RecordedMoment, hit_of
from evener.transcript.reply import Usage


def setup_of(recorded: ev.RunSetup, config: ev.Configured | None, gate: ApprovalGate) -> Setup:
    """Return the setup for the plan."""
    models = (config.model, *recorded.fallbacks) if config else recorded.fallbacks or ("",)
    fetches = (*recorded.fetches, *(False for _ in models))[: len(models)]
    return Setup(
        models=models, tools=recorded.tools, limits=recorded.limits, fetches=fetches, gate=gate, shortens=recorded.shortens
    )  # fmt: skip


def budget_of(found: Sequence[RecordedMoment], state: RunState, limits: Limits) -> Budget:
    """Return the run's budget, with its usage so far, inside an outer budget.

    The outer budget has room for everything that was done, and none where the recording reports that it had none.
    """
    counted = Decimal(ENDLESS) if any(_is_priced(one.event) for one in found) else None
    around, used = Limits(requests=None, tool_calls=None, cost=counted), Spent()
    for moment in found:
        hit = hit_of(moment.event)
        if hit is not None and hit.around:
            around, used = (
                replace(around, **{hit.which: hit.limit}),
                _sum_used_before(hit, moment.state.spent.since(state.spent)),
            )
            break
    return Budget(limits, state.used, outer=Budget(around, used))


def _is_priced(event: ev.Event) -> bool:
    match event:
        case ev.ModelCalled(most=cost) | ev.ModelFailed(cost=cost):
            return bool(cost)
        case _:
            hit = hit_of(event)
            return hit is not None and hit.which == "cost"


def _sum_used_before(hit: ev.LimitHit, since: Spent) -> Spent:
    """Return the usage of the outer runs when the driver began. `since` is what this run has used since then."""
    match hit.which:
        case "requests":
            return Spent(requests=int(hit.used) - since.requests)
        case "tool_calls":  # the calls that were refused count as used by the run itself
            return Spent(tool_calls=int(hit.used) + int(hit.wanted) - since.tool_calls)
        case "input_tokens":
            return Spent(usage=Usage(int(hit.used) - since.usage.input_total))
        case "output_tokens":
            return Spent(usage=Usage(output_total=int(hit.used) - since.usage.output_total))
        case "cost":
            return Spent(cost=Decimal(hit.used) - since.cost)
        case "seconds":  # no budget counts them
            return Spent()
