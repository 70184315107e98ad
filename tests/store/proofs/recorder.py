"""Records what SQLite does to its files, in order: a VFS that passes everything on to the system's own.

One more file is watched, which the store writes by itself: what was done to it is found at the next step, never later.

SQLite's `-shm` is no file of the disk, it is memory that processes share; it is made anew after a crash and is not recorded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import RLock
from time import sleep

import apsw

from tests.store.proofs.disk import Cut, Gone, Made, Mark, Step, Sync, Write

__all__ = ["Recorder", "recording"]

SLOW = 0.002
"""Seconds that a sync takes at least, as on a slow disk: whoever is told too soon is told before it."""
BESIDE = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
_numbers = count(1)


class Recorder(apsw.VFS):
    """The VFS named `name`. `steps` is what happened so far, `watched` the file that is not SQLite's."""

    def __init__(self) -> None:
        self.watched: Path | None = None
        self._seen = b""
        self.name = f"recorder {next(_numbers)}"
        self.steps: list[Step] = []
        self._files: dict[str, int] = {}
        self.lock = RLock()
        super().__init__(self.name, "")

    def mark(self, text: str) -> None:
        """Somebody was told this."""
        self.note(Mark(text))

    def note(self, step: Step) -> None:
        with self.lock:
            self.watch()
            self.steps.append(step)

    def watch(self) -> None:
        """Find what was added to the watched file."""
        if self.watched is None or not self.watched.exists():
            return
        content = self.watched.read_bytes()
        if content.startswith(self._seen):
            added = content[len(self._seen) :]
        else:
            added, self._seen = content, b""
            self._files.pop(str(self.watched))
        if str(self.watched) not in self._files:
            self._files[str(self.watched)] = next(_numbers)
            self.steps.append(Made(self._files[str(self.watched)], self.watched.name))
        if added:
            self.steps.append(Write(self._files[str(self.watched)], len(self._seen), added))
        self._seen = content

    def numbered(self, path: Path, *, before: bool) -> int:
        """The file that has this path now. What was there `before` anybody opened it was synced by whoever made it."""
        with self.lock:
            if str(path) not in self._files:
                self._files[str(path)] = next(_numbers)
                content = path.read_bytes() if before else b""
                self.note(Made(self._files[str(path)], path.name, content, solid=before))
            return self._files[str(path)]

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - apsw's own spelling
        return _File(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802 - apsw's own spelling
        with self.lock:
            super().xDelete(filename, syncdir)
            if self._files.pop(filename, None) is not None:
                self.note(Gone(Path(filename).name, folder=syncdir))


class _File(apsw.VFSFile):
    def __init__(self, recorder: Recorder, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        before = path.exists()
        super().__init__("", name, flags)
        self._recorder = recorder
        self._file = recorder.numbered(path, before=before)
        self._unsynced_folder = bool(flags[0] & BESIDE)  # SQLite's unix VFS syncs the folder with the first sync of these

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - apsw's own spelling
        with self._recorder.lock:
            super().xWrite(data, offset)
            self._recorder.note(Write(self._file, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802 - apsw's own spelling
        with self._recorder.lock:
            super().xTruncate(newsize)
            self._recorder.note(Cut(self._file, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802 - apsw's own spelling
        sleep(SLOW)
        with self._recorder.lock:
            self._recorder.watch()
            super().xSync(flags)
            self._recorder.note(Sync(self._file, folder=self._unsynced_folder))
            self._unsynced_folder = False


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder that SQLite knows for as long as the block lasts."""
    made = Recorder()
    try:
        yield made
    finally:
        made.unregister()
