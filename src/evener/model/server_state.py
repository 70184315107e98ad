"""State at the provider: what a request may rest on, and conversation objects, each created by one small request."""

from hashlib import blake2b
from typing import Protocol

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.errors import (
    EvenerError,
    InvalidRequest,
    ModelNotFound,
    PermissionDenied,
    ProviderError,
    StateExpired,
    TransportError,
    TruncatedStream,
    UsageError,
)
from evener.loop.state import RunState as Run
from evener.loop.state import Standing, standing_of
from evener.model.endpoint import Endpoint
from evener.model.seam import Answered, StatefulAnswer
from evener.transcript.ask import Ask, State, StateMode
from evener.transcript.blocks import Origin, TextBlock
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.transcript import Node, Transcript
from evener.transport.exchange import Request, Response, Retries, Signed, Transport, send_retrying
from evener.transport.http import read_all
from evener.transport.secrets import scrub

KEEPERS = ("openai_responses",)
"""Wires on which a provider can hold a conversation."""

NO_RETENTION = ("zero data retention", "store must be set to false")
UNHEARD = (408, 499)
"""Statuses of refusals after which the provider may have processed the request all the same."""

WHY = {
    "unsure": "a request to it got no answer, so it may hold more than this conversation",
    "forked": "another branch of this thread uses it",
    "other": "what the provider holds is not the beginning of this conversation",
}


class Rest(msgspec.Struct, frozen=True):
    """The state at the provider on which one request rests, and the losses of that."""

    state: State
    losses: tuple[Loss, ...] = ()

    @property
    def rests(self) -> ev.Held | None:
        """Return what the request rests on, as the log records it."""
        if not self.state.id or self.state.mode == "replay":
            return None
        return ev.Held(self.state.mode, self.state.id)


class Resting(Protocol):
    """The driver's view of state on the provider's side: before a request, and after it."""

    def before(self, run: Run, model: str, target: Origin) -> Rest:
        """Return the provider-side state for the next request to this model."""
        ...

    def answered(self, told: ev.Replied, answer: Answered, rest: Rest, transcript: Transcript) -> ev.Replied:
        """Return the event with the losses, and with what the provider stores from now on. `transcript` is what was sent."""
        ...

    def failed(self, event: ev.ModelFailed, error: EvenerError, rest: Rest) -> ev.ModelFailed:
        """Return the event with what the failure says about the state that the provider stores."""
        ...


def bearings_of(wish: StateMode | State) -> "Bearings | None":
    """Return the bearings for a harness's `state` setting; None for replay, which needs none. Raises UsageError."""
    state = wish if isinstance(wish, State) else State(wish, store=None)
    if state.after:
        raise UsageError(
            "The state of a harness takes no `after`: the log records the last message that the provider stores. Leave it out."
        )
    return None if state.mode == "replay" else Bearings(state)


class Bearings:
    """`Resting` for one mode, with fingerprints of the conversation so far. Shared by the runs of a thread."""

    def __init__(self, wish: State) -> None:
        self._wish = wish
        self._trail = Trail()

    @property
    def wish(self) -> State:
        """Return the mode, and the id that the user wants to begin with."""
        return self._wish

    def before(self, run: Run, model: str, target: Origin) -> Rest:
        """See `Resting`."""
        wish = replace(self._wish, id="", store=True if target.wire in KEEPERS else None)
        known = standing_of(run.held, model)
        if known is not None and known.health == "refused":
            return Rest(State(sealed=wish.sealed), (self._loss(f"the provider keeps nothing: {known.why}"),))
        if known is None or known.held.mode != wish.mode:
            begun = any(one.held.mode == wish.mode for one in run.held)
            return Rest(wish if begun else replace(wish, id=self._wish.id))
        why = known.why if known.health == "lost" else WHY.get(known.health, "") or self._why_not(run.transcript, known, target)
        if why:
            anew = "; a new one was begun" if wish.mode == "conversation" else ""
            return Rest(wish, (self._loss(f"{why}; the whole conversation is sent{anew}"),))
        return Rest(replace(wish, id=known.held.id, after=known.message))

    def answered(self, told: ev.Replied, answer: Answered, rest: Rest, transcript: Transcript) -> ev.Replied:
        """See `Resting`."""
        losses = (*rest.losses, *told.losses)
        kept = answer.kept if isinstance(answer, StatefulAnswer) else State()
        same = [call.id for call in told.message.calls] == [call.id for call in answer.message.calls]
        if kept.mode == "replay" or not same:  # a call that we renamed could not be answered by its name
            return replace(told, losses=losses)
        held = ev.Held(kept.mode, kept.id, self._trail.after(transcript, told.message))
        return replace(told, losses=losses, held=held)

    def failed(self, event: ev.ModelFailed, error: EvenerError, rest: Rest) -> ev.ModelFailed:
        """See `Resting`."""
        if isinstance(error, StateExpired) and rest.state.mode != "replay":
            refused = not rest.state.id or any(words in str(error).lower() for words in NO_RETENTION)
            return replace(event, stale="refused" if refused else "lost")
        if isinstance(error, ProviderError) and 400 <= error.status < 500 and error.status not in UNHEARD:
            return replace(event, untaken=rest.state.mode == "conversation")
        return event

    def _why_not(self, transcript: Transcript, known: Standing, target: Origin) -> str:
        """Return why this conversation cannot continue what the provider holds; empty when it can."""
        if not known.message:
            return ""  # a state that the user named: no message of ours is in it
        node = transcript.head
        while node is not None and node.message.id != known.message:
            node = node.parent
        if node is None or not known.held.trail or self._trail.at(transcript, node) != known.held.trail:
            return WHY["other"]
        return "" if node.message.origin == target else "it was held by another account or endpoint"

    def _loss(self, why: str) -> Loss:
        return loss_of("degraded", "state.mode", why, name=self._wish.mode)


class Trail:
    """Fingerprints of conversations up to a message. Keeps the last one, so that a growing conversation is hashed once."""

    def __init__(self) -> None:
        self._system: tuple[TextBlock, ...] = ()
        self._node: Node | None = None
        self._mark = b""

    def at(self, transcript: Transcript, node: Node | None) -> str:
        """Return the fingerprint up to and with this node of the transcript."""
        system = transcript.system_blocks
        if system is not self._system:
            self._system, self._node = system, None
        new: list[Message] = []
        here = node
        while here is not None and here is not self._node:
            new.append(here.message)
            here = here.parent
        mark = self._mark if here is not None else _hash_system(system)
        for message in reversed(new):
            mark = _hash_message(mark, message)
        self._node, self._mark = node, mark
        return mark.hex()

    def after(self, transcript: Transcript, message: Message) -> str:
        """Return the fingerprint of the transcript with one more message."""
        self.at(transcript, transcript.head)
        return _hash_message(self._mark, message).hex()


def _hash_system(system: tuple[TextBlock, ...]) -> bytes:
    """Hash the parts of the system prompt that the provider holds as items; the others are sent with every request."""
    items = [block for block in system if block.seal is not None]
    return blake2b(msgspec.json.encode(items) if items else b"", digest_size=16).digest()


def _hash_message(mark: bytes, message: Message) -> bytes:
    return blake2b(msgspec.json.encode((message.id, message.role, message.blocks)), digest_size=16, key=mark).digest()


WIRE = "openai_responses"
PATH = "/conversations"
ONCE = Retries(attempts=1)
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of a decoder on bytes that are not what was expected."""
REFUSALS = (InvalidRequest, ModelNotFound, PermissionDenied, StateExpired)
"""Errors of an endpoint without conversations, or of an account that may keep none."""


class _Made(msgspec.Struct):
    id: str


_made = msgspec.json.Decoder(_Made)


def has_conversations(endpoint: Endpoint) -> bool:
    """True if this endpoint has conversation objects."""
    quirks = endpoint.facts.quirks
    return endpoint.codec.wire == WIRE and quirks.store and quirks.conversation


async def open_conversation(ask: Ask, endpoint: Endpoint, transport: Transport) -> tuple[Ask, tuple[Loss, ...]]:
    """Open a conversation and return the ask with its id; where none can be opened, the plain ask, and a loss that says so."""
    request = Request(
        endpoint.url + PATH, (*endpoint.headers, ("content-type", "application/json")), b"{}", deadlines=endpoint.deadlines
    )
    try:
        response = await send_retrying(
            transport, request, retries=endpoint.retries, fault=endpoint.codec.fault, caps=endpoint.caps
        )
        try:
            made = _made.decode(await read_all(response, endpoint.caps.body))
        finally:
            await response.aclose()
    except (*REFUSALS, *BROKEN) as error:
        said = error.message if isinstance(error, ProviderError) else "the answer was not understood"
        said = scrub(said, transport.secrets) if isinstance(transport, Signed) else said
        loss = loss_of(
            "degraded", "state.mode", f"none could be made: {said}; the whole conversation is sent", name="conversation"
        )
        return replace(ask, state=State(sealed=ask.state.sealed)), (loss,)
    return replace(ask, state=replace(ask.state, id=made.id, store=True)), ()


class Once:
    """A transport for requests that must not be repeated: after a connection closes unanswered, the server may have acted."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request) -> Response:
        try:
            return await self._transport.send(request)
        except TruncatedStream as error:
            raise TransportError(str(error)) from None
