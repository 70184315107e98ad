"""A provider with two members, `name` and `complete`, as a model that the loop can call. Adds only what the loop needs.

A structured answer is requested as the arguments of a tool, because such a provider has no other way. Its cost is unknown. A
`complete` that is not a coroutine function runs in a thread.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from decimal import Decimal
from time import monotonic
from typing import Protocol

from evener.encodings.buffer import strip_fence
from evener.encodings.forms import FINAL_RESULT, final_tool, is_object
from evener.encodings.json import unwrap
from evener.errors import EvenerError, ServerError, UsageError
from evener.model.seam import GivenAnswer
from evener.observe.cost import Cost
from evener.transcript.ask import Ask, HostedTool, OutputForm, OutputSchema, ToolSpec
from evener.transcript.blocks import Origin
from evener.transcript.delta import Delta
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript
from evener.wire.stream import deltas_of

FREE = Decimal(0)
UNKNOWN = Cost(FREE, exact=False)
"""A cost that is not known: a lower bound of nothing."""
WIRE = "plain"


class PlainProvider(Protocol):
    """The smallest provider: a name, and one method that answers a conversation, as a coroutine or a plain function."""

    @property
    def name(self) -> str: ...

    def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Awaitable[Reply] | Reply: ...


class PlainModel:
    """The provider as a model. Stateless, if the provider is."""

    def __init__(self, provider: PlainProvider) -> None:
        if not isinstance(provider.name, str) or not provider.name:
            raise UsageError(f"The provider {type(provider).__name__} needs a `name`: a text that is not empty.")
        if not callable(provider.complete):
            raise UsageError(
                f"The provider {provider.name!r} needs a `complete` that can be called with a transcript and tools."
            )
        self._provider = provider
        self._origin = Origin(wire=WIRE, provider=provider.name, model=provider.name)

    @property
    def name(self) -> str:
        return self._provider.name

    @property
    def fetches(self) -> bool:
        """True if it takes media only as bytes: what it can do with an address is its own affair."""
        return False

    def ask(
        self, transcript: Transcript, tools: Iterable[ToolSpec | HostedTool] = (), *, output: OutputSchema | None = None
    ) -> Ask:
        return Ask(transcript, self._origin, tuple(tools), output=output)

    def most_cost(self, ask: Ask) -> Decimal:
        """Return 0: no price is known."""
        del ask
        return FREE

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        """Return the ask as it is: no price is known."""
        del money
        return ask

    def stream(self, ask: Ask, *, after: object = None) -> "_PlainStream":
        """Return the call, not yet begun. `after` changes nothing."""
        del after
        return _PlainStream(self._provider, ask)

    def __repr__(self) -> str:
        return f"<PlainModel {self.name}>"


class _PlainStream:
    """One call in flight: nothing is known before the whole answer."""

    def __init__(self, provider: PlainProvider, ask: Ask) -> None:
        self._provider = provider
        self._ask = ask
        self._pieces: list[Delta] | None = None
        self._answer: GivenAnswer | None = None

    @property
    def form(self) -> OutputForm:
        return "" if self._ask.output is None else "tool"

    @property
    def answer(self) -> GivenAnswer:
        if self._answer is None:
            raise UsageError("The answer is not there yet. Read to the end first.")
        return self._answer

    async def read(self) -> list[Delta]:
        if self._pieces is None:
            self._pieces = list(deltas_of(await self._complete()))
            return self._pieces
        return []

    async def _complete(self) -> Reply:
        ask, output = self._ask, self._ask.output
        specs = [tool for tool in ask.tools if isinstance(tool, ToolSpec)]
        if output is not None:
            specs.append(final_tool(output, [tool.name for tool in specs]))
        began = monotonic()
        try:
            reply = await self._call(ask.transcript, specs)
        except EvenerError:
            raise
        except Exception as error:
            raise ServerError(f"The provider {self._provider.name!r} failed: {type(error).__name__}: {error}") from error
        if not isinstance(reply, Reply):
            raise ServerError(
                f"The provider {self._provider.name!r} gave a {type(reply).__name__}. Return an evener.transcript.Reply."
            )
        message = Message.from_assistant_response(reply, origin=ask.target)
        seconds = monotonic() - began  # to the first piece, too: there is only one
        self._answer = GivenAnswer(
            reply=reply, message=message, cost=UNKNOWN, losses=_losses(ask), seconds=seconds, first=seconds,
            output=_output_of(reply, output), form=self.form,
        )  # fmt: skip
        return reply

    async def _call(self, transcript: Transcript, specs: Sequence[ToolSpec]) -> object:
        complete = self._provider.complete
        if asyncio.iscoroutinefunction(complete):
            return await complete(transcript, specs)
        found = await asyncio.to_thread(complete, transcript, specs)
        return await found if isinstance(found, Awaitable) else found

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


def _output_of(reply: Reply, asked: OutputSchema | None) -> str:
    """Return the JSON text of a structured answer."""
    found = next((call.raw for call in reversed(reply.calls) if call.name == FINAL_RESULT), None)
    if found is None:
        return strip_fence(reply.text)
    is_wrapped = asked is not None and bool(asked.schema) and not is_object(asked.schema)
    return unwrap(found) if is_wrapped else found


def _losses(ask: Ask) -> tuple[Loss, ...]:
    """Return the losses for everything that `complete(transcript, tools)` cannot receive."""
    why = "a provider of two members takes a conversation and tools, and no settings"
    found = [
        loss_of("dropped", f"setting.{name}", why)
        for name in ("max_output_tokens", "temperature", "top_p", "top_k", "seed")
        if getattr(ask.settings, name) is not None
    ]
    if ask.settings.stop:
        found.append(loss_of("dropped", "setting.stop", why))
    if ask.choice.mode not in ("auto",):
        found.append(loss_of("dropped", "tool_choice", why))
    return tuple(found)
