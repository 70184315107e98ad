"""The seam between the driver and a model: what it asks for, and what it gets. The public fake is `testing.ScriptedModel`."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Protocol, runtime_checkable

from evener.transcript.ask import Ask, HostedTool, OutputForm, OutputSchema, State, ToolSpec
from evener.transcript.blocks import DocumentBlock, ImageBlock
from evener.transcript.delta import Delta
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript

__all__ = ["Answered", "Askable", "Asking", "Keeping", "MediaAccess", "Price"]


class Price(Protocol):
    """What a call cost, in US dollars; a lower bound unless `exact`."""

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
        """Seconds to the first piece."""
        ...

    @property
    def tries(self) -> int: ...

    @property
    def output(self) -> str:
        """The JSON text of a structured answer, in whichever form it came."""
        ...

    @property
    def form(self) -> OutputForm:
        """How a structured answer was asked for; empty when none was."""
        ...


@runtime_checkable
class Keeping(Protocol):
    """A finished call that knows what the provider holds from here on. One that does not is held by nobody."""

    @property
    def kept(self) -> State: ...


class Asking(Protocol):
    """A call in flight."""

    @property
    def form(self) -> OutputForm:
        """How a structured answer is asked for, once the request was made."""
        ...

    async def read(self) -> list[Delta]:
        """The next deltas; empty at the end. Raises an EvenerError when there is no answer to be had."""
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
        """Whether media behind a URL must be given to it as bytes."""
        ...

    def ask(
        self, transcript: Transcript, tools: Iterable[ToolSpec | HostedTool] = (), *, output: OutputSchema | None = None
    ) -> Ask: ...

    def most_cost(self, ask: Ask) -> Decimal:
        """What a call may cost at most, in US dollars; 0 where no price is known."""
        ...

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        """The ask with an answer so short that the call costs no more than this; None when that leaves no answer."""
        ...

    def stream(self, ask: Ask, *, after: Answered | None = None) -> Asking:
        """The call, not yet begun. `after` is the last answer in the same conversation: it only makes this one cheaper."""
        ...


class MediaAccess(Protocol):
    """Media for requests."""

    async def fetch(self, url: str, *blocks: ImageBlock | DocumentBlock) -> tuple[str, str, int]:
        """Digest, media type and size of what lies behind a URL, which these blocks ask for; it is at hand from then on."""
        ...

    async def inline(self, transcript: Transcript, have: Mapping[str, str], *, remote: bool) -> Transcript:
        """The transcript with its media as bytes; `have` tells the digest for each URL that was fetched."""
        ...
