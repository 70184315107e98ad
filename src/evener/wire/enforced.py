"""Whether a schema can be enforced by the provider, and the schema that goes out. Pure; shared by the strict modes."""

from collections.abc import Callable

import msgspec

from evener.transcript.ask import ToolSpec
from evener.transcript.loss import Loss
from evener.wire.argument_schemas import canonical
from evener.wire.dialects import Dialect
from evener.wire.quirks import Quirks
from evener.wire.schemas import transform

__all__ = ["declared_schema", "enforced"]

Narrow = Callable[[str, str, list[Loss]], str]


def _as_it_is(schema: str, _where: str, _losses: list[Loss]) -> str:
    return schema


def enforced(
    schema: str, strict: bool | None, dialect: Dialect, quirks: Quirks, where: str, losses: list[Loss]
) -> tuple[msgspec.Raw, bool | None]:
    """The schema to send, and the switch beside it: strict only where the endpoint can and the schema fits its dialect."""
    if not strict:
        return msgspec.Raw(schema.encode()), strict if quirks.strict else None
    if not quirks.strict:
        losses.append(Loss("dropped", f"strict on {where}", "this endpoint does not enforce schemas"))
        return msgspec.Raw(schema.encode()), None
    fitted, lost = transform(schema, dialect, where)
    losses += lost
    return msgspec.Raw((fitted or schema).encode()), fitted is not None


def declared_schema(
    tool: ToolSpec, dialects: tuple[Dialect, Dialect], quirks: Quirks, losses: list[Loss], narrow: Narrow = _as_it_is
) -> tuple[msgspec.Raw, bool | None]:
    """The schema of a tool in its canonical form and a wire's dialect, and the switch beside it.

    `dialects` are those for schemas that nobody enforces, and for those that the provider does. `narrow` is what a wire changes
    about the form; where it changes something, the schema is not enforced.
    """
    plain, strict_dialect = dialects
    where = f"tool {tool.name}"
    form, exact = canonical(tool.schema, where, losses)
    named = narrow(form, where, losses)
    exact, form, strict = exact and named is form, named, tool.strict
    if strict and not exact:
        losses.append(Loss("dropped", f"strict on {where}", "the root of its schema is wider than it was"))
        strict = None
    sent, switch = enforced(form, strict, strict_dialect, quirks, where, losses)
    if switch:
        return sent, switch
    fitted, lost = transform(form, plain, where)
    losses += lost
    return msgspec.Raw((fitted or form).encode()), switch
