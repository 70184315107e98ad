"""Whether a schema can be enforced by the provider, and the schema that goes out. Pure; shared by the strict modes."""

from collections.abc import Callable

import msgspec

from evener.transcript.ask import OutputSchema, ToolSpec
from evener.transcript.loss import Loss, Owner, loss_of
from evener.wire.argument_schemas import canonical
from evener.wire.dialects import Dialect
from evener.wire.quirks import Quirks
from evener.wire.schemas import transform

__all__ = ["declared_schema", "enforced", "report_description"]

Narrow = Callable[[str, Owner, list[Loss]], str]


def _as_it_is(schema: str, _owner: Owner, _losses: list[Loss]) -> str:
    return schema


def report_description(output: OutputSchema, losses: list[Loss]) -> None:
    """Report that what an output schema says of itself has no place here."""
    if output.description:
        losses.append(loss_of("dropped", "output.description", "there is no field for it here"))


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


def declared_schema(
    tool: ToolSpec, dialects: tuple[Dialect, Dialect], quirks: Quirks, losses: list[Loss], narrow: Narrow = _as_it_is
) -> tuple[msgspec.Raw, bool | None]:
    """The schema of a tool in its canonical form and a wire's dialect, and the switch beside it.

    `dialects` are those for schemas that are not enforced, and for those that the provider enforces. `narrow` is what a wire
    changes about the form; where it changes something, the schema is not enforced.
    """
    plain, strict_dialect = dialects
    owner = Owner("tool", tool.name)
    form, exact = canonical(tool.schema, owner, losses)
    named = narrow(form, owner, losses)
    exact, form, strict = exact and named is form, named, tool.strict
    if strict and not exact:
        losses.append(loss_of("dropped", "tool.strict", "the root of its schema is wider than it was", name=tool.name))
        strict = None
    sent, switch = enforced(form, strict, strict_dialect, quirks, owner, losses)
    if switch:
        return sent, switch
    fitted, lost = transform(form, plain, owner)
    losses += lost
    return msgspec.Raw((fitted or form).encode()), switch
