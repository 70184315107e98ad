"""The facts about a request that its body does not contain. Values only. A rule about an unknown fact is not applied."""

from collections.abc import Collection, Mapping

import msgspec


class Scope(msgspec.Struct, frozen=True):
    """Facts outside of the body.

    `api_version` and `betas` are request headers. An empty version and `None` betas mean "not known", so rules about them are
    not applied. `issued` maps each signature (or encrypted content) to the text it was issued with. `dialect` is the server
    of a wire that several servers speak, `model` the model if the address has it. `bound` maps the id
    of an item to the id of the reasoning that it was made with.
    """

    api_version: str = ""
    issued: Mapping[str, str] | None = None
    betas: Collection[str] | None = None
    dialect: str = ""
    model: str = ""
    bound: Mapping[str, str] | None = None
