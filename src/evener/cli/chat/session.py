"""The conversation behind a chat: harness, thread, what was used. Switches models and takes exchanges back. Shows nothing."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from evener.cli.chat.tally import Tally
from evener.encodings import prepare
from evener.errors import BadValue, EvenerError, UsageError
from evener.harness import Harness, RunStream, Thread
from evener.loop.limits import Limits, Spent
from evener.model import Model, open_model
from evener.result import RunResult
from evener.transcript.blocks import Block, ToolResult
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.transcript import Transcript

__all__ = ["Session", "loss_lines"]


class Session:
    """One chat. `max_cost` is in US dollars, for all of it."""

    def __init__(self, harness: Harness, *, thread: str = "", max_cost: str = "", folder: Path | None = None) -> None:
        self._harness = harness
        self._allowed = _dollars(max_cost)
        self._thread = harness.thread(thread, limits=self._limits(Decimal(0)))
        self._past: tuple[Message, ...] = ()
        self._starts: list[int] = []
        self._known: set[tuple[str, str, str]] = set()
        self.folder = folder or Path.cwd()
        self.tally = Tally()
        self._measure()

    @property
    def harness(self) -> Harness:
        return self._harness

    @property
    def thread(self) -> Thread:
        return self._thread

    @property
    def model(self) -> str:
        """The model that is asked first."""
        return self._harness.models[0].name

    async def transcript(self) -> Transcript:
        """What was said so far."""
        return (await self._thread.state()).transcript if self._thread.id else Transcript(self._past)

    # Asking.

    async def prompt(self, blocks: Sequence[Block]) -> RunStream:
        """Say something; the answer, watched."""
        self._refresh_limits()
        self._starts.append(len(await self.transcript()))
        return self._thread.stream(Message("user", tuple(blocks)))

    async def go_on(self) -> RunStream:
        """Go on with an answer that was stopped or failed, watched."""
        if not self._thread.id:
            raise UsageError("There is nothing to go on with. Say something first.")
        self._refresh_limits()
        state = await self._thread.state()
        if not state.run or (state.finished is not None and state.finished.cause in ("done", "refusal", "length")):
            raise UsageError("The last answer came to its end, so there is nothing to go on with. Say something instead.")
        return self._thread.resume_stream()

    async def count(self, result: RunResult | None) -> None:
        """Add what the run has used; without a result it failed, and the log knows."""
        if result is not None:
            made = Spent(len(result.requests), len(result.records), result.usage, result.cost, result.exact, result.seconds)
            self.tally.run(result.run, made)
        elif self._thread.id:
            state = await self._thread.state()
            if state.run:
                self.tally.run(state.run, state.spent)

    async def unheard(self) -> bool:
        """Whether something was said to the last run that its model has not been told."""
        return bool(self._thread.id and (await self._thread.state()).steering)

    def new_losses(self, losses: Sequence[Loss]) -> list[str]:
        """Those that were not shown before, a line each."""
        new = [loss for loss in losses if _key(loss) not in self._known]
        self._known |= {_key(loss) for loss in new}
        return loss_lines(new)

    # Changing the conversation.

    async def switch(self, name: str) -> list[str]:
        """Ask another model from now on. What is lost on the way to it, a line each; nothing is sent."""
        model = open_model(name)
        losses = self._losses(model, await self.transcript())
        other = self._harness.with_model(model)
        self._harness = other
        self._thread = self._opened(self._thread.id)
        self._measure()
        return self.new_losses(losses)

    async def undo(self) -> str:
        """Take the last exchange back: a new thread with what was said before it. The text of what was taken back."""
        messages = (await self.transcript()).messages
        start = self._starts.pop() if self._starts else _last_prompt(messages)
        if start is None or start >= len(messages):
            raise UsageError("There is nothing to undo: nothing was said yet.")
        gone = next((one for one in messages[start:] if _is_prompt(one)), messages[start])
        self._past = messages[:start]
        self._thread = self._opened("")
        self.tally.forget_context()
        return gone.text

    # Inside.

    def _losses(self, model: Model, transcript: Transcript) -> tuple[Loss, ...]:
        """What the next request to this model could not say, were it made now."""
        if not len(transcript):
            return ()
        to = model.endpoint
        ask = model.ask(transcript, self._harness.tools.specs)
        try:
            prepared = prepare(ask, to.facts.quirks, encoding=to.encoding)
            return (*prepared.losses, *to.codec.encode(prepared.ask, to.facts.quirks, None).losses)
        except EvenerError as error:
            return (Loss("degraded", "conversation", f"what is lost cannot be told before it is sent: {error}"),)

    def _measure(self) -> None:
        model = self._harness.models[0]
        self.tally.window = model.endpoint.facts.window if isinstance(model, Model) else 0

    def _limits(self, spent: Decimal) -> Limits | None:
        if self._allowed is None:
            return None
        left = self._allowed - spent
        if left <= 0:
            raise UsageError(f"The chat has used up its ${self._allowed}. Start one with a higher --max-cost to go on.")
        return Limits(cost=left)

    def _refresh_limits(self) -> None:
        """The allowance is for the whole chat, and the harness knows it for a run only."""
        if self._allowed is not None:
            self._thread = self._opened(self._thread.id)

    def _opened(self, id: str) -> Thread:
        """The thread of this id; without one, a new one that begins with what is left of the last."""
        return self._harness.thread(id, limits=self._limits(self.tally.spent.cost), history=() if id else self._past)


def loss_lines(losses: Sequence[Loss]) -> list[str]:
    """Each loss once, with how often it happens."""
    counted: dict[tuple[str, str, str], int] = {}
    for loss in losses:
        counted[_key(loss)] = counted.get(_key(loss), 0) + 1
    return [f"{kind} {what}{f' ({times} times)' if times > 1 else ''}: {why}" for (kind, what, why), times in counted.items()]


def _key(loss: Loss) -> tuple[str, str, str]:
    return (loss.kind, loss.what, loss.why)


def _is_prompt(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(block, ToolResult) for block in message.blocks)


def _last_prompt(messages: Sequence[Message]) -> int | None:
    return next((place for place in range(len(messages) - 1, -1, -1) if _is_prompt(messages[place])), None)


def _dollars(text: str) -> Decimal | None:
    if not text:
        return None
    try:
        found = Decimal(text)
    except ArithmeticError:
        raise BadValue(f"--max-cost is {text!r}; it must be a number of US dollars, as in 0.05.") from None
    if not found.is_finite() or found <= 0:
        raise BadValue(f"--max-cost is {text!r}; it must be above 0.")
    return found
