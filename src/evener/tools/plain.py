"""Parameters whose types say all that their schema says, such as `str` or `list[int] | None`: decoding proves them. Pure.

What such a decoder takes, the schema takes as well, and the conversion gives the same values. What it does not take proves
nothing: a whole number may be written as 3.0, and only the schema finds words for what is wrong.
"""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

import msgspec

from evener.tools.constraints import Schema
from evener.tools.models import mentions_models

__all__ = ["Plain", "plain_decoder"]

Plain = msgspec.json.Decoder[dict[str, object]]

EXACT = frozenset(("string", "integer", "boolean", "null", "array"))
"""Not a float, which tells -0 from 0 as an integer does not; nor an object, whose fields the schema looks at one by one."""
SAID = frozenset(("type", "items", "description", "default"))


def plain_decoder(kinds: Mapping[str, object], schema: Schema) -> Plain | None:
    """What decodes these parameters all at once; None when the type of one of them says less than the schema, or more.

    Unknown fields are passed over, and of two with the same name the last one counts: that is left to be looked for.
    """
    parts, required = schema["properties"], schema["required"]
    if not isinstance(parts, dict) or not isinstance(required, list):
        return None
    if not all(map(_says_its_type, parts.values())) or any(map(mentions_models, kinds.values())):
        return None
    fields = {name: kind if name in required else NotRequired[kind] for name, kind in kinds.items()}
    return msgspec.json.Decoder(TypedDict("Arguments", fields))  # type: ignore[operator]  # its fields are known only now


def _says_its_type(schema: object) -> bool:
    """Whether a schema asks for a type, down to each item, and for nothing else."""
    if not isinstance(schema, dict) or not schema.keys() <= SAID:
        return False
    said = schema.get("type")
    kinds = set(said) if isinstance(said, list) else {said}
    return kinds <= EXACT and ("array" not in kinds or _says_its_type(schema.get("items")))
