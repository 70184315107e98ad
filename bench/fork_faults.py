"""Faults that a campaign of forks must find, each put in place by a function. For the tests of the tests."""

from collections.abc import Callable, Container

from evener.events import Resumed
from evener.loop import plan
from evener.loop import state as folding
from evener.loop.plan import ToolFacts
from evener.loop.state import Pending, RunState, Waiting

__all__ = ["FAULTS"]


def _own_everything() -> None:
    """A call that was started elsewhere counts as one of this branch."""

    def is_foreign(pending: Pending, facts: ToolFacts) -> bool:
        del pending, facts
        return False

    plan._is_foreign = is_foreign


def _keep_approvals() -> None:
    """What was allowed on one branch is allowed on all."""

    def is_spent(waiting: Waiting, started: Container[str]) -> bool:
        del waiting, started
        return False

    folding._is_spent = is_spent


def _trust_silence() -> None:
    """Take a holder that has not renewed its lease for dead."""
    taken_over = folding._apply_takeover

    def trusting(state: RunState, event: Resumed) -> RunState:
        return taken_over(state, Resumed(at=event.at, epoch=event.epoch, nested=event.nested, results=event.results))

    folding._apply_takeover = trusting


FAULTS: dict[str, tuple[Callable[[], None], tuple[str, str]]] = {
    "greedy": (_own_everything, ("post", "none")),
    "generous": (_keep_approvals, ("sign", "kill")),
    "trusting": (_trust_silence, ("post", "pause")),
}
"""Each with a tool and a mode that show it."""
