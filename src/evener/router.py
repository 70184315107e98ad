"""A function of the user that chooses the model of each new request.

`ModelCalled` records the choice before the request is sent. A recorded request without an answer, because its process died
or its provider failed, keeps its model: the router is not called again for it. After a failure the chain decides.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence

import msgspec

from evener import events as ev
from evener.errors import UsageError
from evener.loop.state import RunState, Spent, apply
from evener.transcript.transcript import Transcript

__all__ = ["NextRequest", "Router", "choose_by"]


class NextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The next request of a run, as its router gets it.

    `models` are the names of the harness's models in their order, `model` the one that is used if the router names none: the
    model of the run's last request, at first the preferred one. `turn` counts the answers of this run so far. `transcript`
    is the conversation as the request has it, with the results of the last calls. `failed_calls` counts those of them that
    failed, `corrections` the answers of this run that were returned for correction. `spent` is the usage of the run.
    """

    run: str
    thread: str
    models: tuple[str, ...]
    model: str
    turn: int
    transcript: Transcript
    failed_calls: int
    corrections: int
    spent: Spent


Router = Callable[[NextRequest], str | None]
"""Returns the name of a model of the harness; None or an empty text for `NextRequest.model`."""


def choose_by(router: Router, models: Sequence[str], given: Mapping[str, str]) -> Callable[[RunState, str], str]:
    """Return the function that asks the router. `given` maps the name that the user gave to a model's full name."""
    names = tuple(models)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"Two models are named {twice!r}: a router cannot tell them apart. Give each model once.")
    known = {**given, **{name: name for name in names}}

    def choose(state: RunState, model: str) -> str:
        chosen = _ask(router, _next_request(state, names, model))
        if not chosen:
            return model
        if not isinstance(chosen, str) or chosen not in known:
            shown = repr(chosen) if isinstance(chosen, str) else f"a value of type {type(chosen).__name__}"
            raise UsageError(
                f"The router chose {shown}, and the models of the harness are {', '.join(names)}. Return one of these names, "
                "or None for the model that would be asked anyway; then resume the run."
            )
        return known[chosen]

    return choose


def _ask(router: Router, request: NextRequest) -> object:
    try:
        chosen: object = router(request)
    except Exception as error:
        raise UsageError(
            f"The router failed with {type(error).__name__}: {error}. Nothing was sent. Correct it, then resume the run."
        ) from error
    if isinstance(chosen, Coroutine):
        chosen.close()
        raise UsageError("The router is async. Routers are called synchronously: make it a plain function.")
    return chosen


def _next_request(state: RunState, models: tuple[str, ...], model: str) -> NextRequest:
    sent = apply(state, ev.ModelCalled(at=state.last, model=model, id="next"))
    return NextRequest(
        run=state.run,
        thread=state.thread,
        models=models,
        model=model,
        turn=state.turns,
        transcript=sent.view,
        failed_calls=sum(one.result is not None and not one.result.ok for one in state.calls),
        corrections=sent.corrections,
        spent=state.spent,
    )
