"""Where an assistant message came from, and the opaque data that only its maker can read. Pure values."""

import msgspec

__all__ = ["Origin", "Seal"]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who made something, or who is asked: the same five facts.

    `account` is a fingerprint of the credential's account, never the credential.
    """

    wire: str = ""
    provider: str = ""
    endpoint: str = ""
    model: str = ""
    account: str = ""


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A provider's own fields on one block (signature, encrypted content, item id, phase): replayed verbatim or not at all.

    `data` is the JSON text of an object. `binding` is the fingerprint of the prefix the block was made under, cache marks
    excluded; empty when it is not known.
    """

    data: str
    origin: Origin = Origin()
    binding: str = ""
