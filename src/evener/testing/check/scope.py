"""What the caller knows about a request besides its body. Holds values only; what is unknown stays lenient."""

from collections.abc import Collection, Mapping

import msgspec


class Scope(msgspec.Struct, frozen=True):
    """Facts that travel outside the body.

    `api_version` and `betas` are request headers: an empty version and `None` betas mean "not known", so rules that hang
    on them do not fire. `issued` maps each signature (or encrypted content) to the text it was issued with. `dialect`
    names who serves a wire that several providers speak, `model` the model where it stands in the address. `bound` maps the id
    of an item to the id of the reasoning that it was made with.
    """

    api_version: str = ""
    issued: Mapping[str, str] | None = None
    betas: Collection[str] | None = None
    dialect: str = ""
    model: str = ""
    bound: Mapping[str, str] | None = None
