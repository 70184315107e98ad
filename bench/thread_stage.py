"""What a hopping conversation plays on: four strict servers that say what the seed has them say, and processes to be killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import msgspec

from bench.thread_life import Command, Told
from evener.testing import Call, FakeServer, Received, Text, Thinking, Turn, turn

__all__ = ["MODELS", "Dead", "Heard", "Stage", "Stuck", "Worker", "kill"]

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 120.0
"""Nothing that one process is told takes longer."""

MODELS = {
    "anthropic_messages": ("anthropic:claude-fable-5-2", "anthropic:claude-opus-5-5", "anthropic:claude-sonnet-4-5"),
    "openai_responses": ("openai:gpt-5.5", "openai:gpt-5"),
    "openai_chat": ("openai-chat:gpt-4.1", "openai-chat:gpt-4o"),
    "gemini": ("google:gemini-3-flash-preview", "google:gemini-2.5-flash"),
}
TOOLS = ("look", "draw", "book", "pay")
MARK = "[[{wire} {number}]]"


class Heard(msgspec.Struct, frozen=True):
    """A request that a server got, and what it held already."""

    body: object
    held: object


class Stage:
    """The four servers. What they say is drawn from the seed; each answer is marked, so that its request is known."""

    def __init__(self, seed: int) -> None:
        self.heard: dict[str, Heard] = {}
        self._lock = threading.Lock()
        self._count = 0
        self._striking: list[tuple[int, float]] = []
        self._chance = {wire: Random(f"{seed} {wire}") for wire in MODELS}
        self.servers = {wire: FakeServer(wire, self._script(wire)) for wire in MODELS}

    def strike(self, process: int, seconds: float) -> None:
        """Kill this process so long after the next request has come."""
        with self._lock:
            self._striking.append((process, seconds))

    def calm(self) -> None:
        """Whoever was to be struck is gone already."""
        with self._lock:
            self._striking.clear()

    def _script(self, wire: str) -> Callable[[Received], Turn]:
        def answer(received: Received) -> Turn:
            with self._lock:
                self._count += 1
                mark = MARK.format(wire=wire, number=self._count)
                self.heard[mark] = Heard(received.json, self._held(wire, received))
                for process, seconds in self._striking:
                    threading.Timer(seconds, kill, (process,)).start()
                self._striking.clear()
                return _turn(self._chance[wire], mark, self._count)

        return answer

    def _held(self, wire: str, received: Received) -> object:
        body = received.json
        name = body.get("previous_response_id") or body.get("conversation") or ""
        return self.servers[wire].held(str(name)) if name else None


def _turn(chance: Random, mark: str, number: int) -> Turn:
    parts: list[Text | Thinking | Call] = []
    if chance.random() < 0.6:
        parts.append(Thinking(f"Thinking of {number}.", redacted=chance.random() < 0.15))
    parts.append(Text(f"{mark} I have thought."))
    if chance.random() < 0.5:
        parts += [Call(chance.choice(TOOLS), {"x": chance.randrange(1000)}) for _ in range(chance.randint(1, 3))]
    return turn(*parts)


def kill(process: int) -> None:
    """End a process at once, if it is there."""
    with suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


class Dead(Exception):
    """The process was killed before it had answered."""


class Stuck(Exception):
    """The process came to no end, or to one that nobody wanted."""


class Worker:
    """A process that holds the conversation."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._complaints = folder / "complaints.txt"
        with self._complaints.open("ab") as complaints:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.thread_life", str(path), str(folder)],
                cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints,
            )  # fmt: skip

    @property
    def id(self) -> int:
        return self._process.pid

    def tell(self, command: Command) -> Told:
        """Have it done. Raises Dead when it was killed meanwhile, and Stuck when it took too long."""
        process, began = self._process, time.monotonic()
        assert process.stdin is not None
        assert process.stdout is not None
        late = threading.Timer(SECONDS, kill, (process.pid,))
        late.start()
        try:
            process.stdin.write(msgspec.json.encode(command) + b"\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = b""
        finally:
            late.cancel()
        if line.endswith(b"\n"):
            return msgspec.json.decode(line, type=Told)
        code = process.wait(SECONDS)
        if time.monotonic() - began > SECONDS:
            raise Stuck(f"nothing came of {command} in {SECONDS:g} seconds")
        if code != -signal.SIGKILL:
            raise Stuck(f"the process ended with {code} in {command}: {self._complaints.read_text()[-2000:]}")
        raise Dead

    def close(self) -> None:
        """Let it end."""
        process = self._process
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        process.wait(SECONDS)
