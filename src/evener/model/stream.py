"""One model call: the request that is made of an ask, bytes in, deltas out, an answer at the end.

A response counts only once the provider's end marker has arrived.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping
from datetime import UTC, datetime
from functools import lru_cache, partial
from hashlib import sha256
from time import perf_counter, time
from traceback import clear_frames
from types import MappingProxyType, coroutine
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from evener.encodings import OwnReader, Prepared, Reader, output_text, prepare, reader
from evener.errors import EvenerError, ProviderError, UsageError, WireError
from evener.model.bound import writes_for_an_hour
from evener.model.endpoint import Endpoint
from evener.model.images import fit_image
from evener.model.server_state import ONCE, Once, has_conversations, open_conversation
from evener.observe.cost import Cost, price
from evener.observe.trace_context import current_trace, trace_header
from evener.transcript.ask import Ask, OutputForm, State
from evener.transcript.blocks import Block, HostedBlock, ImageBlock, ToolResult
from evener.transcript.delta import ArgumentsDelta, CallBegun, Delta, Failed, ReasoningDelta, Stopped, TextDelta, UsageReported
from evener.transcript.loss import Loss, refuse
from evener.transcript.message import Message
from evener.transcript.reply import Reply, Usage
from evener.transcript.transcript import Node, Transcript
from evener.transport.exchange import Request, Response, Retried, Signed, Transport, place_of, send_retrying
from evener.transport.http import HttpResponse, read_all
from evener.transport.limiter import LIMITERS, Slot
from evener.transport.secrets import scrub
from evener.wire import Assembler, Decoder, Encoded, moved, restored
from evener.wire.diagnosis import ask_diagnosis, compare_diagnosis, read_diagnosis
from evener.wire.quirks import Quirks
from evener.wire.request import find_moving_marks
from evener.wire.sse import SLICE
from evener.wire.stream import deltas_of

if TYPE_CHECKING:
    import hashlib


def begin(work: Coroutine[object, object, object]) -> Awaitable[None] | None:
    """Run a coroutine up to where it first waits. Return what is left of it, to be awaited; None if it has ended."""
    try:
        waits_for = work.send(None)
    except StopIteration:
        return None
    return _rest(work, waits_for)


@coroutine
def _rest(work: Coroutine[object, object, object], waits_for: object) -> Generator[object, object, None]:
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            waits_for = step()
        except StopIteration:
            return


class FittedImages(msgspec.Struct, frozen=True):
    """A conversation whose images fit, up to `node` of the one that was given. `losses` are what was changed in it."""

    transcript: Transcript
    node: Node | None = None
    losses: tuple[Loss, ...] = ()


def fit_images(transcript: Transcript, quirks: Quirks, prior: FittedImages | None = None) -> FittedImages:
    """Return the conversation with images that the endpoint takes; the same one where nothing is too large.

    `prior` is what was returned for the request before: it changes nothing, and saves work.
    """
    if prior is None or prior.node is None or not transcript.extends(prior.node):
        prior = FittedImages(transcript.at(None))
    losses: list[Loss] = []
    new = transcript.since(prior.node)
    fitted = tuple(_fit_message(message, quirks, losses) for message in new)
    if not losses and not prior.losses:
        return FittedImages(transcript, transcript.head)
    base = prior.transcript if prior.losses else transcript.at(prior.node)
    made = base.extend(fitted)
    if made.system_blocks != transcript.system_blocks:
        made = made.with_system(transcript.system_blocks)
    return FittedImages(made, transcript.head, (*prior.losses, *losses))


def _fit_message(message: Message, quirks: Quirks, losses: list[Loss]) -> Message:
    known = len(losses)
    blocks: list[Block] = []
    for block in message.blocks:
        if type(block) is ImageBlock:
            blocks.append(fit_image(block, message, quirks, losses))
        elif type(block) is ToolResult and any([type(part) is ImageBlock for part in block.content]):
            parts = [fit_image(part, message, quirks, losses) if type(part) is ImageBlock else part for part in block.content]
            blocks.append(replace(block, content=tuple(parts)))
        else:
            blocks.append(block)
    return message if len(losses) == known else replace(message, blocks=tuple(blocks))


NOTHING_HASHED = sha256()
"""Where every digest begins, as a copy: cheaper than to look the algorithm up again."""
LAST_MESSAGE = b"}]"
"""How the last message of a body ends: what grows, grows there."""


class BodyDigest(msgspec.Struct, frozen=True):
    """The SHA-256 of a body, in hex. A conversation grows at its end, so that each request costs what is new in it.

    `begun` are the digests of its beginnings, by size, the shortest first: up to the cache marks that move with the newest
    messages; or, where none do, as far as it began like the body before it, and up to its last message.
    """

    text: str
    begun: tuple[tuple[int, "hashlib._Hash"], ...]

    @classmethod
    def of(cls, body: bytes, before: bytes = b"", prior: "BodyDigest | None" = None) -> "BodyDigest":
        """Return the digest of a body. `before` is the body before it and `prior` its digest: they only save work."""
        place, same, past = 0, NOTHING_HASHED, memoryview(before)  # a slice of it is no copy
        for size, begun in prior.begun if prior is not None else ():
            if not body.startswith(past[place:size], place):
                break
            place, same = size, begun
        whole = same.copy()
        if prior is not None and (len(prior.begun) == 1 or place < prior.begun[-1][0]):  # not only its end is new
            marks = find_moving_marks(body, place + 1, len(body))
            if marks > place:
                whole.update(body[place:marks])
                begun = whole.copy()
                whole.update(body[marks:])
                return cls(whole.hexdigest(), ((marks, begun),))
        end = max(place, body.rfind(LAST_MESSAGE, place) + 1)
        whole.update(body[place:end])
        ended = whole.copy()
        whole.update(body[end:])
        return cls(whole.hexdigest(), ((place, same), (end, ended)))


class Sent(msgspec.Struct, frozen=True, gc=False):
    """The request as it goes out. Given back with the next ask of the same conversation, it saves work."""

    prepared: Prepared
    encoded: Encoded
    fitted: FittedImages | None = None
    _made: dict[str, BodyDigest] = {}

    def digest(self, prior: "Sent | None" = None) -> str:
        """Return the SHA-256 of the body, in hex. `prior` is the request before it in the same conversation."""
        made = self._made.get("digest")
        if made is None:
            before = (b"", None) if prior is None else (prior.encoded.body, prior._made.get("digest"))
            made = self._made["digest"] = BodyDigest.of(self.encoded.body, *before)
        return made.text

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Everything that the request could not express as it was asked."""
        found = self.prepared.losses + self.encoded.losses
        return found if self.fitted is None else self.fitted.losses + found


def prepare_request(ask: Ask, endpoint: Endpoint, prior: Sent | None = None) -> Sent:
    """Return the request for this ask: the one that is sent, previewed and asked for its losses. Sends nothing.

    `prior` is the request before it in the same conversation. It changes no byte; it only saves work.
    """
    quirks, fitted = endpoint.facts.quirks, None
    if (quirks.image_bytes or quirks.image_side) and ask.transcript.has_images:
        fitted = fit_images(ask.transcript, quirks, prior.fitted if prior is not None else None)
        ask = ask if fitted.transcript is ask.transcript else replace(ask, transcript=fitted.transcript)
    if not ask.tools and ask.output is None and quirks.tools and (endpoint.encoding or quirks.tool_encoding) == "native":
        prepared = Prepared(ask, (), "native", "")  # nothing that a model might lack is asked for
    else:
        prepared = prepare(ask, quirks, encoding=endpoint.encoding, prior=prior.prepared if prior is not None else None)
    encode = endpoint.codec.encode
    return Sent(prepared, encode(prepared.ask, quirks, prior.encoded if prior is not None else None), fitted)


class Timing(msgspec.Struct, frozen=True, gc=False):
    """Seconds from the first try: to the end of the answer, and to its first piece (text, reasoning or a call)."""

    latency: float
    first: float


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One finished model call, `at` that time (seconds since 1970). `tries` counts requests that were sent.

    `raw` holds the bytes of the answer's body when the caller asked for them, `size` is their number. `noted` are losses before
    the request was made.
    """

    reply: Reply
    sent: Sent
    timing: Timing
    provider: str
    model: str
    url: str
    tries: int = 1
    raw: bytes | None = None
    noted: tuple[Loss, ...] = ()
    at: float = msgspec.field(default_factory=time)
    size: int = 0
    _made: dict[str, Message] = {}

    @property
    def message(self) -> Message:
        """Return the answer as a message to append to the transcript. Always the same object, made on first use."""
        made = self._made.get("message")
        if made is None:
            reply, target = self.reply, self.sent.prepared.ask.target
            sealed = any([type(block) is not HostedBlock and block.seal for block in reply.blocks])
            binding = self.sent.encoded.binding if sealed else ""
            at = datetime.fromtimestamp(self.at, UTC)
            made = Message.from_assistant_response(reply, origin=target, binding=binding, at=at)
            made = self._made.setdefault("message", made)  # atomic: two threads get the same message
        return made

    @property
    def text(self) -> str:
        """Return the text of the answer."""
        return self.reply.text

    @property
    def output(self) -> str:
        """Return the JSON text of a structured answer, in whichever form it was asked for."""
        return output_text(self.reply, self.sent.prepared)

    @property
    def form(self) -> OutputForm:
        """Return how the structured answer was asked for; empty when none was."""
        return self.sent.prepared.form

    @property
    def usage(self) -> Usage:
        """Return the exact token counts, as far as the provider states them."""
        return self.reply.usage

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Return everything that the request could not express as it was asked."""
        return self.noted + self.sent.losses

    @property
    def kept(self) -> State:
        """Return what the provider holds from here on, this answer included; `replay` when it holds nothing.

        With `after`, the id of this answer's message, it is the state of the next ask of the same conversation.
        """
        asked = self.sent.prepared.ask.state
        match self.sent.encoded.keeps:
            case "chain" if self.reply.id:
                return replace(asked, mode="chain", id=self.reply.id, after=self.message.id)
            case "conversation":
                return replace(asked, after=self.message.id)
            case _:
                return State()

    @property
    def seconds(self) -> float:
        """Return how long the call took."""
        return self.timing.latency

    @property
    def first(self) -> float:
        """Return how long the first piece took."""
        return self.timing.first

    @property
    def cost(self) -> Cost:
        """Return the estimated price; a lower bound, marked as such, where it is not known."""
        used, model = self.reply.usage, self.reply.model or self.model
        hour = bool(used.cache_write) and writes_for_an_hour(self.sent.prepared.ask)
        return price(used, provider=self.provider, model=model, url=self.url, hour_writes=hour)


PIECES = frozenset({TextDelta, ReasoningDelta, CallBegun, ArgumentsDelta})
STREAMS = ("text/event-stream", "application/vnd.amazon.eventstream")
BYTES_A_TOKEN = 4
NOTHING_AHEAD = memoryview(b"")
NO_NAMES: Mapping[str, str] = MappingProxyType({})
AFTER = 0.25
"""Seconds that the rest of a body may take after the wire's end marker; then the connection is closed."""


class Stream:
    """Iterate over it for deltas, then get `answer`. Use it as a context manager, or read it to its end."""

    __slots__ = (
        "_ahead", "_answer", "_ask", "_assembler", "_began", "_decoder", "_ended", "_endpoint", "_failure", "_first", "_names",
        "_noted", "_prior", "_raw", "_reader", "_response", "_sent", "_signed", "_size", "_slot", "_tries", "compare", "moved",
        "on_moved", "over",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: Endpoint,
        ask: Ask,
        prior: Sent | None = None,
        keep_raw: bool = False,
        noted: tuple[Loss, ...] = (),
    ) -> None:
        self.over = False
        """True once it has ended or was closed."""
        self.moved: tuple[str, ...] = ()
        """What is not as it was in the request before, once this one was made: a prompt cache ends there."""
        self.on_moved: Callable[[tuple[str, ...]], None] | None = None
        """Called with that, if it is something, before the request is sent."""
        self.compare: str | None = None
        """The id of the answer that the provider's cache diagnosis compares this request with; empty: none yet. None: do not
        ask for one."""
        self._endpoint = endpoint
        self._noted = noted
        self._ask = ask
        self._prior = prior
        self._raw: list[bytes] | None = [] if keep_raw else None
        self._began = self._first = self._ended = 0.0
        self._tries = 1
        self._slot: Slot | None = None
        self._response: Response | None = None
        self._ahead = NOTHING_AHEAD
        self._size = 0
        self._decoder: Decoder | None = None
        self._reader: Reader | OwnReader | None = None
        self._names = NO_NAMES
        self._sent: Sent | None = None
        self._answer: Answer | None = None
        self._failure: EvenerError | None = None
        self._signed = Signed(endpoint.transport, endpoint.auth)
        self._assembler = Assembler()

    @property
    def answer(self) -> Answer:
        """Return the whole answer, once the deltas have ended."""
        if self._answer is None:
            raise UsageError("The stream has not ended, so there is no answer yet. Read its deltas to the end first.")
        return self._answer

    def keep_raw(self) -> None:
        """Keep the bytes of the answer as they come, for `Answer.raw`. Call it before the first read."""
        self._raw = []

    @property
    def sent(self) -> Sent | None:
        """Return the request, once it was made."""
        return self._sent

    def compare_caches(self) -> str:
        """Return how the provider's word about its prompt cache differs from what was expected; empty where it does not."""
        found = read_diagnosis(self.answer.reply.notices) if self.compare else None
        return "" if found is None else compare_diagnosis(self.moved, found)

    @property
    def digest(self) -> str:
        """The SHA-256 of the request's body, in hex, once it was sent; empty before."""
        return self._sent.digest(self._prior) if self._sent is not None and self._began else ""

    @property
    def form(self) -> OutputForm:
        """Return how a structured answer is asked for, once the request was made; empty when none is."""
        return self._sent.prepared.form if self._sent else ""

    async def read(self) -> list[Delta]:
        """Return the next deltas; empty at the end. Raises an EvenerError on failure: then there is no answer."""
        try:
            while not self.over:
                if self._failure is not None:
                    raise self._failure
                response = self._response
                if response is None:
                    response = await self._open()
                if self._decoder is None:
                    deltas = self._add(await self._read_whole(response))
                else:
                    deltas = self._decode(self._decoder, await self._slice() if self._ahead else await response.read())
                if self._ended:
                    if self._decoder is not None and not (isinstance(response, HttpResponse) and response.ended):
                        await self._drain(response)  # bytes after the end marker have no meaning
                    self._answer = self._make_answer()
                    await self.aclose()
                if deltas:
                    return deltas
        except EvenerError as error:
            await self.aclose()
            raise self._without_secrets(error) from None
        except BaseException:
            await self.aclose()
            raise
        return []

    async def complete(self) -> Answer:
        """Read to the end and return the whole answer."""
        while not self.over:
            await self.read()
        return self.answer

    async def __aiter__(self) -> AsyncIterator[Delta]:
        while deltas := await self.read():
            for delta in deltas:
                yield delta

    def __del__(self) -> None:
        """Give back the slot of a stream that was neither read to its end nor closed."""
        if not self.over and self._slot is not None:
            self._slot.forget()

    async def aclose(self) -> None:
        """Release the connection. An unfinished answer is dropped."""
        self.over = True
        response, self._response = self._response, None
        try:
            if isinstance(response, HttpResponse):
                response.close()
            elif response is not None:
                await response.aclose()
        finally:
            if self._slot is not None:
                self._slot.leave()

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # Internals.

    def _decode(self, decoder: Decoder, data: bytes) -> list[Delta]:
        """Return the deltas of the next bytes, or those at their end."""
        if len(data) > SLICE:
            data, self._ahead = data[:SLICE], memoryview(data)[SLICE:]
        self._size += len(data)
        if self._size > self._endpoint.caps.stream:
            raise WireError(
                f"The streamed answer is larger than {self._endpoint.caps.stream} bytes, and it has not ended. "
                "If it may be that large, raise the cap with Caps(stream=...)."
            )
        if self._raw is not None:
            self._raw.append(data)
        deltas = decoder.feed(data) if data else decoder.close()
        if deltas:
            return self._add(deltas)
        if not data:
            raise WireError(f"{place_of(self._endpoint.url)} ended its answer without an end marker. Send the request again.")
        return deltas

    async def _slice(self) -> bytes:
        """Return a part of the received bytes. First let other tasks run, because one piece may be a whole answer."""
        await asyncio.sleep(0)
        data, self._ahead = self._ahead[:SLICE], self._ahead[SLICE:]
        return bytes(data)

    async def _open(self) -> Response:
        to = self._endpoint
        signed: Transport = self._signed
        retries = to.retries
        if self._ask.transcript.page is not None:
            await asyncio.to_thread(self._ask.transcript.load)
        if self._ask.state.mode == "conversation":
            if self._ask.refuse_losses:
                self._request()  # raise LossRefused before a conversation is opened
            await self._find_conversation()
            signed, retries = Once(signed), ONCE
        request = self._request()
        self._began = perf_counter()
        if (limiter := LIMITERS.get(to.account)) is not None:
            self._slot = await limiter.slot(tokens=len(request.body) // BYTES_A_TOKEN, within=to.deadlines.total).enter()
        response = self._response = await send_retrying(signed, request, retries, to.codec.fault, to.caps, self._note_retry)
        kind = _kind_of(response.headers.get("content-type", ""))
        if kind in STREAMS or await self._is_streamed(response, kind):
            decoder = to.codec.decoder
            self._decoder = decoder(to.facts.quirks)
        return response

    async def _find_conversation(self) -> None:
        """Open a conversation at the provider, where there is none yet."""
        if not self._ask.state.id and has_conversations(self._endpoint):
            self._ask, lost = await open_conversation(self._ask, self._endpoint, self._signed)
            self._noted += lost

    async def _is_streamed(self, response: Response, kind: str) -> bool:
        """True if events come, not one JSON text, where the content type leaves it open. The first byte may decide."""
        start = b"<" if kind == "text/html" else b""
        if self._ask.stream and kind not in ("application/json", "text/html"):
            self._ahead = memoryview(await response.read())
            start = bytes(self._ahead[:SLICE]).lstrip()[:1]
        if start == b"<":
            raise WireError(
                f"{place_of(self._endpoint.url)} answered with a web page, not with an answer of the "
                f"{self._endpoint.codec.wire} wire. Check the address (base_url) and any proxy between."
            )
        return self._ask.stream and kind != "application/json" and start not in (b"{", b"[")

    def _request(self) -> Request:
        to = self._endpoint
        sent = self._sent = prepare_request(self._ask, to, self._prior)
        if self._prior is not None and not sent.encoded.resumed:
            self.moved = moved(self._prior.encoded, sent.encoded)
            if self.moved and self.on_moved is not None:
                self.on_moved(self.moved)
        if self.compare is not None:
            body = ask_diagnosis(sent.encoded.body, to.facts.quirks, self.compare)
            sent = self._sent = replace(sent, encoded=replace(sent.encoded, body=body))
        encoded = sent.encoded
        if self._ask.refuse_losses:
            refuse((*self._noted, *sent.losses), self._ask.refuse_losses)
        if encoded.names:
            self._names = dict(encoded.names)
        if sent.prepared.plan is not None:  # else native: the answer needs no reader
            self._reader = reader(sent.prepared)
        headers = (*to.headers, *encoded.headers)
        if current_trace.get() is not None:
            headers += trace_header()
        return Request(to.url + encoded.path, headers, encoded.body, "POST", to.deadlines)

    def _note_retry(self, retried: Retried) -> None:
        self._tries += 1
        self._pause_key(retried.error)

    def _pause_key(self, error: EvenerError) -> None:
        """Pause all calls with the same key, if the provider asks this call to wait."""
        if isinstance(error, ProviderError) and error.retry_after:
            self._endpoint.limiter.pause(error.retry_after)

    async def _read_whole(self, response: Response) -> list[Delta]:
        """Read an answer that is not streamed: the ask wants it so, or the server cannot stream."""
        content = bytes(self._ahead) + await read_all(response, self._endpoint.caps.body)
        self._size = len(content)
        if self._raw is not None:
            self._raw.append(content)
        return list(deltas_of(self._endpoint.codec.decode(content, self._endpoint.facts.quirks)))

    def _add(self, deltas: list[Delta]) -> list[Delta]:
        """Fold deltas into the reply and return them as the caller sees them."""
        if self._names:
            deltas = [self._rename(delta) for delta in deltas]
        if self._reader is not None:
            deltas = self._reader.feed(deltas)
            if not deltas:
                return deltas
        if not self._first and not PIECES.isdisjoint(map(type, deltas)):
            self._first = perf_counter()
        last = deltas[-1]
        if type(last) is Failed and len(deltas) > 1:
            self._failure = last.error  # deltas before it are returned first, however the bytes were cut
            deltas = deltas[:-1]
            last = deltas[-1]
        if type(last) is Stopped:
            if not self._endpoint.facts.quirks.cut_told:
                deltas = [*deltas[:-1], _detect_cut(last, deltas, self._ask.settings.max_output_tokens)]
            self._ended = perf_counter()
        self._assembler.add(deltas)  # raises what a Failed delta holds
        return deltas

    async def _drain(self, response: Response) -> None:
        """Read what is left, so that the connection can be reused. After `AFTER` seconds it is closed instead."""
        try:
            rest = begin(self._read_rest(response))
            if rest is not None:  # only what waits needs a clock
                async with asyncio.timeout(AFTER):
                    await rest
        except (TimeoutError, EvenerError):
            return

    async def _read_rest(self, response: Response) -> None:
        data = bytes(self._ahead)
        while data or (data := await response.read()):
            if self._raw is not None:
                self._raw.append(data)
            data = b""

    def _make_answer(self) -> Answer:
        to, sent, ended = self._endpoint, self._sent, self._ended
        if sent is None:
            raise UsageError("An answer came before its request was made. This is a bug of Evener: report it with your code.")
        reply = self._assembler.reply()
        if self._names:
            reply = restored(reply, sent.encoded)
        if self._slot is not None and self._slot.counted and (used := reply.usage.total):
            self._slot.settle(used)
        timing = Timing(ended - self._began, (self._first or ended) - self._began)
        raw = b"".join(self._raw) if self._raw is not None else None
        facts = to.facts
        return Answer(
            reply, sent, timing, facts.provider.name, facts.model, to.url, self._tries, raw, self._noted, size=self._size
        )

    def _rename(self, delta: Delta) -> Delta:
        if isinstance(delta, CallBegun) and delta.name in self._names:
            return replace(delta, name=self._names[delta.name])
        return delta

    def _without_secrets(self, error: EvenerError) -> EvenerError:
        """Return the error without credentials that a server may have repeated, and without its cause.

        The frames of its traceback keep their lines and lose their locals, which hold the bytes of the answer.
        """
        clear_frames(error.__traceback__)
        secrets = self._signed.secrets
        error.args = tuple(scrub(arg, secrets) if isinstance(arg, str) else arg for arg in error.args)
        error.__cause__ = error.__context__ = None
        if isinstance(error, ProviderError):
            error.message = scrub(error.message, secrets)
            error.code = scrub(error.code, secrets)
            error.request_id = scrub(error.request_id, secrets)
        return error


def _detect_cut(stopped: Stopped, deltas: list[Delta], most: int | None) -> Stopped:
    """Return the stop of an answer whose provider does not report a cut: it was cut if it has used all its output tokens."""
    used = max([delta.usage.output_total for delta in deltas if isinstance(delta, UsageReported)], default=0)
    return replace(stopped, reason="length") if most and used >= most and stopped.reason == "done" else stopped


@lru_cache(16)
def _kind_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
