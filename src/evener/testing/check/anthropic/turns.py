"""How the messages of one Anthropic request fit together: order of roles, pairing of calls and results, thinking.

Consecutive messages of one role are merged by the server, so these rules read the merged turns. Never reads
the fields of a block (see blocks).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from evener.testing.check.models import ClaudeRow
from evener.testing.check.shape import Violation, fields, items, text

_THINKING = frozenset(("thinking", "redacted_thinking"))
_HOSTED_CALLS = frozenset(("server_tool_use", "mcp_tool_use"))
_PAUSES = _HOSTED_CALLS | {"compaction"}


class Placed(msgspec.Struct, frozen=True):
    """One block, and its path in the request."""

    path: str
    kind: str
    block: Mapping[str, object]

    @property
    def result_of(self) -> str:
        """The id of the call that this block answers; empty if it answers none."""
        return text(self.block.get("tool_use_id"))


class MergedTurn(msgspec.Struct, frozen=True):
    """The merged blocks of consecutive messages of one role."""

    path: str
    role: str
    blocks: list[Placed]

    def kinds(self) -> list[str]:
        """Return the types of the turn's blocks, in order."""
        return [placed.kind for placed in self.blocks]


def merge_turns(messages: object) -> list[MergedTurn]:
    """Return the turns as the server merges them, without malformed messages, which other rules report."""
    turns: list[MergedTurn] = []
    for index, message in enumerate(map(fields, items(messages))):
        role, path = text(message.get("role")), f"messages.{index}"
        if not role:
            continue
        if not turns or turns[-1].role != role:
            turns.append(MergedTurn(path, role, []))
        turns[-1].blocks.extend(_place(path, message.get("content")))
    return turns


def _place(path: str, content: object) -> Iterator[Placed]:
    if isinstance(content, str):
        yield Placed(path, "text", {"type": "text", "text": content})
    for index, block in enumerate(map(fields, items(content))):
        yield Placed(f"{path}.content.{index}", text(block.get("type")), block)


def is_prefill(turns: Sequence[MergedTurn]) -> bool:
    """True if the request ends with assistant text to continue, and not with a paused hosted turn (section 8.7)."""
    return bool(turns) and turns[-1].role == "assistant" and not _PAUSES.intersection(turns[-1].kinds())


def check_turns(turns: Sequence[MergedTurn], row: ClaudeRow, thinking: str) -> Iterator[Violation]:
    """Report errors between turns. `thinking` is the request's thinking type; empty if it is not set.

    The sheet requires a user message first. A recording that begins with an assistant message was accepted, so it is no rule.
    """
    yield from _check_system(turns, row)
    yield from _check_calls(turns)
    yield from _check_results(turns)
    yield from _check_hosted(turns)
    yield from _check_prefill(turns, row)
    yield from _check_whitespace(turns)
    yield from _check_thinking(turns, thinking)


def _check_system(turns: Sequence[MergedTurn], row: ClaudeRow) -> Iterator[Violation]:
    """Report a misplaced system message: it must follow a user turn or hosted result, and be last or before the assistant."""
    for index, turn in enumerate(turns):
        if turn.role != "system":
            continue
        before = turns[index - 1] if index else None
        after = turns[index + 1].role if index + 1 < len(turns) else "assistant"
        if before is None or after != "assistant" or not _may_precede_system(before):
            message = "a system message must follow a user message and be last or followed by an assistant message"
            yield Violation(turn.path, "system.placement", message)
        if not row.mid_system:
            yield Violation(turn.path, "system.unsupported", "role 'system' is not supported on this model")


def _may_precede_system(turn: MergedTurn) -> bool:
    ends_hosted = bool(turn.blocks) and turn.blocks[-1].kind.endswith("_tool_result")
    return turn.role == "user" or ends_hosted


def _check_calls(turns: Sequence[MergedTurn]) -> Iterator[Violation]:
    """Report calls that are not answered in the very next turn, and ids that are not unique within their turn (section 3).

    In recordings, the API reports the second of two equal ids in one message, and accepts an id that a later turn repeats.
    """
    for index, turn in enumerate(turns):
        seen: set[str] = set()
        calls = [placed for placed in turn.blocks if placed.kind == "tool_use"]
        if not calls:
            continue
        after = turns[index + 1] if index + 1 < len(turns) else MergedTurn("", "", [])
        answered = {placed.result_of for placed in after.blocks if placed.kind == "tool_result"}
        for call in calls:
            name = text(call.block.get("id"))
            if name in seen:
                yield Violation(call.path, "tool_use.duplicate", "`tool_use` ids must be unique")
            seen.add(name)
            if name not in answered:
                message = "`tool_use` ids were found without `tool_result` blocks immediately after"
                yield Violation(call.path, "tool_use.unanswered", message)


def _check_results(turns: Sequence[MergedTurn]) -> Iterator[Violation]:
    """Report results that answer no call of the turn before, answer one twice, or come after another block (section 3)."""
    for index, turn in enumerate(turns):
        asked = _calls_of(turns[index - 1]) if index else set()
        seen: set[str] = set()
        late = False
        for placed in turn.blocks:
            if placed.kind != "tool_result":
                late = True
                continue
            name = placed.result_of
            if name not in asked:
                message = "unexpected `tool_use_id` found in `tool_result` blocks: no such `tool_use` in the turn before"
                yield Violation(placed.path, "tool_result.orphan", message)
            elif late:
                message = "`tool_result` blocks must come before any other content of the message"
                yield Violation(placed.path, "tool_result.order", message)
            if name in seen:
                message = "each `tool_use` must have a single result"
                yield Violation(placed.path, "tool_result.duplicate", message)
            seen.add(name)


def _calls_of(turn: MergedTurn) -> set[str]:
    return {text(placed.block.get("id")) for placed in turn.blocks if placed.kind == "tool_use"}


def _check_hosted(turns: Sequence[MergedTurn]) -> Iterator[Violation]:
    """Report hosted results without their call, and hosted calls without a result that are not in progress (section 4).

    The recordings accept an open hosted call while only results of client tools follow it (a paused turn, or one that waits for
    a client tool). A later user block of another kind closes it.
    """
    open_calls: dict[str, str] = {}
    known: set[str] = set()
    for turn in turns:
        for placed in turn.blocks:
            if placed.kind in _HOSTED_CALLS:
                name = text(placed.block.get("id"))
                open_calls[name] = placed.path
                known.add(name)
            elif placed.kind.endswith("_tool_result"):
                if placed.result_of not in known:
                    message = f"each `{placed.kind}` block must have a corresponding `server_tool_use` block before it"
                    yield Violation(placed.path, "server_tool.orphan", message)
                open_calls.pop(placed.result_of, None)
            elif turn.role == "user" and placed.kind != "tool_result" and open_calls:
                yield from _check_answered(open_calls.values())
                open_calls.clear()


def _check_answered(paths: Iterable[str]) -> Iterator[Violation]:
    for path in paths:
        message = "hosted tool use was found without a corresponding result block"
        yield Violation(path, "server_tool.unanswered", message)


def _check_prefill(turns: Sequence[MergedTurn], row: ClaudeRow) -> Iterator[Violation]:
    """Report a prefill that the model refuses (4.6 and later, section 0), or that ends in white space (section 3)."""
    if is_prefill(turns) and not row.prefill:
        message = "This model does not support assistant message prefill; the conversation must end with a user message."
        yield Violation(turns[-1].path, "prefill", message)
    last = turns[-1].blocks[-1] if is_prefill(turns) and turns[-1].blocks else None
    if last is not None and last.kind == "text" and text(last.block.get("text"))[-1:].isspace():
        message = "messages: final assistant content cannot end with trailing whitespace"
        yield Violation(last.path, "prefill.whitespace", message)


def _check_whitespace(turns: Sequence[MergedTurn]) -> Iterator[Violation]:
    """Report a turn whose only text is white space; next to other text, live tests saw it accepted."""
    for turn in turns:
        texts = [placed for placed in turn.blocks if placed.kind == "text" and text(placed.block.get("text"))]
        if texts and not any(text(placed.block.get("text")).strip() for placed in texts):
            message = "text content blocks must contain non-whitespace text"
            yield Violation(texts[0].path, "text.whitespace", message)


def _check_thinking(turns: Sequence[MergedTurn], thinking: str) -> Iterator[Violation]:
    """Report misplaced thinking, and missing thinking in the current tool loop (sections 3 and 7)."""
    for turn in turns:
        if turn.role == "assistant" and turn.blocks and turn.blocks[-1].kind in _THINKING:
            message = "The final block in an assistant message cannot be `thinking`."
            yield Violation(turn.blocks[-1].path, "thinking.last", message)
    final = next((turn for turn in reversed(turns) if turn.role == "assistant" and turn.blocks), None)
    if final is None:
        return
    starts = final.blocks[0].kind in _THINKING
    holds = bool(_THINKING.intersection(final.kinds()))
    in_loop = final is turns[-1] or "tool_result" in turns[-1].kinds()
    if thinking == "enabled" and not starts:
        yield from _check_start(final, holds=holds, in_loop=in_loop)
    if thinking == "disabled" and holds and in_loop:
        message = "When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`."
        yield Violation(final.path, "thinking.disabled", message)


def _check_start(final: MergedTurn, *, holds: bool, in_loop: bool) -> Iterator[Violation]:
    """Report a final assistant turn that does not start with thinking although a thinking budget is set.

    The sheet states both rules for every message. The recordings are more lenient: a completed turn without thinking is
    accepted, and without a budget, thinking need not be first in a turn (a hosted call may be).
    """
    if holds:
        message = "If an assistant message contains any thinking blocks, the first block must be `thinking`."
        yield Violation(final.blocks[0].path, "thinking.first", message)
    elif in_loop and "tool_use" in final.kinds():
        message = f"Expected `thinking` or `redacted_thinking`, but found `{final.blocks[0].kind}`."
        yield Violation(final.blocks[0].path, "thinking.expected", message)
