"""Decides which blocks to leave out of requests, in what order, and what that saves. Pure: a function of the view.

First images in tool results beyond the newest few, then documents and verbose texts in results, then old reasoning: oldest
first, until enough is saved. Messages of the user and pinned messages are never touched, and a call never loses its result:
the content of the result is replaced. The provider's cached prefix ends at the first cut, wherever the others are, so
several cuts at once cost no more than one. `excerpt` also shortens results of the newest exchanges, the largest first, and
leaves one image: used only if nothing else helps.
"""

from collections.abc import Container, Iterator, Sequence
from math import inf

import msgspec

from evener.context.accounting import TokenRates, count_block, size_messages
from evener.context.gate import ContextRules
from evener.context.view import REMOVED_RESULT, REMOVED_SCREENSHOT
from evener.events import ContextCut
from evener.transcript.blocks import DocumentBlock, ImageBlock, ReasoningBlock, ResultContent, TextBlock, ToolResult
from evener.transcript.message import Message

PLACEHOLDER = 40.0
"""Tokens of what stands for a result."""
EXCERPTS = (500, 0)
"""Characters that stay of a result of the newest exchanges: first so many, and none if that is still too much."""


class Eviction(msgspec.Struct, frozen=True):
    """What to cut. `saved` is how many tokens that saves, `broken` how many of the remaining tokens come after the first
    cut.

    `fresh` is the part of `saved` after the last answer. `texts` are the whole results, each with the number of its cut: to
    be stored where the model can page through them.
    """

    cuts: tuple[ContextCut, ...] = ()
    saved: float = 0.0
    broken: float = 0.0
    fresh: float = 0.0
    texts: tuple[tuple[int, str], ...] = ()


def is_prompt(message: Message) -> bool:
    """True if the user said it: a user message without results."""
    if message.role != "user":
        return False
    return not any([type(block) is ToolResult for block in message.blocks])


def speaks(message: Message) -> bool:
    """True if the user said something in it, beside results or without any."""
    return message.role == "user" and any([type(block) is TextBlock and bool(block.text) for block in message.blocks])


def tail_start(messages: Sequence[Message], exchanges: int) -> int:
    """Return where the newest exchanges begin: each is what the assistant said and what came back."""
    left = exchanges
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "assistant":
            left -= 1
            if not left:
                return place
    return 0


def plan_eviction(
    messages: Sequence[Message],
    goal: float,
    *,
    rates: TokenRates,
    rules: ContextRules,
    pinned: Container[str] = frozenset(),
    tail: float = inf,
    prefix_bound: bool = False,
    excerpt: int | None = None,
) -> Eviction:
    """Return the cuts that save at least `goal` tokens, or all that may be made.

    `tail` is how many tokens the newest exchanges may have to be left as they are; the newest is in any case.
    `prefix_bound`: sealed reasoning after a cut is dead, so it is cut, too. `excerpt` is how many characters stay of a result
    of the newest exchanges; None leaves them as they are.
    """
    start = _find_protected(messages, rules.tail, tail, rates)
    found: list[tuple[int, ContextCut, float, str]] = []
    saved = 0.0
    for step in _steps(messages, start, rates, rules, pinned, excerpt):
        if saved >= goal and step[1].kind != "screenshot":
            break
        found.append(step)
        saved += step[2]
    if not found:
        return Eviction()
    if prefix_bound:
        found += _find_dying(messages, found, pinned)
        saved = sum(one[2] for one in found)
    found.sort(key=lambda one: (one[0], one[1].block, one[1].part))
    after = size_messages(messages[found[0][0] :], rates)
    texts = tuple((number, text) for number, (_, _, _, text) in enumerate(found) if text)
    answered = tail_start(messages, 1)
    fresh = sum(one[2] for one in found if one[0] > answered)
    return Eviction(tuple(one[1] for one in found), saved, max(after - saved, 0.0), fresh, texts)


def _find_protected(messages: Sequence[Message], exchanges: int, most: float, rates: TokenRates) -> int:
    """Return where the exchanges begin that are left as they are."""
    for kept in range(exchanges, 1, -1):
        start = tail_start(messages, kept)
        if size_messages(messages[start:], rates) <= most:
            return start
    return tail_start(messages, 1)


Found = tuple[int, ContextCut, float, str]
"""The place of the message, the cut, the tokens that it saves, and the text that is cut."""


def _steps(
    messages: Sequence[Message],
    start: int,
    rates: TokenRates,
    rules: ContextRules,
    pinned: Container[str],
    excerpt: int | None,
) -> Iterator[Found]:
    """Yield all cuts that may be made, in the order in which they are."""
    free = [(place, one) for place, one in enumerate(messages) if one.id not in pinned]
    yield from _screenshots(free, rates, rules.screenshots if excerpt is None else min(rules.screenshots, 1))
    for place, message in free:
        if place < start:
            yield from _results(place, message, rates, rules.verbose, keep=0)
    for place, message in free:
        if place < start:
            yield from _find_reasoning(place, message, rates)
    if excerpt is not None:
        newest = [
            cut for place, one in free if place >= start for cut in _results(place, one, rates, 2 * excerpt, keep=excerpt)
        ]
        yield from sorted(newest, key=lambda one: -one[2])


def _screenshots(free: Sequence[tuple[int, Message]], rates: TokenRates, keep: int) -> Iterator[Found]:
    """Yield those beyond the newest, the oldest first. The placeholder costs a little, too."""
    found: list[Found] = []
    seen = 0
    less = rates.image - len(REMOVED_SCREENSHOT) * rates.result
    for place, message in reversed(free):
        for number in range(len(message.blocks) - 1, -1, -1):
            block = message.blocks[number]
            if type(block) is not ToolResult:
                continue
            for part in range(len(block.content) - 1, -1, -1):
                if type(block.content[part]) is ImageBlock:
                    seen += 1
                    if seen > keep:
                        found.append((place, ContextCut(message.id, number, "screenshot", part), less, ""))
    yield from reversed(found)


def _results(place: int, message: Message, rates: TokenRates, most: int, *, keep: int) -> Iterator[Found]:
    for number, block in enumerate(message.blocks):
        if type(block) is not ToolResult:
            continue
        for part, content in enumerate(block.content):
            text, less = _cuttable(content, rates, most, keep)
            if less > 0:
                yield place, ContextCut(message.id, number, "result", part, "", len(text), keep if text else 0), less, text


def _cuttable(content: ResultContent, rates: TokenRates, most: int, keep: int) -> tuple[str, float]:
    """Return the text that can be cut, empty for a document, and the tokens that it saves; 0 for what stays."""
    if type(content) is DocumentBlock:
        return "", count_block(content, rates) - PLACEHOLDER
    if type(content) is not TextBlock or len(content.text) <= most or content.text.startswith(REMOVED_RESULT):
        return "", 0.0
    text = content.text
    return text, count_block(ToolResult("", (content,)), rates) * (1 - keep / len(text)) - PLACEHOLDER


def _find_reasoning(place: int, message: Message, rates: TokenRates) -> Iterator[Found]:
    """Yield the reasoning of a message that has something else, too: else the turn would be empty."""
    if message.role != "assistant" or all([type(block) is ReasoningBlock for block in message.blocks]):
        return
    for number, block in enumerate(message.blocks):
        if type(block) is ReasoningBlock and (block.text or block.seal):  # an empty one says that it was cut
            yield place, ContextCut(message.id, number, "reasoning"), count_block(block, rates) + rates.message, ""


def _find_dying(messages: Sequence[Message], found: Sequence[Found], pinned: Container[str]) -> list[Found]:
    """Return the cuts of reasoning whose seal dies with the first of these cuts."""
    first = min(one[0] for one in found)
    known = {(one[1].message, one[1].block) for one in found}
    dying: list[Found] = []
    for place in range(first + 1, len(messages)):
        message = messages[place]
        if message.id in pinned or all([type(block) is ReasoningBlock for block in message.blocks]):
            continue
        for number, block in enumerate(message.blocks):
            if type(block) is ReasoningBlock and block.seal is not None and (message.id, number) not in known:
                dying.append((place, ContextCut(message.id, number, "reasoning"), 0.0, ""))
    return dying
