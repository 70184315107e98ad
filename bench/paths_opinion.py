"""A second opinion on paths: the reference filesystem server of MCP is asked to read the same ones, on a root at rest.

It is fetched by name on the first run (npm). Both must refuse what leads out. A path that we read and it refuses as outside is
a failure; the other way round is counted: it follows fewer rules (a denied file, devices).
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from bench.paths import CANARY, build, make_path
from evener.toolset.fence import Fence
from evener.toolset.folder import PathRefused, RootFolder

__all__ = ["FilesystemServer", "compare", "find_server", "main"]

PACKAGE = "@modelcontextprotocol/server-filesystem"
HOME = Path(__file__).parent / ".envs" / "filesystem-server"
ENTRY = HOME / "node_modules" / PACKAGE / "dist" / "index.js"
OUTSIDE = ("outside allowed", "Access denied")


def find_server(*, fetch: bool) -> str:
    """Return where the server is; empty if it is not there and cannot be had."""
    if not shutil.which("node"):
        return ""
    if not ENTRY.exists() and fetch and (npm := shutil.which("npm")):
        HOME.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(HOME), PACKAGE]
        subprocess.run(command, check=False, timeout=300)
    return str(ENTRY) if ENTRY.exists() else ""


class FilesystemServer:
    """The server as a child process, asked over its pipes. Close it."""

    def __init__(self, entry: str, root: str) -> None:
        self._process = subprocess.Popen(
            ["node", entry, root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root
        )
        self._next = 0
        self._ask(
            "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        )
        self._say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def read(self, path: str) -> tuple[bool, str]:
        """Return whether it read a file, and what it said."""
        answer = self._ask("tools/call", {"name": "read_text_file", "arguments": {"path": path}})
        result = answer.get("result")
        if not isinstance(result, dict):
            return False, str(answer.get("error"))
        text = "".join(str(part.get("text", "")) for part in result.get("content", []))
        return not result.get("isError"), text

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _say(self, message: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _ask(self, method: str, params: dict[str, object]) -> dict[str, object]:
        self._next += 1
        self._say({"jsonrpc": "2.0", "id": self._next, "method": method, "params": params})
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer: dict[str, object] = json.loads(line)
            if answer.get("id") == self._next:
                return answer
        raise RuntimeError("The server has ended.")


def compare(entry: str, attempts: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Ask both about the same paths; return how often they agree, and what we read that the server calls outside."""
    stage = Path(tempfile.mkdtemp(prefix="evener-opinion-")).resolve()
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    try:
        root = build(stage)
        os.unlink(root / "pipe")  # the server would wait for a writer
        for device in ("device", "proc"):
            os.unlink(root / device)
        ours, random = RootFolder(root, Fence(deny=(), read_only=())), Random(seed)
        server = FilesystemServer(entry, str(root))
        try:
            for _ in range(attempts):
                path = make_path(random, str(root)).replace("\ud800", "?")
                did, said = server.read(path)
                try:
                    body = ours.read(path, most=10_000)[0]
                except (PathRefused, FileNotFoundError, OSError):
                    body = None
                counts[f"we {'read' if body is not None else 'refuse'}, it {'reads' if did else 'refuses'}"] += 1
                if body is not None and (CANARY in body or (not did and any(word in said for word in OUTSIDE))):
                    wrong.append(f"{path!r}: {said[:200]}")
        finally:
            server.close()
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return counts, wrong


def main(attempts: int, seed: int) -> int:
    """Compare and print; the exit code."""
    entry = find_server(fetch=True)
    if not entry:
        print("The reference filesystem server needs node and npm.")
        return 1
    counts, wrong = compare(entry, attempts, seed)
    for what, often in sorted(counts.items()):
        print(f"{often:>9,}  {what}")
    print(
        f"{attempts:,} paths with seed {seed}: {len(wrong)} that we read and the reference server calls outside",
        *wrong[:20],
        sep="\n",
    )
    return 1 if wrong else 0
