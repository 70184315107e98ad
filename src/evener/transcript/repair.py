"""Makes any history legal before it is encoded, and reports each change as a Loss. Pure, idempotent, incremental.

The history is cut into exchanges: what the assistant said, then what came back before it spoke again. An exchange is
settled when the assistant speaks again: no later message can change it. The rules:

    empty text                      dropped (kept in an assistant's message when sealed); a message left with nothing is dropped
    a block in the wrong role       dropped (a call by the user, a result by the assistant, reasoning by anyone else)
    the same message twice          dropped the second time; a sealed thing goes the second time without its seal
    other messages under one id     renamed
    consecutive same-role messages  merged, the same reasoning kept once; system messages stay apart
    a hosted block without its pair replaced by its line, and so is one in the wrong role
    reasoning with nothing after it dropped
    a call id used before           renamed, with its result
    a call without a result         gets an honest synthetic one
    a result without a call         dropped, and so is a second result for one call
    results                         stand first, in call order
"""

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Sequence
from hashlib import blake2b
from typing import Literal, Protocol

import msgspec
from msgspec.structs import replace

from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    ReasoningBlock,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.loss import Loss, loss_in
from evener.transcript.message import Message
from evener.transcript.reply import Usage
from evener.transcript.transcript import Growing, Grown

NO_RESULT = "No result: the call was interrupted before a result was recorded. It is not known whether it took effect."

Names = list[tuple[str, str]]
"""The calls of a turn in order: the id that each was made with, and the id it goes under."""


Due = dict[str, int]
"""How many results may still come for each call id; less than none where one came that was not asked for."""


class UsedIds(Container[str], Protocol):
    """Ids that are taken."""

    def add(self, name: str, /) -> object: ...


def has_result(message: Message) -> bool:
    """True if a message brings a result."""
    for block in message.blocks:  # noqa: SIM110 - a generator for each message costs more than all else here
        if type(block) is ToolResult:
            return True
    return False


def expect(due: Due, messages: Iterable[Message]) -> None:
    """Count what messages of an exchange ask for and what they bring."""
    for message in messages:
        for block in message.blocks:
            if type(block) is ToolCall:
                due[block.id] = due.get(block.id, 0) + 1
            elif type(block) is ToolResult:
                due[block.call_id] = due.get(block.call_id, 0) - 1


def has_all_results(message: Message, said: Iterable[Message]) -> bool:
    """True if a message brings the results of all calls in what was said, in their order: nothing needs to be counted."""
    calls = [block.id for one in said for block in one.blocks if type(block) is ToolCall]
    return calls == [block.call_id for block in message.blocks if type(block) is ToolResult]


def keep_due(message: Message, due: Due, losses: list[Loss], *, elsewhere: bool) -> Message | None:
    """Return the message without results that no call waits for, the others counted; None when nothing else was in it.

    Where calls are `elsewhere`, with the provider, any id may have one.
    """
    kept: list[Block] = []
    for block in message.blocks:
        if type(block) is ToolResult:
            id = block.call_id
            left = due.get(id, 0)
            if left < 0 or (left == 0 and not (elsewhere and id)):
                losses.append(loss_in("repaired", "tool_result", f"no open call {id!r} stands before it", message, block))
                continue
            due[id] = left - 1
        kept.append(block)
    if len(kept) == len(message.blocks):
        return message
    return replace(message, blocks=tuple(kept)) if kept else None


def rename_used_ids(message: Message, used: UsedIds, names: Names, losses: list[Loss]) -> Message:
    """Return the message with ids that no call before has; they are added to `used` and `names`."""
    blocks: list[Block] | None = None
    for place, block in enumerate(message.blocks):
        if type(block) is ToolCall:
            wanted = fresh = block.id
            if not wanted or wanted in used:
                fresh = fresh_id(wanted or make_id(message.id, place), used)
                why = f"the id {wanted!r} was used before or empty; sent as {fresh!r}"
                losses.append(loss_in("renamed", "tool_call.id", why, message, block))
                blocks = blocks or list(message.blocks)
                blocks[place] = replace(block, id=fresh)
            used.add(fresh)
            names.append((wanted, fresh))
    return message if blocks is None else replace(message, blocks=tuple(blocks))


def fresh_id(wanted: str, used: Container[object]) -> str:
    """Return the id that is wanted, or one like it that is not used."""
    if wanted not in used:
        return wanted
    taken, free = 1, 2  # by doubling and halving: an id that is used a thousand times costs ten looks
    while f"{wanted}_{free}" in used:
        taken, free = free, free * 2
    while free - taken > 1:
        middle = (taken + free) // 2
        taken, free = (middle, free) if f"{wanted}_{middle}" in used else (taken, middle)
    return f"{wanted}_{free}"


def make_id(source: str, place: int) -> str:
    """Return an id for a call that came without one: the same place in the same message or answer always gives the same."""
    return "call_" + blake2b(f"{source}/{place}".encode(), digest_size=8).hexdigest()


def put_results_first(
    assistant: Message, came: Sequence[Message], names: Names, losses: list[Loss]
) -> tuple[list[Message], Message | None]:
    """Return the messages that came back, a result for each call standing first and in call order.

    Also the first of them if it had to be made: a message of results only, that belongs to no one. Every result in `came`
    is expected.
    """
    if len(came) == 1 and _are_answers(came[0].blocks, names):
        return list(came), None
    results, places = _match_results(came, names)
    for _, new in names:
        if new not in results:
            losses.append(loss_in("added", "tool_result", f"call {new!r} had none; one was added that says so", assistant))
    if places != sorted(places):
        losses.append(loss_in("repaired", "tool_result", "results were put first and in call order", assistant))
    ordered = tuple(results.get(new) or ToolResult(new, (TextBlock(NO_RESULT),), True) for _, new in names)
    return _lead_with(ordered, assistant, came)


def _are_answers(blocks: tuple[Block, ...], names: Names) -> bool:
    """True if the blocks are the results as they should be: one for each call, in order, and nothing else."""
    results: Names = []
    for block in blocks:
        if type(block) is not ToolResult:
            return False
        results.append((block.call_id, block.call_id))
    return results == names


def _match_results(came: Sequence[Message], names: Names) -> tuple[dict[str, ToolResult], list[int]]:
    """Return the results under the ids of their calls, and for each block the place where it belongs, results first."""
    due: defaultdict[str, deque[int]] = defaultdict(deque)
    for number, (old, _) in enumerate(names):
        due[old].append(number)
    results: dict[str, ToolResult] = {}
    places: list[int] = []
    for block in (block for message in came for block in message.blocks):
        place = len(names)
        if isinstance(block, ToolResult):
            place = due[block.call_id].popleft()
            new = names[place][1]
            results[new] = block if block.call_id == new else replace(block, call_id=new)
        places.append(place)
    return results, places


def _lead_with(
    results: tuple[ToolResult, ...], assistant: Message, came: Sequence[Message]
) -> tuple[list[Message], Message | None]:
    first = next((message for message in came if any(isinstance(block, ToolResult) for block in message.blocks)), None)
    others = [(message, tuple(block for block in message.blocks if not isinstance(block, ToolResult))) for message in came]
    if first is not None and first is came[0]:
        return [_with(first, (*results, *others[0][1])), *(_with(*rest) for rest in others[1:] if rest[1])], None
    rest = [_with(message, blocks) for message, blocks in others if blocks]
    if first is not None and all(message.id != first.id for message in rest):
        return [_with(first, results), *rest], None
    made = Message("user", results, id=f"{first.id if first else assistant.id}/results", created_at=assistant.created_at)
    return [made, *rest], made


def _with(message: Message, blocks: tuple[Block, ...]) -> Message:
    return message if blocks == message.blocks else replace(message, blocks=blocks)


Place = tuple[int, int]
"""A block by its message's number in the exchange and its own in the message: equal blocks are not the same."""


def pair_hosted(
    messages: Sequence[Message], awaited: frozenset[str], coming: Message | None, losses: list[Loss], *, in_flight: bool
) -> tuple[list[Message], frozenset[str]]:
    """Return the messages of one exchange with lines for what is alone, and the ids that are still awaited after it.

    `coming` is the assistant's next message, None while the exchange is open.
    """
    told = list(messages)
    while True:
        alone, waiting = _find_alone(told, awaited, coming, in_flight=in_flight)
        if not alone:
            return told, frozenset(waiting)
        told = [_with_lines(message, number, alone, losses) for number, message in enumerate(told)]  # may leave others alone


def _find_alone(
    messages: Sequence[Message], awaited: frozenset[str], coming: Message | None, *, in_flight: bool
) -> tuple[set[Place], set[str]]:
    """Return the blocks that lack their counterpart, and the ids that may still be awaited."""
    alone, begun = _find_unpaired(messages, awaited)
    waiting: set[str] = set()
    if in_flight and not _has_spoken(messages, alone):
        waiting = set(begun) & _find_closed(coming) if coming else set(begun if _may_go_on(messages, alone) else ())
    given_up = {place for id, place in begun.items() if place and id not in waiting}
    if _has_spoken(messages, given_up):  # their lines are words, and after words nothing waits
        waiting, given_up = set(), {place for place in begun.values() if place}
    return alone | given_up, waiting


def _find_unpaired(messages: Sequence[Message], awaited: frozenset[str]) -> tuple[set[Place], dict[str, Place | None]]:
    """Return ends without a beginning or begun twice, and beginnings without an end (None for those of earlier exchanges)."""
    begun: dict[str, Place | None] = dict.fromkeys(awaited)
    alone: set[Place] = set()
    for place, block in _place_blocks(messages):
        if not isinstance(block, HostedBlock):
            continue
        if (block.closes and block.closes not in begun) or (block.opens and block.opens in begun):
            alone.add(place)
            continue
        if block.closes:
            del begun[block.closes]
        if block.opens:
            begun[block.opens] = place
    return alone, begun


def _place_blocks(messages: Sequence[Message]) -> Iterable[tuple[Place, Block]]:
    return (((number, place), block) for number, message in enumerate(messages) for place, block in enumerate(message.blocks))


def _has_spoken(messages: Sequence[Message], lines: set[Place]) -> bool:
    """True if anyone but the assistant and the client's tools has said something; a block that becomes a line is said."""
    return any(
        messages[place[0]].role != "assistant" and (place in lines or not isinstance(block, (ToolResult, HostedBlock)))
        for place, block in _place_blocks(messages)
    )


def _may_go_on(messages: Sequence[Message], lines: set[Place]) -> bool:
    """True if the provider goes on from here by itself: the turn was paused, or its calls have their results."""
    if not messages:
        return False
    last = messages[-1]
    paused = isinstance(last.blocks[-1], HostedBlock) and (len(messages) - 1, len(last.blocks) - 1) not in lines
    return last.role != "assistant" or paused


def _find_closed(message: Message) -> set[str]:
    return {block.closes for block in message.blocks if isinstance(block, HostedBlock)}


def _with_lines(message: Message, number: int, alone: set[Place], losses: list[Loss]) -> Message:
    blocks: list[Block] = []
    for place, block in enumerate(message.blocks):
        if isinstance(block, HostedBlock) and (number, place) in alone:
            losses.append(
                loss_in("repaired", "hosted", "its counterpart is missing; a line of text replaces it", message, block)
            )
            block = TextBlock(block.line)
        blocks.append(block)
    return message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks))


NOTHING = Grown()

Sort = Literal["words", "plain", "results", "mixed"]

ALLOWED: dict[str, tuple[type, ...]] = {
    "user": (TextBlock, ImageBlock, DocumentBlock, ToolResult, HostedBlock),
    "assistant": (TextBlock, ImageBlock, DocumentBlock, ReasoningBlock, ToolCall, HostedBlock),
    "system": (TextBlock, HostedBlock),
}


class RepairRules(msgspec.Struct, frozen=True):
    """`past_elsewhere`: a provider holds earlier turns, so results may lack their calls. `unique_ids`: over the whole request,
    not only within a turn. `merge`: consecutive user messages become one. `in_flight`: a provider's own tool may still be
    running while the client's results come back."""

    past_elsewhere: bool = False
    unique_ids: bool = True
    merge: bool = True
    in_flight: bool = False


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """What the assistant said (None at the start of a history), and what followed: user and system messages in order.

    Results for the assistant's calls come first in `back`, one for each, in call order.
    """

    assistant: Message | None
    back: tuple[Message, ...]
    losses: tuple[Loss, ...]


class Repair(msgspec.Struct, frozen=True, gc=False):
    """The state between two messages: the exchange that is still open, and what is known of those before it.

    `said` and `back` are the open exchange, the assistant's messages and all others; `hosted`: it contains a hosted block.
    `held` is reasoning that waits for the block that it led to; `awaited` are hosted tools that are still running; `seen`
    are the messages by their ids, `named` the names that providers gave to sealed blocks.
    """

    rules: RepairRules = RepairRules()
    said: tuple[Message, ...] = ()
    back: tuple[Message, ...] = ()
    held: tuple[Message, ...] = ()
    losses: tuple[Loss, ...] = ()
    seen: Grown = NOTHING
    named: Grown = NOTHING
    used_ids: Grown = NOTHING
    awaited: frozenset[str] = frozenset()
    hosted: bool = False

    def feed(self, messages: Iterable[Message], known: Exchange | None = None) -> tuple["Repair", list[Exchange]]:
        """Fold more messages in: the new state, and the exchanges that are settled by them.

        Feeding messages one by one or all at once gives the same exchanges. `known` is what `finish` gave in this state: it
        saves work, no more.
        """
        fold = _Fold(self, known)
        for message in messages:
            fold.add(message)
        return fold.state(), fold.settled

    def advance(
        self, messages: Iterable[Message], known: Exchange | None = None
    ) -> tuple["Repair", list[Exchange], Exchange | None]:
        """Return what `feed` and then `finish` would return: cheaper than one after the other."""
        fold = _Fold(self, known)
        for message in messages:
            fold.add(message)
        return fold.state(), fold.settled, fold.finish()

    def finish(self) -> Exchange | None:
        """Return the open exchange as it would be sent now; None when there is nothing to say."""
        return _Fold(self, None).finish()


def repair(messages: Iterable[Message], rules: RepairRules | None = None) -> tuple[tuple[Message, ...], tuple[Loss, ...]]:
    """Return a legal history, and what it took."""
    _, exchanges, last = Repair(rules or RepairRules()).advance(messages)
    if last:
        exchanges.append(last)
    legal = [message for exchange in exchanges for message in (exchange.assistant, *exchange.back) if message]
    return tuple(legal), tuple(loss for exchange in exchanges for loss in exchange.losses)


class _Fold:
    """A Repair while messages are folded in.

    `known` is the open exchange, as long as nothing was added to it and it does not depend on what comes. `due` is what it
    waits for, once that is needed. `used` are the ids of calls, once there is one.
    """

    __slots__ = (
        *("awaited", "back", "due", "held", "hosted", "known", "losses", "named", "rules", "said", "seen", "settled"),
        *("used", "used_ids"),
    )

    def __init__(self, state: Repair, known: Exchange | None) -> None:
        self.rules = state.rules
        self.said = [*state.said]
        self.back = [*state.back]
        self.held = [*state.held]
        self.losses = [*state.losses]
        self.seen = Growing(state.seen)
        self.named = state.named
        self.used_ids = state.used_ids
        self.awaited = state.awaited
        self.hosted = state.hosted
        self.known = None if state.held or state.awaited or state.hosted else known
        self.used: Growing | None = None
        self.due: Due | None = None
        self.settled: list[Exchange] = []

    def state(self) -> Repair:
        used = self.used.done() if self.used is not None else self.used_ids
        said, back, held, losses = tuple(self.said), tuple(self.back), tuple(self.held), tuple(self.losses)
        return Repair(self.rules, said, back, held, losses, self.seen.done(), self.named, used, self.awaited, self.hosted)

    def finish(self) -> Exchange | None:
        """Return the open exchange as it would be sent now. The fold is of no use afterwards: take its state first."""
        if self.held:
            self.let_go()
        return self.exchange(None) if self.said or self.back or self.losses else None

    def add(self, message: Message) -> None:
        """Fold one message in. What is left of it counts: a message that is dropped comes between no two others."""
        sort, new = _sort(message), self.seen.add(message.id, message)
        left: Message | None = message
        losses: list[Loss] = []
        if sort == "mixed" or not new:
            left = self._strip(message, sort, new, losses)
        elif sort == "results":
            left = self._keep_awaited(message, losses)
        if left is not None:
            if left.role == "assistant":
                self._speak(left)
            else:
                if self.held:
                    self.let_go()
                self.back.append(left)
        if losses:
            self.losses += losses
        if sort == "mixed" and left is not None and any(type(block) is HostedBlock for block in left.blocks):
            self.hosted = True
        self.known = None

    def _strip(self, message: Message, sort: Sort, new: bool, losses: list[Loss]) -> Message | None:
        """Return what is left of a message; `new`: none before has its id."""
        left = message if new else self._once(message, losses)
        if left is not None and sort == "mixed":
            named = Growing(self.named)
            left = _clean(left, named, losses)
            self.named = named.done()
        if left is not None and left.role == "user" and has_result(left):
            left = self._keep_awaited(left, losses)
        return left

    def _speak(self, message: Message) -> None:
        """Add what the assistant said: what came back before is settled. Reasoning alone waits for what it leads to."""
        if not _weighs(message.blocks[-1]) and not any(_weighs(block) for block in message.blocks):
            self.held.append(message)
            return
        if self.back:
            self.settled.append(self._use_known() or self.exchange(message))
            self.said, self.back, self.losses, self.due, self.hosted = [], [], [], None, False
        new = [*self.held, message]
        self.said += new
        self.held = []
        if self.due is not None:
            expect(self.due, new)

    def let_go(self) -> None:
        """Give up the reasoning that nothing followed."""
        for message in self.held:
            self.losses += (
                loss_in("repaired", block.kind, "nothing followed it in its turn", message, block) for block in message.blocks
            )
        self.held = []

    def _use_known(self) -> Exchange | None:
        """Return the open exchange, if it is known. The ids of its calls are used from now on."""
        if self.known is not None and self.known.assistant is not None:
            for block in self.known.assistant.blocks:
                if type(block) is ToolCall:
                    self._open_ids().add(block.id)
        return self.known

    def _open_ids(self) -> Growing:
        """Return the ids of calls, to be added to."""
        if self.used is None:
            self.used = Growing(self.used_ids)
        return self.used

    def exchange(self, coming: Message | None) -> Exchange:
        """Return the open exchange; `coming` is the assistant's message that settles it, None while it is open."""
        first, back, made = None, self.back, None
        if self.said:
            names: Names = []
            first = self._tell(names)
            if names:
                back, made = put_results_first(first, back, names, self.losses)
        if len(back) > 1 and self.rules.merge:
            back = _join(back, made, self.losses)
        if self.hosted or self.awaited:
            said = [first] if first is not None else []
            told, self.awaited = pair_hosted([*said, *back], self.awaited, coming, self.losses, in_flight=self.rules.in_flight)
            first, back = told[0] if said else None, told[len(said) :]
        return Exchange(first, tuple(back), tuple(self.losses) if self.losses else ())

    def _tell(self, names: Names) -> Message:
        """Return what the assistant said, as one message whose calls have ids of their own."""
        used = self._open_ids() if self.rules.unique_ids else Growing(NOTHING)
        said = self.said
        last = _drop_trailing_reasoning(said[-1], self.losses)
        if len(said) == 1:
            return rename_used_ids(last, used, names, self.losses)
        return _merge([rename_used_ids(message, used, names, self.losses) for message in (*said[:-1], last)], self.losses)

    def _once(self, message: Message, losses: list[Loss]) -> Message | None:
        """Return the message under a name of its own, as its id was seen before; None when it stood there itself."""
        if self._is_repeated(message):
            losses.append(loss_in("repaired", "message", "the same message stands twice", message))
            return None
        fresh = fresh_id(message.id, self.seen)
        losses.append(loss_in("renamed", "message.id", f"another message has it; here it is {fresh!r}", message))
        self.seen.add((message.id, message.role, message.blocks))
        self.seen.add(fresh)
        return replace(message, id=fresh)

    def _keep_awaited(self, message: Message, losses: list[Loss]) -> Message | None:
        """Return a user's message with those results only that are due."""
        if self.due is None:
            if not self.back and has_all_results(message, self.said):
                return message
            self.due = {}
            expect(self.due, self.said)
            expect(self.due, self.back)
        return keep_due(message, self.due, losses, elsewhere=self.rules.past_elsewhere and not self.said)

    def _is_repeated(self, message: Message) -> bool:
        """True if the same was said before under this id: by the first who had it, or by one who was renamed."""
        first = self.seen.get(message.id)
        same = isinstance(first, Message) and (first.role, first.blocks) == (message.role, message.blocks)
        return same or (message.id, message.role, message.blocks) in self.seen


def _weighs(block: Block) -> bool:
    """True if a block says something by itself: reasoning and empty text only go with others."""
    return type(block) is not ReasoningBlock and (type(block) is not TextBlock or not _is_empty(block))


def _is_empty(block: Block) -> bool:
    return type(block) is TextBlock and not block.text.strip()


def _sort(message: Message) -> Sort:
    """Return what there is to a message: only `words`; `plain` blocks, none of which may have to be changed, as each may stand
    here, says something and has no name of its provider's; the same with `results`, which may have to go; or `mixed` ones."""
    sort: Sort = "words"
    allowed = ALLOWED[message.role]
    for block in message.blocks:
        if type(block) is TextBlock:  # which may stand anywhere
            if (block.seal is not None and block.seal.id) or not block.text.strip():
                return "mixed"
        elif type(block) is HostedBlock or type(block) not in allowed or (block.seal is not None and block.seal.id):
            return "mixed"
        elif type(block) is ToolResult:
            sort = "results"
        elif sort == "words":
            sort = "plain"
    return sort if message.blocks else "mixed"


def _clean(message: Message, named: Growing, losses: list[Loss]) -> Message | None:
    kept: list[Block] = []
    for block in message.blocks:
        fitting = _fit(block, message, losses)
        once = _once(fitting, message, named, losses) if fitting else None
        if type(once) is TextBlock and _is_empty(once) and not (once.seal and message.role == "assistant"):
            losses.append(loss_in("repaired", "text", "it was empty", message, block))
        elif once:
            kept.append(once)
    for block in kept:
        if name := _name(block):
            named.add(name)
    if all([_is_empty(block) for block in kept]):
        losses.append(loss_in("repaired", "message", f"nothing was left of a {message.role} message", message))
        return None
    return message if tuple(kept) == message.blocks else replace(message, blocks=tuple(kept))


def _fit(block: Block, message: Message, losses: list[Loss]) -> Block | None:
    """Return the block if this message may hold it, the line that stands for it, or nothing."""
    if type(block) not in ALLOWED[message.role]:
        losses.append(loss_in("repaired", block.kind, f"a {message.role} message cannot hold it", message, block))
        return None
    if type(block) is HostedBlock and block.role not in ("", message.role):
        why = f"a {message.role} message cannot hold it; a line of text replaces it"
        losses.append(loss_in("repaired", "hosted", why, message, block))
        return TextBlock(block.line)
    return block


def _once(block: Block, message: Message, named: Growing, losses: list[Loss]) -> Block | None:
    """Return the block, or what stands for it when the provider's name for it was used before. Parts of one text share one."""
    name = _name(block)
    if name not in named:
        if name and type(block) is not TextBlock:
            named.add(name)
        return block
    why = "the same sealed block occurs twice; the second is sent without its seal"
    losses.append(loss_in("repaired", block.kind, why, message, block))
    if type(block) is HostedBlock:
        return TextBlock(block.line)
    return None if type(block) is ReasoningBlock else replace(block, seal=None)


def _name(block: Block) -> str:
    if type(block) is HostedBlock:
        return block.id
    return block.seal.id if block.seal else ""


def _drop_trailing_reasoning(message: Message, losses: list[Loss]) -> Message:
    if _weighs(message.blocks[-1]):
        return message
    end = max(number for number, block in enumerate(message.blocks) if _weighs(block)) + 1
    tail = tuple(block for block in message.blocks[end:] if not isinstance(block, ReasoningBlock))
    dropped = [block for block in message.blocks[end:] if isinstance(block, ReasoningBlock)]
    losses += [loss_in("repaired", "reasoning", "nothing followed it in its turn", message, block) for block in dropped]
    return replace(message, blocks=(*message.blocks[:end], *tail)) if dropped else message


def _merge(messages: Sequence[Message], losses: list[Loss]) -> Message:
    """Return the assistant's messages as one. It has an origin only if they share it, so that no reasoning gets a false one."""
    first = messages[0]
    if len(messages) == 1:
        return first
    blocks = list(first.blocks)
    for message in messages[1:]:
        losses.append(loss_in("repaired", "message", "consecutive assistant messages were merged", message))
        for block in message.blocks:
            if isinstance(block, ReasoningBlock) and block in blocks:
                losses.append(loss_in("repaired", "reasoning", "the same reasoning stands before it", message, block))
            else:
                blocks.append(block)
    origin = first.origin if all(message.origin == first.origin for message in messages) else None
    usages = [message.usage for message in messages if message.usage]
    return replace(first, blocks=tuple(blocks), origin=origin, usage=sum(usages, Usage()) if usages else None)


def _join(messages: Sequence[Message], made: Message | None, losses: list[Loss]) -> list[Message]:
    """Merge consecutive user messages. To put results that were gathered (`made`) before words is not worth a report."""
    joined: list[Message] = []
    for message in messages:
        before = joined[-1] if joined else None
        if before and before.role == message.role == "user":
            if before is not made:
                losses.append(loss_in("repaired", "message", "consecutive user messages were merged", message))
            joined[-1] = replace(message if before is made else before, blocks=(*before.blocks, *message.blocks))
        else:
            joined.append(message)
    return joined
