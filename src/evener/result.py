"""The result of a run, computed from its events. Pure values and functions."""

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
    """One tool call of a run and its outcome; `result` is None if it was never run."""

    call: ToolCall
    result: ev.CallFinished | None = None
    key: str = ""
    starts: int = 0

    @property
    def ok(self) -> bool:
        return self.result is not None and self.result.ok

    @property
    def by_hook(self) -> bool:
        """True if a hook cancelled the call."""
        done = self.result
        return done is not None and (done.by_hook or (not self.starts and done.metadata == ONCE_BY_HOOK))


class RequestRecord(msgspec.Struct, frozen=True):
    """One model request of a run: the model, its usage, its duration.

    `raw` is the answer as the provider sent it, without secrets, if `ModelSettings.keep_raw` was set; `raw_blob` is its name in
    the store.
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
    """The usage of a run, including the runs inside its calls. `cost` is in US dollars, a lower bound unless `exact`.

    `output_retries` counts answers that were returned for correction, `tool_retries` results that asked the model to correct
    its call, by tool. `failures` counts requests without an answer.
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
    """A call, or another step named by `interrupt`, that waits for a decision. `expires` is a time; 0 means never.

    `thread` is the thread that waits: the run's own, or that of a run inside one of its calls.
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
    """The result of a run that stopped. `text` is the model's last text; `output` the structured answer.

    `cost` is in US dollars, a lower bound unless `exact`; if the cost is limited, a request that was abandoned is charged with
    its upper bound. `pending` are calls that the model requested and that were not run. `scratchpad` is that of the
    conversation, if the harness has one. Pass `thread` to the next run to continue the conversation, or to `resume` to continue
    this run.
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
        """True if the model gave its final answer."""
        return self.stop == "done"

    def require_output(self) -> Output:
        """Return the structured answer, or the text if no type was requested. Raises NoOutput if the run ended without one."""
        if self.output is None:
            why = f"The run ended without an answer ({self.stop}). {self.detail}".strip()
            raise NoOutput(f"{why} Resume the thread {self.thread}, or look at `RunResult.stop` first.")
        return self.output

    @property
    def raw_responses(self) -> tuple[bytes, ...]:
        """The answers as their providers sent them, in order and without secrets, if `ModelSettings.keep_raw` was set."""
        return tuple(one.raw for one in self.requests if one.raw)

    @property
    def metadata(self) -> dict[str, object]:
        """The caller's own metadata that was passed to `run`."""
        return msgspec.json.decode(self.metadata_text, type=dict[str, object]) if self.metadata_text else {}

    @property
    def cancelled_calls(self) -> int:
        """The number of calls that hooks cancelled. They count toward the limit of tool calls."""
        return sum(record.by_hook for record in self.records)

    @property
    def resume_state(self) -> ResumeState | None:
        """The conversation, for `Harness.run(..., resume_from=...)` with any store and model.

        None if the run did not end with an answer of the model in text: then `resume` the thread, or send it a prompt.
        """
        last = self.transcript.last
        if not self.ok or self.pending or last is None or last.role != "assistant" or last.calls:
            return None
        return ResumeState.of(self.transcript, model=self.requests[-1].model if self.requests else "unknown")


def result_of(state: RunState, events: Iterable[ev.Event], *, log: str, warnings: Iterable[str] = ()) -> RunResult:
    """Return the result of the state's run, made from the events of the run. Events of other runs are ignored."""
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
    """Return the approvals that wait in this log and in runs inside its calls.

    A finished run has none: resuming it asks again.
    """
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


class _ToldCall:
    """A call while the events about it are read."""

    __slots__ = ("call", "key", "result", "starts")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.result: ev.CallFinished | None = None
        self.key = ""
        self.starts = 0


class _Story:
    """The facts that the events of a run contain, read in one pass. Records are in the model's order, whatever order the calls
    ended in.

    Each loss is listed once: the history is sent with every request, and has the same losses each time.
    """

    def __init__(self, events: Iterable[ev.Event]) -> None:
        self._begin()
        for event in events:
            if type(event) is ev.ModelCalled:
                self._asked = event.model
            elif type(event) is ev.Replied:
                self._find_reply(event)
            elif type(event) is ev.CallStarted:
                if (told := self._last_calls.get(event.call)) is not None:
                    told.key = event.key
                    told.starts += not event.verifying
            elif type(event) is ev.CallFinished:
                if (told := self._last_calls.get(event.call)) is not None:
                    told.result = event
            else:
                self._find_rare(event)
        self.records = [CallRecord(one.call, one.result, one.key, one.starts) for one in self._calls]

    def _begin(self) -> None:
        """Forget what came before a prompt: it was of another run."""
        self.last: ev.Replied | None = None
        self.losses: dict[Loss, None] = {}
        self.requests: list[RequestRecord] = []
        self.corrected = 0
        self._calls: list[_ToldCall] = []
        self._last_calls: dict[str, _ToldCall] = {}  # those of the last answer, by their ids
        self._asked = ""

    def _find_rare(self, event: ev.Event) -> None:
        match event:
            case ev.Prompted():
                self._begin()
            case ev.Resumed(results=results):
                for result in results:
                    if (told := self._last_calls.get(result.call)) is not None:
                        told.result = result
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
        self._last_calls = {}
        for call in event.message.calls:
            if call.name != FINAL_RESULT:
                told = self._last_calls[call.id] = _ToldCall(call)
                self._calls.append(told)

    def used(self, state: RunState) -> RunUsage:
        """Return what the run used. Retries are counted in the given events only."""
        retried = Counter(one.call.name for one in self.records if one.result is not None and one.result.retry)
        spent = state.spent
        return RunUsage(
            requests=spent.requests, tool_calls=spent.tool_calls, tokens=spent.usage, cost=spent.cost, exact=spent.exact,
            seconds=spent.seconds, failures=sum(bool(one.error) for one in self.requests), output_retries=self.corrected,
            tool_retries=tuple(sorted(retried.items())),
        )  # fmt: skip
