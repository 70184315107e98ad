"""Where an assistant message came from, and the opaque data that only its maker can read. Pure values."""

import msgspec

from evener.transcript.checks import check_object, check_text, check_type

__all__ = ["Origin", "Seal"]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Who made something, or who is asked: the same five facts.

    `account` is a fingerprint of the credential's account, never the credential.
    """

    wire: str = ""
    provider: str = ""
    endpoint: str = ""
    model: str = ""
    account: str = ""

    def __post_init__(self) -> None:
        check_text(self.wire, "Origin.wire")
        check_text(self.provider, "Origin.provider")
        check_text(self.endpoint, "Origin.endpoint")
        check_text(self.model, "Origin.model")
        check_text(self.account, "Origin.account")

    def owns(self, wire: str, provider: str) -> bool:
        """Whether something of this wire and provider (empty: of anyone on the wire) is this one's own."""
        return wire == self.wire and provider in ("", self.provider)


class Seal(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A provider's own fields on one block (signature, encrypted content, item id, phase): replayed verbatim or not at all.

    `data` is the JSON text of an object. `binding` is the fingerprint of the prefix the block was made under, cache marks
    excluded; empty when it is not known. `id` is the provider's name for the sealed thing, which may go out only once; empty
    when it has none.
    """

    data: str
    origin: Origin = Origin()
    binding: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        check_object(self.data, "Seal.data")
        if type(self.origin) is not Origin:
            check_type(self.origin, (Origin,), "Seal.origin")
        if self.binding != "":
            check_text(self.binding, "Seal.binding")
        if self.id != "":
            check_text(self.id, "Seal.id")
