"""What a translation changed, dropped or repaired. Pure values; nothing is lost in silence."""

from typing import Literal

import msgspec

__all__ = ["Loss", "LossKind"]

LossKind = Literal[
    "dropped",  # it is not in the request at all
    "degraded",  # something lesser stands in its place
    "renamed",  # the same thing under another name
    "repaired",  # the history was not legal and was mended
    "added",  # something the caller did not write had to be written
]


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One difference between what the caller has and what the provider gets.

    `what` names the thing (`reasoning`, `tool_result`, `setting temperature`); `why` is a sentence;
    `message` is the id of the message it happened in, empty for the request itself.
    """

    kind: LossKind
    what: str
    why: str
    message: str = ""

    def __str__(self) -> str:
        where = f" in message {self.message}" if self.message else ""
        return f"{self.kind} {self.what}{where}: {self.why}"
