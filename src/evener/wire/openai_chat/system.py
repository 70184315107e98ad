"""The system prompt as the first message or messages. Pure.

Its parts are one message, joined by newlines; parts with a cache mark need a list. Parts that a request had in messages of
their own say so in their seal, and stay apart.
"""

from collections.abc import Mapping

import msgspec

from evener.transcript.ask import Ask
from evener.transcript.blocks import TextBlock
from evener.transcript.loss import Loss, loss_of
from evener.wire.openai_chat.seals import UNCITED, left_behind, opened
from evener.wire.page import OWN_MARKS
from evener.wire.quirks import Quirks
from evener.wire.text import OPERATOR, dumps

__all__ = ["marks_move", "system_messages"]


class _Group(msgspec.Struct):
    """The parts of one message. `apart`: a request had it so."""

    own: dict[str, object]
    apart: bool = False
    parts: list[bytes] = []
    texts: list[str] = []
    listed: bool = False


def system_messages(ask: Ask, quirks: Quirks, marks: Mapping[int, bytes], losses: list[Loss], note: str = "") -> list[bytes]:
    """The messages that hold the system prompt. `marks` are those of its parts, by number; `note` is said after them."""
    groups: list[_Group] = []
    for number, block in enumerate((*ask.transcript.system_blocks, *([TextBlock(note)] if note else ()))):
        _report(block, str(number), ask, quirks, losses)
        if not block.text:
            continue
        sealed = opened(block.seal, ask, quirks)
        lead = OPERATOR if quirks.system_role == "user" and not groups else ""
        if not groups or sealed.message:
            own: dict[str, object] = {"role": quirks.system_role, **sealed.message}
            own |= {"role": "user"} if quirks.system_role == "user" else {}
            groups.append(_Group(own, bool(sealed.message)))
        group = groups[-1]
        text = lead + block.text
        part = dumps({"type": "text", "text": text, **sealed.own})
        group.listed = group.listed or bool(block.cache or sealed.own) or marks_move(quirks)
        group.parts.append(part[:-1] + marks[number] + b"}" if number in marks and not OWN_MARKS & sealed.own.keys() else part)
        group.texts.append(text)
    if groups and quirks.system_role == "user":
        losses.append(loss_of("degraded", "system", "this model takes none; sent as marked user text"))
    return [_message(group) for group in groups]


def _report(block: TextBlock, at: str, ask: Ask, quirks: Quirks, losses: list[Loss]) -> None:
    """Say what of a part does not go out."""
    names, why = left_behind(block.seal, ask, quirks)
    if names:
        losses.append(loss_of("dropped", "system.fields", f"{', '.join(names)}: {why}", at=f"{at}/seal"))
    if block.citations:
        losses.append(loss_of("dropped", "system.citations", UNCITED, at=f"{at}/citations"))
    if not block.text:
        losses.append(loss_of("dropped", "system.part", "it was empty", at=at))


def marks_move(quirks: Quirks) -> bool:
    """Whether we place cache marks ourselves, so that any content may get one."""
    return quirks.cache_style == "control" and quirks.cache_marks > 0


def _message(group: _Group) -> bytes:
    if group.listed or (group.apart and len(group.parts) > 1):
        return dumps(group.own)[:-1] + b',"content":[' + b",".join(group.parts) + b"]}"
    return dumps({**group.own, "content": "\n".join(group.texts)})
