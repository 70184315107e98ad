"""The file tools: read, list, write, edit, delete. One object holds the root, its fence, and what each run has read.

Changes are atomic. A file that changed since the run read it is not edited, and one that it has not read is not overwritten.
"""

import codecs
import os
import re
import stat
from collections import OrderedDict
from itertools import islice
from pathlib import PurePosixPath
from threading import Lock
from typing import Annotated

import msgspec

from evener.tools.context import ToolContext
from evener.tools.result import ModelRetry, ToolOutput, media_type
from evener.tools.tool import Tool, tool
from evener.toolset.changes import digest_of, note_change
from evener.toolset.editing import Edit, EditRefused, apply_edits, number_lines, show_diff, split_text
from evener.toolset.fence import Fence
from evener.toolset.folder import PathRefused, RootFolder
from evener.toolset.labels import label
from evener.toolset.standard import as_standard, hide_arguments

MOST_TEXT = 16 << 20
MOST_IMAGE = 5 << 20
PIECE = 1 << 20
PAGE = 2_000
MOST_ENTRIES = 1_000
MOST_SEEN = 10_000
NATIVE_ONLY = ("lines", "after", "line")
"""Fields of an edit that come from the forms of other tools only."""

PathArgument = Annotated[str, "the path, relative to the folder that you work in"]


class FileTools:
    """Tools for the files below one root. Hands out bound methods as tools; the same object may serve many runs.

    `native`: a model that was trained on tools for files of its own form gets them in that form.
    """

    def __init__(
        self, root: str | os.PathLike[str] = ".", *, fence: Fence | None = None, approval: bool = False, native: bool = True
    ) -> None:
        self.folder = RootFolder(root, fence)
        self._approval = approval
        self._native = native
        self._seen: OrderedDict[tuple[str, str], str] = OrderedDict()  # (run, path) -> digest
        self._lock = Lock()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that the fence allows: without those that write if nothing may be written."""
        listing = tool(self.list_folder, name="list", effect="read")
        made: list[Tool] = [tool(self.read, effect="read"), listing]
        if self.folder.fence.writable:
            asks = self._approval
            made += [
                tool(self.write, effect="write", sequential=True, approval=asks, verify=self._verify_write),
                hide_arguments(tool(self.edit, effect="write", sequential=True, approval=asks), NATIVE_ONLY),
                tool(self.delete, effect="write", sequential=True, approval=asks),
            ]
        return tuple(label(one if not self._native else as_standard(one, one.name)) for one in made)

    def read(
        self,
        path: PathArgument,
        context: ToolContext[object],
        offset: Annotated[int, msgspec.Meta(ge=1, description="the first line to show, counted from 1")] = 1,
        limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE, description="how many lines to show")] = PAGE,
    ) -> object:
        """Read a file: text with line numbers, a page at a time; or an image or a PDF as it is. A folder is listed."""
        try:
            if self.folder.kind(path) == "folder":
                return self.list_folder(path)
            with self.folder.opened(path) as (fd, _):
                if os.fstat(fd).st_size > MOST_TEXT:
                    return _page_of_large(path, fd, offset, limit)
            body, real = self.folder.read(path, most=MOST_TEXT)
        except FileNotFoundError:
            raise self._missing(path) from None
        self._saw(context, real, body)
        if media_type(body):
            if len(body) > MOST_IMAGE:
                raise ModelRetry(
                    f"{path} is an image or document of {len(body):,} bytes; at most {MOST_IMAGE:,} can be shown. Shrink it."
                )
            return body
        return _page(path, body, offset, limit)

    def list_folder(self, path: PathArgument = ".") -> str:
        """List a folder: names, sizes in bytes, and a slash after folders."""
        found: list[str] = []
        try:
            with self.folder.entered(path) as (fd, real), os.scandir(fd) as entries:
                for entry in entries:
                    below = entry.name if real == "." else f"{real}/{entry.name}"
                    if not self._hides(below, entry):
                        found.append(_describe(entry))
        except FileNotFoundError:
            raise self._missing(path) from None
        found.sort()
        more = f"\n[{len(found) - MOST_ENTRIES:,} more. Use glob to narrow it.]" if len(found) > MOST_ENTRIES else ""
        return "\n".join(found[:MOST_ENTRIES]) + more if found else "(the folder is empty)"

    def write(
        self, path: PathArgument, content: Annotated[str, "the whole content"], context: ToolContext[object]
    ) -> ToolOutput:
        """Create a file, or replace all of it. Read an existing one first. To change a part of a file, use edit."""
        body = _encode(content)
        before = self._before(path, context, must_be_read=True)
        real = self.folder.write(path, body)
        self._saw(context, real, body)
        done = f"Created {real}" if before is None else f"Replaced {real}"
        return ToolOutput(f"{done} ({len(body):,} bytes).", note_change(real, before, body))

    def edit(
        self,
        path: PathArgument,
        edits: Annotated[list[Edit], "replacements: `old` must stand exactly once in the file, unless `replace_all`"],
        context: ToolContext[object],
    ) -> ToolOutput:
        """Change parts of a file by exact replacements. All are made, or none. The diff is returned."""
        before = self._before(path, context)
        if before is None:
            raise self._missing(path)
        try:
            mark, text, crlf = split_text(before)
            changed = apply_edits(text, edits, crlf=crlf)
        except UnicodeDecodeError:
            raise ModelRetry(f"{path} is not a text file in UTF-8, so it cannot be edited. Nothing was changed.") from None
        except EditRefused as error:
            raise ModelRetry(f"{path} was not changed. {error}") from None
        body = _encode(mark + (changed.replace("\n", "\r\n") if crlf else changed))
        real = self.folder.write(path, body)
        self._saw(context, real, body)
        return ToolOutput(f"Edited {real}.\n{show_diff(real, text, changed)}", note_change(real, before, body))

    def delete(self, path: PathArgument, context: ToolContext[object]) -> ToolOutput:
        """Delete a file. Read it first."""
        try:
            before = self._before(path, context, must_be_read=True)
            real, mode = self.folder.real(path, "write"), self.folder.mode(path)
            if before is None:
                raise self._missing(path)
            self.folder.remove(path)
        except FileNotFoundError:
            raise self._missing(path) from None
        return ToolOutput(f"Deleted {real}.", note_change(real, before, None, mode=mode))

    def _hides(self, path: str, entry: "os.DirEntry[str]") -> bool:
        """True if the fence hides an entry. A folder shows if something allowed may be below it."""
        fence = self.folder.fence
        return not fence.may_hold(path) if entry.is_dir(follow_symlinks=False) else bool(fence.refuse(path, "read"))

    def _verify_write(self, path: str, content: str) -> bool | None:
        """Say, after a crash, whether a write took effect."""
        try:
            return self.folder.read(path, most=MOST_TEXT)[0] == content.encode()
        except (PathRefused, FileNotFoundError):
            return False

    def _before(self, path: str, context: ToolContext[object], *, must_be_read: bool = False) -> bytes | None:
        """Return the present content, None if there is no file. Refuse a file that changed since this run read it."""
        try:
            body, real = self.folder.read(path, most=MOST_TEXT, access="write")
        except FileNotFoundError:
            return None
        with self._lock:
            seen = self._seen.get((context.run_id, real))
        if seen is None and must_be_read:
            raise PathRefused(f"{path} exists, and you have not read it. Read it first; to change a part of it, use edit.")
        if seen is not None and seen != digest_of(body):
            raise PathRefused(f"{path} has changed since you read it. Nothing was changed. Read it again, then repeat this.")
        return body

    def _saw(self, context: ToolContext[object], real: str, body: bytes) -> None:
        with self._lock:
            self._seen[context.run_id, real] = digest_of(body)
            self._seen.move_to_end((context.run_id, real))
            while len(self._seen) > MOST_SEEN:
                self._seen.popitem(last=False)

    def _missing(self, path: str) -> ModelRetry:
        near = self._similar(path)
        hint = f" Did you mean {' or '.join(near)}?" if near else " Look for it with list or glob."
        return ModelRetry(f"There is no {path}.{hint}")

    def _similar(self, path: str) -> list[str]:
        """Return names like this one in the same folder."""
        from difflib import get_close_matches

        given = PurePosixPath(self.folder.relative(path))
        try:
            with self.folder.entered(str(given.parent)) as (fd, real):
                names = os.listdir(fd)
        except (PathRefused, OSError):
            return []
        paths = [name if real == "." else f"{real}/{name}" for name in get_close_matches(given.name, names[:5_000], n=3)]
        return [one for one in paths if not self.folder.fence.refuse(one, "read")]


def _encode(text: str) -> bytes:
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise ModelRetry("The text has a lone surrogate, which no file can hold. Write the character itself.") from None
    if len(body) > MOST_TEXT:
        raise ModelRetry(f"The text has {len(body):,} bytes; at most {MOST_TEXT:,} are allowed. Write several files.")
    return body


def _describe(entry: "os.DirEntry[str]") -> str:
    if entry.is_symlink():
        return f"{entry.name} (symlink)"
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return entry.name
    if stat.S_ISDIR(found.st_mode):
        return f"{entry.name}/"
    return f"{entry.name} {found.st_size:,}" if stat.S_ISREG(found.st_mode) else f"{entry.name} (special)"


def _page(path: str, body: bytes, offset: int, limit: int) -> str:
    text, remark = _decode(path, body)
    if not text:
        return "(the file is empty)"
    lines = text.removesuffix("\n").split("\n")
    if offset > len(lines):
        raise ModelRetry(f"{path} has {len(lines):,} lines; there is no line {offset:,}. Give a smaller offset.")
    page = number_lines(lines[offset - 1 : offset - 1 + limit], offset)
    last = min(offset - 1 + limit, len(lines))
    remarks = []
    if offset > 1 or last < len(lines):
        onward = f" Go on with offset={last + 1}." if last < len(lines) else " This is the end."
        remarks.append(f"Lines {offset:,} to {last:,} of {len(lines):,}.{onward}")
    remarks += [remark] if remark else []
    return f"{page}\n[{' '.join(remarks)}]" if remarks else page


def _decode(path: str, body: bytes) -> tuple[str, str]:
    """Return the text of a file, and a remark if it is not in UTF-8."""
    remark = "The file is in {}, not in UTF-8: it cannot be edited."
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return body.decode("utf-16", "replace").replace("\r\n", "\n"), remark.format("UTF-16")
    if b"\0" in body[:8_192]:
        raise ModelRetry(f"{path} is a binary file of {len(body):,} bytes, not text. It cannot be shown.")
    try:
        return split_text(body)[1], ""
    except UnicodeDecodeError:
        return body.decode("latin-1"), f"{remark.format('another encoding')} It is shown as Latin-1."


def _page_of_large(path: str, fd: int, offset: int, limit: int) -> str:
    """Return a page of a file that is too large to be held; its lines are not counted."""
    size = os.fstat(fd).st_size
    with os.fdopen(os.dup(fd), "rb") as file:
        if b"\0" in file.peek(8_192):
            raise ModelRetry(f"{path} is a binary file of {size:,} bytes, not text. It cannot be shown.")
        left = offset - 1
        while left:
            piece = file.read(PIECE)
            if not piece:
                raise ModelRetry(f"{path} has {offset - 1 - left:,} lines; there is no line {offset:,}. Give a smaller offset.")
            ends = [end.end() for end in islice(re.finditer(b"\n", piece), left)]
            left -= len(ends)
            if not left:
                file.seek(ends[-1] - len(piece), os.SEEK_CUR)
        body = file.read(PIECE)
    lines = body.decode(errors="replace").removesuffix("\n").replace("\r\n", "\n").split("\n")
    if len(body) == PIECE and len(lines) > 1:
        lines.pop()  # it may go on
    lines = lines[:limit]
    last = offset - 1 + len(lines)
    return (
        f"{number_lines(lines, offset)}\n[Lines {offset:,} to {last:,} of a file of {size:,} bytes. "
        f"Go on with offset={last + 1}. It is too large to be edited.]"
    )
