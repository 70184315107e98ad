"""Spans of a log, computed from its events. Pure: no I/O, no clock; nothing in the loop depends on it.

A run is an `invoke_agent` span and a trace of its own, unless its prompt names a caller's span. Inside it: a span for each
request, each call (from its first start to its result, however often it was started), each wait for a decision, and each
pause before a retry. Past runs give the same spans with the same ids as live ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import astuple

from evener import events as ev
from evener.observe import conventions as names
from evener.observe.conventions import FINISH_REASONS, Attribute, SpanKind
from evener.observe.lines import (
    ENCODER,
    OPEN,
    SEQ,
    AnswerAttributes,
    CallAttributes,
    SpanLine,
    TraceSpan,
    own_attributes,
    share,
    texts_in,
)
from evener.observe.trace_context import are_ids, parse_traceparent, span_id, trace_id
from evener.transcript.ask import ModelSettings, ToolSpec
from evener.transcript.blocks import Origin, TextBlock, ToolResult
from evener.transcript.message import Message
from evener.transcript.reply import Usage

ABOUT = 1_000
"""Characters of a tool's description."""


THREAD = "gen_ai.conversation.id"
PREVIOUS = "gen_ai.request.previous_response.id"
CALL = "gen_ai.tool.call.id"
ANSWERING = ("gen_ai.response.model", "server.address", "server.port")
NO_USAGE = Usage()
NOTHING = Raw()
NOT_KNOWN: tuple[Any, Any, Any] = (UNSET, UNSET, UNSET)
FREE = Decimal(0)

GOES_ON = (ev.Resumed, ev.Continued, ev.ApprovalDecided)
"""What can stand first in a log after a run had stopped."""


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
    fold.begin(thread, config)
    fold.take(events, first, again)
    return fold.spans


def fold_lines(
    events: Sequence[ev.Event],
    *,
    log: str,
    agent: str,
    thread: str = "",
    config: ev.Configured | None = None,
    first: int = 1,
    again: int = 0,
) -> tuple[list[SpanLine], list[TraceSpan], list[str], list[str]]:
    """Return the same without content: lines, other spans, and what may be secret in lines and in spans of runs: texts that
    many of them have, and ids.
    """
    fold = _SpanFold(log, agent, events, first, lines=True)
    fold.begin(thread, config)
    fold.take(events, first, again)
    return fold.lines, fold.spans, fold.shared, fold.named


class _Words(msgspec.Struct, frozen=True):
    """What all spans of one model, or of one tool, have in common in any run.

    As JSON: `named` are kind and name, up to the trace; `encoded` are the attributes without the name of the first.
    """

    kind: SpanKind
    name: str
    attributes: dict[str, Attribute]
    texts: tuple[str, ...]
    named: bytes
    encoded: bytes


class _Common(msgspec.Struct, frozen=True):
    """The same in one run. The attributes are copied, never changed.

    As JSON: kind, name and trace; the attributes before and after the one in the middle that each call has for itself.
    """

    kind: SpanKind
    name: str
    attributes: dict[str, Attribute]
    named: Raw
    before: Raw
    after: Raw = NOTHING


@lru_cache(256)
def _model_words(model: str) -> _Words:
    attributes = names.model_attributes(model)
    return _encode_words("model", str(attributes["gen_ai.request.model"]), attributes)


@lru_cache(256)
def _tool_words(tool: str) -> _Words:
    about = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.type": "function"}
    return _encode_words("tool", tool, about)


@lru_cache(64)
def _know_origin(origin: Origin | None) -> tuple[tuple[Any, Any, Any], list[str]]:
    """Return who answered, as `AnswerAttributes` has it, and the texts in it."""
    said = names.origin_attributes(origin) if origin is not None else {}
    model, address, port = [said.get(name, UNSET) for name in ANSWERING]
    return (model, address, port), texts_in(said.values())


def _encode_words(kind: SpanKind, what: str, attributes: Mapping[str, Attribute]) -> _Words:
    name = names.name_span(kind, what)
    named = share({"kind": kind, "name": name, "trace": ""})[:-1]
    return _Words(kind, name, dict(attributes), (name, *texts_in(attributes.values())), named, share(attributes))


_Open = tuple[int, float, str, _Common, str | UnsetType, dict[str, str] | None]
"""A request or a call that has no end yet: number and time of the event that began it, what tells it from others of the run,
what it has in common with them, the attribute that it has before its end (the answer on which a request rests, the id of a
call), and its content."""


class _Said:
    """What was said, where content is captured: what the next request tells the model, and the calls of the last answer."""

    __slots__ = ("asked", "results", "system", "told")

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}  # arguments of the calls
        self.system: tuple[TextBlock, ...] = ()
        self.told: list[Message] = []
        self.results: list[ToolResult] = []


class _SpanFold:
    """The state of the computation. `_calls`, `_questions` and `_request` are the open spans."""

    __slots__ = (
        "_agent", "_answering", "_called_tools", "_calls", "_cost", "_events", "_first", "_ids", "_lines", "_log", "_models",
        "_origin", "_own", "_parent", "_paused", "_questions", "_request", "_retry", "_root", "_run", "_said", "_settings",
        "_tools", "_trace", "_usages", "lines", "named", "shared", "spans", "thread",
    )  # fmt: skip

    def __init__(
        self, log: str, agent: str, events: Sequence[ev.Event], first: int, *, content: bool = False, lines: bool = False
    ) -> None:
        self.spans: list[TraceSpan] = []  # those that are no lines
        self.lines: list[SpanLine] = []
        self.shared: list[str] = []  # by many lines, or in spans of runs
        self.named: list[str] = []  # ids in lines and spans of runs
        self._ids: list[str] = []  # what the ids are made of that the last lines have
        self._events, self._first = events, first
        self._log, self._agent, self._lines = log, agent, lines
        self._said = _Said() if content else None
        self.thread = log
        self._run = self._trace = self._own = ""  # ids of the run, of the trace, and of the run's span
        self._parent: str | UnsetType = UNSET  # the latter, as lines have it
        self._root: TraceSpan | None = None
        self._request: _Open | None = None
        self._retry: TraceSpan | None = None
        self._calls: dict[str, _Open] = {}
        self._paused: set[str] = set()  # calls that were begun, and are not under way
        self._questions: dict[tuple[str, str], TraceSpan] = {}
        self._tools: tuple[ToolSpec, ...] = ()
        self._usages: list[Usage] = []  # of the run
        self._cost = FREE
        self._settings: ModelSettings | None = None
        self._models: dict[str, _Common] = {}
        self._called_tools: dict[str, _Common] = {}
        self._origin: Origin | None = None  # of the last answer, and what is said of it
        self._answering = NOT_KNOWN

    @property
    def is_busy(self) -> bool:
        """True if a request or a call has no end. A run never stops in this state, only its process."""
        return self._request is not None or not self._calls.keys() <= self._paused

    def open(self, event: ev.Opened | ev.Configured) -> None:
        if type(event) is ev.Opened:
            self.thread = event.thread
            self.named.append(event.thread)
            self._agent = self._agent or event.harness.rpartition("/")[2]
        elif type(event) is ev.Configured:
            self._tools = event.tools
            if self._said is not None:
                self._said.system = event.system
        self._models, self._called_tools = {}, {}

    def begin(self, thread: str, config: ev.Configured | None) -> None:
        """Take what the log says before the events."""
        if config is not None:
            self.open(config)
        self.thread = thread or self._log
        self.named += {self.thread, self._log}

    def take(self, events: Sequence[ev.Event], first: int, again: int) -> None:
        """Take all events. Spans that were there when the run stopped before the event `again` are dropped."""
        earlier = again - first + 1
        known = self._take_earlier(events[:earlier], first, again) if earlier > 0 else None
        if known is None:
            self._take_all(events, first)
        else:
            self._take_all(events[earlier:], first + earlier)
        self._set_ids()
        if self._request is not None:
            self._break(self._request)
        for begun in self._calls.values():
            self._break(begun)
        if known:
            self.spans = [span for span in self.spans if (span.span, span.end) not in known]
            self.lines = [line for line in self.lines if (line.span, line.end) not in known]
        for span in self.spans:
            if 0 < span.end < span.start:  # the clock was set back
                span.end = span.start
        self.spans.sort(key=SEQ)

    def _take_earlier(self, events: Sequence[ev.Event], first: int, again: int) -> set[tuple[str, float]]:
        """Take the events up to `again`. Return id and end of the spans that were there when the run stopped."""
        known: set[tuple[str, float]] = set()
        for seq, event in enumerate(events, first):
            if (seq == again or isinstance(event, GOES_ON)) and not self.is_busy:
                self._set_ids()
                known = {(span.span, span.end) for span in self.spans if span.end} | {
                    (line.span, line.end) for line in self.lines
                }
            self._take_all((event,), seq)
        return known

    def _take_all(self, events: Sequence[ev.Event], first: int) -> None:
        """Take events, most of which are of four types."""
        for seq, event in enumerate(events, first):
            TAKES[type(event)](self, seq, event)

    def _set_ids(self) -> None:
        """Hash what the ids of lines are made of, unless all are ids whose first digits are taken, which they have already."""
        if self._ids and not are_ids(self._ids):
            for line, what in zip(self.lines[-len(self._ids) :], self._ids, strict=True):
                line.span = span_id(self._run, what)
        self._ids = []

    def _pass(self, _: int, event: ev.Event) -> None:
        """Take what no span tells of."""

    def _opened(self, _: int, event: ev.Opened | ev.Configured) -> None:
        self.open(event)

    # The run.

    def _went(self, _: int, event: ev.Continued | ev.Resumed | ev.Steered) -> None:
        match event:
            case ev.Continued():
                if self._root is not None:
                    self._root.end = OPEN
            case ev.Resumed():
                self._interrupt(event.at)
                for result in event.results:
                    self._finished(0, result)
            case ev.Steered():
                if self._said is not None:
                    self._said.told.append(event.message)

    def _prompted(self, seq: int, event: ev.Prompted) -> None:
        self._give_up(event.at)
        self._set_ids()
        outer = parse_traceparent(event.trace) if event.trace else None
        self._run, self._usages, self._cost, self._settings = event.run, [], FREE, event.settings
        self._models, self._called_tools = {}, {}
        self._trace = outer.trace if outer else trace_id(event.run)
        self._own = self._parent = event.run[:16] if self._trace == event.run else span_id(event.run)
        about: dict[str, Attribute] = {
            "gen_ai.operation.name": "invoke_agent",
            THREAD: self.thread,
            "evener.run.id": event.run,
            "evener.log.id": self._log,
        }
        name = "invoke_agent"
        if self._agent:
            name = names.name_span("agent", self._agent)
            about["gen_ai.agent.name"] = self._agent
        self.named.append(event.run)
        self.shared += (name, self._agent)
        self._root = TraceSpan(
            kind="agent", name=name, trace=self._trace, span=self._own,
            parent=outer.span if outer else "", start=event.at, seq=seq, attributes=about,
        )  # fmt: skip
        self.spans.append(self._root)
        if self._said is not None:
            self._said.told.append(event.message)
            self._root.content["gen_ai.input.messages"] = names.describe_messages((event.message,))

    def _ended(self, _: int, event: ev.Finished) -> None:
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
        self.shared.append(event.cause)
        root.attributes["evener.cost.usd"] = float(self._cost)
        if event.cause in ("provider_error", "unexpected"):
            root.error = event.cause

    def _interrupt(self, at: float) -> None:
        """End the request that was under way: its end was not seen. Calls go on, or are given a result."""
        if self._request is not None:
            self._break(self._request, at, "interrupted")
        if self._retry is not None:
            self._retry.end, self._retry.error = at, "interrupted"
        self._request = self._retry = None
        self._paused.update(self._calls)

    def _give_up(self, at: float) -> None:
        """End everything: no call is given a result, and no question is decided any more."""
        if self._request is not None or self._retry is not None or self._calls:
            self._interrupt(at)
            for call in self._calls.values():
                self._break(call, at, "interrupted")
            self._calls = {}
        if self._questions:
            for question in self._questions.values():
                question.end, question.error = at, "interrupted"
            self._questions = {}

    # Requests.

    def _called(self, seq: int, event: ev.ModelCalled) -> None:
        if self._retry is not None:
            self._retry.end, self._retry = event.at, None
        if self._request is not None:  # its end was never seen
            self._break(self._request)
        common = self._models.get(event.model) or self._describe_model(event.model)
        rests = event.rests
        previous = UNSET if rests is None or rests.mode != "chain" else rests.id
        content = None if self._said is None else self._say(event, self._said)
        self._request = seq, event.at, event.id or f"model {seq}", common, previous, content

    def _describe_model(self, model: str) -> _Common:
        """Return what the requests of this run to a model have in common. The first model that is asked is that of the run."""
        words = _model_words(model)
        own: dict[str, Attribute] = {THREAD: self.thread}
        if self._settings is not None:
            settings = names.settings_attributes(self._settings)
            own |= settings
            self.shared += texts_in(settings.values())
        self.shared += words.texts
        if self._root is not None and "gen_ai.request.model" not in self._root.attributes:
            self._root.attributes["gen_ai.provider.name"] = words.attributes["gen_ai.provider.name"]
            self._root.attributes["gen_ai.request.model"] = words.attributes["gen_ai.request.model"]
        before = Raw(b"%b,%b" % (words.encoded, ENCODER.encode(own)[1:-1]))
        common = self._models[model] = _Common("model", words.name, words.attributes | own, self._name(words), before)
        return common

    def _name(self, words: _Words) -> Raw:
        """Return kind, name and trace."""
        return Raw(b'%b%b"' % (words.named, self._trace.encode()))

    def _say(self, event: ev.ModelCalled, said: _Said) -> dict[str, str]:
        """Return what is new in this request: what came before is in the spans before it."""
        notices = tuple(TextBlock(text) for _, text in event.notices)
        told = [Message("user", (*said.results, *notices))] if said.results or notices else []
        content = {"gen_ai.input.messages": names.describe_messages((*told, *said.told))}
        if said.system:
            content["gen_ai.system_instructions"] = msgspec.json.encode(names.describe_parts(said.system)).decode()
        if self._tools:
            content["gen_ai.tool.definitions"] = names.describe_tools(self._tools)
        said.told, said.results = [], []
        return content

    def _replied(self, _: int, event: ev.Replied) -> None:
        begun, message, cost = self._request, event.message, event.cost
        usage = message.usage or NO_USAGE
        self._usages.append(usage)
        self._cost += cost
        if self._said is not None:
            self._said.asked = {call.id: call.raw for call in message.calls}
        if begun is None:
            return
        self._request = None
        if message.origin is not self._origin:  # as a rule it is the same as before, and the same object
            self._describe_origin(message.origin)
        seq, start, what, common, previous, content = begun
        write, reason = usage.cache_write or UNSET, event.stop.reason
        model, address, port = self._answering
        said = AnswerAttributes(
            common.before, previous, usage.input_total, usage.output_total, usage.cache_read or UNSET, write, write,
            usage.reasoning or UNSET, FINISH_REASONS[reason], event.first, float(cost), model, address, port,
            event.reply or UNSET,
        )  # fmt: skip
        self.named.append(event.reply)
        if previous:
            self.named.append(previous)
        if event.tries > 1 or event.losses or reason == "compacted":
            self._add_rare(said, event)
        if content is not None:
            told = content["gen_ai.output.messages"] = names.describe_output(message, reason)
            if self._root is not None:
                self._root.content["gen_ai.output.messages"] = told
        at = event.at
        if self._lines and 0 < start <= at:
            self._ids.append(what)
            self.lines.append(SpanLine(common.named, what[:16], self._parent, start, at, seq, UNSET, said))
        else:
            self._break(begun, at).attributes |= own_attributes(said)

    def _add_rare(self, said: AnswerAttributes, event: ev.Replied) -> None:
        """Add what few answers have."""
        if event.tries > 1:
            said.tries = event.tries
        if event.losses:
            said.losses = tuple([loss.code for loss in event.losses])
            self.shared += said.losses
        if event.stop.reason == "compacted":
            said.compacted = True

    def _describe_origin(self, origin: Origin | None) -> None:
        """Keep who answered."""
        self._origin = origin
        self._answering, texts = _know_origin(origin)
        self.shared += texts

    def _failed(self, seq: int, event: ev.ModelFailed) -> None:
        asked, self._request = self._request, None
        if asked is not None:
            span = self._break(asked, event.at, event.error)
            span.attributes["error.type"] = event.error
            if event.status:
                span.attributes["http.response.status_code"] = event.status
            if self._said is not None:
                span.content["evener.error.message"] = event.message
        name = names.name_span("retry", event.error)
        self._retry = self._begin("retry", seq, event.at, name, {"error.type": event.error}, f"retry {seq}")

    # The context.

    def _shortened(self, seq: int, event: ev.Compacted | ev.CompactionFailed | ev.Evicted) -> None:
        """Add a span from the event before to this one: the log says when a context was shortened, not since when."""
        name = names.name_span("compaction", "eviction" if isinstance(event, ev.Evicted) else "")
        about: dict[str, Attribute] = {THREAD: self.thread, "evener.compaction.cause": event.cause}
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
            if self._said is not None:
                span.content["evener.error.message"] = event.detail
        elif self._said is not None:
            span.content["gen_ai.output.messages"] = names.describe_output(event.summary, "done")

    # Calls.

    def _started(self, seq: int, event: ev.CallStarted) -> None:
        call, calls = event.call, self._calls
        if self._paused:
            self._paused.discard(call)
        if call in calls:
            return
        common = self._called_tools.get(event.tool) or self._describe_tool(event.tool)
        content: dict[str, str] | None = None
        if self._said is not None:
            asked = self._said.asked
            content = {"gen_ai.tool.call.arguments": names.cut_text(asked[call])} if call in asked else {}
        calls[call] = seq, event.at, event.key or call, common, call, content

    def _pause(self, _: int, event: ev.CallPaused) -> None:
        self._paused.add(event.call)

    def _describe_tool(self, name: str) -> _Common:
        """Return what the calls of a tool have in common. Each call puts its own id in."""
        words = _tool_words(name)
        own: dict[str, Attribute] = {THREAD: self.thread}
        for tool in self._tools:
            if tool.name == name and tool.description:
                own["gen_ai.tool.description"] = about = names.cut_text(tool.description, ABOUT)
                self.shared.append(about)
                break
        self.shared += words.texts
        said = words.attributes | {CALL: ""} | own
        before, after = Raw(words.encoded), Raw(share(own))
        common = self._called_tools[name] = _Common("tool", words.name, said, self._name(words), before, after)
        return common

    def _finished(self, _: int, event: ev.CallFinished) -> None:
        call = event.call
        if self._said is not None:
            self._said.results.append(ToolResult(call, event.content, not event.ok))
        begun = self._calls.pop(call, None)
        if begun is None:
            return
        seq, start, what, common, _own, content = begun
        said = CallAttributes(common.before, call, common.after, event.outcome)
        self.named.append(call)
        if not event.ok:
            said.error = "tool_error" if event.outcome != "unknown" else "unknown_outcome"
        if event.nested is not None:
            said.cost = float(event.nested.cost)
            self._usages.append(event.nested.usage)
            self._cost += event.nested.cost
        if content is not None:
            text = "\n".join(block.text for block in event.content if isinstance(block, TextBlock))
            content["gen_ai.tool.call.result"] = names.cut_text(text)
        at = event.at
        if self._lines and 0 < start <= at:
            self._ids.append(what)
            self.lines.append(SpanLine(common.named, what[:16], self._parent, start, at, seq, said.error, said))
        else:
            self._break(begun, at, said.error or "").attributes |= own_attributes(said)

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

    def _break(self, begun: _Open, at: float | None = None, error: str = "") -> TraceSpan:
        """Add the span of a request or a call as it is without a result. It stays open if no end is given."""
        seq, start, what, common, own, content = begun
        said = common.attributes.copy()
        if own is not UNSET:
            said[PREVIOUS if common.kind == "model" else CALL] = own
        span = self._begin(common.kind, seq, start, common.name, said, what)
        span.error, span.content = error, content or {}
        if at is not None:
            span.end = at
        return span

    def _begin(self, kind: SpanKind, seq: int, at: float, name: str, about: dict[str, Attribute], what: str) -> TraceSpan:
        """Add a span inside the run. It keeps `about` as its attributes; `what` tells it from others of the run."""
        made = TraceSpan(
            kind=kind, name=name, trace=self._trace, span=span_id(self._run, what), parent=self._own, start=at, seq=seq,
            attributes=about,
        )  # fmt: skip
        self.spans.append(made)
        return made


TAKES: Mapping[type[ev.Event], Callable[[_SpanFold, int, Any], None]] = {
    ev.ModelCalled: _SpanFold._called,
    ev.Replied: _SpanFold._replied,
    ev.CallStarted: _SpanFold._started,
    ev.CallFinished: _SpanFold._finished,
    ev.ModelFailed: _SpanFold._failed,
    ev.CallPaused: _SpanFold._pause,
    ev.ApprovalAsked: _SpanFold._questioned,
    ev.ApprovalDecided: _SpanFold._questioned,
    ev.Prompted: _SpanFold._prompted,
    ev.Continued: _SpanFold._went,
    ev.Resumed: _SpanFold._went,
    ev.Steered: _SpanFold._went,
    ev.Finished: _SpanFold._ended,
    ev.Compacted: _SpanFold._shortened,
    ev.CompactionFailed: _SpanFold._shortened,
    ev.Evicted: _SpanFold._shortened,
    ev.Opened: _SpanFold._opened,
    ev.Configured: _SpanFold._opened,
    ev.Imported: _SpanFold._pass,
    ev.Cancelled: _SpanFold._pass,
    ev.MediaFetched: _SpanFold._pass,
    ev.ContextRestored: _SpanFold._pass,
    ev.Pinned: _SpanFold._pass,
}
"""What takes which of the other events."""


def _sum_usages(usages: list[Usage]) -> Usage:
    """Return their sum. `+` would make and check a value for each."""
    return usages[0] if len(usages) == 1 else Usage(*map(sum, zip(*map(astuple, usages), strict=True)))
