"""What a tool changed, recorded in the metadata of its result, and how to undo it. The log is the only journal.

A file is restored only if it is still as the tool left it: later changes are never overwritten.
"""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from hashlib import sha256

import msgspec

from evener.toolset.folder import PathRefused, RootFolder

__all__ = ["CHANGE", "FileChange", "digest_of", "note_change", "read_change", "restore"]

CHANGE = "change"
"""The key of the fact in the metadata."""
MOST_KEPT = 2 << 20


class FileChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file that a tool wrote. `before` is the base64 of what was there, None if there was no file.

    `was` and `now` are digests of the old and the new content, empty where there was no file or is none. Content that is too
    large to be kept has an empty `before`. `mode` is that of a file which was removed.
    """

    path: str
    before: str | None
    was: str
    now: str
    mode: int | None = None


def digest_of(body: bytes) -> str:
    """Return the digest by which contents are compared."""
    return sha256(body).hexdigest()


def note_change(path: str, before: bytes | None, after: bytes | None, *, mode: int | None = None) -> Mapping[str, object]:
    """Return the metadata of a result that changed a file."""
    kept = None if before is None else b64encode(before).decode() if len(before) <= MOST_KEPT else ""
    was, now = ("" if body is None else digest_of(body) for body in (before, after))
    change = FileChange(path, kept, was, now, mode)
    return {CHANGE: msgspec.to_builtins(change)}


class _Noted(msgspec.Struct):
    change: FileChange | None = None


def read_change(metadata: str) -> FileChange | None:
    """Return the change in the metadata of a result; None if there is none."""
    if f'"{CHANGE}"' not in metadata:
        return None
    try:
        return msgspec.json.decode(metadata, type=_Noted).change
    except msgspec.MsgspecError:
        return None  # another tool has a word of this name


def restore(folder: RootFolder, changes: Iterable[FileChange]) -> list[str]:
    """Undo changes, given with the oldest first. Return a line for each file that says what was done, or why nothing was."""
    chains: dict[str, list[FileChange]] = {}
    for change in changes:
        chains.setdefault(change.path, []).append(change)
    return [f"{path}: {_try_to_undo(folder, chain)}" for path, chain in reversed(chains.items())]


def _try_to_undo(folder: RootFolder, chain: list[FileChange]) -> str:
    """Undo the changes of one file. If it cannot be written, the error is in the line, and other files are still restored."""
    try:
        return _undo(folder, chain)
    except PathRefused as error:
        return f"kept, because it cannot be written: {error}"


def _undo(folder: RootFolder, chain: list[FileChange]) -> str:
    """Restore a file to its content before the first change, or before a later one if another program changed it in between."""
    try:
        now = digest_of(folder.read(chain[0].path, most=64 << 20, access="write")[0])
    except FileNotFoundError:
        now = ""
    if now == chain[0].was:
        return "is as it was before"
    number = next((number for number in reversed(range(len(chain))) if chain[number].now == now), None)
    if number is None:
        return "kept, because it was changed since"
    while number and chain[number - 1].now == chain[number].was:
        number -= 1
    return _write_back(folder, chain[number], next((one.mode for one in chain if one.mode is not None), None))


def _write_back(folder: RootFolder, change: FileChange, mode: int | None) -> str:
    if change.before is None:
        folder.remove(change.path)
        return "removed, as it was not there before"
    body = b64decode(change.before)
    if digest_of(body) != change.was:
        return "kept, because what was there before was too large to be noted"
    folder.write(change.path, body, mode=mode)
    return "restored"
