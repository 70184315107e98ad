"""Downloads weights that are inside a wheel. The wheel is data: it is neither installed nor imported, no code of it runs."""

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from evener.errors import ConnectFailed, UsageError
from evener.local.environment import child_environment

SECONDS = 1800.0
PERIOD = 0.2
BAR = 24
CHUNK = 1024 * 1024
SAID = 500
"""Characters of pip's own words in an error."""
USER = re.compile(r"//[^/@\s]*@")
OFFLINE = re.compile(r"connection|resolve|timed? ?out|network|unreachable|No matching distribution", re.IGNORECASE)


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """One GGUF file inside the wheel of a package: `member` is its path there, `sha256` and `size` are the file's own."""

    name: str
    title: str
    licence: str
    package: str
    version: str
    member: str
    sha256: str
    size: int

    @property
    def requirement(self) -> str:
        """Return the package, as pip names it."""
        return f"{self.package}=={self.version}"

    @property
    def wheel(self) -> str:
        """Return the name of the file that pip downloads."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


def arguments(bundle: Bundle) -> tuple[str, ...]:
    """Return pip's arguments: no dependencies, and no source packages, because building one would run its code."""
    return ("download", "--no-deps", "--only-binary=:all:", bundle.requirement)


@contextmanager
def download(bundle: Bundle, beside: Path) -> Iterator[Path]:
    """Download the wheel from the package index of this Python's pip, into a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory(dir=beside, prefix=f"{bundle.name}-") as folder:
        # -P: a pip.py in the working folder, which may have come with a clone, is not the pip that is meant.
        pip = (sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
        command = [*pip, *arguments(bundle)]
        try:
            code, said = _run_pip([*command, "--dest", folder], bundle, Path(folder))
        except subprocess.TimeoutExpired:
            raise ConnectFailed(
                f"pip has not fetched {bundle.requirement} in {SECONDS:g} seconds. {_by_hand(bundle)}"
            ) from None
        if code:
            raise _failure(bundle, said)
        yield next(Path(folder).glob("*.whl"), Path(folder) / bundle.wheel)


def _run_pip(command: Sequence[str], bundle: Bundle, folder: Path) -> tuple[int, str]:
    """Run pip; return its exit code and output. Progress is shown on a terminal."""
    environ = {**child_environment(os.environ, fetching=True), "TMPDIR": str(folder)}  # its pieces are where we can see them
    bar = DownloadBar(bundle.title, bundle.size)
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
        env=environ,
    ) as pip:  # fmt: skip
        try:
            for _ in range(int(SECONDS / PERIOD)):
                try:
                    said = pip.communicate(timeout=PERIOD)[1]
                    return pip.returncode, said
                except subprocess.TimeoutExpired:
                    bar.show(_count_bytes(folder))
            raise subprocess.TimeoutExpired(command, SECONDS)
        finally:
            bar.close()
            pip.kill()


def _count_bytes(folder: Path) -> int:
    """Return the size of all files in a folder, while pip changes it."""
    found = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            found += path.stat().st_size if path.is_file() else 0
    return found


class DownloadBar:
    """The progress of a download as one row on stderr; nothing if that is not a terminal."""

    def __init__(self, title: str, size: int) -> None:
        self._title, self._size = title, size
        self._live = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._shown = False

    def show(self, done: int) -> None:
        """Redraw the row."""
        if not self._live:
            return
        share = min(1.0, done / self._size)
        bar = "#" * round(share * BAR)
        sys.stderr.write(f"\r\x1b[K{self._title} [{bar.ljust(BAR, '.')}] {done / 1e6:.0f} of {self._size / 1e6:.0f} MB")
        sys.stderr.flush()
        self._shown = True

    def close(self) -> None:
        """Remove the row."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def _failure(bundle: Bundle, said: str) -> UsageError | ConnectFailed:
    if "No module named pip" in said:
        return UsageError(f"The weights of {bundle.name!r} are fetched with pip, and this Python has none. {_by_hand(bundle)}")
    words = USER.sub("//", said.strip())[-SAID:]
    kind = ConnectFailed if OFFLINE.search(said) else UsageError
    return kind(f"pip could not fetch {bundle.requirement}, which holds the weights. It said: {words}\n{_by_hand(bundle)}")


def _by_hand(bundle: Bundle) -> str:
    """Return the instructions to fetch the wheel on another machine."""
    return (
        f"Run this where pip and the network are: pip {' '.join(arguments(bundle))}. "
        f"Then here: python -m evener.local fetch --wheel {bundle.wheel}"
    )


def extract(bundle: Bundle, wheel: Path, target: Path) -> None:
    """Extract the one file from the wheel, at most one byte more than its pinned size."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(bundle.member) as source, target.open("wb") as file:
            left = bundle.size + 1
            while left > 0 and (piece := source.read(min(CHUNK, left))):
                file.write(piece)
                left -= len(piece)
    except (KeyError, zipfile.BadZipFile, FileNotFoundError, EOFError) as error:
        raise UsageError(f"{wheel.name} is not the wheel of {bundle.requirement}: {_why(error)}. {_by_hand(bundle)}") from None


def _why(error: Exception) -> str:
    match error:
        case KeyError():
            return "the weights are not in it"
        case FileNotFoundError():
            return "there is no such file"
    return "it is damaged"
