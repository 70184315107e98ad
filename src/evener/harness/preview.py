"""The request that a run would send next, to any model, computed without sending it: no key, no connection, no event.

It is made by the same plan, media and codec as in a run, so its bytes are those of the run. What cannot be known before a run
(what tools and hooks will do, what is behind an address) is not guessed: a note says what is missing. Messages in the inbox
that no run has read yet are not included.
"""

import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from time import time

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.driver import Agent
from evener.driver.record import refused_result, settled_result
from evener.errors import UsageError
from evener.harness.opening import Opener, Said
from evener.loop.plan import (
    AskApproval,
    CallModel,
    ContinueTurn,
    Extend,
    FetchMedia,
    Finish,
    RefuseCall,
    RunTool,
    SettleCall,
    Setup,
    Step,
    place_of,
    plan,
)
from evener.loop.state import RunState, apply, fold
from evener.model import Model, open_model
from evener.model.media import Media
from evener.model.seam import Askable
from evener.model.server_state import Rest
from evener.model.stream import prepare_request
from evener.providers.keys import MissingKey
from evener.transcript.ask import Ask, Effort
from evener.transcript.loss import Loss, LossRefused, refuse
from evener.transcript.mint import new_id

Opens = Callable[[str | Askable], Askable]
"""A model, or one by its name, for looking only."""
Notices = tuple[tuple[str, str], ...]

MOST_STEPS = 8
NOT_SET = "not-set"
HIDDEN = "***"


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it would be sent, without credentials; in `headers`, values that identify the account are hidden.

    `prefix` is the fingerprint of everything that an answer depends on, without cache marks: sealed reasoning is bound to it.
    `cache` is the fingerprint of the body including cache marks. `losses` is everything that this model cannot get unchanged.
    `notes` say in sentences what a run would do first, or what cannot be known before it.
    """

    model: str
    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    losses: tuple[Loss, ...]
    cache: str
    prefix: str
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


def open_offline(name: str, *, effort: Effort | None = None) -> Model:
    """Open the model of this name without a key. Missing parts of an account's address are replaced by placeholders."""
    environ = dict(os.environ)
    while True:
        try:
            return open_model(name, environ=environ, auth=lambda request: request, effort=effort)
        except MissingKey as error:
            if not error.variables or environ.get(error.variables[0]) == NOT_SET:
                raise
            environ[error.variables[0]] = NOT_SET


async def compile_request(
    state: RunState, prompt: Said | None, *, models: Sequence[Askable], agent: Agent, opener: Opener, media: Media
) -> Compiled:
    """Return the request that would be sent next in this state: for the prompt, or to resume the thread."""
    notes: list[str] = []
    names = tuple(model.name for model in models)
    choose = agent.setup.choose if names == agent.setup.models else None  # no router chooses where the caller names the model
    setup = replace(agent.setup, models=names, fetches=tuple(model.fetches for model in models), choose=choose)
    state, place, notices = _at_request(_begin(state, prompt, opener.for_model(models[0].name), notes), setup, notes)
    model = models[place]
    if not isinstance(model, Model):
        raise UsageError(f"{model.name} is a {type(model).__name__}: there is no request to show. Name a model of a provider.")
    if prompt is not None and agent.hooks:
        notes.append("Hooks see the prompt only when it is run, and may add to it.")
    resting = replace(state, transcript=state.view)
    rest = agent.bearings.before(resting, model.name, model.origin) if agent.bearings else None
    state = apply(state, ev.ModelCalled(at=time(), model=model.name, id=new_id(), notices=notices))
    transcript = await media.inline(state.view, dict(state.media), remote=model.fetches)
    ask = _affordable(model, agent.ask(model, transcript, state), setup, state, notes)
    made = _write(model, _leave_out_stored(ask, rest, notes), rest.losses if rest else (), notes)
    try:
        refuse(made.losses, ask.refuse_losses | agent.refuse_losses)
    except LossRefused as error:
        return replace(made, notes=(*made.notes, str(error)))
    return made


def _leave_out_stored(ask: Ask, rest: Rest | None, notes: list[str]) -> Ask:
    """Return the ask without the messages that the provider stores."""
    if rest is None:
        return ask
    if rest.state.id:
        notes.append(f"The provider stores the earlier messages ({rest.state.mode} {rest.state.id}): only new ones are sent.")
    elif rest.state.mode == "conversation":
        notes.append("A new conversation would be created at the provider first; its id is not known yet.")
    return replace(ask, state=rest.state)


def _write(model: Model, ask: Ask, losses: tuple[Loss, ...], notes: list[str]) -> Compiled:
    to = model.endpoint
    sent = prepare_request(ask, to)
    encoded = sent.encoded
    return Compiled(
        model=model.name,
        method="POST",
        url=to.url + encoded.path,
        headers=(*((name, HIDDEN) for name, _ in to.headers), *encoded.headers),
        body=encoded.body,
        losses=losses + sent.losses,
        cache=sha256(encoded.body).hexdigest()[:32],
        prefix=encoded.binding,
        notes=tuple(notes),
    )


# What comes before the request.


def _begin(state: RunState, prompt: Said | None, opener: Opener, notes: list[str]) -> RunState:
    if prompt is not None:
        return fold(opener.prompted(state, prompt), state)
    if state.run and opener.is_resumable(state):
        return fold(opener.resumed(state), state)
    if not len(state.transcript):
        raise UsageError("There is nothing to send yet: the thread is empty. Give a prompt.")
    notes.append("The last run is finished: nothing is sent until there is a prompt. This is the conversation so far.")
    return fold(opener.looked_at(state), state)


def _at_request(state: RunState, setup: Setup, notes: list[str]) -> tuple[RunState, int, Notices]:
    """Return the state before the next request, the place of its model in the chain, and the notices for the model."""
    for _ in range(MOST_STEPS):
        steps = plan(state, setup, time())
        match steps:
            case (CallModel(place, _, notices),):
                return state, place, notices
            case (Extend(),):
                state = apply(state, ev.Continued(at=time(), run=state.run))
            case (SettleCall() | RefuseCall(), *_) if (known := _settle_known(steps)) is not None:
                state = fold(known, state)
            case _:
                notes += _note_missing(steps, state)
                break
    return state, place_of(state, setup), ()


def _settle_known(steps: Sequence[Step]) -> list[ev.Event] | None:
    """Return the results of calls that end without being run; None if a call would be run."""
    found: list[ev.Event] = []
    for step in steps:
        match step:
            case SettleCall():
                found.append(settled_result(step))
            case RefuseCall():
                found.append(refused_result(step))
            case _:
                return None
    return found


def _note_missing(steps: Sequence[Step], state: RunState) -> list[str]:
    """Return notes about steps before the request whose results the preview does not contain."""
    runs = [step.call.name for step in steps if isinstance(step, RunTool)]
    if runs:
        return [f"Calls would be run first: {', '.join(runs)}. This preview does not contain their results."]
    urls = [step.url.partition("?")[0] for step in steps if isinstance(step, FetchMedia)]
    if urls:
        return [f"Media would be fetched first: {', '.join(urls)}. This preview does not contain their bytes."]
    match steps:
        case (AskApproval(interrupt), *_):
            return [f"A user would be asked first ({interrupt}), and no request is made before the decision."]
        case (Finish(cause, detail), *_) if not state.finished:
            return [f"The run would end without a request ({cause}). {detail}".strip()]
        case (ContinueTurn(), *_):
            return []
        case () if state.open_questions or any(one.status != "finished" for one in state.calls):
            return ["The run waits for a decision, or for calls under way. This preview does not contain their results."]
        case _:
            return []


def _affordable(model: Model, ask: Ask, setup: Setup, state: RunState, notes: list[str]) -> Ask:
    """Return the ask. If the run has little money left, its answer is limited to what can be paid."""
    limit = setup.limits.cost
    if limit is None:
        return ask
    left = limit - state.used.cost
    if model.most_cost(ask) <= left:
        return ask
    shorter = model.capped(ask, left)
    if shorter is None:
        notes.append("The run would end without a request: this request may cost more than is left of the cost limit.")
    return shorter or ask
