"""The conversation of a chat: harness, thread, usage. Switches models and branches. Prints nothing."""

import os
import shlex
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from msgspec.structs import replace

from evener import events as ev
from evener.cli.approvals import describe, read_answer
from evener.cli.commands.run import parse_dollars
from evener.cli.commands.stored.context import draw_context
from evener.cli.commands.stored.show import format_cost, sum_spent
from evener.cli.commands.stored.store import write_export
from evener.cli.commands.stored.threads import is_subagent, tree_lines
from evener.cli.glance import WORDS, format_age, glance
from evener.cli.outside import NOTHING, Outside
from evener.cli.terminal import count, flatten
from evener.errors import BadValue, EvenerError, UsageError
from evener.harness import Harness, RunStream, Thread
from evener.harness.branches import before_turns
from evener.harness.opening import NOT_RESUMABLE
from evener.harness.remote import is_said
from evener.loop.state import Limits, RunState, Spent
from evener.model import Model, open_model
from evener.model.stream import prepare_request
from evener.result import RunResult, approvals_of
from evener.store.memory import MemoryStore
from evener.store.transfer.jsonl import Portable
from evener.transcript.blocks import Block, ToolResult
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript


class Tally:
    """Adds up usage by run id, so that a resumed run counts once. `window` is the context window in tokens; 0 is unknown."""

    def __init__(self) -> None:
        self._runs: dict[str, Spent] = {}
        self._under_way = Usage()
        self._last = Usage()
        self.window = 0

    def turn(self, usage: Usage) -> None:
        """Add one answer of a run that is not finished."""
        self._under_way += usage
        self._last = usage

    def run(self, id: str, spent: Spent) -> None:
        """Set what a stopped run has used since its start."""
        self._runs[id] = spent
        self._under_way = Usage()

    def forget_context(self) -> None:
        """Forget how full the window is: the conversation has changed, and the next answer tells."""
        self._last = Usage()

    @property
    def spent(self) -> Spent:
        """The sum of all runs."""
        return sum_spent((*self._runs.values(), Spent(usage=self._under_way)))

    @property
    def filled(self) -> float | None:
        """The share of the window that the conversation fills; None if unknown."""
        return self._last.total / self.window if self.window and self._last.total else None

    def status(self, model: str) -> str:
        """Return the status line."""
        spent, filled = self.spent, self.filled
        parts = [model]
        if spent.usage.total:
            parts.append(f"{format_short(spent.usage.total)} tokens")
            parts.append(f"{_percent(spent.usage.cache_read, spent.usage.input_total)} cached")
        if self._runs:
            parts.append(self.cost)
        if filled is not None:
            parts.append(f"context {_percent(self._last.total, self.window)}")
        return " \u00b7 ".join(parts)

    @property
    def cost(self) -> str:
        """The cost in US dollars; a lower bound begins with `>=`."""
        return format_cost(self.spent.cost, exact=self.spent.exact)

    def lines(self) -> list[str]:
        """Return all figures, one per line."""
        spent, usage = self.spent, self.spent.usage
        made = [
            f"requests      {spent.requests:,}",
            f"tool calls    {spent.tool_calls:,}",
            f"tokens in     {usage.input_total:,} (cached {usage.cache_read:,}, cache writes {usage.cache_write:,})",
            f"tokens out    {usage.output_total:,} (reasoning {usage.reasoning:,})",
            f"cost          {self.cost}{'' if spent.exact else ' (a lower bound: not all prices are known)'}",
        ]
        if self.filled is not None:
            made.append(f"context       {self._last.total:,} of {self.window:,} tokens ({self.filled:.0%})")
        return made


def format_short(count: int) -> str:
    """Return a short form of a count: 950, 1.2k, 34k, 1M."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            value = count / size
            return f"{value:.1f}".rstrip("0").rstrip(".") + sign if value < 100 else f"{value:.0f}{sign}"
    return str(count)


def _percent(part: int, whole: int) -> str:
    if not part or not whole:
        return "0%"
    return f"{part / whole:.0%}" if part / whole >= 0.005 else "<1%"


TALLEST, WIDEST = 6, 200
RETOLD, LISTED = 4, 50
"""Exchanges that are shown of a conversation that goes on, and conversations to choose from."""


class Session:
    """One chat, in a new thread or on a branch of one. `max_cost` is in US dollars, for the whole chat.

    `again` are the arguments that start another chat with the same harness and store. `chosen`: the user named the model.
    `outside` has the servers and skills that the user can name.
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
        outside: Outside = NOTHING,
        verbose: bool = False,
    ) -> None:
        self.outside = outside
        self._harness = harness
        self._allowed = _parse_cost(max_cost)
        self._thread = harness.thread(thread, branch=branch, limits=self._limits(Decimal(0)))
        self._again = tuple(again)
        self._chosen = chosen
        self._known: set[tuple[str, str, str]] = set()
        self.folder = Path.cwd()
        self.verbose = verbose
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
        """The first model of the harness."""
        return self._harness.models[0].name

    async def transcript(self) -> Transcript:
        """Return the conversation so far."""
        return (await self._thread.state()).transcript if self._thread.id else Transcript()

    async def recap(self) -> list[str]:
        """Return the first lines of a resumed chat: how long it is, how it ends, and whether its last run is finished."""
        if not self._thread.id:
            return []
        state = await self._thread.state()
        messages = state.transcript.messages
        made = [f"Resuming ({count(len(messages), 'earlier message')}).", *_retell(messages)]
        if not _is_over(state):
            made += await self._describe_unfinished(state)
        return made

    async def _describe_unfinished(self, state: RunState) -> list[str]:
        """Return what the last run waits for, and how to resume it."""
        asked = approvals_of(state, self._thread.log)
        waits = [one for one in asked if not await is_said(self._harness.store, one)]
        if waits:
            lines = [line for one in waits for line in describe(one, await read_answer(self._harness.store, one))]
            return ["The last run waits for a decision:", *lines, "Use /continue to decide."]
        if asked:
            return ["The last run waited for a decision, which was made. Use /continue to resume it."]
        return ["The last run is not finished. Use /continue to resume it."]

    @property
    def again(self) -> str:
        """The command that continues this chat; empty before the first message, and for a store in memory."""
        here = self._thread.log or self._thread.id
        if not here or isinstance(self._harness.store, MemoryStore):
            return ""
        model = ("-m", self.model) if self._chosen else ()
        return shlex.join(["evener", "chat", *self._again, *model, "-r", here])

    @property
    def greeting(self) -> str:
        """The first line of a chat on a terminal."""
        return f"{self.model} \u00b7 /help for commands, Ctrl-D to exit."

    @property
    def farewell(self) -> tuple[str, ...]:
        """The last lines of a chat on a terminal."""
        return (f"Continue with: {self.again}",) if self.again else ()

    # Runs.

    async def prompt(self, blocks: Sequence[Block]) -> RunStream:
        """Send a message; return the stream of its run."""
        self._refresh_limits()
        return self._thread.stream(Message("user", tuple(blocks)))

    async def go_on(self) -> RunStream:
        """Resume a run that stopped or failed; return its stream."""
        if not self._thread.id:
            raise UsageError("There is nothing to continue. Send a message first.")
        self._refresh_limits()
        state = await self._thread.state()
        if _is_over(state):
            raise UsageError("The last run is finished, so there is nothing to continue. Send a message instead.")
        return self._thread.resume_stream()

    async def add_usage(self, result: RunResult | None) -> None:
        """Add what the run has used. Without a result the run failed, and the log has the figures."""
        if result is not None:
            made = Spent(len(result.requests), len(result.records), result.usage, result.cost, result.exact, result.seconds)
            self.tally.run(result.run, made)
        elif self._thread.id:
            state = await self._thread.state()
            if state.run:
                self.tally.run(state.run, state.spent)

    async def has_unsent(self) -> bool:
        """True if the last run has messages of the user that its model has not received."""
        return bool(self._thread.id and (await self._thread.state()).steering)

    def new_losses(self, losses: Sequence[Loss]) -> list[str]:
        """Return the losses that were not shown before, one line each."""
        new = [loss for loss in losses if _key(loss) not in self._known]
        self._known |= {_key(loss) for loss in new}
        return format_losses(new)

    # Changing the conversation.

    async def switch(self, name: str) -> list[str]:
        """Use another model from now on. Return the losses of the conversation on it, one line each; nothing is sent."""
        model = open_model(name)
        losses = self._find_losses(model, await self.transcript())
        self._harness = self._harness.with_model(model)
        self._chosen = True
        self._thread = self._reopen()
        self._measure()
        return self.new_losses(losses)

    async def describe_context(self) -> list[str]:
        """Return how full the window is, one line each."""
        return list(draw_context(await self._thread.context()))

    async def compact(self, focus: str) -> str:
        """Let a summary stand for the older messages; return what came of it in a sentence."""
        if not self._thread.id:
            raise UsageError("There is nothing to compact yet.")
        made = await self._thread.compact(focus)
        await self.add_usage(None)
        if made is None:
            return "There is nothing to compact: the newest exchange and what you said stay as they are."
        if isinstance(made, ev.CompactionFailed):
            return f"Nothing was changed: {made.detail}"
        self.tally.forget_context()
        return f"Compacted: about {made.saved:,} of {made.tokens:,} tokens less. /context undo takes it back."

    async def restore_context(self) -> bool:
        """Undo the newest eviction or compaction. False if there is none."""
        if not self._thread.id or not await self._thread.restore_context():
            return False
        self.tally.forget_context()
        return True

    async def undo(self) -> str:
        """Undo the last exchange: continue from before it, on a new branch. Return the text of its prompt."""
        said = [event for event in await self._events() if isinstance(event, ev.Prompted) and not event.refused]
        if not said:
            raise UsageError("There is nothing to undo yet.")
        await self._thread.rollback()
        self.tally.forget_context()
        return said[-1].message.text

    def begin_anew(self) -> None:
        """Leave this conversation for a new one, which is empty."""
        self._thread = self._harness.thread(limits=self._limits(self.tally.spent.cost))
        self.tally.forget_context()

    async def list_threads(self, words: str) -> list[tuple[str, str]]:
        """Return the other conversations of the store, the newest first: id, and a line about it. `words` filter them."""
        store, found = self._harness.store, list[tuple[str, str]]()
        logs = [one for one in await store.logs() if one.head and not one.erased and not is_subagent(one)]
        for log in [one for one in logs if one.log != self._thread.log][:LISTED]:
            seen = await glance(store, log)
            line = f"{log.log[:8]}  {format_age(log.changed).rjust(7)}  {WORDS[seen.condition]}  {log.title or seen.prompt}"
            if log.log.startswith(words) or all(word.lower() in line.lower() for word in words.split()):
                found.append((log.log, flatten(line, WIDEST)))
        return found

    async def go_to(self, log: str) -> None:
        """Leave this conversation for another one of the store."""
        self._thread = self._harness.thread(log, limits=self._limits(self.tally.spent.cost))
        await self._thread.state()
        self.tally.forget_context()

    async def restore(self, runs: int = 1) -> list[str]:
        """Bring back the files that the last runs changed; return a line for each. What was changed since is kept."""
        from evener.toolset.changes import read_change, restore
        from evener.toolset.folder import RootFolder

        events = await self._events()
        begins = [number for number, event in enumerate(events) if isinstance(event, ev.Prompted)][-runs:][:1]
        finished = [event for event in events[sum(begins) :] if isinstance(event, ev.CallFinished)]
        changes = [change for event in finished if (change := read_change(event.metadata))]
        return restore(RootFolder(self.folder), changes)

    async def fork(self, turns: int = 0) -> None:
        """Continue on a new branch, from here or without the last `turns` exchanges. The old branch stays as it is."""
        events = await self._events()
        if not events:
            raise UsageError("There is nothing to fork yet.")
        at = before_turns(events, turns, self._thread.log) if turns else None
        self._thread = await self._thread.fork(at)
        self._refresh_limits()
        if turns:
            self.tally.forget_context()

    async def tree(self) -> list[str]:
        """Return the branches of this conversation, one line each."""
        if not await self._events():
            raise UsageError("There are no branches yet.")
        return await tree_lines(self._harness.store, self._thread.log, here=self._thread.log)

    async def export(self, name: str) -> Path:
        """Write the conversation with all its branches into a new file; return its path."""
        if not await self._events():
            raise UsageError("There is nothing to export yet.")
        store = self._harness.store
        if not isinstance(store, Portable):
            raise UsageError("This kind of store cannot export threads. Use a store of Evener.")
        path = self.folder / os.path.expanduser(name or f"{self._thread.log[:8]}.jsonl")
        await write_export(store, self._thread.log, path)
        return path

    # Internals.

    async def _events(self) -> list[ev.Event]:
        """Return the events of the branch; none before the first message."""
        if not self._thread.id:
            return []
        await self._thread.state()  # this sets the log of the thread
        return await self._harness.store.read(self._thread.log)

    def _find_losses(self, model: Model, transcript: Transcript) -> tuple[Loss, ...]:
        """Return the losses that a request to this model would have now."""
        if not len(transcript):
            return ()
        try:
            return prepare_request(model.ask(transcript, self._harness.tools.specs), model.endpoint).losses
        except EvenerError as error:
            return (loss_of("degraded", "conversation", f"the losses are not known before the request is sent: {error}"),)

    def _measure(self) -> None:
        model = self._harness.models[0]
        self.tally.window = model.endpoint.facts.window if isinstance(model, Model) else 0

    def _limits(self, spent: Decimal) -> Limits | None:
        if self._allowed is None:
            return None
        left = self._allowed - spent
        if left <= 0:
            raise UsageError(f"The chat has used up its ${self._allowed}. To continue, start it with a higher --max-cost.")
        own = self._harness.thread().agent.setup.limits
        return replace(own, cost=left if own.cost is None else min(left, own.cost))

    def _refresh_limits(self) -> None:
        """Give the next run what is left: --max-cost is for the whole chat, limits are per run."""
        if self._allowed is not None:
            self._thread = self._reopen()

    def _reopen(self) -> Thread:
        """Return the same branch, opened by the current harness."""
        here = self._thread
        return self._harness.thread(here.id, branch=here.log, limits=self._limits(self.tally.spent.cost))


def format_losses(losses: Sequence[Loss]) -> list[str]:
    """Return each loss once, with its number."""
    counted: dict[tuple[str, str, str], int] = {}
    for loss in losses:
        counted[_key(loss)] = counted.get(_key(loss), 0) + 1
    return [f"{kind} {what}{f' ({times} times)' if times > 1 else ''}: {why}" for (kind, what, why), times in counted.items()]


def _key(loss: Loss) -> tuple[str, str, str]:
    return (loss.kind, loss.what, loss.why)


def _is_prompt(message: Message) -> bool:
    return message.role == "user" and not any(isinstance(block, ToolResult) for block in message.blocks)


def _retell(messages: Sequence[Message]) -> list[str]:
    """Return the last exchanges: each prompt with what followed it, and nothing else, until the next one."""
    begins = [number for number, one in enumerate(messages) if _is_prompt(one) and one.text]
    shown = begins[-RETOLD:]
    made = [f"... {count(len(begins) - len(shown), 'earlier exchange')}"] if len(begins) > len(shown) else []
    for begin, end in zip(shown, [*shown[1:], len(messages)], strict=True):
        made += _cut(f"> {messages[begin].text}")
        said = [one for one in messages[begin + 1 : end] if one.role == "assistant"]
        made += [f"\u2192 {flatten(call.name)} {flatten(call.raw, WIDEST)}" for one in said for call in one.calls]
        made += _cut("\n".join(one.text for one in said if one.text)) or ["(no answer)"]
    return made


def _is_over(state: RunState) -> bool:
    """True if there is no run to resume."""
    return not state.run or (state.finished is not None and state.finished.cause in NOT_RESUMABLE)


def _cut(text: str) -> list[str]:
    """Return the first lines of a text, each cut to a bounded length."""
    lines = text.strip().split("\n") if text.strip() else []
    return [line if len(line) <= WIDEST else line[: WIDEST - 3] + "..." for line in lines[:TALLEST]] + ["..."] * (
        len(lines) > TALLEST
    )


def _parse_cost(text: str) -> Decimal | None:
    if not text:
        return None
    found = parse_dollars(text)
    if not found.is_finite() or found <= 0:
        raise BadValue(f"--max-cost is {text!r}; it must be above 0.")
    return found
