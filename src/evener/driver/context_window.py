"""Keeps the requests of a thread within the windows of its models: measures, evicts, and requests summaries.

The pure functions of `evener.context` decide what to cut; this module gives them their input and writes their outcome to the
log. Each attempt is judged by its outcome: what made no room is not tried again for the same request.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from time import time
from typing import Protocol

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.context.accounting import (
    NO_EDITS,
    Account,
    ContextTally,
    KindCount,
    TokenRates,
    count_block,
    count_frame,
    rates_of,
    size_messages,
    size_result,
)
from evener.context.compaction import WORTH, Compaction, ask_for_summary, plan_compaction, read_summary, why_no_summary
from evener.context.eviction import EXCERPTS, Eviction, is_prompt, plan_eviction, speaks, tail_start
from evener.context.gate import ContextRules, RoomFacts, WindowGate, gate_of
from evener.context.provider_side import context_edits, read_compaction
from evener.context.view import SUMMARY
from evener.encodings.own_tools import choose_own_tools, declare_own_tools
from evener.errors import ContextTooLong, EvenerError
from evener.loop.plan import ToolOffer
from evener.loop.state import NoRoom, RunState, apply
from evener.model import Model
from evener.model.seam import Answered, Askable
from evener.model.stream import Answer
from evener.tools.spill import READER
from evener.transcript.ask import Ask, Extra, HostedTool, ModelSettings, OutputSchema, ToolSpec
from evener.transcript.blocks import Origin, TextBlock
from evener.transcript.message import Message
from evener.transcript.mint import new_id
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript

LEAST_WINDOW = 1024
"""Tokens: a server that counts less than this does not count what it was sent."""
OVERFLOW = "ContextTooLong"
UNKNOWN = RoomFacts()


class RoomHost(Protocol):
    """The part of a driver that making room needs."""

    @property
    def state(self) -> RunState: ...

    @property
    def answers(self) -> Mapping[str, Answered]:
        """Return the last answer, by the name of its model."""
        ...

    def record(self, *events: ev.Event) -> Coroutine[object, object, bool]: ...

    async def ask_aside(self, model: Askable, ask: Ask) -> Answered | EvenerError | NoRoom | None:
        """Ask a model something beside the conversation; None when the run was cancelled meanwhile."""
        ...

    def overflow(self) -> ContextTooLong | None:
        """Return the provider's word that the last request was too long, if that was it."""
        ...

    def warn(self, text: str) -> None: ...


class RoomMaker(Protocol):
    """What a driver does before a request. `ContextKeeper` makes room; `evener.replay` plays back a recording of it."""

    def is_far(self, state: RunState, model: Askable, answer: Answered | None) -> bool:
        """True if the next request is certainly so small that there is no room to make. `answer` is the last one."""
        ...

    async def make_room(self, host: RoomHost, called: ev.ModelCalled, model: Askable) -> tuple[ev.Event, ...] | None:
        """Return the events to write with the request; None when there is no room for it, and the log says so."""
        ...

    def answered(self, host: RoomHost, model: Askable, usage: Usage) -> None:
        """Compare what the provider reported with the estimate."""
        ...


class ContextReport(msgspec.Struct, frozen=True):
    """How full a model's window is. `tally` is the estimate by kind, `total` the token count of the next prompt.

    `floor` is what can never be cut. A `gate` of zeros: the window is unknown. `messages` counts those of the thread,
    `left_out` those that requests no longer contain.
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


class _Surround(msgspec.Struct, frozen=True):
    """The part of a request that does not depend on the messages. `size` is the size of the frame. A request of at most
    `small` bytes needs no count; of none, if what is counted is also compared with what the provider reports.
    """

    target: Origin
    rates: TokenRates
    frame: ContextTally
    gate: WindowGate
    facts: RoomFacts
    size: float
    small: float


class _Measured(msgspec.Struct, frozen=True, gc=False):
    account: Account
    gate: WindowGate
    around: _Surround


class ContextKeeper:
    """`RoomMaker` for one thread. Keeps its counts, so that a turn costs only its new content.

    `put_blob` stores results that are cut. `summarizer` is the model that writes summaries; None for the run's own.
    `settings` are those of the agent: their output limit is room that a prompt does not have.
    """

    def __init__(
        self,
        rules: ContextRules,
        *,
        specs: tuple[ToolSpec, ...],
        output: OutputSchema | None = None,
        put_blob: "PutBlob",
        summarizer: Askable | None = None,
        settings: ModelSettings | None = None,
        offered: ToolOffer | None = None,
    ) -> None:
        self.rules = rules
        self._offered = offered
        self._settings = settings
        self._specs = specs
        self._output = output
        self._put_blob = put_blob
        self._summarizer = summarizer
        self._pages = any(spec.name == READER for spec in specs)
        self._accounts: dict[str, Account] = {}
        self._around: dict[str, tuple[object, _Surround]] = {}  # by model, with what it was found for
        self._compacted: dict[str, float] = {}  # by model: the tokens after the last compaction
        self._told: set[str] = set()  # models whose gate is below what can never go, and that was said
        self._learnt: dict[str, int] = {}  # by model: the most that a prompt may have, as its provider has shown

    # Measuring.

    def _measure(self, state: RunState, model: Askable) -> _Measured:
        """Count the view, and find the gate of the model. Costs what is new in the view."""
        view = state.view
        return self._measure_view(state, model, view, self._surround(state, model, model.name, view))

    def _measure_view(self, state: RunState, model: Askable, view: Transcript, around: _Surround) -> _Measured:
        name = model.name
        known = self._accounts.get(name)
        if known is None:
            known = Account(around.rates, around.size, edited=self._edits(around.facts))
            saved = _saved(state) if state.context else NO_EDITS
        else:
            known = known if known.frame == around.size else known.framed(around.size)
            saved = _saved(state) if state.context and not view.extends(known.node) else NO_EDITS
        account = self._accounts[name] = known.after(view, around.target, saved=saved)
        return _Measured(account, around.gate, around)

    def _offer(self, state: RunState) -> tuple[ToolSpec | HostedTool, ...]:
        return self._specs if self._offered is None else self._offered.at(state.revealed)

    def _surround(self, state: RunState, model: Askable, name: str, view: Transcript) -> _Surround:
        """Find what does not depend on the messages; the same as for the request before, if nothing about it is new."""
        found_for, kept = (view.system_blocks, state.settings, state.revealed), self._around.get(name)
        if kept is not None and kept[0] == found_for:
            return kept[1]
        learnt = self._learnt.get(name)
        ask = model.ask(view, self._offer(state), output=self._output)
        facts = model.room if isinstance(model, Model) else UNKNOWN
        known = self._accounts.get(name)
        rates = known.rates if known else rates_of(ask.target.wire, counts_reasoning=facts.counts_reasoning)
        gate = gate_of(self.rules, facts, self._asked_output(state, ask))
        gate = gate.lowered(learnt, learnt) if learnt and learnt < (gate.most or learnt + 1) else gate
        if self._edits(facts):
            gate = replace(gate, gate=gate.most)  # the provider's comes first
        frame = self._frame(model, ask, rates)
        # The frame counts twice: by its bytes as well, and there may be more tools than in the request before.
        small = gate.target - frame.total if facts.is_trusted else -1.0
        made = _Surround(ask.target, rates, frame, gate, facts, frame.total, small)
        self._around[name] = (found_for, made)
        return made

    def _edits(self, facts: RoomFacts) -> bool:
        """True if the provider shortens conversations itself."""
        return self.rules.by_provider == "edit" and facts.edits

    def _asked_output(self, state: RunState, ask: Ask) -> int | None:
        """Return the output limit of the next request: that of the run, of the agent, or of the model."""
        for given in (state.settings, self._settings):
            if given is not None and given.max_output_tokens is not None:
                return given.max_output_tokens
        return ask.settings.max_output_tokens

    def _frame(self, model: Askable, ask: Ask, rates: TokenRates) -> ContextTally:
        own = choose_own_tools(ask, model.endpoint.facts.quirks) if ask.tools and isinstance(model, Model) else ()
        tools = declare_own_tools(ask.tools, own) if own else ask.tools
        return count_frame(ask.transcript, tools, ask.output, rates)

    def report(self, state: RunState, model: Askable) -> ContextReport:
        """Return how full the window of this model is."""
        measured = self._measure(state, model)
        account, context = measured.account, state.context
        waiting, counted = _waiting(state, account.rates), KindCount(account.rates).after(state.view)
        shown = {message.id for message in state.view}
        return ContextReport(
            model=model.name,
            tally=measured.around.frame + counted.messages + ContextTally(results=waiting),
            total=round(account.total + waiting),
            reported=round(account.reported),
            floor=round(self._floor(state, account)),
            gate=measured.gate,
            evictions=context.evictions if context else 0,
            compactions=context.compactions if context else 0,
            pinned=tuple(sorted(context.pinned)) if context else (),
            messages=len(state.transcript),
            left_out=sum(message.id not in shown for message in state.transcript) if context and context.is_edited else 0,
        )

    def _floor(self, state: RunState, account: Account) -> float:
        """Return what can never be taken out: the frame, prompts, pinned messages, and the newest exchange, shortened."""
        messages, context = state.view.messages, state.context
        pinned, summaries = (context.pinned, context.summaries) if context else (frozenset[str](), frozenset[str]())
        start = tail_start(messages, 1)
        fixed = [
            one
            for place, one in enumerate(messages)
            if place >= start or one.id in pinned or (one.id not in summaries and (is_prompt(one) or speaks(one)))
        ]
        kept = size_messages(fixed, account.rates)
        tail = tuple(one for one in messages[start:] if one.id not in pinned)
        most = plan_eviction(
            tail, float("inf"), rates=account.rates, rules=self.rules, pinned=pinned, excerpt=EXCERPTS[-1]
        ).saved  # fmt: skip
        return account.frame + max(kept - most, 0.0)

    async def too_large(self, state: RunState, message: Message, model: Askable, answer: Answered | None) -> str:
        """Return why a message can never be sent to the model, in words; empty when it can. `answer` is the last one."""
        view = state.view
        measured = self._surround(state, model, model.name, view)
        most, own, fixed = measured.gate.most, size_messages((message,), measured.rates), measured.size
        if not most or self.is_far(state, model, answer, own):
            return ""
        if own + fixed <= most:
            await asyncio.to_thread(view.load) if view.page is not None else None
            account = self._measure(state, model).account
            floor = self._floor(state, account) if account.total + own > most else 0.0
            return "" if floor + own <= most else self._refuse_beside(model, measured, own, floor)
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

    def _refuse_beside(self, model: Askable, measured: _Surround, own: float, floor: float) -> str:
        """Return why a message has no room beside what is never taken out."""
        return (
            f"The message has about {round(own):,} tokens, and {model.name} has room for {measured.gate.most:,}. What is never "
            f"taken out has about {round(floor):,}: system prompt and tools {round(measured.size):,}, the rest the user's "
            "prompts, pinned messages and the newest exchange. Nothing was sent or stored. Send a shorter message, fork from "
            "an earlier one, use a model with a larger window, or begin a new thread."
        )

    # Making room.

    def is_far(self, state: RunState, model: Askable, answer: Answered | None, more: float = 0.0) -> bool:
        """True if the next prompt is below its target by its bytes alone. Then nothing is counted: a text has no more tokens
        than bytes, and a character has at most four of these. That is known right after an answer: its request held everything
        but itself and the results that wait to be told. `more`: tokens that are to be added.
        """
        kept, reply, transcript = self._around.get(model.name), state.reply, state.transcript
        if kept is None or reply is None or type(answer) is not Answer or answer.message.id != reply.message.id:
            return False
        found_for, around = kept
        if found_for != (transcript.system_blocks, state.settings, state.revealed) or state.context or state.failure:
            return False
        encoded = answer.sent.encoded
        if encoded.resumed or transcript.has_images or state.steering:
            return False
        more += max(len(encoded.body) + answer.size, answer.reply.usage.total)  # a provider may add to what it is sent
        for pending in state.calls:
            if pending.result is not None:
                more += around.rates.call
                for part in pending.result.content:
                    if type(part) is not TextBlock:
                        return False
                    more += len(part.text) * 4
        return more <= around.small

    async def make_room(self, host: RoomHost, called: ev.ModelCalled, model: Askable) -> tuple[ev.Event, ...] | None:
        """See `RoomMaker`."""
        state = host.state
        if state.context is not None and state.context.sealed is not None:
            await self._reopen(host, model, state.context.sealed)
            state = host.state
        name = model.name
        refused = host.overflow() if state.failure is not None and state.model == name else None
        view = state.transcript if state.context is None else state.view
        around = self._surround(state, model, name, view)
        if view.page is not None:
            if refused is None and not around.gate.most:
                return ()  # nothing to hold it against: a long thread is not read from disk just to be counted
            await asyncio.to_thread(view.load)
        measured = self._measure_view(state, model, view, around)
        total = measured.account.total + _waiting(state, measured.account.rates)
        if refused is not None:
            self._learn(name, total, refused)
            measured = self._measure(state, model)
        gate = measured.gate
        if not gate.most or total <= gate.target or (total <= gate.gate and not self._is_cold(state, called)):
            return ()
        return await self._shorten(host, called, model, measured, total, "gate" if refused is None else "overflow")

    async def _shorten(
        self, host: RoomHost, called: ev.ModelCalled, model: Askable, measured: _Measured, total: float, cause: ev.CutCause
    ) -> tuple[ev.Event, ...] | None:
        """Evict content; if that is not enough, get a summary; if that is not enough, cut the newest results."""
        gate = measured.gate
        found = self._evict(host.state, called, measured, total)
        left = total - found.saved
        if left > gate.gate and self._can_help(host, model, measured, left) and self.rules.compact:
            made = await self._compact_first(host, model, cause)
            if host.state.cancelled is not None:
                return ()
            if made:
                measured = self._measure(host.state, model)
                total = measured.account.total + _waiting(host.state, measured.account.rates)
                self._compacted[model.name] = total
                found = self._evict(host.state, called, measured, total) if total > gate.gate else Eviction()
        for excerpt in EXCERPTS:
            if total - found.saved > gate.most:
                found = self._evict(host.state, called, measured, total, excerpt)
        if total - found.saved > gate.most:
            await self._give_up(host, called, model, measured, total)
            return None
        if not found.cuts or (found.saved < gate.most * WORTH and total <= gate.most):
            return ()
        return (await self._written(host.state, found, cause, total),)

    async def _reopen(self, host: RoomHost, model: Askable, sealed: Origin) -> None:
        """Put back what a summary stands for that only another provider can read."""
        if not isinstance(model, Model) or model.origin.owns(sealed.wire, sealed.provider):
            return
        await host.record(ev.ContextRestored(at=time(), id="", cause="gate"))
        host.warn(
            f"The summary of the older messages was made by {sealed.provider}, and only that provider can read it. "
            f"{model.name} gets the messages themselves again."
        )

    def _can_help(self, host: RoomHost, model: Askable, measured: _Measured, left: float) -> bool:
        """True if a compaction may bring the conversation below its gate. Judged by outcome: after one that left it above, the
        next waits until there is something new that is worth it.
        """
        gate = measured.gate
        if left > gate.most:
            return True
        floor = self._floor(host.state, measured.account)
        if floor <= gate.gate:
            return left >= self._compacted.get(model.name, 0.0) + gate.most * WORTH
        if model.name not in self._told:
            self._told.add(model.name)
            host.warn(
                f"Content that is never taken out has about {round(floor):,} tokens, more than the {gate.gate:,} above which "
                f"conversations with {model.name} are shortened. So nothing is taken out before {gate.most:,} tokens. Use "
                "fewer tools, a shorter system prompt, fewer pinned messages, or a model with a larger window."
            )
        return False

    def _is_cold(self, state: RunState, called: ev.ModelCalled) -> bool:
        """True if the provider's cache has expired, so that a cut costs nothing."""
        node = state.view.head
        while node is not None and node.message.role != "assistant":
            node = node.parent
        made = node.message.created_at if node else None
        return made is not None and 0 < self.rules.idle < called.at - made.timestamp()

    def _learn(self, name: str, total: float, refused: ContextTooLong) -> None:
        """Remember that a provider has refused a prompt of about this many tokens."""
        said = min(refused.limit or total, total)
        self._learnt[name] = int(min(said, self._learnt.get(name, said)) * (1.0 if refused.limit else 0.9))
        self._around.pop(name, None)

    def _evict(
        self, state: RunState, called: ev.ModelCalled, measured: _Measured, total: float, excerpt: int | None = None
    ) -> Eviction:
        messages = apply(state, called).view.messages
        pinned = state.context.pinned if state.context else frozenset[str]()
        return plan_eviction(
            messages, total - measured.gate.target, rates=measured.account.rates, rules=self.rules, pinned=pinned,
            tail=measured.gate.target * TAIL, prefix_bound=measured.around.facts.prefix_bound,
            excerpt=excerpt,
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

    async def _give_up(self, host: RoomHost, called: ev.ModelCalled, model: Askable, measured: _Measured, total: float) -> None:
        gate, context, state = measured.gate, host.state.context, apply(host.state, called)
        floor = self._floor(state, measured.account)
        summaries = context.summaries if context else frozenset[str]()
        said = [one for one in state.view if is_prompt(one) and one.id not in summaries]
        prompts = size_messages(said, measured.account.rates)
        tried = " The rest could not be summarised: `evener show` says why." if context and context.failed else ""
        message = (
            f"The conversation does not fit {model.name}: about {round(total):,} tokens, with room for {gate.most:,} (a window "
            f"of {gate.window:,}, {gate.reserved:,} of it for the answer). What is never taken out has about {round(floor):,}: "
            f"system prompt and tools {round(measured.account.frame):,}, the user's prompts {round(prompts):,}, the rest "
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
        there = self._there(model, focus) if not context or not context.failed else None
        if there is not None:
            event = await self._compact_there(host, there, wanted, account, cause=cause, focus=focus)
            if event is not None:
                await host.record(event)
            return event
        summarizer = self._summarizer or model
        made = await self._summary(host, summarizer, wanted, focus)
        event = self._judge(state, made, wanted, account, cause=cause, focus=focus, model=summarizer.name)
        if event is not None:
            await host.record(event)
        return event

    def _there(self, model: Askable, focus: str) -> Model | None:
        """Return the model whose provider compacts, if that is wanted and it can."""
        return model.compacting(focus) if self.rules.by_provider and isinstance(model, Model) else None

    async def _compact_there(
        self, host: RoomHost, model: Model, wanted: Compaction, account: Account, *, cause: ev.CutCause, focus: str
    ) -> ev.Compacted | ev.CompactionFailed | None:
        """Have the provider compact what it has been sent anyway: the same prefix, so its prompt cache has it."""
        view = host.state.view
        messages = view.messages
        place = next(number for number, one in enumerate(messages, 1) if one.id == wanted.until)
        ask = model.ask(Transcript(messages[:place], view.system_blocks), self._offer(host.state))
        made = await host.ask_aside(model, replace(ask, stream=False))
        head = host.state.transcript.last.id if host.state.transcript.last else ""
        if made is None:
            return None
        if isinstance(made, EvenerError | NoRoom):
            why = made.why if isinstance(made, NoRoom) else f"{type(made).__name__}: {made}"
            return ev.CompactionFailed(at=time(), detail=why, model=model.name, head=head, cause=cause)
        usage, cost, exact = made.reply.usage, made.cost.amount, made.cost.exact
        found = read_compaction(made.reply)
        size = 0.0 if isinstance(found, str) else max(count_block(found, account.rates), float(usage.output_total))
        found = "it is longer than what it stands for" if size > wanted.freed else found
        if isinstance(found, str):
            detail = f"The provider's answer is no compaction: {found}."
            return ev.CompactionFailed(
                at=time(), detail=detail, model=model.name, usage=usage, cost=cost, exact=exact, head=head, cause=cause
            )  # fmt: skip
        sealed = replace(found, provider=model.origin.provider)
        return ev.Compacted(
            at=time(), id=new_id(), summary=Message("assistant", (sealed,), id=new_id(), origin=model.origin),
            until=wanted.until, kept=wanted.kept, cause=cause, tokens=round(account.total), saved=round(wanted.freed - size),
            head=head, model=model.name, usage=usage, cost=cost, exact=exact, focus=focus,
            leads=model.endpoint.facts.quirks.compaction == "field",
        )  # fmt: skip

    def edits(self, model: Askable, state: RunState) -> tuple[Extra, ...]:
        """Return the fields with which the provider shortens conversations itself, from the gate on."""
        if not isinstance(model, Model):
            return ()
        gate = self._surround(state, model, model.name, state.view).gate
        if not gate.window:
            return ()
        trigger, least = self._trigger(gate)
        return context_edits(model.origin.wire, model.endpoint.facts.quirks, trigger=trigger, least=least, keep=self.rules.tail)

    def _trigger(self, gate: WindowGate) -> tuple[int, int]:
        return int(gate.most * self.rules.gate), int(gate.most * (self.rules.gate - self.rules.target))

    async def _summary(
        self, host: RoomHost, model: Askable, wanted: Compaction, focus: str
    ) -> Answered | EvenerError | NoRoom | None:
        kept = set(wanted.kept)
        prompts = tuple(one for one in host.state.view if one.id in kept and is_prompt(one))
        dropped = _readable(host.state, wanted.dropped)
        measured = self._measure(host.state, model)
        most = int(measured.gate.most / max(measured.account.rates.text, 0.2) * 0.8) if measured.gate.most else 400_000
        return await host.ask_aside(model, model.ask(ask_for_summary(dropped, prompts, focus=focus, most=most)))

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
        saved = wanted.freed - (size_messages((summary,), account.rates) if summary else 0.0)
        if summary is None or saved < wanted.freed * LEAST_SAVED:
            detail = f"The answer is no summary: {why or 'it is hardly shorter than what it stands for'}."
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
        """See `RoomMaker`. A server that was given more than it counts has cut it without a word.

        Only where the row says that its servers do, or does not know the window: elsewhere it is the count that is wrong.
        """
        if not isinstance(model, Model) or model.room.is_trusted:
            return
        account = self._accounts.get(model.name)
        if account is None or account.edited or not usage.input_total:
            return
        sent = account.frame + account.plain  # a picture may well be small
        if usage.input_total < LEAST_WINDOW or usage.input_total * 2 > sent or model.name in self._learnt:
            return
        self._learnt[model.name] = usage.input_total
        self._around.pop(model.name, None)
        host.warn(
            f"{model.name} counted {usage.input_total:,} tokens of about {round(sent):,} that were sent: its server may have "
            "cut the conversation. Evener keeps it shorter from now on. Set the server's window, or `window` in ContextRules."
        )


TAIL = 0.5
"""How much of the target the newest exchanges may take: beyond that only the newest of them is left as it is."""
LEAST_SAVED = 0.1
"""A summary must take away this share of what it stands for: else the next request would need one again."""
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
            told, shown = size_result(pending.result.content, rates)
            tokens += told + shown
    return tokens + size_messages(state.steering, rates) if state.steering else tokens


def _readable(state: RunState, dropped: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return what a summary is to stand for; for a summary that only its maker can read, the messages behind it."""
    context = state.context
    if context is None or context.sealed is None:
        return dropped
    shown = {one.id for one in state.view}
    behind = (one for one in state.transcript if one.id not in shown)
    return (*behind, *(one for one in dropped if one.id not in context.summaries))


def _saved(state: RunState) -> Mapping[str, float]:
    """Return what edits took away, by the message after which they were made."""
    found: dict[str, float] = {}
    for head, saved in state.context.recent if state.context else ():
        found[head] = found.get(head, 0.0) + saved
    return found
