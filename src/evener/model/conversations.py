"""Conversation objects that a provider keeps: making one, and speaking to it only once. Sends one small request."""

import msgspec
from msgspec.structs import replace

from evener.errors import (
    InvalidRequest,
    ModelNotFound,
    PermissionDenied,
    ProviderError,
    StateExpired,
    TransportError,
    TruncatedStream,
)
from evener.model.endpoint import Endpoint, Signed
from evener.transcript.ask import Ask, State
from evener.transcript.loss import Loss, loss_of
from evener.transport.exchange import Request, Response, Transport
from evener.transport.http import read_all
from evener.transport.retry import Retries, send_retrying
from evener.transport.secrets import scrub

__all__ = ["ONCE", "Once", "has_conversations", "spoken_to"]

WIRE = "openai_responses"
PATH = "/conversations"
ONCE = Retries(attempts=1)
BROKEN = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoders raise on bytes that are not what they should be."""
REFUSALS = (InvalidRequest, ModelNotFound, PermissionDenied, StateExpired)
"""What an endpoint without conversations, or an account that may keep none, says."""


class _Made(msgspec.Struct):
    id: str


_made = msgspec.json.Decoder(_Made)


def has_conversations(endpoint: Endpoint) -> bool:
    """Whether there are such objects at this endpoint."""
    quirks = endpoint.facts.quirks
    return endpoint.codec.wire == WIRE and quirks.store and quirks.conversation


async def spoken_to(ask: Ask, endpoint: Endpoint, transport: Transport) -> tuple[Ask, tuple[Loss, ...]]:
    """The ask with a fresh conversation to put it into; where none can be had, without one, and with a loss that says so."""
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
    """A transport for what must not be said twice: a connection that is closed without an answer may have been heard."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def send(self, request: Request) -> Response:
        try:
            return await self._transport.send(request)
        except TruncatedStream as error:
            raise TransportError(str(error)) from None
