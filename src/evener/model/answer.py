"""What one model call gave: the reply, the message to append, and what it cost. The price is looked up when it is asked for."""

from datetime import UTC, datetime
from time import time

import msgspec
from msgspec.structs import replace

from evener.encodings import Prepared, output_text
from evener.model.bound import writes_for_an_hour
from evener.observe.cost import Cost, price
from evener.transcript.ask import OutputForm, State
from evener.transcript.blocks import HostedBlock
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Reply
from evener.transcript.usage import Usage
from evener.wire import Encoded

__all__ = ["Answer", "Sent", "Timing"]


class Sent(msgspec.Struct, frozen=True, gc=False):
    """The request as it went out. Given back with the next ask of the same conversation, it makes that one cheap."""

    prepared: Prepared
    encoded: Encoded


class Timing(msgspec.Struct, frozen=True, gc=False):
    """Seconds from the first try: to the end of the answer, and to its first piece (text, reasoning or a call)."""

    latency: float
    first: float


class Answer(msgspec.Struct, frozen=True, gc=False):
    """One finished model call, `at` that time (seconds since 1970). `tries` counts requests that were sent.

    `raw` holds the bytes of the answer's body when they were asked for. `noted` is what was lost before the request was made.
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
    _made: dict[str, Message] = {}

    @property
    def message(self) -> Message:
        """What was said, ready to append to the transcript. Always the same one; it is made when it is first asked for."""
        made = self._made.get("message")
        if made is None:
            reply, target = self.reply, self.sent.prepared.ask.target
            sealed = any([type(block) is not HostedBlock and block.seal for block in reply.blocks])
            binding = self.sent.encoded.binding if sealed else ""
            at = datetime.fromtimestamp(self.at, UTC)
            made = Message.from_assistant_response(reply, origin=target, binding=binding, at=at)
            made = self._made.setdefault("message", made)  # to set is one step: of two threads one is the first
        return made

    @property
    def text(self) -> str:
        """The answer in words."""
        return self.reply.text

    @property
    def output(self) -> str:
        """The JSON text of a structured answer, in whichever form it was asked for."""
        return output_text(self.reply, self.sent.prepared)

    @property
    def form(self) -> OutputForm:
        """How the structured answer was asked for; empty when none was."""
        return self.sent.prepared.form

    @property
    def usage(self) -> Usage:
        """Exact token counts, as far as the provider states them."""
        return self.reply.usage

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Everything that the request could not say as it was asked."""
        return self.noted + self.sent.prepared.losses + self.sent.encoded.losses

    @property
    def kept(self) -> State:
        """What the provider holds from here on, this answer included; `replay` when it holds nothing.

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
        """How long it took."""
        return self.timing.latency

    @property
    def first(self) -> float:
        """How long the first piece took."""
        return self.timing.first

    @property
    def cost(self) -> Cost:
        """The estimated price. Where it is not known it is a lower bound, and says so."""
        used, model = self.reply.usage, self.reply.model or self.model
        hour = bool(used.cache_write) and writes_for_an_hour(self.sent.prepared.ask)
        return price(used, provider=self.provider, model=model, url=self.url, hour_writes=hour)
