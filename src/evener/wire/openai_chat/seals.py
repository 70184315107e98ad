"""What this wire put on a block, as the JSON text of a seal: the block's own fields, and those of its message. Pure.

A message here is one object, so its fields ride on its first block, under `@message`. A field of ours begins with @: it is
not sent itself. `@field` names the field of the message that a text came in.
"""

import msgspec

from evener.transcript.ask import Ask
from evener.transcript.origin import Origin, Seal
from evener.wire.openai_chat.chunks import is_there
from evener.wire.quirks import Quirks
from evener.wire.seals import MESSAGE, why_not_own, why_shut
from evener.wire.text import dumps, fields

__all__ = ["FIELD", "REFUSAL", "UNCITED", "WIRE", "Sealed", "left_behind", "opened", "seal_text", "why_foreign"]

WIRE = "openai_chat"
FIELD = "@field"
UNCITED = "this wire takes none back"
REFUSAL = b'"refusal"'
REWRITTEN = ("content", "role")
"""Fields of a message that every row writes in its own way: nothing is lost with them."""

Raws = dict[str, msgspec.Raw]


class Sealed(msgspec.Struct, frozen=True):
    """The fields of a seal, told apart. `own` may hold fields of ours."""

    own: Raws = {}
    message: Raws = {}


def seal_text(own: Raws, message: Raws) -> str:
    """The text of a seal; empty when there is nothing to seal."""
    both = {**own, MESSAGE: message} if message else own
    return dumps(both).decode() if both else ""


def why_foreign(seal: Seal | None, maker: Origin | None, ask: Ask, quirks: Quirks) -> str:
    """Why something is not of whom we ask; empty when it is. What has no seal is its message's."""
    if seal is None:
        return why_not_own(maker or Origin(), ask.target, quirks)
    return why_shut(seal, ask.target, quirks, b"")


def opened(seal: Seal | None, ask: Ask, quirks: Quirks) -> Sealed:
    """What a seal holds for whom we ask; nothing when it is not for them."""
    if seal is None or seal.origin.wire != WIRE or why_foreign(seal, None, ask, quirks):
        return Sealed()
    own = fields(seal.data)
    message = own.pop(MESSAGE, None)
    return Sealed(own, fields(message) if message is not None else {})


def left_behind(seal: Seal | None, ask: Ask, quirks: Quirks) -> tuple[list[str], str]:
    """The names of the fields of a seal that say something and stay behind, and why they do."""
    why = why_foreign(seal, None, ask, quirks) if seal else ""
    if seal is None or not why:
        return [], ""
    own = fields(seal.data)
    message = own.pop(MESSAGE, None) if seal.origin.wire == WIRE else None
    inner = fields(message) if message is not None else {}
    names = [name for name, value in own.items() if is_there(value) and not name.startswith("@")]
    names += (name for name, value in inner.items() if is_there(value) and name not in REWRITTEN)
    return names, why
