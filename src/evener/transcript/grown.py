"""A set of names that only grows, and is shared by all who grew it: to add to the newest costs only what is added. Pure.

What one sees of it never changes. Grown twice from the same point, as by two branches, the second growth copies.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

import msgspec

__all__ = ["Growing", "Grown"]

Name = TypeVar("Name", bound=Hashable)


class Grown(msgspec.Struct, frozen=True, eq=False, gc=False):
    """What there is: the first `size` of the names that are shared, each with what it stands for."""

    _shared: dict[Hashable, tuple[int, object]] = {}
    _size: int = 0
    _claims: dict[int, object] = {}  # by size: the token of who grew it from there on, the first and nobody else

    def __contains__(self, name: Hashable) -> bool:
        found = self._shared.get(name)
        return found is not None and found[0] < self._size

    def get(self, name: Hashable) -> object:
        """What a name stands for; None for one that is not there."""
        found = self._shared.get(name)
        return found[1] if found is not None and found[0] < self._size else None

    def plus(self, names: Mapping[Name, object]) -> "Grown":
        """It with more names. Those that are there already stay what they are."""
        growing = Growing(self)
        for name, value in names.items():
            growing.add(name, value)
        return growing.done()

    def _with(self, new: dict[Hashable, tuple[int, object]]) -> "Grown":
        """It with names that are not in it, numbered from its size on. It is not the empty one."""
        size, shared, claims = self._size, self._shared, self._claims
        if claims.setdefault(size, token := object()) is token:  # to set is one step: of two threads one is the first
            shared.update(new)
        else:
            shared, claims = self._copied() | new, {}
        return Grown(shared, size + len(new), claims)

    def _copied(self) -> dict[Hashable, tuple[int, object]]:
        return {name: found for name, found in tuple(self._shared.items()) if found[0] < self._size}

    def __iter__(self) -> Iterator[Hashable]:
        return (name for name, found in tuple(self._shared.items()) if found[0] < self._size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grown):
            return NotImplemented
        return self._size == other._size and all(other.get(name) == self.get(name) for name in self)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Grown: {self._size} names>"


class Growing(msgspec.Struct, eq=False, gc=False):
    """A Grown while names are added."""

    base: Grown
    new: dict[Hashable, tuple[int, object]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self.new or name in self.base

    def get(self, name: Hashable) -> object:
        return self.new[name][1] if name in self.new else self.base.get(name)

    def add(self, name: Hashable, value: object = True) -> bool:
        """Whether the name is a new one. One that is there already stays what it is."""
        base, new = self.base, self.new
        if name in new or (name in base._shared and base._shared[name][0] < base._size):
            return False
        new[name] = (base._size + len(new), value)
        return True

    def done(self) -> Grown:
        """All there is now. What is added later is not in it."""
        base, new = self.base, self.new
        if new:
            # the empty one is everybody's, so it is never grown itself
            self.base = base = base._with(new) if base._size else Grown(new, len(new))
            self.new = {}
        return base
