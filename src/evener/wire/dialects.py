"""The subsets of JSON Schema that wires take, as records. Pure data: `schemas` brings a schema into one of them.

Sheets: Messages section 6, Responses section 5, gemini section 4.
"""

from typing import Literal

import msgspec

__all__ = ["ANTHROPIC_PLAIN", "ANTHROPIC_STRICT", "GEMINI_JSON", "GEMINI_SUBSET", "OPENAI_PLAIN", "OPENAI_STRICT", "Dialect"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one wire takes. `known` lists the only keywords it takes; without it, all but the `banned` ones.

    `strict`: objects are closed and every value has a type. `all_required`: also, every property is required.
    `refs`: anywhere, only beside keywords with a dollar, only alone, or nowhere. `enums`: what an enum may list.
    `nullable`: null is a flag and no type. `whole_lists`: a list says what it holds, only described properties are required,
    and only texts have enums. `listed`: only the first of these. `booleans`: true and false are schemas. `root_properties`: the
    root lists its properties, be there none.
    """

    strict: bool = False
    known: frozenset[str] = frozenset()
    banned: frozenset[str] = frozenset()
    all_required: bool = False
    object_root: bool = False
    refs: Literal["any", "bare", "alone", "none"] = "any"
    cycles: bool = True
    enums: Literal["any", "primitive", "plain", "text"] = "any"
    formats: frozenset[str] = frozenset()
    most_min_items: int | None = None
    nullable: bool = False
    whole_lists: bool = False
    listed: bool = False
    booleans: bool = True
    root_properties: bool = False

    def takes(self, keyword: str) -> bool:
        """Whether a keyword may stay."""
        return keyword in self.known if self.known else keyword not in self.banned


# Unverified whether strict modes take these; what is moved cannot be refused.
CONDITIONS = "not if then else dependentSchemas dependentRequired contains propertyNames unevaluatedProperties".split()
# What the schema of a tool must be where it is not enforced: JSON Schema of the newest draft, and a little more.
ANTHROPIC_PLAIN = Dialect()
OPENAI_PLAIN = Dialect(listed=True, booleans=False, root_properties=True)
RANGES = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength".split()
ANTHROPIC_STRICT = Dialect(
    strict=True,
    banned=frozenset([*RANGES, "maxItems", "oneOf", "patternProperties", "prefixItems", *CONDITIONS]),
    cycles=False,
    enums="primitive",
    formats=frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split()),
    most_min_items=1,
)
OPENAI_STRICT = Dialect(
    strict=True,
    banned=frozenset(["allOf", "oneOf", "patternProperties", "prefixItems", *CONDITIONS]),
    all_required=True,
    object_root=True,
    refs="alone",
)
# Beside what the sheet lists: `default`, `pattern` and the older name of `$defs` are taken, as recorded.
GEMINI_JSON = Dialect(
    known=frozenset(
        "$id $defs definitions $ref $anchor type format title description enum items prefixItems minItems maxItems minimum "
        "maximum anyOf oneOf properties additionalProperties required propertyOrdering default pattern".split()
    ),
    refs="bare",
    enums="plain",
    booleans=False,
)
GEMINI_SUBSET = Dialect(
    known=frozenset(
        "type format title description nullable enum items minItems maxItems properties required propertyOrdering "
        "minProperties maxProperties minimum maximum minLength maxLength pattern anyOf default example".split()
    ),
    refs="none",
    enums="text",
    nullable=True,
    whole_lists=True,
    booleans=False,
)
