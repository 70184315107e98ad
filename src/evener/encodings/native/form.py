"""A maker's form of some standard tools: its declaration, and the conversion of its calls and results. Pure values."""

from collections.abc import Callable, Mapping

import msgspec

from evener.encodings.native.actions import Screen
from evener.encodings.prepared import OwnTool
from evener.transcript.ask import Extra
from evener.transcript.blocks import Origin, ToolResult

__all__ = ["Answer", "Arguments", "NativeCall", "NativeForm", "StandardCall"]

Arguments = Mapping[str, object]
StandardCall = tuple[str, dict[str, object]]
"""A standard tool and its arguments."""


class NativeCall(msgspec.Struct, frozen=True):
    """A call as the maker's model wrote it: the form that it has, its name, and its arguments, or the whole item."""

    form: str
    name: str
    given: msgspec.Raw = msgspec.Raw(b"{}")


Answer = Callable[[ToolResult, NativeCall, Origin], ToolResult | dict[str, object]]
"""Returns the result as the form has it: still a result, or the item that answers a call which is an item."""


class NativeForm(msgspec.Struct, frozen=True):
    """A maker's form. `call` names its calls, or `members` do if there are several kinds; with `is_item`, `call` is the type of
    its items, which are answered by items. With `family`, its calls and their results bear that name of a set.

    `read` gives the standard call of arguments, of the name in the call, and of the size of the screen. `write` gives the
    arguments (or the item) of a standard call, None if it cannot be expressed; a form without it takes back only what was
    called in it. `extra` goes out beside the declaration. `needs_picture`: only a result with a picture can be expressed.
    """

    wire: str
    stands_for: tuple[str, ...]
    needs: tuple[str, ...]
    declare: Callable[[OwnTool], Mapping[str, object]]
    call: str
    read: Callable[[Arguments, str, Screen], StandardCall | None]
    write: Callable[[str, Arguments], Mapping[str, object] | None] | None = None
    answer: Answer | None = None
    members: tuple[str, ...] = ()
    family: str = ""
    is_item: bool = False
    needs_picture: bool = False
    extra: Extra | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which its calls are known."""
        return self.members or (self.call,)
