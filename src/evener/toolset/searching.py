"""The search tools: glob for names, search for text. Nothing outside the root and nothing denied is ever shown.

`search` runs ripgrep inside the sandbox, where it can read the root and nothing else; without ripgrep, or a sandbox, the files
are read here, through descriptors below the root. Symlinks are not followed.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec

from evener.policy.matchers import Unsupported, compile_pattern
from evener.tools.result import ModelRetry
from evener.tools.tool import Tool, tool
from evener.toolset.fence import Fence, compile_patterns, expand_braces
from evener.toolset.folder import PathRefused, RootFolder
from evener.toolset.labels import label

if TYPE_CHECKING:
    from evener.toolset.shell.command import CommandEnd

MOST_FOUND = 1_000
MOST_WALKED = 500_000
MOST_FILE = 16 << 20
MOST_ANYWHERE = 4
LONGEST = 300
SECONDS = 55.0
SLOW = f"The search took more than {SECONDS:g} seconds. Search a smaller folder, or fewer files."
SKIPPED = (".git", ".hg", ".svn")

Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_FOUND, description="the most to show")]


class SearchTools:
    """Tools that find files and text below one root."""

    def __init__(self, root: str | os.PathLike[str] = ".", *, fence: Fence | None = None, ripgrep: bool = True) -> None:
        self.folder = RootFolder(root, fence)
        self._ripgrep = ripgrep

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools `glob` and `search`."""
        return (label(tool(self.glob, effect="read")), label(tool(self.search, effect="read")))

    def glob(
        self,
        pattern: Annotated[str, "as in **/*.py or src/*/test_*.py; without a slash it means that name anywhere"],
        path: Annotated[str, "the folder to look in"] = ".",
        limit: Limit = 200,
    ) -> str:
        """Find files by name. The most recently changed come first."""
        wanted = compile_patterns((check_glob(pattern),), sure=True, below=False)
        found: list[tuple[float, str]] = []
        real = self._real(path)
        for where, fd, names in self._walk(real):
            for name in names:
                below = name if where == "." else f"{where}/{name}"
                if wanted.match(_relative(below, real)) and not self.folder.fence.refuse(below, "read"):
                    found.append((_read_mtime(fd, name), below))
        found.sort(key=lambda one: (-one[0], one[1]))
        more = f"\n[{len(found) - limit:,} more; narrow the pattern]" if len(found) > limit else ""
        return "\n".join(name for _, name in found[:limit]) + more if found else f"No file fits {pattern}."

    def search(
        self,
        pattern: Annotated[str, "a regular expression"],
        path: Annotated[str, "the file or folder to search"] = ".",
        glob: Annotated[str, "search only files that fit this, as in *.py"] = "",
        ignore_case: bool = False,
        context: Annotated[int, msgspec.Meta(ge=0, le=10, description="lines to show around each hit")] = 0,
        limit: Limit = 100,
    ) -> str:
        """Search the text of files. Lines are shown as path:line:text."""
        if not pattern or "\n" in pattern or "\0" in pattern:
            raise ModelRetry("The pattern must be one line that is not empty.")
        glob = check_glob(glob) if glob else ""
        start = self._real(path)
        lines = self._by_ripgrep(pattern, start, glob, ignore_case, context, limit) if self._ripgrep else None
        if lines is None:
            lines = self._search_by_reading(pattern, start, glob, ignore_case, context, limit)
        if not lines:
            return f"No line fits {pattern!r}" + (f" in files that fit {glob}." if glob else ".")
        shown = [line if len(line) <= LONGEST else f"{line[:LONGEST]}..." for line in lines[:limit]]
        more = [f"[More than {limit} lines; narrow the search.]"] if len(lines) > limit else []
        return "\n".join(shown + more)

    def _by_ripgrep(self, pattern: str, start: str, glob: str, ignore_case: bool, context: int, limit: int) -> list[str] | None:
        kept = _Lines(self.folder.fence, limit)
        argv = [*OPTIONS, *(["--ignore-case"] if ignore_case else []), *([f"-C{context}"] if context else [])]
        argv += [f"--glob={_glob_below(start, glob)}"] if glob else []
        argv += [f"--glob={LEFT_OUT}"]  # what is denied is taken out of the output: globs are slow
        argv += ["--regexp", pattern, "--", f"./{start}" if start != "." else "./"]
        end = run_ripgrep(self.folder, argv, kept.add)
        if end is None:
            return None
        if not kept.lines and (told := kept.rest()).startswith("rg: "):  # it is silent about files that cannot be read
            raise ModelRetry(f"The pattern cannot be used: {told[:500]}")
        return kept.lines

    def _search_by_reading(self, pattern: str, start: str, glob: str, ignore_case: bool, context: int, limit: int) -> list[str]:
        try:
            wanted = compile_pattern(pattern, ignore_case=ignore_case)
        except Unsupported as error:
            raise ModelRetry(f"The pattern cannot be used: {error}.") from None
        lines: list[str] = []
        end = time.monotonic() + SECONDS
        for name in self._files(start, glob):
            if time.monotonic() > end:
                raise ModelRetry(SLOW)
            try:
                body, real = self.folder.read(name, most=MOST_FILE)
            except (PathRefused, OSError):
                continue
            if b"\0" not in body[:8_192]:
                text = body.decode(errors="replace").replace("\r\n", "\n").removesuffix("\n").split("\n")
                hits = [number for number, line in enumerate(text) if wanted.occurs_in(line)]
                lines += _around(real, text, hits, context)
            if len(lines) > limit:
                break
        return lines

    def _files(self, start: str, glob: str) -> Iterator[str]:
        if self.folder.kind(start) == "file":
            yield start
            return
        wanted = compile_patterns((glob or "*",), sure=True, below=False)
        for where, _, names in self._walk(start):
            for name in sorted(names):
                below = name if where == "." else f"{where}/{name}"
                if wanted.match(_relative(below, start)):
                    yield below

    def _real(self, path: str) -> str:
        """Return the real path of the file or folder to search."""
        try:
            real = self.folder.real(path)
            kind = self.folder.kind(real)
        except FileNotFoundError:
            raise ModelRetry(f"There is no {path}.") from None
        if kind not in ("file", "folder") or "\n" in real:
            raise ModelRetry(f"{path!r} is {kind or 'gone'}, with a name that cannot be searched. Give a file or a folder.")
        return real

    def _walk(self, path: str) -> Iterator[tuple[str, int, list[str]]]:
        try:
            yield from walk_files(self.folder, path)
        except FileNotFoundError as error:
            raise ModelRetry(str(error)) from None


OPTIONS = (
    "--color=never", "--no-heading", "--with-filename", "--line-number", "--hidden", "--null", "--crlf",
    "--max-columns=2000", "--max-columns-preview", "--no-messages", "--no-ignore-global", "--no-ignore-parent",
)  # fmt: skip
LEFT_OUT = f"!{{{','.join(SKIPPED)},*\n*}}"
"""Version control, and names with a line break: in the output they would pass for other paths."""
CR = b"\r"
FOUND = re.compile(rb"(?:\./)?([^\0\n]+)\0(\d+)([:-])(.*)", re.DOTALL)


def run_ripgrep(folder: RootFolder, argv: list[str], feed: Callable[[bytes], bool | None]) -> "CommandEnd | None":
    """Run ripgrep in the sandbox, where it can only read the root; None if ripgrep or the sandbox is missing.

    `feed` gets the output, and returns True to stop.
    """
    from evener.toolset.shell.command import RunningCommand
    from evener.toolset.shell.sandbox import Sandbox, SandboxRefused, find_program

    program = find_program("rg")
    if not program:
        return None
    sandbox = Sandbox(root=folder.root, fence=folder.fence, readable=(os.path.dirname(program),))
    try:
        running = RunningCommand(sandbox, [program, "--no-config", *argv], seconds=SECONDS, searches=True, feed=feed)
    except SandboxRefused:
        return None
    running.wait()
    if running.end is not None and running.end.why == "deadline":
        raise ModelRetry(SLOW)
    return None if running.end is None or running.end.refused else running.end


class _Lines:
    """Takes the output of ripgrep line by line, and keeps what the fence lets through."""

    def __init__(self, fence: Fence, limit: int) -> None:
        self.lines: list[str] = []
        self._fence, self._limit = fence, limit
        self._rest = b""
        self._allowed: dict[bytes, bool] = {}
        self._other: list[bytes] = []

    @property
    def full(self) -> bool:
        return len(self.lines) > self._limit

    def rest(self) -> str:
        """Return the output that is not a hit: an error message."""
        return b"\n".join([*self._other, self._rest]).decode(errors="replace").strip()

    def add(self, piece: bytes) -> bool:
        """Read a piece of the output. True if there are enough hits."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        for line in whole:
            if not self.full:
                self._take(line)
        return self.full

    def _take(self, line: bytes) -> None:
        hit = FOUND.fullmatch(line)
        if hit is None:
            if line != b"--":
                self._other.append(line[:1_000])
                del self._other[20:]
            return
        path = hit[1]
        if path not in self._allowed:
            self._allowed[path] = not self._fence.refuse(os.fsdecode(path), "read")
        if self._allowed[path]:
            mark = hit[3].decode()
            self.lines.append(
                f"{path.decode(errors='replace')}{mark}{hit[2].decode()}{mark}{hit[4].removesuffix(CR).decode(errors='replace')}"
            )


def walk_files(folder: RootFolder, path: str) -> Iterator[tuple[str, int, list[str]]]:
    """Yield each folder below a path: its path below the root, its descriptor, and the names of its files.

    Symlinks are not followed; what the fence denies and the folders of version control are left out.
    """
    walked = 0
    with folder.entered(path) as (fd, real):
        for where, folders, names, here in os.fwalk(".", dir_fd=fd, follow_symlinks=False):
            below = os.path.normpath(f"{real}/{where}")
            folders[:] = sorted(name for name in folders if name not in SKIPPED and _may_hold(folder, below, name))
            walked += len(names) + len(folders)
            if walked > MOST_WALKED:
                raise PathRefused(f"{path} has more than {MOST_WALKED:,} entries. Choose a smaller folder.")
            yield below, here, names


def _may_hold(folder: RootFolder, below: str, name: str) -> bool:
    return folder.fence.may_hold(name if below == "." else f"{below}/{name}")


def check_glob(pattern: str) -> str:
    """Return a pattern for paths below the root. Refuse one that leads elsewhere."""
    if (
        not pattern
        or "\0" in pattern
        or len(pattern) > 1_000
        or pattern.startswith(("/", "!", "~"))
        or ".." in pattern.split("/")
    ):
        raise ModelRetry("The pattern must be relative to the folder, without '..' and not empty, as in **/*.py.")
    if not expand_braces(pattern) or pattern.count("**/") > MOST_ANYWHERE:
        raise ModelRetry(
            f"The pattern has more than {MOST_ANYWHERE} times **/, or too many choices in braces. Make it simpler."
        )
    return pattern


def _glob_below(start: str, glob: str) -> str:
    """Return a pattern for ripgrep, which matches from the root, that matches only below a folder."""
    if "/" not in glob:
        return glob
    above = "" if start == "." else re.sub(r"([][{}*?!\\])", r"\\\1", start)
    return f"{above}/{glob.removeprefix('./')}"


def _relative(path: str, start: str) -> str:
    return path if start == "." else path.removeprefix(f"{start}/")


def _read_mtime(fd: int, name: str) -> float:
    try:
        return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _around(path: str, lines: list[str], hits: list[int], context: int) -> list[str]:
    shown: dict[int, str] = {}
    for hit in hits:
        for number in range(max(0, hit - context), min(len(lines), hit + context + 1)):
            shown.setdefault(number, "-")
        shown[hit] = ":"
    return [f"{path}{mark}{number + 1}{mark}{lines[number]}" for number, mark in sorted(shown.items())]
