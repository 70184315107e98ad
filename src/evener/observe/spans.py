"""Spans of a log: a fold of its events. Pure: no I/O, no clock, and nothing in the loop knows of it.

A run is an `invoke_agent` span and a trace of its own, unless its prompt names a caller's span. Inside it: a span for each
request, each call (from its first start to its result, however often it was started), each wait for a decision, and each pause
before a retry. Past runs give the same spans with the same ids as live ones.
"""

from collections.abc import Iterable
from decimal import Decimal

import msgspec

from evener import events as ev
from evener.observe import conventions as names
from evener.observe.conventions import Attribute, SpanKind
from evener.observe.trace_context import TraceContext, parse_traceparent, span_id, trace_id
from evener.transcript.ask import ModelSettings, ToolSpec
from evener.transcript.blocks import Origin, TextBlock, ToolResult
from evener.transcript.message import Message
from evener.transcript.reply import Usage

ABOUT = 1_000
"""Characters of a tool's description."""


GOES_ON = (ev.Resumed, ev.Continued, ev.ApprovalDecided)
"""What can stand first in a log after a run had stopped."""


class TraceSpan(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One span. Times are seconds since 1970; `end` is 0 while it is open. `seq` is the number of the event that began it.

    `error` is the class of what went wrong. `content` holds attributes with what was said: they leave only where capture is on.
    """

    kind: SpanKind
    name: str
    trace: str
    span: str
    parent: str = ""
    start: float
    end: float = 0.0
    seq: int = 0
    error: str = ""
    attributes: dict[str, Attribute] = {}
    content: dict[str, str] = {}


def fold_spans(
    events: Iterable[ev.Event],
    *,
    log: str,
    agent: str = "",
    thread: str = "",
    config: ev.Configured | None = None,
    first: int = 1,
    again: int = 0,
    content: bool = False,
) -> list[TraceSpan]:
    """Return the spans of these events, in the order in which they began. `first` is the number of the first event.

    `thread` and `config` are what the log says before them. `again` is the event with which the run last went on: spans that
    were there when it stopped before are left out, unless its process died. `content`: what was said is captured, too. It is
    not redacted here.
    """
    fold = _SpanFold(log, agent, content=content)
    if config is not None:
        fold.open(config)
    fold.thread = thread or log
    known: set[tuple[str, float]] = set()
    for seq, event in enumerate(events, first):
        if seq <= again and (seq == again or isinstance(event, GOES_ON)) and not fold.is_busy:
            known = {(span.span, span.end) for span in fold.spans if span.end}
        fold.take(seq, event)
        fold.last = event.at
    found = [span for span in fold.spans if (span.span, span.end) not in known] if known else fold.spans
    for span in found:
        if 0 < span.end < span.start:  # the clock was set back
            span.end = span.start
    return found


class _SpanFold:
    """The fold. `_calls`, `_questions` and `_request` are the spans that are open."""

    def __init__(self, log: str, agent: str, *, content: bool) -> None:
        self.spans: list[TraceSpan] = []
        self._log, self._agent, self._content = log, agent, content
        self.thread = log
        self._run = ""
        self._context = TraceContext("", "")
        self._root: TraceSpan | None = None
        self._request: TraceSpan | None = None
        self._retry: TraceSpan | None = None
        self._calls: dict[str, TraceSpan] = {}
        self._paused: set[str] = set()  # calls that were begun, and are not under way
        self._asked: dict[str, str] = {}  # arguments of the calls of the last answer
        self._questions: dict[tuple[str, str], TraceSpan] = {}
        self._tools: tuple[ToolSpec, ...] = ()
        self._system: tuple[TextBlock, ...] = ()
        self._told: list[Message] = []  # since the last request
        self._results: list[ToolResult] = []
        self._usage, self._cost = Usage(), Decimal(0)
        self.last = 0.0  # when the event before was
        self._settings: ModelSettings | None = None
        self._models: dict[str, dict[str, Attribute]] = {}  # what is said of each
        self._origin: tuple[Origin | None, dict[str, Attribute]] = (None, {})  # of the last answer, and what is said of it

    @property
    def is_busy(self) -> bool:
        """True while a request or a call has no end. A run never stops in this state, only its process."""
        return self._request is not None or not self._calls.keys() <= self._paused

    def take(self, seq: int, event: ev.Event) -> None:
        if type(event) is ev.ModelCalled:
            self._called(seq, event)
        elif type(event) is ev.Replied:
            self._replied(event)
        elif type(event) is ev.CallStarted:
            self._started(seq, event)
        elif type(event) is ev.CallFinished:
            self._finished(event)
        else:
            self._take_rare(seq, event)

    def _take_rare(self, seq: int, event: ev.Event) -> None:
        match event:
            case ev.ModelFailed():
                self._failed(seq, event)
            case ev.ApprovalAsked() | ev.ApprovalDecided():
                self._questioned(seq, event)
            case ev.Prompted() | ev.Continued() | ev.Finished() | ev.Cancelled() | ev.Resumed() | ev.Steered():
                self._went(seq, event)
            case ev.Compacted() | ev.CompactionFailed() | ev.Evicted():
                self._shortened(seq, event)
            case ev.CallPaused():
                self._paused.add(event.call)
            case ev.Opened() | ev.Configured():
                self.open(event)

    def open(self, event: ev.Opened | ev.Configured) -> None:
        match event:
            case ev.Opened():
                self.thread = event.thread
                self._agent = self._agent or event.harness.rpartition("/")[2]
            case ev.Configured():
                self._tools, self._system = event.tools, event.system

    # The run.

    def _went(self, seq: int, event: ev.Prompted | ev.Continued | ev.Finished | ev.Cancelled | ev.Resumed | ev.Steered) -> None:
        match event:
            case ev.Prompted():
                self._prompted(seq, event)
            case ev.Continued() if self._root is not None:
                self._root.end = 0.0
            case ev.Resumed():
                self._interrupt(event.at)
                for result in event.results:
                    self._finished(result)
            case ev.Steered():
                self._told.append(event.message)
            case ev.Finished():
                self._ended(event)

    def _prompted(self, seq: int, event: ev.Prompted) -> None:
        self._give_up(event.at)
        outer = parse_traceparent(event.trace) if event.trace else None
        self._run, self._usage, self._cost, self._settings = event.run, Usage(), Decimal(0), event.settings
        self._context = TraceContext(outer.trace if outer else trace_id(event.run), span_id(event.run))
        self._root = self._begin("agent", seq, event.at, self._agent, span="", parent=outer.span if outer else "")
        self._root.attributes |= {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self.thread,
            "evener.run.id": event.run,
            "evener.log.id": self._log,
        }
        if self._agent:
            self._root.attributes["gen_ai.agent.name"] = self._agent
        self._told.append(event.message)
        if self._content:
            self._root.content["gen_ai.input.messages"] = names.describe_messages((event.message,))

    def _ended(self, event: ev.Finished) -> None:
        if event.cause != "cancelled" and self._retry is not None:  # nothing was tried again
            self.spans = [span for span in self.spans if span is not self._retry]
            self._retry = None
        self._give_up(event.at)
        root = self._root
        if root is None:
            return
        root.end = event.at
        root.attributes |= names.usage_attributes(self._usage)
        root.attributes["evener.stop"] = event.cause
        root.attributes["evener.cost.usd"] = float(self._cost)
        if event.cause in ("provider_error", "unexpected"):
            root.error = event.cause

    def _interrupt(self, at: float) -> None:
        """End the request that was under way: its end was not seen. Calls go on, or are given a result."""
        for one in (self._request, self._retry):
            if one is not None:
                one.end, one.error = at, "interrupted"
        self._request = self._retry = None
        self._paused.update(self._calls)

    def _give_up(self, at: float) -> None:
        """End everything: no call is given a result, and no question is decided any more."""
        self._interrupt(at)
        for one in (*self._calls.values(), *self._questions.values()):
            one.end, one.error = at, "interrupted"
        self._calls, self._questions = {}, {}

    # Requests.

    def _called(self, seq: int, event: ev.ModelCalled) -> None:
        if self._retry is not None:
            self._retry.end, self._retry = event.at, None
        asked = self._models.get(event.model)
        if asked is None:
            asked = self._models[event.model] = names.model_attributes(event.model)
        model = str(asked["gen_ai.request.model"])
        span = self._begin("model", seq, event.at, model, span=event.id or f"model {seq}")
        span.attributes = {**asked, "gen_ai.conversation.id": self.thread}
        if event.rests is not None and event.rests.mode == "chain":
            span.attributes["gen_ai.request.previous_response.id"] = event.rests.id
        if self._settings is not None:
            span.attributes |= names.settings_attributes(self._settings)
        if self._content:
            self._say(span, event)
        self._told, self._results = [], []
        self._request = span
        if self._root is not None and "gen_ai.request.model" not in self._root.attributes:
            self._root.attributes["gen_ai.provider.name"] = asked["gen_ai.provider.name"]
            self._root.attributes["gen_ai.request.model"] = model

    def _say(self, span: TraceSpan, event: ev.ModelCalled) -> None:
        """Capture what is new in this request: what came before is in the spans before it."""
        notices = tuple(TextBlock(text) for _, text in event.notices)
        told = [Message("user", (*self._results, *notices))] if self._results or notices else []
        span.content["gen_ai.input.messages"] = names.describe_messages((*told, *self._told))
        if self._system:
            span.content["gen_ai.system_instructions"] = msgspec.json.encode(names.describe_parts(self._system)).decode()
        if self._tools:
            span.content["gen_ai.tool.definitions"] = names.describe_tools(self._tools)

    def _replied(self, event: ev.Replied) -> None:
        span, self._request = self._request, None
        usage = event.message.usage or Usage()
        self._usage, self._cost = self._usage + usage, self._cost + event.cost
        self._asked = {call.id: call.raw for call in event.message.calls} if self._content else {}
        if span is None:
            return
        span.end, said = event.at, span.attributes
        said |= names.usage_attributes(usage)
        said["gen_ai.response.finish_reasons"] = [names.finish_reason(event.stop.reason)]
        said["gen_ai.response.time_to_first_chunk"] = event.first
        said["evener.cost.usd"] = float(event.cost)
        if event.message.origin is not None:
            said |= self._describe_origin(event.message.origin)
        if event.reply:
            said["gen_ai.response.id"] = event.reply
        if event.tries > 1:
            said["evener.tries"] = event.tries
        if event.losses:
            said["evener.losses"] = [loss.code for loss in event.losses]
        if event.stop.reason == "compacted":
            said["gen_ai.conversation.compacted"] = True
        if self._content:
            span.content["gen_ai.output.messages"] = names.describe_output(event.message, event.stop.reason)
            if self._root is not None:
                self._root.content["gen_ai.output.messages"] = span.content["gen_ai.output.messages"]

    def _describe_origin(self, origin: Origin) -> dict[str, Attribute]:
        """Return who answered. As a rule that is the same as before, and the same object."""
        known, said = self._origin
        if known is not origin:
            said = names.origin_attributes(origin)
            self._origin = (origin, said)
        return said

    def _failed(self, seq: int, event: ev.ModelFailed) -> None:
        span, self._request = self._request, None
        if span is not None:
            span.end, span.error = event.at, event.error
            span.attributes["error.type"] = event.error
            if event.status:
                span.attributes["http.response.status_code"] = event.status
            if self._content:
                span.content["evener.error.message"] = event.message
        self._retry = self._begin("retry", seq, event.at, event.error, span=f"retry {seq}")
        self._retry.attributes["error.type"] = event.error

    # The context.

    def _shortened(self, seq: int, event: ev.Compacted | ev.CompactionFailed | ev.Evicted) -> None:
        """Add a span from the event before to this one: the log says when a context was shortened, not since when."""
        what = "eviction" if isinstance(event, ev.Evicted) else ""
        span = self._begin("compaction", seq, self.last or event.at, what, span=f"compaction {seq}")
        span.end = event.at
        span.attributes |= {"gen_ai.conversation.id": self.thread, "evener.compaction.cause": event.cause}
        if not isinstance(event, ev.CompactionFailed):
            span.attributes |= {"evener.compaction.tokens": event.tokens, "evener.compaction.saved": event.saved}
        if isinstance(event, ev.Evicted):
            span.attributes["evener.compaction.blocks"] = len(event.cuts)
            return
        self._usage, self._cost = self._usage + event.usage, self._cost + event.cost
        span.attributes |= {**names.usage_attributes(event.usage), "evener.cost.usd": float(event.cost)}
        span.attributes |= {**names.asked_attributes(event.model), "gen_ai.conversation.compacted": True}
        if isinstance(event, ev.CompactionFailed):
            span.error = span.attributes["error.type"] = "compaction_failed"
            span.attributes["gen_ai.conversation.compacted"] = False
            if self._content:
                span.content["evener.error.message"] = event.detail
        elif self._content:
            span.content["gen_ai.output.messages"] = names.describe_output(event.summary, "done")

    # Calls.

    def _started(self, seq: int, event: ev.CallStarted) -> None:
        self._paused.discard(event.call)
        if event.call in self._calls:
            return
        span = self._begin("tool", seq, event.at, event.tool, span=event.key or event.call)
        span.attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.tool,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": event.call,
            "gen_ai.conversation.id": self.thread,
        }
        for tool in self._tools:
            if tool.name == event.tool and tool.description:
                span.attributes["gen_ai.tool.description"] = names.cut_text(tool.description, ABOUT)
                break
        if event.call in self._asked:
            span.content["gen_ai.tool.call.arguments"] = names.cut_text(self._asked[event.call])
        self._calls[event.call] = span

    def _finished(self, event: ev.CallFinished) -> None:
        if self._content:
            self._results.append(ToolResult(event.call, event.content, not event.ok))
        span = self._calls.pop(event.call, None)
        if span is None:
            return
        span.end = event.at
        span.attributes["evener.outcome"] = event.outcome
        if not event.ok:
            span.error = "tool_error" if event.outcome != "unknown" else "unknown_outcome"
            span.attributes["error.type"] = span.error
        if event.nested is not None:
            span.attributes["evener.nested.cost.usd"] = float(event.nested.cost)
            self._usage, self._cost = self._usage + event.nested.usage, self._cost + event.nested.cost
        if self._content:
            text = "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
            span.content["gen_ai.tool.call.result"] = names.cut_text(text)

    # Decisions.

    def _questioned(self, seq: int, event: ev.ApprovalAsked | ev.ApprovalDecided) -> None:
        match event:
            case ev.ApprovalAsked():
                for question in event.questions:
                    what = f"approval {event.id} {question.key}"
                    span = self._begin("approval", seq, event.at, event.interrupt, span=what)
                    span.attributes["evener.approval.key"] = question.key
                    self._questions[event.id, question.key] = span
            case ev.ApprovalDecided():
                found = self._questions.pop((event.id, event.key), None)
                if found is not None:
                    found.end = event.at
                    found.attributes["evener.approval.verdict"] = event.verdict

    def _begin(self, kind: SpanKind, seq: int, at: float, what: str, *, span: str, parent: str | None = None) -> TraceSpan:
        own = span_id(self._run, span) if span else self._context.span
        made = TraceSpan(
            kind=kind, name=names.name_span(kind, what), trace=self._context.trace, span=own,
            parent=self._context.span if parent is None else parent, start=at, seq=seq, attributes={}, content={},
        )  # fmt: skip
        self.spans.append(made)
        return made
