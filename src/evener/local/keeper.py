"""One run of the child process, and the thread that starts it, reads its output and notices its end. Independent of
requests.

The thread lives exactly as long as the child: the kernel kills the child when the thread that started it ends, so no thread
of a pool may start it.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import msgspec

from evener.errors import ConnectFailed, EvenerError, TimedOut, UsageError
from evener.local.environment import child_environment
from evener.local.weights import Weights, ready_weights

CHILD = Path(__file__).with_name("child.py")
LINE = 4096
"""Bytes that are read at once: the child's one answer is shorter."""
KEPT_LINES, KEPT = 30, 400
"""How much of the child's output is kept: the last lines, so many characters of each."""
END_SECONDS = 10.0


class LocalSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How to run a local model. `context`: tokens of one conversation. `parallel`: how many requests are answered at once.

    `threads` 0 means all cores but one. `start_seconds`: how long loading may take, without a download of the weights.
    """

    context: int = 4096
    parallel: int = 2
    threads: int = 0
    start_seconds: float = 120.0


class ChildAddress(msgspec.Struct, frozen=True):
    """Where the child listens and with which key. The key is made for this one run; it never leaves the two processes."""

    base: str
    key: str

    def __repr__(self) -> str:
        """Leave out the key."""
        return f"Address({self.base})"


class Keeper:
    """One run. `started` holds the address, or the error that says why there is none."""

    def __init__(self, weights: Weights, settings: LocalSettings) -> None:
        self.started: Future[ChildAddress] = Future()
        self.started.set_running_or_notify_cancel()  # a caller that stops waiting must not cancel it for others
        self._weights = weights
        self._settings = settings
        self._words: deque[str] = deque(maxlen=KEPT_LINES)
        self._child: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()
        self._stopped = False
        self._thread = threading.Thread(target=self._keep, name=f"evener-local-{weights.name}", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Return the child's process id, once it has one."""
        return self._child.pid if self._child else None

    @property
    def ended(self) -> bool:
        """True if the child has ended, or will not start."""
        return not self._thread.is_alive() or (self._child is not None and self._child.poll() is not None)

    def stop(self) -> None:
        """Kill the child: it has no state that could be damaged."""
        with self._guard:
            self._stopped = True
            child = self._child
        if child is not None:
            child.kill()
            self._thread.join(END_SECONDS)

    def forget(self) -> None:
        """Close the child's input, in a fork of this process: the child ends when all copies of it are closed."""
        if self._child is not None and self._child.stdin is not None:
            with suppress(OSError):
                self._child.stdin.close()

    def last_words(self) -> str:
        """Return how the child ended and its last output, for an error message."""
        code = self._child.poll() if self._child else None
        ended = "" if code is None else f" It ended with code {code}."
        words = "\n".join(f"  {line}" for line in self._words)
        return f"{ended} It said:\n{words}" if words else ended

    def _keep(self) -> None:
        try:
            path = ready_weights(self._weights)
            child = self._spawn()
        except EvenerError as error:
            self.started.set_exception(error)
            return
        except Exception as error:
            failed = f"No process could be started for local model {self._weights.name!r}: {error}."
            self.started.set_exception(UsageError(f"{failed} Free some memory and try again."))
            return
        watch = threading.Timer(self._settings.start_seconds, child.kill)
        watch.daemon = True
        watch.start()
        try:
            self._read_output(child, path, watch)
        except (OSError, ValueError) as error:
            self._words.append(f"Its answer could not be read: {error}")
        late = watch.finished.is_set()
        watch.cancel()
        _end(child)
        if not self.started.done():
            self.started.set_exception(self._start_failure(late=late))

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._guard:
            if self._stopped:
                raise ConnectFailed(f"Local model {self._weights.name!r} was stopped before it had started.")
            self._child = subprocess.Popen(
                [sys.executable, "-P", str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=child_environment(os.environ),
            )
            return self._child

    def _read_output(self, child: subprocess.Popen[bytes], path: Path, watch: threading.Timer) -> None:
        """Send the settings to the child, then read its output until it ends."""
        assert child.stdin is not None
        assert child.stdout is not None
        key, mark = secrets.token_urlsafe(32), secrets.token_hex(16)
        child.stdin.write(self._settings_line(path, key, mark))
        child.stdin.flush()
        while line := child.stdout.readline(LINE):
            text = line.decode(errors="replace").replace(key, "***").strip()
            if text.startswith(mark):
                watch.cancel()
                self._settle(text.removeprefix(mark), key)
            elif text:
                self._words.append(text[:KEPT])

    def _settings_line(self, path: Path, key: str, mark: str) -> bytes:
        settings = {
            "model": str(path),
            "name": self._weights.name,
            "key": key,
            "mark": mark,
            "parent": os.getpid(),
            "path": sys.path,
            "context": self._settings.context,
            "parallel": self._settings.parallel,
            "threads": self._settings.threads,
        }
        return json.dumps(settings).encode() + b"\n"

    def _settle(self, said: str, key: str) -> None:
        answer = json.loads(said)
        if "address" in answer:
            self.started.set_result(ChildAddress(answer["address"], key))
            return
        self.started.set_exception(
            UsageError(
                f"llama.cpp could not load {self._weights.path}: {answer['error']} Check that the file is whole, that this "
                f"build of xllamacpp knows its architecture, and that there is memory for it.{self.last_words()}"
            )
        )

    def _start_failure(self, *, late: bool) -> EvenerError:
        name = self._weights.name
        if late:
            return TimedOut(
                f"Local model {name!r} was not ready after {self._settings.start_seconds:g} seconds. "
                f"Give it more (LocalSettings.start_seconds), or use a smaller model.{self.last_words()}"
            )
        return ConnectFailed(f"The process of local model {name!r} ended before it was ready.{self.last_words()}")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
    child.wait()
