"""What a tool changed, as a fact in the metadata of its result; and the way back. The log is the only journal.

A file is brought back only if it is still as the tool left it: what came later is never overwritten.
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

    `was` and `now` are digests of the old and the new content. Content that is too large to be kept has an empty `before`.
    """

    path: str
    before: str | None
    was: str
    now: str


def digest_of(body: bytes) -> str:
    """Return the digest by which contents are compared."""
    return sha256(body).hexdigest()


def note_change(path: str, before: bytes | None, after: bytes) -> Mapping[str, object]:
    """Return the metadata of a result that changed a file."""
    kept = None if before is None else b64encode(before).decode() if len(before) <= MOST_KEPT else ""
    change = FileChange(path, kept, "" if before is None else digest_of(before), digest_of(after))
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
    """Undo changes, the newest first; return a line for each file on what was done or why not."""
    told: dict[str, str] = {}
    for change in reversed(list(changes)):
        if not told.get(change.path, "").startswith("kept"):
            told[change.path] = _undo(folder, change)
    return [f"{path}: {what}" for path, what in told.items()]


def _undo(folder: RootFolder, change: FileChange) -> str:
    try:
        now = digest_of(folder.read(change.path, most=64 << 20, access="write")[0])
    except FileNotFoundError:
        now = ""
    except PathRefused as error:
        return f"kept, because it cannot be written: {error}"
    if now != change.now:
        return "kept, because it was changed since"
    if change.before is None:
        folder.remove(change.path)
        return "removed, as it was not there before"
    body = b64decode(change.before)
    if digest_of(body) != change.was:
        return "kept, because what was there before was too large to be noted"
    folder.write(change.path, body)
    return "restored"
