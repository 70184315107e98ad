"""A disk as a recording describes it: what is surely there, and what a power cut may take away. Pure.

Everything before a sync of a file is there. Of what was written since, any part may be missing, down to one sector, and a file
that was made, or deleted, may be so or not until its folder was synced.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random

import msgspec

__all__ = ["SECTOR", "Cut", "Disk", "Files", "Gone", "Made", "Mark", "Step", "Sync", "Write", "files_after"]

SECTOR = 512
Files = Mapping[str, bytes]
"""Content by file name."""


class Made(msgspec.Struct, frozen=True):
    """A file has this name from now on. `solid`: it was there before, with this content, for good."""

    file: int
    name: str
    content: bytes = b""
    solid: bool = False


class Write(msgspec.Struct, frozen=True):
    """Bytes were written at a place of a file."""

    file: int
    at: int
    content: bytes


class Cut(msgspec.Struct, frozen=True):
    """A file was made to have this size."""

    file: int
    size: int


class Sync(msgspec.Struct, frozen=True):
    """What was written to a file is there for good; with `folder` all names are, too."""

    file: int
    folder: bool = False


class Gone(msgspec.Struct, frozen=True):
    """A name was deleted. `folder`: and the folder was synced."""

    name: str
    folder: bool = False


class Mark(msgspec.Struct, frozen=True):
    """Somebody was told something: no step of the disk, but a moment between two."""

    text: str


Step = Made | Write | Cut | Sync | Gone | Mark


class _File:
    def __init__(self, content: bytes) -> None:
        self.solid = bytearray(content)
        self.loose: list[Write | Cut] = []


class Disk:
    """Follows the steps of a recording; at any moment, `whole`, `synced` and `chosen` are the files that may be found."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._names: dict[str, int] = {}
        self._loose_names: list[tuple[str, int | None]] = []

    def follow(self, step: Step) -> None:
        """The next step happened."""
        match step:
            case Made():
                self._files[step.file] = _File(step.content)
                self._loose_names.append((step.name, step.file))
                if step.solid:
                    self._settle_names()
            case Write() | Cut():
                self._files[step.file].loose.append(step)
            case Sync():
                file = self._files[step.file]
                for change in file.loose:
                    _apply(file.solid, change)
                file.loose.clear()
                if step.folder:
                    self._settle_names()
            case Gone():
                self._loose_names.append((step.name, None))
                if step.folder:
                    self._settle_names()
            case Mark():
                pass

    def whole(self) -> Files:
        """As a killed process leaves it: everything that was written is there."""
        return self._found(_all_names, _everything)

    def synced(self) -> Files:
        """The least that a power cut leaves."""
        return self._found(_no_names, _nothing)

    def chosen(self, chance: Random) -> Files:
        """Something in between: of what was not synced, each part is there, lost or torn."""
        share = chance.choice((0.1, 0.5, 0.9))
        return self._found(lambda moves: moves[: chance.randint(0, len(moves))], lambda file: _some(file, chance, share))

    def _settle_names(self) -> None:
        self._names = _renamed(self._names, self._loose_names)
        self._loose_names.clear()

    def _found(self, moves: "Callable[[_Moves], _Moves]", content: Callable[[_File], bytes]) -> Files:
        names = self._names
        for name in dict.fromkeys(name for name, _ in self._loose_names):
            names = _renamed(names, moves([move for move in self._loose_names if move[0] == name]))
        return {name: content(self._files[file]) for name, file in names.items()}


_Moves = Sequence[tuple[str, int | None]]


def files_after(steps: Sequence[Step]) -> Files:
    """What a process that was killed after these steps leaves."""
    disk = Disk()
    for step in steps:
        disk.follow(step)
    return disk.whole()


def _renamed(names: dict[str, int], moves: _Moves) -> dict[str, int]:
    changed: dict[str, int | None] = {**names, **dict(moves)}
    return {name: file for name, file in changed.items() if file is not None}


def _all_names(moves: _Moves) -> _Moves:
    return moves


def _no_names(moves: _Moves) -> _Moves:
    return moves[:0]


def _everything(file: _File) -> bytes:
    found = bytearray(file.solid)
    for change in file.loose:
        _apply(found, change)
    return bytes(found)


def _nothing(file: _File) -> bytes:
    return bytes(file.solid)


def _some(file: _File, chance: Random, share: float) -> bytes:
    found = bytearray(file.solid)
    junk = chance.random() < 0.3
    for change in file.loose:
        if chance.random() < share:
            _apply(found, change)
        elif isinstance(change, Write):
            _tear(found, change, chance, junk=junk)
    return bytes(found)


def _tear(found: bytearray, write: Write, chance: Random, *, junk: bool) -> None:
    """Some sectors arrive, or none. The file may have its new size all the same; what lies there then is anybody's guess."""
    end = write.at + len(write.content)
    if end > len(found) and chance.random() < 0.5:
        missing = end - len(found)
        found += chance.randbytes(missing) if junk else bytes(missing)
    if chance.random() < 0.5:
        return
    start = write.at
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        if chance.random() < 0.5:
            _apply(found, Write(write.file, start, write.content[start - write.at : stop - write.at]))
        start = stop


def _apply(found: bytearray, change: Write | Cut) -> None:
    match change:
        case Write(at=at, content=content):
            if at > len(found):
                found += bytes(at - len(found))
            found[at : at + len(content)] = content
        case Cut(size=size):
            del found[size:]
            found += bytes(size - len(found))
