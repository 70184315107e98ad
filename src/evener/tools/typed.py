"""Parameters by their types: converted in one go and, if their schema says no more than the types do, decoded in one go. Pure.

What a plain decoder takes, the schema takes as well, and the converters give the same values. What it does not take proves
nothing: a whole number may be written as 3.0, and only the schema finds words for what is wrong.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import NotRequired, TypedDict

import msgspec
from msgspec import inspect

from evener.tools.constraints import Schema
from evener.tools.models import mentions_models

__all__ = ["Typed", "typed"]

EXACT = frozenset(("string", "integer", "boolean", "null", "array"))
"""Not a float, which tells -0 from 0 as an integer does not; nor an object, whose fields the schema looks at one by one."""
SAID = frozenset(("type", "items", "description", "default"))


class Named(msgspec.Struct):
    """Parameters by name. msgspec looks at a type each time it converts to it, but at a class of its own only once."""

    named: dict[str, object]


class Typed:
    """The parameters of one function. What follows from their types is found out when the first call needs it."""

    def __init__(self, kinds: Mapping[str, object], schema: Schema) -> None:
        self._kinds = kinds
        self._schema = schema

    @cached_property
    def plain(self) -> "msgspec.json.Decoder[dict[str, object]] | None":
        """What decodes them, if `str`, `list[int] | None` and the like are all that their schema says.

        Unknown fields are passed over, and of two with the same name the last one counts: that is left to be looked for.
        """
        parts = self._schema["properties"]
        is_plain = isinstance(parts, dict) and all(map(_says_its_type, parts.values()))
        is_plain = is_plain and all(map(_is_all_told, inspect.multi_type_info(self._kinds.values())))
        return msgspec.json.Decoder(self._fields) if is_plain else None

    def converted(self, value: dict[str, object]) -> dict[str, object]:
        """All of them, converted; a ValidationError when one of them cannot be as it is."""
        return msgspec.convert({"named": value}, self._named, str_keys=True).named

    @cached_property
    def _named(self) -> type[Named]:
        return msgspec.defstruct("Named", [("named", self._fields)], bases=(Named,))  # type: ignore[return-value]  # see bases

    @cached_property
    def _fields(self) -> type:
        needed = self._schema["required"]
        required = needed if isinstance(needed, list) else []
        fields = {name: kind if name in required else NotRequired[kind] for name, kind in self._kinds.items()}
        return TypedDict("Arguments", fields)  # type: ignore[operator, no-any-return]  # its fields are known only now


def typed(kinds: Mapping[str, object], schema: Schema) -> Typed | None:
    """The parameters with these types and this schema; None when Pydantic converts one of them."""
    return None if any(map(mentions_models, kinds.values())) else Typed(kinds, schema)


def _says_its_type(schema: object) -> bool:
    """Whether a schema asks for a type, down to each item, and for nothing else."""
    if not isinstance(schema, dict) or not schema.keys() <= SAID:
        return False
    said = schema.get("type")
    kinds = set(said) if isinstance(said, list) else {said}
    return kinds <= EXACT and ("array" not in kinds or _says_its_type(schema.get("items")))


def _is_all_told(kind: inspect.Type) -> bool:
    """Whether a decoder looks at all that a type says: `Iterable[int]` takes any text, and a schema may be written by hand."""
    match kind:
        case inspect.StrType() | inspect.IntType() | inspect.BoolType() | inspect.NoneType():
            return True
        case inspect.CollectionType(item_type=item):
            return _is_all_told(item)
        case inspect.UnionType(types=kinds):
            return all(map(_is_all_told, kinds))
        case inspect.Metadata(type=inner, extra_json_schema=said):
            return set(said or ()) <= {"description"} and _is_all_told(inner)
    return False
