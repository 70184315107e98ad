"""What of an ask goes out when the provider holds the beginning of the conversation: what is new, and nothing twice. Pure."""

import msgspec
from msgspec.structs import replace

from evener.transcript.ask import Ask, State
from evener.transcript.blocks import ToolResult
from evener.transcript.loss import Loss, loss_of
from evener.transcript.message import Message
from evener.transcript.origin import Origin, Seal
from evener.transcript.repair import Exchange, Repair, RepairRules
from evener.transcript.transcript import Node, Transcript
from evener.wire.openai_responses.blocks import FREE_ANSWER, FREE_CALL
from evener.wire.quirks import Quirks
from evener.wire.text import dumps

__all__ = ["Outgoing", "outgoing"]

ALL_IS_SENT = "the whole conversation is sent"


class Outgoing(msgspec.Struct, frozen=True):
    """The ask to write, what it cost, and whether the provider holds what comes before it."""

    ask: Ask
    losses: tuple[Loss, ...] = ()
    resumed: bool = False
    keeps: str = ""


def outgoing(ask: Ask, quirks: Quirks) -> Outgoing:
    """The ask without what the provider holds; the whole of it, with a report, where it cannot go on from there."""
    wanted = ask.state
    if wanted.mode == "replay":
        return Outgoing(ask)
    if not quirks.store or (wanted.mode == "conversation" and not quirks.conversation):
        if wanted.id and not wanted.after:
            return Outgoing(ask)  # the ask holds no more than what is new: `controls.state` says that the rest is missing
        return _whole(ask, "this endpoint keeps no state", State(sealed=wanted.sealed))
    keeps = wanted.mode if wanted.store is not False and (wanted.id or wanted.mode == "chain") else ""
    if not wanted.after:
        return Outgoing(ask, keeps=keeps)
    found = _resumed(ask, RepairRules(unique_ids=quirks.unique_ids, merge=False))
    if isinstance(found, str):  # a chain begins anew; a conversation that holds some of it cannot be told all of it
        return _whole(ask, found, replace(wanted, id="", after="") if wanted.mode == "chain" else State(sealed=wanted.sealed))
    messages, losses = found
    cut = replace(ask, transcript=Transcript(messages, ask.transcript.system_blocks))
    return Outgoing(cut, losses, resumed=True, keeps=keeps)


def _whole(ask: Ask, why: str, state: State) -> Outgoing:
    loss = loss_of("degraded", "state.mode", f"{why}; {ALL_IS_SENT}", name=ask.state.mode)
    keeps = state.mode if state.mode == "chain" and state.store is not False else ""
    return Outgoing(replace(ask, state=state), (loss,), keeps=keeps)


def _resumed(ask: Ask, rules: RepairRules) -> tuple[list[Message], tuple[Loss, ...]] | str:
    """The messages that are new to the provider, and what it took to make them legal; or why they cannot be told."""
    node = _node(ask.transcript, ask.state.after)
    if node is None or not ask.state.id:
        return "the answer after which it was to go on is not in this conversation"
    if node.message.origin != ask.target:
        return "the answer after which it was to go on is of another model, account or endpoint"
    return _new(ask.transcript, node, rules) or "the answer after which it was to go on had to be mended"


def _node(transcript: Transcript, message: str) -> Node | None:
    here = transcript.head
    while here is not None and here.message.id != message:
        here = here.parent
    return here


def _new(transcript: Transcript, node: Node, rules: RepairRules) -> tuple[list[Message], tuple[Loss, ...]] | None:
    """The messages after an answer, legal after it: each of its calls has a result. None when they cannot be told apart.

    Where others have spoken since, everything is looked at: a call of theirs may have the name of an earlier one.
    """
    tail = transcript.since(node)
    if tail and tail[0].role == "assistant":
        return None
    alone = all(message.role != "assistant" for message in tail)
    state, exchanges = Repair(rules).feed((node.message, *tail) if alone else transcript.messages)
    last = state.finish()
    told = [*exchanges, *((last,) if last else ())]
    place = _place(told, node.message)
    if place < 0:
        return None
    after = told[place + 1 :]
    first = [_noted(message, node.message) for message in told[place].back]
    messages = [*first, *(message for one in after for message in (one.assistant, *one.back) if message)]
    return messages, tuple(loss for one in told[place:] for loss in one.losses)


def _noted(message: Message, answer: Message) -> Message:
    """The message, its results of calls that were made with a text marked so: the calls themselves are not sent again."""
    free = {call.id for call in answer.calls if call.seal is not None and FREE_CALL in call.seal.data}
    if not free:
        return message
    mark = Seal(dumps({"type": FREE_ANSWER}).decode(), answer.origin or Origin())
    blocks = [
        replace(block, seal=mark) if type(block) is ToolResult and block.seal is None and block.call_id in free else block
        for block in message.blocks
    ]
    return replace(message, blocks=tuple(blocks))


def _place(exchanges: list[Exchange], answer: Message) -> int:
    """Where the answer stands as it was given; -1 when it does not: merged with another, left out, or its calls renamed."""
    for number, exchange in enumerate(exchanges):
        said = exchange.assistant
        if said is not None and said.id == answer.id:
            return number if [call.id for call in said.calls] == [call.id for call in answer.calls] else -1
    return -1
