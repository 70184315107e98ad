"""The part of a conversation that requests contain: the transcript after evictions and compactions. Pure.

The transcript never changes: its messages keep their ids and can be shown. The view is updated beside it, message by
message, so the cost of a turn does not depend on the length of the thread; an eviction costs what comes after its first cut.
The view before the newest edit is kept and updated, too: undoing that edit means using it. Earlier edits are undone by
returning to the whole transcript, or by a fork from before.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Origin,
    ReasoningBlock,
    ResultContent,
    TextBlock,
    ToolResult,
)
from evener.transcript.message import Message
from evener.transcript.transcript import Node, Transcript

REMOVED_SCREENSHOT = "[screenshot removed to save context]"
"""What stands for an image in a tool's result that was taken out (S3.22)."""
REMOVED_RESULT = "[this result removed to save context: "
"""How the text begins that stands for a tool's result."""
REMOVED_REST = "[rest of this result removed to save context: "
SUMMARY = "[Summary of the conversation so far; the messages that it stands for are no longer shown]\n"
"""How the message begins that stands for those that were compacted."""

BINDING = "openai_responses"
"""The wire whose items go back under their ids only beside the reasoning that they were made with (sheet 7)."""

UNSAID = msgspec.Raw(b"null")
RESTORED = (("", 0),)
"""Says that requests have changed since the last answer, by something that took nothing away."""
ContextEdit = ev.Evicted | ev.Compacted


class ContextView(msgspec.Struct, frozen=True):
    """The transcript as requests contain it, the view before the newest edit (`undoable` names that edit), and what is
    pinned.

    A transcript of None is the whole conversation. `recent` are the edits since the last answer: after which message, and
    how many tokens they removed from the count of that answer. `summaries` are the messages that compactions made. `failed`
    counts the failed attempts of a run to compact since the last successful one. `sealed` is the only provider that can read
    a summary in it.
    """

    transcript: Transcript | None = None
    before: Transcript | None = None
    undoable: str = ""
    pinned: frozenset[str] = frozenset()
    summaries: frozenset[str] = frozenset()
    recent: tuple[tuple[str, int], ...] = ()
    evictions: int = 0
    compactions: int = 0
    failed: int = 0
    sealed: Origin | None = None

    @property
    def is_edited(self) -> bool:
        """True if requests do not hold the whole conversation."""
        return self.transcript is not None

    def grow(self, before: Transcript, after: Transcript) -> "ContextView":
        """Return the view of a conversation that has grown from `before` to `after`, or has another system prompt."""
        if self.transcript is None or before is after:
            return self
        new = after.since(before.head) if after.head is not before.head else ()
        earlier = None if self.before is None else _extend(self.before, new, after)
        return replace(self, transcript=_extend(self.transcript, new, after), before=earlier)

    def answered(self) -> "ContextView":
        """Return it after an answer, which counts what is there now."""
        return replace(self, recent=()) if self.recent else self


def _extend(view: Transcript, new: tuple[Message, ...], after: Transcript) -> Transcript:
    view = view.extend(new) if new else view
    return view if view.system_blocks == after.system_blocks else view.with_system(after.system_blocks)


def edit_view(context: ContextView, transcript: Transcript, event: ContextEdit | ev.ContextRestored) -> ContextView:
    """Return the view after an edit, or after one was undone. `transcript` is the whole conversation."""
    if isinstance(event, ev.ContextRestored):
        if not event.id:
            whole = replace(context, transcript=None, before=None, undoable="", recent=RESTORED, evictions=0, compactions=0)
            return replace(whole, sealed=None)
        if event.id != context.undoable:
            return context
        before = context.before
        sealed = context.sealed if any(one.id in context.summaries and _is_sealed(one) for one in before or ()) else None
        undone = replace(context, transcript=before, before=None, undoable="", recent=RESTORED, sealed=sealed)
        earlier = {one.id for one in before or ()}
        if any(one.id in context.summaries and one.id not in earlier for one in context.transcript or ()):
            return replace(undone, compactions=context.compactions - 1)
        return replace(undone, evictions=context.evictions - 1)
    if event.id == context.undoable:
        return context  # it is there already
    view = transcript if context.transcript is None else context.transcript
    made = apply_edit(view, event)
    if made is view:
        return context
    edited = replace(context, transcript=made, before=context.transcript, undoable=event.id)
    if isinstance(event, ev.Compacted):
        known = context.summaries | {event.summary.id}
        recent = (*context.recent, (event.head, event.saved))
        sealed = event.summary.origin if _is_sealed(event.summary) else None
        return replace(edited, recent=recent, compactions=context.compactions + 1, summaries=known, failed=0, sealed=sealed)
    return replace(edited, recent=(*context.recent, (event.head, event.saved - event.fresh)), evictions=context.evictions + 1)


def _is_sealed(message: Message) -> bool:
    """True if it is a summary that only its maker can read."""
    only = message.blocks[0] if len(message.blocks) == 1 else None
    if not isinstance(only, HostedBlock):
        return False
    return bytes(msgspec.json.decode(only.raw, type=dict[str, msgspec.Raw]).get("content", UNSAID)) in (b"null", b'""')


def apply_edit(view: Transcript, edit: ContextEdit) -> Transcript:
    """Return the view after one edit. One that names a message which is not there changes nothing."""
    return _evict(view, edit.cuts) if isinstance(edit, ev.Evicted) else _compact(view, edit)


def _evict(view: Transcript, cuts: Sequence[ev.ContextCut]) -> Transcript:
    """Return the view without the cut content. Nodes before the first cut message are reused."""
    wanted: dict[str, list[ev.ContextCut]] = {}
    for cut in cuts:
        wanted.setdefault(cut.message, []).append(cut)
    left = set(wanted)
    node: Node | None = view.head
    after: list[Message] = []
    while node is not None and left:
        after.append(node.message)
        left.discard(node.message.id)
        node = node.parent
    if left:
        return view
    after.reverse()
    return view.at(node).extend(tuple(_shorten(one, wanted[one.id]) if one.id in wanted else one for one in after))


def _shorten(message: Message, cuts: Sequence[ev.ContextCut]) -> Message:
    """Return the message without the cut blocks.

    Where items are bound to their reasoning, an empty block marks that it was removed.
    """
    blocks: list[Block] = list(message.blocks)
    gone: set[int] = set()
    bound = message.origin is not None and message.origin.wire == BINDING
    for cut in cuts:
        block = blocks[cut.block] if cut.block < len(blocks) else None
        if cut.kind == "reasoning" and isinstance(block, ReasoningBlock):
            blocks[cut.block] = ReasoningBlock()
            gone |= set() if bound else {cut.block}
        elif isinstance(block, ToolResult) and cut.part < len(block.content):
            content = list(block.content)
            content[cut.part] = _placeholder(content[cut.part], cut)
            blocks[cut.block] = replace(block, content=tuple(content))
    kept = tuple(block for place, block in enumerate(blocks) if place not in gone)
    return replace(message, blocks=kept)


def _placeholder(part: ResultContent, cut: ev.ContextCut) -> ResultContent:
    if cut.kind == "screenshot":
        return TextBlock(REMOVED_SCREENSHOT) if isinstance(part, ImageBlock) else part
    if isinstance(part, DocumentBlock):
        return TextBlock(f"{REMOVED_RESULT}{part.name or 'a document'}, {part.media_type}]")
    if not isinstance(part, TextBlock):
        return part
    how = f" Read it with read_output, id {cut.blob}." if cut.blob else ""
    what = f"{cut.characters:,} characters.{how}]"
    return TextBlock(f"{part.text[: cut.keep]}\n{REMOVED_REST}{what}" if cut.keep else f"{REMOVED_RESULT}{what}")


def _compact(view: Transcript, edit: ev.Compacted) -> Transcript:
    messages = view.messages
    place = next((number for number, one in enumerate(messages, 1) if one.id == edit.until), 0)
    if not place or any(one.id == edit.summary.id for one in messages):
        return view
    keep = set(edit.kept)
    before = tuple(replace(one, parent_id="") for one in messages[:place] if one.id in keep)
    head = (edit.summary, *before) if edit.leads else (*before, edit.summary)
    return Transcript((*head, *messages[place:]), view.system_blocks)
