"""Whether a schema can be enforced by the provider, and the schema that goes out. Pure; shared by the strict modes."""

import msgspec

from evener.transcript.loss import Loss, Owner, loss_of
from evener.wire.dialects import Dialect
from evener.wire.quirks import Quirks
from evener.wire.schemas import transform

__all__ = ["enforced"]


def enforced(
    schema: str, strict: bool | None, dialect: Dialect, quirks: Quirks, owner: Owner, losses: list[Loss]
) -> tuple[msgspec.Raw, bool | None]:
    """The schema to send, and the switch beside it: strict only where the endpoint can and the schema fits its dialect."""
    if not strict:
        return msgspec.Raw(schema.encode()), strict if quirks.strict else None
    if not quirks.strict:
        losses.append(loss_of("dropped", f"{owner.topic}.strict", "this endpoint does not enforce schemas", name=owner.name))
        return msgspec.Raw(schema.encode()), None
    fitted, lost = transform(schema, dialect, owner)
    losses += lost
    return msgspec.Raw((fitted or schema).encode()), fitted is not None
