"""Keeps the requests of a thread within the windows of its models: measures, evicts, has summaries made.

What goes is decided by the pure functions of `evener.context`; here they are given what they need, and their outcome is
written to the log. Each attempt is judged by its outcome: what made no room is not tried again for the same request.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from time import time
from typing import Protocol

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.context.accounting import Account, ContextTally, TokenRates, count_block, count_frame, count_message, rates_of
from evener.context.compaction import WORTH, Compaction, ask_for_summary, plan_compaction, read_summary, why_no_summary
from evener.context.eviction import Eviction, is_prompt, plan_eviction, tail_start
from evener.context.gate import ContextRules, WindowGate, gate_of
from evener.context.view import SUMMARY
from evener.errors import ContextTooLong, EvenerError
from evener.loop.state import NoRoom, RunState, apply
from evener.model import Model
from evener.model.seam import Answered, Askable
from evener.tools.spill import READER
from evener.transcript.ask import Ask, OutputSchema, ToolSpec
from evener.transcript.blocks import TextBlock, ToolResult
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transcript.reply import Usage
from evener.wire.quirks import Quirks

__all__ = ["ContextKeeper", "ContextReport", "RoomHost", "RoomMaking"]

LEAST_WINDOW = 1024
"""Tokens: a server that counts less than this does not count what it was sent."""
OVERFLOW = "ContextTooLong"
PLAIN = Quirks()


class RoomHost(Protocol):
    """A driver, as far as room is made for it."""

    @property
    def state(self) -> RunState: ...

    async def record(self, *events: ev.Event) -> None: ...

    async def ask_aside(self, model: Askable, ask: Ask) -> Answered | EvenerError | NoRoom | None:
        """Ask a model something beside the conversation; None when the run was cancelled meanwhile."""
        ...

    def overflow(self) -> ContextTooLong | None:
        """Return the provider's word that the last request was too long, if that was it."""
        ...

    def warn(self, text: str) -> None: ...


class RoomMaking(Protocol):
    """What a driver does before a request. `ContextKeeper` makes room; `evener.replay` plays back how it was made."""

    async def make_room(self, host: RoomHost, called: ev.ModelCalled, model: Askable) -> tuple[ev.Event, ...] | None:
        """Return the events to write with the request; None when there is no room for it, and the log says so."""
        ...

    def answered(self, host: RoomHost, model: Askable, usage: Usage) -> None:
        """Compare what the provider reported with the estimate."""
        ...


class ContextReport(msgspec.Struct, frozen=True):
    """How full a model's window is. `tally` is the estimate by kind, `total` the anchored count of the next prompt.

    `floor` is what can never be taken out. A `gate` of zeros: the window is not known. `messages` are those of the thread,
    `left_out` those that requests no longer hold.
    """

    model: str
    tally: ContextTally
    total: int
    reported: int
    floor: int
    gate: WindowGate
    pinned: tuple[str, ...] = ()
    evictions: int = 0
    compactions: int = 0
    messages: int = 0
    left_out: int = 0


class _Measured(msgspec.Struct, frozen=True):
    account: Account
    gate: WindowGate
    quirks: Quirks


class _Surround(msgspec.Struct, frozen=True):
    ask: Ask
    rates: TokenRates
    frame: ContextTally
    gate: WindowGate
    quirks: Quirks


class ContextKeeper:
    """`RoomMaking` for one thread. Keeps its counts, so that a turn costs what is new in it.

    `put_blob` keeps results that are taken out. `summarizer` is the model that writes summaries; None for the one asked.
    """

    def __init__(
        self,
        rules: ContextRules,
        *,
        specs: tuple[ToolSpec, ...],
        output: OutputSchema | None = None,
        put_blob: "PutBlob",
        summarizer: Askable | None = None,
    ) -> None:
        self.rules = rules
        self._specs = specs
        self._output = output
        self._put_blob = put_blob
        self._summarizer = summarizer
        self._pages = any(spec.name == READER for spec in specs)
        self._accounts: dict[str, Account] = {}
        self._frames: dict[str, tuple[object, ContextTally]] = {}
        self._learnt: dict[str, int] = {}  # by model: the most that a prompt may have, as its provider has shown

    # Measuring.

    def _measure(self, state: RunState, model: Askable) -> _Measured:
        """Count the view, and find the gate of the model. Costs what is new in the view."""
        around = self._surround(state, model)
        ask, known = around.ask, self._accounts.get(model.name)
        account = known.framed(around.frame) if known else Account(around.rates, around.frame)
        new = known is None or not ask.transcript.extends(known.node)
        account = account.after(ask.transcript, ask.target, saved=_saved(state) if new and state.context else {})
        self._accounts[model.name] = account
        return _Measured(account, around.gate, around.quirks)

    def _surround(self, state: RunState, model: Askable) -> "_Surround":
        """Find what does not depend on the messages."""
        ask = model.ask(state.view, self._specs, output=self._output)
        facts = model.endpoint.facts if isinstance(model, Model) else None
        quirks = facts.quirks if facts else PLAIN
        known = self._accounts.get(model.name)
        rates = known.rates if known else rates_of(ask.target.wire, counts_reasoning=quirks.counts_reasoning)
        gate = gate_of(
            self.rules, facts.window if facts else 0, asked_output=ask.settings.max_output_tokens,
            default_output=quirks.default_output, max_output=quirks.max_output,
        )  # fmt: skip
        learnt = self._learnt.get(model.name)
        gate = gate.lowered(learnt, learnt) if learnt and learnt < (gate.most or learnt + 1) else gate
        return _Surround(ask, rates, self._frame(model.name, ask, rates), gate, quirks)

    def _frame(self, name: str, ask: Ask, rates: TokenRates) -> ContextTally:
        system = ask.transcript.system_blocks
        known = self._frames.get(name)
        if known is None or known[0] is not system:
            known = self._frames[name] = (system, count_frame(ask.transcript, ask.tools, ask.output, rates))
        return known[1]

    def report(self, state: RunState, model: Askable) -> ContextReport:
        """Return how full the window of this model is."""
        measured = self._measure(state, model)
        account, context = measured.account, state.context
        waiting = _waiting(state, account.rates)
        shown = {message.id for message in state.view}
        return ContextReport(
            model=model.name,
            tally=account.tally + ContextTally(results=waiting),
            total=round(account.total + waiting),
            reported=round(account.reported),
            floor=round(self._floor(state.view.messages, account, context.pinned if context else frozenset())),
            gate=measured.gate,
            evictions=context.evictions if context else 0,
            compactions=context.compactions if context else 0,
            pinned=tuple(sorted(context.pinned)) if context else (),
            messages=len(state.transcript),
            left_out=sum(message.id not in shown for message in state.transcript) if context and context.is_edited else 0,
        )

    def _floor(self, messages: tuple[Message, ...], account: Account, pinned: frozenset[str]) -> float:
        """Return what can never be taken out: the frame, prompts, pinned messages, and the newest exchange, shortened."""
        start = tail_start(messages, 1)
        fixed = [
            one for place, one in enumerate(messages) if place >= start or one.id in pinned or is_prompt(one)
        ]  # fmt: skip
        kept = sum(count_message(one, account.rates).total for one in fixed)
        tail = tuple(one for one in messages[start:] if one.id not in pinned)
        most = plan_eviction(tail, float("inf"), rates=account.rates, rules=self.rules, pinned=pinned, deep=True).saved
        return account.frame.total + max(kept - most, 0.0)

    def too_large(self, state: RunState, message: Message, model: Askable) -> str:
        """Return why a message can never be sent to the model, in words; empty when it can."""
        measured = self._surround(state, model)
        most, own = measured.gate.most, count_message(message, measured.rates).total
        fixed = measured.frame.total
        if not most or own + fixed <= most:
            return ""
        if fixed > most:
            return (
                f"The system prompt and the tools have about {round(fixed):,} tokens, and {model.name} has room for {most:,} "
                f"(a window of {measured.gate.window:,}, {measured.gate.reserved:,} of it for the answer). Nothing was sent or "
                "stored. Use fewer tools, a shorter system prompt, or a model with a larger window."
            )
        return (
            f"The message has about {round(own):,} tokens, and {model.name} has room for {most:,} with its system prompt and "
            f"tools ({round(fixed):,} tokens). Nothing was sent or stored. Send a part of it, or let a "
            "tool read the file piece by piece, or use a model with a larger window."
        )

    # Making room.

    async def make_room(self, host: RoomHost, called: ev.ModelCalled, model: Askable) -> tuple[ev.Event, ...] | None:
        """See `RoomMaking`."""
        if host.state.view.page is not None:
            await asyncio.to_thread(host.state.view.load)
        refused = host.overflow() if host.state.model == model.name else None
        measured = self._measure(host.state, model)
        total = measured.account.total + _waiting(host.state, measured.account.rates)
        if refused is not None:
            self._learn(model.name, total, refused)
            measured = self._measure(host.state, model)
        gate = measured.gate
        cold = self._is_cold(host.state, called)
        if not gate.most or total <= (gate.target if cold else gate.gate):
            return ()
        cause: ev.CutCause = "overflow" if refused is not None else "gate"
        found = self._evict(host.state, called, measured, total)
        if total - found.saved > gate.gate and self.rules.compact:
            made = await self._compact_first(host, model, cause)
            if made:
                measured = self._measure(host.state, model)
                total = measured.account.total + _waiting(host.state, measured.account.rates)
                found = self._evict(host.state, called, measured, total) if total > gate.gate else Eviction()
        if total - found.saved > gate.most:
            found = self._evict(host.state, called, measured, total, deep=True)
        if total - found.saved > gate.most:
            await self._give_up(host, model, measured, total)
            return None
        if not found.cuts or (found.saved < gate.most * WORTH and total <= gate.most):
            return ()
        return (await self._written(host.state, found, cause, total),)

    def _is_cold(self, state: RunState, called: ev.ModelCalled) -> bool:
        """True if the provider's cache has forgotten the conversation, so that a cut costs nothing."""
        node = state.view.head
        while node is not None and node.message.role != "assistant":
            node = node.parent
        made = node.message.created_at if node else None
        return made is not None and 0 < self.rules.idle < called.at - made.timestamp()

    def _learn(self, name: str, total: float, refused: ContextTooLong) -> None:
        """Remember how much a provider takes, which has refused about so much."""
        said = min(refused.limit or total, total)
        self._learnt[name] = int(min(said, self._learnt.get(name, said)) * (1.0 if refused.limit else 0.9))

    def _evict(
        self, state: RunState, called: ev.ModelCalled, measured: _Measured, total: float, *, deep: bool = False
    ) -> Eviction:
        messages = apply(state, called).view.messages
        pinned = state.context.pinned if state.context else frozenset[str]()
        return plan_eviction(
            messages, total - measured.gate.target, rates=measured.account.rates, rules=self.rules, pinned=pinned,
            tail=measured.gate.target * TAIL, prefix_bound=measured.quirks.prefix_bound, deep=deep,
        )  # fmt: skip

    async def _written(self, state: RunState, found: Eviction, cause: ev.CutCause, total: float) -> ev.Evicted:
        """Return the event, once the results that are taken out are kept where the model can read them."""
        cuts = list(found.cuts)
        for place, text in found.texts if self._pages else ():
            cuts[place] = replace(cuts[place], blob=await self._put_blob(text.encode()))
        last = state.transcript.last
        return ev.Evicted(
            at=time(), id=new_id(), cuts=tuple(cuts), cause=cause, tokens=round(total), saved=round(found.saved),
            broken=round(found.broken), fresh=round(found.fresh), head=last.id if last else "",
        )  # fmt: skip

    async def _give_up(self, host: RoomHost, model: Askable, measured: _Measured, total: float) -> None:
        gate, context = measured.gate, host.state.context
        floor = self._floor(host.state.view.messages, measured.account, context.pinned if context else frozenset())
        prompts = sum(count_message(one, measured.account.rates).total for one in host.state.view if is_prompt(one))
        tried = " The rest could not be summarised: `evener show` says why." if context and context.failed else ""
        message = (
            f"The conversation does not fit {model.name}: about {round(total):,} tokens, with room for {gate.most:,} (a window "
            f"of {gate.window:,}, {gate.reserved:,} of it for the answer). What is never taken out has about {round(floor):,}: "
            f"system prompt and tools {round(measured.account.frame.total):,}, the user's prompts {round(prompts):,}, the rest "
            f"pinned or new.{tried} Use a model with a larger window, fewer tools, or a new thread."
        )
        failed = ev.ModelFailed(at=time(), error=OVERFLOW, message=message, elsewhere=True, crowded=True, model=model.name)
        await host.record(failed)

    # Compacting.

    async def _compact_first(self, host: RoomHost, model: Askable, cause: ev.CutCause) -> bool:
        context = host.state.context
        if context is not None and context.failed >= ATTEMPTS:
            return False
        made = await self.compact(host, model, cause=cause)
        return isinstance(made, ev.Compacted)

    async def compact(
        self, host: RoomHost, model: Askable, *, cause: ev.CutCause, focus: str = ""
    ) -> ev.Compacted | ev.CompactionFailed | None:
        """Have a summary made and write down what came of it; None when there is nothing worth it."""
        state = host.state
        measured = self._measure(state, model)
        account, gate = measured.account, measured.gate
        context = state.context
        wanted = plan_compaction(
            state.view.messages, gate.most or account.total, rates=account.rates,
            pinned=context.pinned if context else frozenset(), forced=cause != "gate",
            summaries=context.summaries if context else frozenset(),
        )  # fmt: skip
        if wanted is None:
            return None
        summarizer = self._summarizer or model
        made = await self._summary(host, summarizer, wanted, focus)
        event = self._judge(state, made, wanted, account, cause=cause, focus=focus, model=summarizer.name)
        if event is not None:
            await host.record(event)
        return event

    async def _summary(
        self, host: RoomHost, model: Askable, wanted: Compaction, focus: str
    ) -> Answered | EvenerError | NoRoom | None:
        kept = set(wanted.kept)
        prompts = tuple(one for one in host.state.view if one.id in kept and is_prompt(one))
        measured = self._measure(host.state, model)
        most = int(measured.gate.most / max(measured.account.rates.text, 0.2) * 0.8) if measured.gate.most else 400_000
        return await host.ask_aside(model, model.ask(ask_for_summary(wanted.dropped, prompts, focus=focus, most=most)))

    def _judge(
        self, state: RunState, made: Answered | EvenerError | NoRoom | None, wanted: Compaction, account: Account, *,
        cause: ev.CutCause, focus: str, model: str,
    ) -> ev.Compacted | ev.CompactionFailed | None:  # fmt: skip
        """Return the event: a summary, or why there is none."""
        head = state.transcript.last.id if state.transcript.last else ""
        if made is None:
            return None
        if isinstance(made, EvenerError):
            return ev.CompactionFailed(at=time(), detail=f"{type(made).__name__}: {made}", model=model, head=head, cause=cause)
        if isinstance(made, NoRoom):
            return ev.CompactionFailed(at=time(), detail=made.why, model=model, head=head, cause=cause)
        usage, cost, exact = made.reply.usage, made.cost.amount, made.cost.exact
        why = why_no_summary(made.reply)
        summary = Message("user", (TextBlock(SUMMARY + read_summary(made.reply)),), id=new_id()) if not why else None
        saved = wanted.freed - (count_message(summary, account.rates).total if summary else 0.0)
        if summary is None or saved <= 0:
            detail = f"The answer is no summary: {why or 'it is longer than what it stands for'}."
            return ev.CompactionFailed(
                at=time(), detail=detail, model=model, usage=usage, cost=cost, exact=exact, head=head, cause=cause
            )  # fmt: skip
        return ev.Compacted(
            at=time(), id=new_id(), summary=summary, until=wanted.until, kept=wanted.kept, cause=cause,
            tokens=round(account.total), saved=round(saved), head=head, model=model, usage=usage, cost=cost, exact=exact,
            focus=focus,
        )  # fmt: skip

    # After an answer.

    def answered(self, host: RoomHost, model: Askable, usage: Usage) -> None:
        """See `RoomMaking`. A server that was given more than it counts has cut it without a word."""
        account = self._accounts.get(model.name)
        if account is None or not usage.input_total or not isinstance(model, Model):
            return
        sent = account.frame.total + account.messages.total
        if usage.input_total < LEAST_WINDOW or usage.input_total * 2 > sent or model.name in self._learnt:
            return
        self._learnt[model.name] = usage.input_total
        host.warn(
            f"{model.name} counted {usage.input_total:,} tokens of about {round(sent):,} that were sent: its server may have "
            "cut the conversation. It is kept shorter from here on; set the server's window, or `window` in ContextRules."
        )


TAIL = 0.5
"""How much of the target the newest exchanges may take: beyond that only the newest of them is left as it is."""
ATTEMPTS = 2
"""How often a compaction may fail in one run before it is no longer tried."""


class PutBlob(Protocol):
    """Keeps bytes and returns their name."""

    def __call__(self, content: bytes, /) -> Coroutine[object, object, str]: ...


def _waiting(state: RunState, rates: TokenRates) -> float:
    """Return the tokens of what the next request takes along: results and what the user said meanwhile."""
    tokens = 0.0
    for pending in state.calls:
        if pending.result is not None:
            tokens += count_block(ToolResult(pending.call.id, pending.result.content), rates)
    for message in state.steering:
        tokens += count_message(message, rates).total
    return tokens


def _saved(state: RunState) -> Mapping[str, float]:
    """Return what edits took away, by the message after which they were made."""
    found: dict[str, float] = {}
    for head, saved in state.context.recent if state.context else ():
        found[head] = found.get(head, 0.0) + saved
    return found
