"""Spans of a log, computed from its events. Pure: no I/O, no clock; nothing in the loop depends on it.

A run is an `invoke_agent` span and a trace of its own, unless its prompt names a caller's span. Inside it: a span for each
request, each call (from its first start to its result, however often it was started), each wait for a decision, and each
pause before a retry. Past runs give the same spans with the same ids as live ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import astuple

from evener import events as ev
from evener.observe import conventions as names
from evener.observe.conventions import Attribute, SpanKind
from evener.observe.trace_context import parse_traceparent, span_id, trace_id
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

    `error` is the class of the error. `content` has attributes with texts of the conversation: they are exported only if
    capturing content is switched on.
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
    events = tuple(events)
    fold = _SpanFold(log, agent, events, first, content=content)
    if config is not None:
        fold.open(config)
    fold.thread = thread or log
    known: set[tuple[str, float]] = set()
    often, rarely = fold.often(), fold.take_rare
    for seq, event in enumerate(events, first):
        if seq <= again and (seq == again or isinstance(event, GOES_ON)) and not fold.is_busy:
            known = {(span.span, span.end) for span in fold.spans if span.end}
        often.get(type(event), rarely)(seq, event)
    found = [span for span in fold.spans if (span.span, span.end) not in known] if known else fold.spans
    for span in found:
        if 0 < span.end < span.start:  # the clock was set back
            span.end = span.start
    return found


class _Common(msgspec.Struct, frozen=True):
    """What all spans of one model, or of one tool, have in common. The attributes are copied, never changed."""

    name: str
    attributes: dict[str, Attribute]


class _SpanFold:
    """The state of the computation. `_calls`, `_questions` and `_request` are the open spans."""

    def __init__(self, log: str, agent: str, events: Sequence[ev.Event], first: int, *, content: bool) -> None:
        self.spans: list[TraceSpan] = []
        self._events, self._first = events, first
        self._log, self._agent, self._content = log, agent, content
        self.thread = log
        self._run = ""
        self._trace = self._own = ""  # ids of the trace, and of the run's span
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
        self._usages: list[Usage] = []  # of the run
        self._cost = Decimal(0)
        self._settings: ModelSettings | None = None
        self._models: dict[str, _Common] = {}
        self._called_tools: dict[str, _Common] = {}
        self._origin: tuple[Origin | None, dict[str, Attribute]] = (None, {})  # of the last answer, and what is said of it

    @property
    def is_busy(self) -> bool:
        """True while a request or a call has no end. A run never stops in this state, only its process."""
        return self._request is not None or not self._calls.keys() <= self._paused

    def often(self) -> Mapping[type[ev.Event], Callable[[int, Any], None]]:
        """Return what takes the events of every turn. Others are for `take_rare`."""
        return {
            ev.ModelCalled: self._called,
            ev.Replied: self._replied,
            ev.CallStarted: self._started,
            ev.CallFinished: self._finished,
        }

    def take_rare(self, seq: int, event: ev.Event) -> None:
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
        self._models, self._called_tools = {}, {}

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
                    self._finished(seq, result)
            case ev.Steered():
                self._told.append(event.message)
            case ev.Finished():
                self._ended(event)

    def _prompted(self, seq: int, event: ev.Prompted) -> None:
        self._give_up(event.at)
        outer = parse_traceparent(event.trace) if event.trace else None
        self._run, self._usages, self._cost = event.run, [], Decimal(0)
        self._settings, self._models = event.settings, {}
        self._trace, self._own = outer.trace if outer else trace_id(event.run), span_id(event.run)
        about: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self.thread,
            "evener.run.id": event.run,
            "evener.log.id": self._log,
        }
        if self._agent:
            about["gen_ai.agent.name"] = self._agent
        self._root = TraceSpan(
            kind="agent", name=names.name_span("agent", self._agent), trace=self._trace, span=self._own,
            parent=outer.span if outer else "", start=event.at, seq=seq, attributes=about,
        )  # fmt: skip
        self.spans.append(self._root)
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
        names.add_usage(root.attributes, _sum_usages(self._usages))
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
        common = self._models.get(event.model) or self._describe_model(event.model)
        said = common.attributes.copy()
        if event.rests is not None and event.rests.mode == "chain":
            said["gen_ai.request.previous_response.id"] = event.rests.id
        span = self._begin("model", seq, event.at, common.name, said, event.id or f"model {seq}")
        if self._content:
            self._say(span, event)
            self._told, self._results = [], []
        self._request = span

    def _describe_model(self, model: str) -> _Common:
        """Return what the requests of this run to a model have in common. The first model that is asked is that of the run."""
        asked = names.model_attributes(model)
        said = {**asked, "gen_ai.conversation.id": self.thread}
        if self._settings is not None:
            said |= names.settings_attributes(self._settings)
        if self._root is not None and "gen_ai.request.model" not in self._root.attributes:
            self._root.attributes["gen_ai.provider.name"] = asked["gen_ai.provider.name"]
            self._root.attributes["gen_ai.request.model"] = asked["gen_ai.request.model"]
        common = self._models[model] = _Common(names.name_span("model", str(asked["gen_ai.request.model"])), said)
        return common

    def _say(self, span: TraceSpan, event: ev.ModelCalled) -> None:
        """Capture what is new in this request: what came before is in the spans before it."""
        notices = tuple(TextBlock(text) for _, text in event.notices)
        told = [Message("user", (*self._results, *notices))] if self._results or notices else []
        span.content["gen_ai.input.messages"] = names.describe_messages((*told, *self._told))
        if self._system:
            span.content["gen_ai.system_instructions"] = msgspec.json.encode(names.describe_parts(self._system)).decode()
        if self._tools:
            span.content["gen_ai.tool.definitions"] = names.describe_tools(self._tools)

    def _replied(self, seq: int, event: ev.Replied) -> None:
        del seq
        span, self._request = self._request, None
        usage = event.message.usage or Usage()
        self._usages.append(usage)
        self._cost += event.cost
        if self._content:
            self._asked = {call.id: call.raw for call in event.message.calls}
        if span is None:
            return
        span.end, said = event.at, span.attributes
        names.add_usage(said, usage)
        said["gen_ai.response.finish_reasons"] = (names.finish_reason(event.stop.reason),)
        said["gen_ai.response.time_to_first_chunk"] = event.first
        said["evener.cost.usd"] = float(event.cost)
        if event.message.origin is not None:
            said |= self._describe_origin(event.message.origin)
        if event.reply:
            said["gen_ai.response.id"] = event.reply
        if event.tries > 1:
            said["evener.tries"] = event.tries
        if event.losses:
            said["evener.losses"] = tuple([loss.code for loss in event.losses])
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
        name = names.name_span("retry", event.error)
        self._retry = self._begin("retry", seq, event.at, name, {"error.type": event.error}, f"retry {seq}")

    # The context.

    def _shortened(self, seq: int, event: ev.Compacted | ev.CompactionFailed | ev.Evicted) -> None:
        """Add a span from the event before to this one: the log says when a context was shortened, not since when."""
        name = names.name_span("compaction", "eviction" if isinstance(event, ev.Evicted) else "")
        about: dict[str, Attribute] = {"gen_ai.conversation.id": self.thread, "evener.compaction.cause": event.cause}
        since = self._events[seq - self._first - 1].at if seq > self._first else 0.0
        span = self._begin("compaction", seq, since or event.at, name, about, f"compaction {seq}")
        span.end = event.at
        if not isinstance(event, ev.CompactionFailed):
            span.attributes |= {"evener.compaction.tokens": event.tokens, "evener.compaction.saved": event.saved}
        if isinstance(event, ev.Evicted):
            span.attributes["evener.compaction.blocks"] = len(event.cuts)
            return
        self._usages.append(event.usage)
        self._cost += event.cost
        names.add_usage(span.attributes, event.usage)
        span.attributes["evener.cost.usd"] = float(event.cost)
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
        common = self._called_tools.get(event.tool) or self._describe_tool(event.tool)
        said = common.attributes.copy()
        said["gen_ai.tool.call.id"] = event.call
        span = self._begin("tool", seq, event.at, common.name, said, event.key or event.call)
        if event.call in self._asked:
            span.content["gen_ai.tool.call.arguments"] = names.cut_text(self._asked[event.call])
        self._calls[event.call] = span

    def _describe_tool(self, name: str) -> _Common:
        """Return what the calls of a tool have in common. Each call puts its own id in."""
        said: dict[str, Attribute] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": "",
            "gen_ai.conversation.id": self.thread,
        }
        for tool in self._tools:
            if tool.name == name and tool.description:
                said["gen_ai.tool.description"] = names.cut_text(tool.description, ABOUT)
                break
        common = self._called_tools[name] = _Common(names.name_span("tool", name), said)
        return common

    def _finished(self, seq: int, event: ev.CallFinished) -> None:
        del seq
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
            self._usages.append(event.nested.usage)
            self._cost += event.nested.cost
        if self._content:
            text = "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
            span.content["gen_ai.tool.call.result"] = names.cut_text(text)

    # Decisions.

    def _questioned(self, seq: int, event: ev.ApprovalAsked | ev.ApprovalDecided) -> None:
        match event:
            case ev.ApprovalAsked():
                for question in event.questions:
                    name, what = names.name_span("approval", event.interrupt), f"approval {event.id} {question.key}"
                    about: dict[str, Attribute] = {"evener.approval.key": question.key}
                    self._questions[event.id, question.key] = self._begin("approval", seq, event.at, name, about, what)
            case ev.ApprovalDecided():
                found = self._questions.pop((event.id, event.key), None)
                if found is not None:
                    found.end = event.at
                    found.attributes["evener.approval.verdict"] = event.verdict

    def _begin(self, kind: SpanKind, seq: int, at: float, name: str, about: dict[str, Attribute], what: str) -> TraceSpan:
        """Add a span inside the run. It keeps `about` as its attributes; `what` tells it from others of the run."""
        made = TraceSpan(
            kind=kind, name=name, trace=self._trace, span=span_id(self._run, what), parent=self._own, start=at, seq=seq,
            attributes=about,
        )  # fmt: skip
        self.spans.append(made)
        return made


def _sum_usages(usages: list[Usage]) -> Usage:
    """Return their sum. `+` would make and check a value for each."""
    return usages[0] if len(usages) == 1 else Usage(*map(sum, zip(*map(astuple, usages), strict=True)))
