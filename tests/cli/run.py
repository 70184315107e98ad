"""Runs the command line as a real process, in a home of its own."""

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.forked import Forked, order_of, run_forked
from tests.patience import PATIENCE

Done = subprocess.CompletedProcess[bytes]

KEPT = ("PATH", "PYTHONPATH", "LANG", "LC_ALL")


class Home:
    """A home folder and its environment: nothing of the real one shows through."""

    def __init__(self, folder: Path, **more: str) -> None:
        self.folder = folder
        self.config = folder / ".config" / "evener" / "config.toml"
        self.keys = folder / ".config" / "evener" / "keys.toml"
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.environ: dict[str, str] = {**kept, "HOME": str(folder), "EVENER_HOME": str(folder / "evener"), **more}

    def configure(self, text: str) -> None:
        """Write the user's own config file."""
        self.config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.config.write_text(text, encoding="utf-8")

    def trust(self, folder: Path | None = None) -> None:
        """Write into the user's own config file that this folder is trusted, the home itself unless another is named."""
        kept = self.config.read_text(encoding="utf-8") if self.config.exists() else ""
        self.configure(f'trusted = ["{folder or self.folder}"]\n{kept}')

    def run(self, *words: str, stdin: bytes = b"", folder: Path | None = None, **more: str) -> Done:
        """One command, to its end; in the home folder, unless another is given."""
        environ, place = {**self.environ, **more}, folder or self.folder
        order = None if _starts_anew(more) or len(stdin) > select.PIPE_BUF else order_of(words, environ, place)
        if order is not None:
            return run_forked(order, words, stdin)
        return subprocess.run(
            command(*words), input=stdin, env=environ, cwd=place, capture_output=True, timeout=PATIENCE, check=False
        )

    def start_on(self, terminal: int, *words: str, **more: str) -> "Forked | subprocess.Popen[bytes]":
        """One command, running on a terminal, in a session of its own."""
        environ = {**self.environ, **more}
        order = None if _starts_anew(more) else order_of(words, environ, self.folder, session=True)
        if order is not None:
            return Forked(order, [terminal] * 3)
        return subprocess.Popen(
            command(*words), stdin=terminal, stdout=terminal, stderr=terminal, env=environ, cwd=self.folder,
            start_new_session=True,
        )  # fmt: skip

    def start(
        self, *words: str, environ: Mapping[str, str] | None = None, stdout: int = subprocess.PIPE
    ) -> "subprocess.Popen[bytes]":
        """One command, running."""
        return subprocess.Popen(
            command(*words),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={**self.environ, **(environ or {})},
            cwd=self.folder,
        )


def command(*words: str) -> list[str]:
    """The words as a process, with warnings as errors."""
    return [sys.executable, "-W", "error", "-m", "evener", *words]


def _starts_anew(environ: Mapping[str, str]) -> bool:
    """True if this is read when an interpreter starts, so that a forked one would not heed it."""
    return any(name.startswith(("LANG", "LC_", "PYTHON")) for name in environ)
