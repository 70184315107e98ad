"""A log prepared for display: its events as items, each call with its result in one item. Pure: no I/O, no clock.

An item is identified by the number of its event, and keeps its position. `touched` is the number of the last event that
changed it, so a page that knows the log up to an event asks for the items that changed since.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import takewhile

import msgspec

from evener import events as ev
from evener.store.tombstones import ERASED
from evener.transcript.blocks import (
    Block,
    Citation,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Remote,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Usage

CUT = 20_000
"""Characters of one text that a page gets at first; the rest on demand."""
LABEL = 2_000
"""Characters of a name or a title."""


class Piece(msgspec.Struct, omit_defaults=True):
    """One block. `length`: of the whole text, if `text` was cut. `place`: its path in its event, such as `message/blocks/2`."""

    kind: str
    text: str = ""
    length: int = 0
    media_type: str = ""
    place: str = ""
    title: str = ""
    citations: tuple[Citation, ...] = ()
    markdown: list[object] = []


class TalkItem(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One item of a conversation. `key` is unique in the log; fields that do not apply are left out."""

    key: str
    place: int
    n: int
    touched: int
    kind: str
    at: float
    role: str = ""
    title: str = ""
    id: str = ""
    pieces: list[Piece] = []
    call: str = ""
    tool: str = ""
    arguments: Piece | None = None
    status: str = ""
    result: list[Piece] = []
    result_n: int = 0
    seconds: float = 0.0
    first: float = 0.0
    model: str = ""
    usage: Usage | None = None
    cost: str = ""
    exact: bool = True
    losses: tuple[Loss, ...] = ()
    problems: tuple[str, ...] = ()
    thread: str = ""
    erased: bool = False


class Conversation:
    """The items of one log so far. Feed it the events in order."""

    def __init__(self) -> None:
        self.items: list[TalkItem] = []
        self.count = 0
        self._touched: dict[str, TalkItem] = {}  # by key, in the order of their last change
        self._calls: dict[str, TalkItem] = {}
        self._model = ""
        self._asked: TalkItem | None = None

    def feed(self, events: Iterable[ev.Event]) -> None:
        """Add further events."""
        for event in events:
            self.count += 1
            self._take(event)

    def since(self, event: int) -> list[TalkItem]:
        """Return the items that changed after event number `event`, in O(changed items)."""
        return list(takewhile(lambda item: item.touched > event, reversed(self._touched.values())))

    def near(self, event: int) -> TalkItem | None:
        """Return the item of an event. If it has none, return the last item before it, or else the first item."""
        end = bisect_right(self.items, event, key=lambda item: item.n)
        return next(
            (item for item in reversed(self.items[:end]) if item.status != "over"), self.items[0] if self.items else None
        )

    def _take(self, event: ev.Event) -> None:
        match event:
            case ev.Prompted() | ev.Steered() | ev.Imported():
                self._add_message(event)
            case ev.ModelCalled() | ev.Replied() | ev.ModelFailed():
                self._add_request(event)
            case ev.CallStarted() | ev.CallFinished() | ev.CallPaused():
                self._add_call(event)
            case ev.ApprovalAsked() | ev.ApprovalDecided():
                self._add_decision(event)
            case ev.Evicted() | ev.Compacted() | ev.CompactionFailed() | ev.ContextRestored() | ev.Pinned():
                self._add_cut(event)
            case ev.Resumed(results=results):
                self._note(event, "Another process took over the run.")
                for result in results:
                    self._add_call(result)
            case _:
                self._add_other(event)

    def _add_message(self, event: ev.Prompted | ev.Steered | ev.Imported) -> None:
        match event:
            case ev.Imported(messages=messages):
                for place, message in enumerate(messages):
                    self._message(event, message, f"imported ({message.role})", at=f"messages/{place}/")
            case ev.Prompted(message=message, refused=refused) | ev.Steered(message=message, refused=refused):
                title = "user" if isinstance(event, ev.Prompted) else "user, while the model was busy"
                item = self._message(event, message, title, at="message/")
                item.problems = (f"A hook withheld it from the model: {refused}",) if refused else ()

    def _message(self, event: ev.Event, message: Message, title: str, *, at: str) -> TalkItem:
        pieces = pieces_of(message.blocks, at)
        item = self._add("message", event, role=message.role, title=title, id=message.id, pieces=pieces)
        item.erased = any(piece.text == ERASED for piece in pieces)
        return item

    def _add_request(self, event: ev.ModelCalled | ev.Replied | ev.ModelFailed) -> None:
        match event:
            case ev.ModelCalled():
                self._model = event.model
                for place, (_, text) in enumerate(event.notices):
                    self._add("notice", event, pieces=[_text(text, f"notices/{place}/1")], title="notice to the model")
                self._asked = self._add("asking", event, model=event.model, status="waiting for the model")
            case ev.ModelFailed():
                self._drop_asking()
                title = f"{self._model} did not answer: {event.error}"
                self._add("failure", event, model=self._model, title=title, pieces=[_text(event.message, "message")])
            case ev.Replied():
                self._drop_asking()
                item = self._message(event, event.message, self._model or "model", at="message/")
                item.pieces = [piece for piece in item.pieces if piece.kind != "tool_call"]
                item.model, item.usage = self._model, event.message.usage
                item.cost, item.exact = str(event.cost), event.exact
                item.seconds, item.first, item.status = event.seconds, event.first, event.stop.reason
                item.losses, item.problems = event.losses, event.problems
                for place, block in enumerate(event.message.blocks):
                    if isinstance(block, ToolCall):
                        self._ask(event, block, f"message/blocks/{place}")

    def _drop_asking(self) -> None:
        """Mark the item of a request as over when its answer arrives. A page removes such items."""
        if self._asked is not None:
            self._touch(self._asked).status = "over"
            self._asked = None

    def _ask(self, event: ev.Replied, call: ToolCall, place: str) -> None:
        item = self._add("call", event, call=call.id, tool=call.name[:LABEL], arguments=_text(call.raw, place))
        item.status, item.erased = "asked", call.raw == ERASED
        self._calls[call.id] = item

    def _add_call(self, event: ev.CallStarted | ev.CallFinished | ev.CallPaused) -> None:
        item = self._calls.get(event.call)
        if item is None:
            return
        self._touch(item)
        match event:
            case ev.CallStarted():
                item.status = "verifying" if event.verifying else "running"
                item.thread = event.key
            case ev.CallPaused():
                item.status, item.thread = "waits inside", event.thread
            case ev.CallFinished():
                item.result = pieces_of(event.content, "content/", named="content")
                item.status = event.outcome if event.ok else f"{event.outcome}, not ok"
                item.seconds, item.result_n = event.seconds, self.count
                item.erased = item.erased or any(piece.text == ERASED for piece in item.result)
                if event.nested is not None:
                    item.cost, item.exact = str(event.nested.cost), event.nested.exact
                if event.denied or event.by_hook:
                    item.status = "denied" if event.denied else "cancelled by a hook"
                    item.problems = (event.why,) if event.why else ()

    def _add_decision(self, event: ev.ApprovalAsked | ev.ApprovalDecided) -> None:
        match event:
            case ev.ApprovalAsked(questions=questions):
                for one in questions:
                    call = self._calls.get(one.key)
                    if call is not None:
                        self._touch(call).status = "waits for approval"
                    self._add("approval", event, call=one.key, title=one.why[:LABEL], status="asked")
            case ev.ApprovalDecided():
                said = "allowed" if event.verdict == "allow" else "rejected"
                by = f" by {event.by}" if event.by else ""
                item = self._add("decision", event, call=event.key, title=f"{said}{by}", status=event.verdict)
                item.pieces = [_text(event.why, "why")] if event.why else []
                item.arguments = _text(event.arguments, "arguments") if event.arguments else None

    def _add_cut(self, event: ev.Evicted | ev.Compacted | ev.CompactionFailed | ev.ContextRestored | ev.Pinned) -> None:
        match event:
            case ev.Evicted():
                kinds = ", ".join(
                    f"{many} {kind}{'s' if many > 1 else ''}" for kind, many in Counter(cut.kind for cut in event.cuts).items()
                )
                title = f"Left out of requests from here on: {kinds}"
                self._add("context", event, title=title, status=f"about {event.saved:,} of {event.tokens:,} tokens")
            case ev.Compacted():
                item = self._add("context", event, title="Compacted: this summary replaces what came before")
                item.pieces = pieces_of(event.summary.blocks, "summary/")
                item.status = f"about {event.saved:,} of {event.tokens:,} tokens"
                item.model, item.usage, item.cost, item.exact = event.model, event.usage, str(event.cost), event.exact
            case ev.CompactionFailed(detail=detail):
                item = self._add("context", event, title="Not compacted", pieces=[_text(detail, "detail")], status="failed")
                item.model, item.usage, item.cost, item.exact = event.model, event.usage, str(event.cost), event.exact
            case ev.ContextRestored(id=id):
                self._note(
                    event, "An eviction or compaction was undone." if id else "Requests contain the whole conversation again."
                )
            case ev.Pinned(off=off):
                self._note(event, "A message was unpinned." if off else "A message was pinned: it stays in requests.")

    def _add_other(self, event: ev.Event) -> None:
        match event:
            case ev.Opened(parent=parent, parent_seq=seq) if parent:
                self._note(event, f"A branch begins here, after event {seq}.", thread=parent)
            case ev.Configured():
                tools = ", ".join(tool.name for tool in event.tools)
                item = self._note(event, f"Model {event.model}{f'; tools: {tools}' if tools else ''}")
                item.kind, item.pieces = "setup", [_text(one.text, f"system/{place}") for place, one in enumerate(event.system)]
            case ev.Continued():
                self._note(event, "The run continues.")
            case ev.Cancelled(why=why):
                self._note(event, f"Cancelled{f': {why}' if why else '.'}")
            case ev.MediaFetched():
                self._note(event, f"Fetched {event.source} ({event.media_type}, {event.size:,} bytes)")
            case ev.Finished():
                self._drop_asking()
                item = self._note(event, f"End: {event.cause}{f' ({event.detail})' if event.detail else ''}")
                item.kind, item.status = "end", event.cause

    def _note(self, event: ev.Event, title: str, *, thread: str = "") -> TalkItem:
        return self._add("note", event, title=title, thread=thread)

    def _add(self, kind: str, event: ev.Event, **more: object) -> TalkItem:
        place, n = len(self.items), self.count
        key = f"{n}.{place}" if self.items and self.items[-1].n == n else str(n)
        made = TalkItem(key=key, place=place, n=n, touched=n, kind=kind, at=event.at, **more)  # type: ignore[arg-type]
        self.items.append(made)
        return self._touch(made)

    def _touch(self, item: TalkItem) -> TalkItem:
        item.touched = self.count
        self._touched.pop(item.key, None)
        self._touched[item.key] = item
        return item


def _text(text: str, place: str, kind: str = "text") -> Piece:
    return Piece(kind, text[:CUT], len(text) if len(text) > CUT else 0, place=place)


def pieces_of(blocks: Iterable[Block], at: str = "", *, named: str = "blocks") -> list[Piece]:
    """Return blocks as pieces. `at` is the path of the blocks within their event."""
    base = at if named == "content" else f"{at}blocks/"
    return [_piece(block, f"{base}{place}") for place, block in enumerate(blocks)]


def _piece(block: Block, place: str) -> Piece:
    match block:
        case TextBlock():
            piece = _text(block.text, place)
            piece.citations = block.citations
            return piece
        case ReasoningBlock():
            return _text(block.text or "[hidden by the provider]", place, "reasoning")
        case ToolCall():
            return _text(block.raw, place, "tool_call")
        case ToolResult():
            return _text(block.text, place, "result")
        case ImageBlock() | DocumentBlock():
            kind = "image" if isinstance(block, ImageBlock) else "document"
            where = block.source.url if isinstance(block.source, Remote) else ""
            size = len(block.source.data) * 3 // 4 if isinstance(block.source, Inline) else 0
            return Piece(kind, where[:LABEL], size, block.media_type, place)
        case HostedBlock():
            piece = _text(block.raw, place, "hosted")
            piece.media_type, piece.title = block.wire, block.line[:LABEL]
            return piece
