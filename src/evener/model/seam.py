"""The protocols between the driver and a model: calls, answers and media. The public fake is `testing.ScriptedModel`."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Protocol, runtime_checkable

import msgspec

from evener.transcript.ask import Ask, HostedTool, OutputForm, OutputSchema, State, ToolSpec
from evener.transcript.blocks import DocumentBlock, ImageBlock
from evener.transcript.delta import Delta
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript


class Price(Protocol):
    """The cost of a call in US dollars; a lower bound unless `exact`."""

    @property
    def amount(self) -> Decimal: ...

    @property
    def exact(self) -> bool: ...


class Answered(Protocol):
    """A finished call."""

    @property
    def reply(self) -> Reply: ...

    @property
    def message(self) -> Message: ...

    @property
    def losses(self) -> tuple[Loss, ...]: ...

    @property
    def cost(self) -> Price: ...

    @property
    def seconds(self) -> float: ...

    @property
    def first(self) -> float:
        """Return the seconds to the first piece."""
        ...

    @property
    def tries(self) -> int: ...

    @property
    def output(self) -> str:
        """Return the JSON text of a structured answer, in whichever form it came."""
        ...

    @property
    def form(self) -> OutputForm:
        """Return how a structured answer was asked for; empty when none was."""
        ...


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A finished call of a model without a wire: its whole answer arrived at once."""

    reply: Reply
    message: Message
    cost: Price
    losses: tuple[Loss, ...] = ()
    seconds: float = 0.0
    first: float = 0.0
    tries: int = 1
    output: str = ""
    form: OutputForm = ""


@runtime_checkable
class StatefulAnswer(Protocol):
    """A finished call after which the provider stores a part of the conversation. After other calls it stores nothing."""

    @property
    def kept(self) -> State: ...


class Asking(Protocol):
    """A call in flight."""

    @property
    def form(self) -> OutputForm:
        """Return how a structured answer is asked for, once the request was made."""
        ...

    async def read(self) -> list[Delta]:
        """Return the next deltas; empty at the end. Raises an EvenerError when there will be no answer."""
        ...

    async def aclose(self) -> None: ...

    @property
    def answer(self) -> Answered: ...


class Askable(Protocol):
    """A model."""

    @property
    def name(self) -> str: ...

    @property
    def fetches(self) -> bool:
        """True if it takes media only as bytes, not as URLs."""
        ...

    def ask(
        self, transcript: Transcript, tools: Iterable[ToolSpec | HostedTool] = (), *, output: OutputSchema | None = None
    ) -> Ask: ...

    def most_cost(self, ask: Ask) -> Decimal:
        """Return the upper bound of a call's cost in US dollars; 0 where no price is known."""
        ...

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        """Return the ask with an output limit so low that the call costs no more than this; None if that leaves no answer."""
        ...

    def stream(self, ask: Ask, *, after: Answered | None = None) -> Asking:
        """Return the call, not yet begun. `after` is the last answer in the same conversation: it only saves work."""
        ...


class MediaAccess(Protocol):
    """Media of requests: fetched, and inlined as bytes."""

    async def fetch(self, url: str, *blocks: ImageBlock | DocumentBlock) -> tuple[str, str, int]:
        """Store what lies behind a URL, if it is what the blocks ask for; return digest, media type and size."""
        ...

    async def inline(self, transcript: Transcript, have: Mapping[str, str], *, remote: bool) -> Transcript:
        """Return the transcript with its media as bytes; `have` has the digest of each URL that was fetched."""
        ...
