"""What this wire put on a block, as the JSON text of a seal: the block's own fields, and those of its message. Pure.

A message here is one object, so its fields ride on its first block, under `@message`. A field of ours begins with @: it is
not sent itself. `@field` names the field of the message that a text came in.
"""

import msgspec

from evener.transcript.ask import Ask
from evener.transcript.origin import Origin, Seal
from evener.wire.quirks import Quirks
from evener.wire.seals import why_shut
from evener.wire.text import dumps, fields

__all__ = ["FIELD", "REFUSAL", "WIRE", "Sealed", "opened", "seal_text", "why_foreign"]

WIRE = "openai_chat"
MESSAGE = "@message"
FIELD = "@field"
REFUSAL = b'"refusal"'

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
    return why_shut(seal or Seal("{}", maker or Origin()), ask.target, quirks, b"")


def opened(seal: Seal | None, ask: Ask, quirks: Quirks) -> Sealed:
    """What a seal holds for whom we ask; nothing when it is not for them."""
    if seal is None or seal.origin.wire != WIRE or why_foreign(seal, None, ask, quirks):
        return Sealed()
    own = fields(seal.data)
    message = own.pop(MESSAGE, None)
    return Sealed(own, fields(message) if message is not None else {})
