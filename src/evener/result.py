"""What a run came to: a projection of its events. Pure values and functions."""

from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING, Generic

import msgspec

from evener import events as ev
from evener.context.scratchpad import Scratchpad
from evener.encodings.forms import FINAL_RESULT
from evener.errors import NoOutput
from evener.loop.state import RunState, outcome_key
from evener.resume_state import ResumeState
from evener.transcript.blocks import ToolCall
from evener.transcript.loss import Loss
from evener.transcript.reply import Usage
from evener.transcript.transcript import Transcript

if TYPE_CHECKING:  # defaults of type variables are for checkers, which know them on any Python
    from typing_extensions import TypeVar

    Output = TypeVar("Output", covariant=True, default=object)
else:
    from typing import TypeVar

    Output = TypeVar("Output", covariant=True)

__all__ = [
    "ONCE_BY_HOOK",
    "Approval",
    "CallRecord",
    "Output",
    "RequestRecord",
    "RunResult",
    "RunUsage",
    "approvals_of",
    "result_of",
]


ONCE_BY_HOOK = '{"cancelled_by":"hook"}'
"""The metadata with which older logs say that a hook cancelled a call before it was started."""


class CallRecord(msgspec.Struct, frozen=True):
    """One tool call of a run and what became of it; `result` is None when it was never run."""

    call: ToolCall
    result: ev.CallFinished | None = None
    key: str = ""
    starts: int = 0

    @property
    def ok(self) -> bool:
        return self.result is not None and self.result.ok

    @property
    def by_hook(self) -> bool:
        """Whether a hook cancelled it."""
        done = self.result
        return done is not None and (done.by_hook or (not self.starts and done.metadata == ONCE_BY_HOOK))


class RequestRecord(msgspec.Struct, frozen=True):
    """One model request of a run: who was asked, what it used, how long it took.

    `raw` is the answer as the provider sent it, without secrets, if `ModelSettings.keep_raw` asked for it; `raw_blob` names it
    in the store.
    """

    model: str
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    seconds: float = 0.0
    first: float = 0.0
    tries: int = 1
    error: str = ""
    raw_blob: str = ""
    raw: bytes = b""


class RunUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a run used, the runs inside its calls included. `cost` is in US dollars, a lower bound unless `exact`.

    `output_retries` are answers that were sent back because of their form, `tool_retries` results that asked the model to
    correct its call: name of the tool, and how many. `failures` are requests without an answer.
    """

    requests: int = 0
    tool_calls: int = 0
    tokens: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    seconds: float = 0.0
    failures: int = 0
    output_retries: int = 0
    tool_retries: tuple[tuple[str, int], ...] = ()


class Approval(msgspec.Struct, frozen=True):
    """Something that waits to be decided: a call, or what `interrupt` says. `expires` is a time; 0 is never.

    `thread` is where it waits: the run's own, or that of a run inside one of its calls.
    """

    id: str
    key: str
    thread: str
    interrupt: ev.Interrupt
    digest: str
    call: ToolCall | None = None
    why: str = ""
    rule: str = ""
    expires: float = 0.0


class RunResult(msgspec.Struct, Generic[Output], frozen=True, kw_only=True):
    """A run that came to a stop. `text` is the last thing the model said in words; `output` the structured answer.

    `cost` is in US dollars, a lower bound unless `exact`; but where money is limited, a request that was given up counts with
    the most that it may have cost. `pending` are calls that were asked for and not run.
    `scratchpad` is the conversation's, if the harness keeps one. Give `thread` to the next run to go on with the
    conversation, or to `resume` to go on with this run.
    """

    text: str
    output: Output | None = None
    output_text: str = ""
    stop: ev.StopCause
    detail: str = ""
    usage: Usage
    cost: Decimal
    exact: bool
    thread: str
    run: str
    pending: tuple[ToolCall, ...] = ()
    approvals: tuple[Approval, ...] = ()
    losses: tuple[Loss, ...] = ()
    records: tuple[CallRecord, ...] = ()
    requests: tuple[RequestRecord, ...] = ()
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    scratchpad: Scratchpad | None = None
    metadata_text: str = ""
    used: RunUsage = RunUsage()
    transcript: Transcript

    @property
    def ok(self) -> bool:
        """Whether the model gave its final answer."""
        return self.stop == "done"

    def require_output(self) -> Output:
        """Return the structured answer, or the text where none was asked for. NoOutput when the run came to none."""
        if self.output is None:
            why = f"The run came to no answer ({self.stop}). {self.detail}".strip()
            raise NoOutput(f"{why} Resume the thread {self.thread}, or look at `RunResult.stop` first.")
        return self.output

    @property
    def raw_responses(self) -> tuple[bytes, ...]:
        """The answers as their providers sent them, without secrets, in order; those that `ModelSettings.keep_raw` kept."""
        return tuple(one.raw for one in self.requests if one.raw)

    @property
    def metadata(self) -> dict[str, object]:
        """The caller's own, as it was given to `run`."""
        return msgspec.json.decode(self.metadata_text, type=dict[str, object]) if self.metadata_text else {}

    @property
    def cancelled_calls(self) -> int:
        """How many calls were cancelled by hooks. They count toward the limit of tool calls like any other."""
        return sum(record.by_hook for record in self.records)

    @property
    def resume_state(self) -> ResumeState | None:
        """The conversation, for `Harness.run(..., resume_from=...)` anywhere. Only after a clean end: the model's own words.

        None after any other stop, and where the answer was a call: `resume` the thread instead, or run on in it.
        """
        last = self.transcript.last
        if not self.ok or self.pending or last is None or last.role != "assistant" or last.calls:
            return None
        return ResumeState.of(self.transcript, model=self.requests[-1].model if self.requests else "unknown")


def result_of(state: RunState, events: Iterable[ev.Event], *, log: str, warnings: Iterable[str] = ()) -> RunResult:
    """Return the result of the state's run, from the events of the run (others are passed over)."""
    run = _Story(events)
    finished = state.finished
    last = run.last
    return RunResult(
        text=last.message.text if last else "",
        output_text=last.output if last else "",
        stop=finished.cause if finished else "approval" if state.phase == "waiting" else "cancelled",
        detail=finished.detail if finished else "" if state.phase == "waiting" else "The run was given up before its end.",
        usage=state.spent.usage,
        cost=state.spent.cost,
        exact=state.spent.exact,
        thread=log,
        run=state.run,
        pending=tuple(pending.call for pending in state.calls if pending.status != "finished"),
        approvals=approvals_of(state, log),
        losses=tuple(run.losses),
        records=tuple(run.records),
        requests=tuple(run.requests),
        seconds=state.spent.seconds,
        warnings=tuple(warnings),
        metadata_text=state.metadata,
        used=run.used(state),
        transcript=state.transcript,
    )


def approvals_of(state: RunState, log: str) -> tuple[Approval, ...]:
    """Return what waits to be decided, in this log and in runs inside its calls. A run that ended asks anew when resumed."""
    ended = state.finished is not None and state.finished.cause != "approval"
    calls = {key: one.call for one in state.calls for key in (one.call.id, outcome_key(one.call.id))}
    own = (
        Approval(
            one.approval, one.question.key, log, one.interrupt, one.question.digest, calls.get(one.question.key),
            one.question.why, one.question.rule, one.expires,
        )
        for one in (() if ended else state.open_questions)
    )  # fmt: skip
    inner = (_inner(one) for pending in state.calls if pending.status == "paused" for one in pending.inner)
    return (*own, *inner)


def _inner(one: ev.InnerQuestion) -> Approval:
    question = one.question
    id = question.key.removeprefix(outcome_key("")) if one.interrupt == "outcome" else question.key
    call = ToolCall(id, one.tool, one.arguments) if one.tool else None
    return Approval(
        one.approval, question.key, one.thread, one.interrupt, question.digest, call, question.why, question.rule, one.expires
    )


class _Story:
    """What the events of a run tell, in one go. Records are in the model's order, whatever order the calls ended in.

    Each loss is told once: a history is sent with every request, and loses the same things each time.
    """

    def __init__(self, events: Iterable[ev.Event]) -> None:
        self._begin()
        for event in events:
            if type(event) is ev.ModelCalled:
                self._asked = event.model
            elif type(event) is ev.Replied:
                self._find_reply(event)
            elif type(event) is ev.CallStarted:
                if event.call in self._places:
                    place = self._places[event.call]
                    self._keys[place] = event.key
                    self._starts[place] += not event.verifying
            elif type(event) is ev.CallFinished:
                if event.call in self._places:
                    self._results[self._places[event.call]] = event
            else:
                self._find_rare(event)
        self.records = [*map(CallRecord, self._calls, self._results, self._keys, self._starts)]

    def _begin(self) -> None:
        """Forget what came before a prompt: it was of another run."""
        self.last: ev.Replied | None = None
        self.losses: dict[Loss, None] = {}
        self.requests: list[RequestRecord] = []
        self.corrected = 0
        self._calls: list[ToolCall] = []
        self._results: list[ev.CallFinished | None] = []
        self._keys: list[str] = []
        self._starts: list[int] = []
        self._places: dict[str, int] = {}  # where the calls of the last answer are in these lists
        self._asked = ""

    def _find_rare(self, event: ev.Event) -> None:
        match event:
            case ev.Prompted():
                self._begin()
            case ev.Resumed(results=results):
                for result in results:
                    if result.call in self._places:
                        self._results[self._places[result.call]] = result
            case ev.ModelFailed():
                self.requests.append(RequestRecord(self._asked, error=f"{event.error}: {event.message}"))

    def _find_reply(self, event: ev.Replied) -> None:
        self.last = event
        self.corrected += bool(event.problems)
        usage = event.message.usage or Usage()
        self.requests.append(
            RequestRecord(
                self._asked, usage, event.cost, event.exact, event.seconds, event.first, event.tries, raw_blob=event.raw_blob
            )
        )
        for loss in event.losses:
            self.losses[loss] = None
        self._places = {}
        for call in event.message.calls:
            if call.name != FINAL_RESULT:
                self._places[call.id] = len(self._calls)
                self._calls.append(call)
                self._results.append(None)
                self._keys.append("")
                self._starts.append(0)

    def used(self, state: RunState) -> RunUsage:
        """What the run used, as far as these events tell its retries."""
        retried = Counter(one.call.name for one in self.records if one.result is not None and one.result.retry)
        spent = state.spent
        return RunUsage(
            requests=spent.requests, tool_calls=spent.tool_calls, tokens=spent.usage, cost=spent.cost, exact=spent.exact,
            seconds=spent.seconds, failures=sum(bool(one.error) for one in self.requests), output_retries=self.corrected,
            tool_retries=tuple(sorted(retried.items())),
        )  # fmt: skip
