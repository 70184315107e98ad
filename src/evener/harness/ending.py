"""How hooks hear of the end of a run: once, when it has ended or is broken off. A run that waits for a decision has not ended.

What ended once has ended for hooks, also if somebody resumes it afterwards: a log with an end of the run in it says so. A run
that was broken off in this process is known here; resumed in another one, its end is told there.
"""

from collections.abc import Iterable

from evener import events as ev
from evener.driver import Driver
from evener.hooks import HookFailed, Hooks

__all__ = ["tell_broken_off", "tell_end"]


def tell_end(driver: Driver, hooks: Hooks, events: Iterable[ev.Event]) -> None:
    """The driver has nothing more to do. `events` are all of the run."""
    finished = driver.state.finished
    if not hooks or finished is None:
        return
    ends = sum(isinstance(event, ev.Finished) and event.run == finished.run for event in events)
    if ends == 1 and hooks.ends(finished.run):
        driver.hooked("run_end", stop=finished.cause, detail=finished.detail)


def tell_broken_off(driver: Driver, hooks: Hooks, error: BaseException) -> None:
    """The run goes no further here, and the error says why. A hook that fails now does not take its place."""
    if not hooks or not hooks.ends(driver.run):
        return
    finished = driver.state.finished
    stop = finished.cause if finished else "cancelled"
    try:
        driver.hooked("run_end", stop=stop, detail=str(error) or "The run was given up before its end.")
    except HookFailed as failed:
        error.add_note(str(failed))
