"""The conversation behind a chat: harness, thread, what was used. Switches models and branches. Shows nothing."""

import os
import shlex
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from msgspec.structs import replace

from evener import events as ev
from evener.cli.approvals import answer_of, described, is_decided
from evener.cli.commands.store import written
from evener.cli.commands.threads import tree_lines
from evener.errors import BadValue, EvenerError, UsageError
from evener.harness import Harness, RunStream, Thread
from evener.harness.branches import before_turns
from evener.harness.opening import NOT_RESUMABLE
from evener.loop.state import Limits, RunState, Spent
from evener.model import Model, open_model
from evener.model.endpoint import prepare_request
from evener.result import RunResult, approvals_of
from evener.store.memory import MemoryStore
from evener.store.sqlite.store import SqliteStore
from evener.transcript.blocks import Block, ToolResult
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript

__all__ = [
    "Session",
    "Tally",
    "loss_lines",
    "short",
]


class Tally:
    """Runs by their id, so that a run that was resumed counts once. `window` is the model's, in tokens; 0 is unknown."""

    def __init__(self) -> None:
        self._runs: dict[str, Spent] = {}
        self._under_way = Usage()
        self._last = Usage()
        self.window = 0

    def turn(self, usage: Usage) -> None:
        """The model has answered once, in a run that goes on."""
        self._under_way += usage
        self._last = usage

    def run(self, id: str, spent: Spent) -> None:
        """A run has come to a stop, and used all this since it began."""
        self._runs[id] = spent
        self._under_way = Usage()

    def forget_context(self) -> None:
        """The conversation has changed: how full the window is shows with the next answer."""
        self._last = Usage()

    @property
    def spent(self) -> Spent:
        """All runs together."""
        runs = self._runs.values()
        return Spent(
            sum(run.requests for run in runs),
            sum(run.tool_calls for run in runs),
            sum((run.usage for run in runs), self._under_way),
            sum((run.cost for run in runs), Decimal(0)),
            all(run.exact for run in runs),
            sum(run.seconds for run in runs),
        )

    @property
    def filled(self) -> float | None:
        """The part of the window that the conversation takes; None when it is not known."""
        return self._last.total / self.window if self.window and self._last.total else None

    def status(self, model: str) -> str:
        """One line."""
        spent, filled = self.spent, self.filled
        parts = [model]
        if spent.usage.total:
            parts.append(f"{short(spent.usage.total)} tokens")
            parts.append(f"{_percent(spent.usage.cache_read, spent.usage.input_total)} cached")
        if self._runs:
            parts.append(self.cost)
        if filled is not None:
            parts.append(f"context {_percent(self._last.total, self.window)}")
        return " \u00b7 ".join(parts)

    @property
    def cost(self) -> str:
        """In US dollars; a lower bound is marked as one."""
        spent = self.spent
        return f"{'' if spent.exact else '>='}${_amount(spent.cost)}"

    def lines(self) -> list[str]:
        """All of it, a line each."""
        spent, usage = self.spent, self.spent.usage
        made = [
            f"requests      {spent.requests:,}",
            f"tool calls    {spent.tool_calls:,}",
            f"tokens in     {usage.input_total:,} (cached {usage.cache_read:,}, written to the cache {usage.cache_write:,})",
            f"tokens out    {usage.output_total:,} (reasoning {usage.reasoning:,})",
            f"cost          {self.cost}{'' if spent.exact else ' (a lower bound: not every price is known)'}",
        ]
        if self.filled is not None:
            made.append(f"context       {self._last.total:,} of {self.window:,} tokens ({self.filled:.0%})")
        return made


def short(count: int) -> str:
    """A count as people say it: 950, 1.2k, 34k, 1M."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            value = count / size
            return f"{value:.1f}".rstrip("0").rstrip(".") + sign if value < 100 else f"{value:.0f}{sign}"
    return str(count)


def _percent(part: int, whole: int) -> str:
    if not part or not whole:
        return "0%"
    return f"{part / whole:.0%}" if part / whole >= 0.005 else "<1%"


def _amount(cost: Decimal) -> str:
    return f"{cost:.2f}" if cost >= 1 or not cost else f"{cost:.4f}"


TALLEST, WIDEST = 6, 200


class Session:
    """One chat, in a new thread or on a branch of one. `max_cost` is in US dollars, for all of it.

    `again` are the words that lead another chat to the same harness and store. `chosen`: the user named the model.
    """

    def __init__(
        self,
        harness: Harness,
        *,
        thread: str = "",
        branch: str = "",
        max_cost: str = "",
        again: Sequence[str] = (),
        chosen: bool = False,
        folder: Path | None = None,
    ) -> None:
        self._harness = harness
        self._allowed = _dollars(max_cost)
        self._thread = harness.thread(thread, branch=branch, limits=self._limits(Decimal(0)))
        self._again = tuple(again)
        self._chosen = chosen
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
        return (await self._thread.state()).transcript if self._thread.id else Transcript()

    async def recap(self) -> list[str]:
        """What a chat that goes on begins with: how much was said before, the end of it, and whether it is finished."""
        if not self._thread.id:
            return []
        state = await self._thread.state()
        messages = state.transcript.messages
        asked = next((one.text for one in reversed(messages) if _is_prompt(one) and one.text), "")
        answer = next((one.text for one in reversed(messages) if one.role == "assistant" and one.text), "")
        made = [f"{len(messages)} messages were said before.", *_cut(f"> {asked}" if asked else ""), *_cut(answer)]
        if not _is_over(state):
            made += await self._unfinished(state)
        return made

    async def _unfinished(self, state: RunState) -> list[str]:
        """What there is to be done before the last answer can come to its end."""
        asked = approvals_of(state, self._thread.log)
        waits = [one for one in asked if not await is_decided(self._harness.store, one)]
        if waits:
            lines = [line for one in waits for line in described(one, await answer_of(self._harness.store, one))]
            return ["The last run waits to be decided:", *lines, "/continue asks about it."]
        if asked:
            return ["What the last run waited for was decided; /continue goes on with it."]
        return ["The last answer did not come to its end; /continue goes on with it."]

    @property
    def again(self) -> str:
        """The command that goes on with this chat; empty before anything was said, and where nothing outlives the chat."""
        here = self._thread.log or self._thread.id
        if not here or isinstance(self._harness.store, MemoryStore):
            return ""
        model = ("-m", self.model) if self._chosen else ()
        return shlex.join(["evener", "chat", *self._again, *model, "-r", here])

    # Asking.

    async def prompt(self, blocks: Sequence[Block]) -> RunStream:
        """Say something; the answer, watched."""
        self._refresh_limits()
        return self._thread.stream(Message("user", tuple(blocks)))

    async def go_on(self) -> RunStream:
        """Go on with an answer that was stopped or failed, watched."""
        if not self._thread.id:
            raise UsageError("There is nothing to go on with. Say something first.")
        self._refresh_limits()
        state = await self._thread.state()
        if _is_over(state):
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
        self._harness = self._harness.with_model(model)
        self._chosen = True
        self._thread = self._opened()
        self._measure()
        return self.new_losses(losses)

    async def undo(self) -> str:
        """Take the last exchange back: go on from before it, on a new branch. The text of what was taken back."""
        said = [event for event in await self._events() if isinstance(event, ev.Prompted) and not event.refused]
        if not said:
            raise UsageError("There is nothing to undo: nothing was said yet.")
        await self._thread.rollback()
        self.tally.forget_context()
        return said[-1].message.text

    async def fork(self, turns: int = 0) -> None:
        """Go on, on a new branch, from here or from before the last so many exchanges. The other branch stays as it is."""
        events = await self._events()
        if not events:
            raise UsageError("There is nothing to fork: nothing was said yet.")
        at = before_turns(events, turns, self._thread.log) if turns else None
        self._thread = await self._thread.fork(at)
        self._refresh_limits()
        if turns:
            self.tally.forget_context()

    async def tree(self) -> list[str]:
        """The branches of this conversation, a line each."""
        if not await self._events():
            raise UsageError("There are no branches: nothing was said yet.")
        return await tree_lines(self._harness.store, self._thread.log, here=self._thread.log)

    async def export(self, name: str) -> Path:
        """Write the conversation with all its branches into a new file; where it is."""
        if not await self._events():
            raise UsageError("There is nothing to export: nothing was said yet.")
        store = self._harness.store
        if not isinstance(store, SqliteStore | MemoryStore):
            raise UsageError("Threads of a store of another kind cannot be exported from here.")
        path = self.folder / os.path.expanduser(name or f"{self._thread.log[:8]}.jsonl")
        await written(store, self._thread.log, path)
        return path

    # Inside.

    async def _events(self) -> list[ev.Event]:
        """What the branch holds; nothing before it has begun."""
        if not self._thread.id:
            return []
        await self._thread.state()  # from then on it is known which log it is
        return await self._harness.store.read(self._thread.log)

    def _losses(self, model: Model, transcript: Transcript) -> tuple[Loss, ...]:
        """What the next request to this model could not say, were it made now."""
        if not len(transcript):
            return ()
        try:
            return prepare_request(model.ask(transcript, self._harness.tools.specs), model.endpoint).losses
        except EvenerError as error:
            return (loss_of("degraded", "conversation", f"what is lost cannot be told before it is sent: {error}"),)

    def _measure(self) -> None:
        model = self._harness.models[0]
        self.tally.window = model.endpoint.facts.window if isinstance(model, Model) else 0

    def _limits(self, spent: Decimal) -> Limits | None:
        if self._allowed is None:
            return None
        left = self._allowed - spent
        if left <= 0:
            raise UsageError(f"The chat has used up its ${self._allowed}. Start one with a higher --max-cost to go on.")
        own = self._harness.thread().agent.setup.limits
        return replace(own, cost=left if own.cost is None else min(left, own.cost))

    def _refresh_limits(self) -> None:
        """The allowance is for the whole chat, and the harness knows it for a run only."""
        if self._allowed is not None:
            self._thread = self._opened()

    def _opened(self) -> Thread:
        """The same branch, as the harness makes it now."""
        here = self._thread
        return self._harness.thread(here.id, branch=here.log, limits=self._limits(self.tally.spent.cost))


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


def _is_over(state: RunState) -> bool:
    """Whether the last run needs nothing more, or there was none."""
    return not state.run or (state.finished is not None and state.finished.cause in NOT_RESUMABLE)


def _cut(text: str) -> list[str]:
    """The beginning of a text: a few lines that are not long."""
    lines = text.strip().split("\n") if text.strip() else []
    return [line if len(line) <= WIDEST else line[: WIDEST - 3] + "..." for line in lines[:TALLEST]] + ["..."] * (
        len(lines) > TALLEST
    )


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
