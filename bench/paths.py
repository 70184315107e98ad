"""Path attacks: odd paths against the file tools while another process swaps folders for symlinks.

Outside of the root lie a canary file and a canary folder; inside, a denied file. An attempt reads, lists or writes a path that
is made at random from steps that have fooled others: `..`, symlinks, devices, /proc, look-alikes, very long names. An
escape is a canary that was read or listed, or anything outside that is different afterwards.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random
from typing import Protocol

from evener.toolset.fence import Fence
from evener.toolset.folder import PathRefused, RootFolder

__all__ = ["NaiveFolder", "Target", "campaign", "main"]

CANARY = b"canary: this is outside"
DENIED = b"canary: this is denied"
FLIPPER = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.chdir(sys.argv[1])
print("ready", flush=True)
parent = os.getppid()
while os.getppid() == parent:
    for name in ("flip", "swap", "deep/swap"):
        libc.renameat2(-100, name.encode(), -100, (name + ".other").encode(), 2)
"""
STEPS = (
    *("..", "..", "..", ".", "", "a", "a", "deep", "flip", "flip", "swap", "swap", "link", "up", "absolute", "self", "loop"),
    *(
        "proc",
        "device",
        "pipe",
        "file",
        "file",
        "canary",
        "canary",
        ".env",
        "denied",
        ".ENV",
        "hidden",
        "folder",
        "etc",
        "passwd",
    ),
    *(
        "\uff0e\uff0e",
        "\u2024\u2024",
        "..\u200b",
        "%2e%2e",
        "..\\",
        "~",
        "$HOME",
        "..;",
        " ..",
        ".. ",
        "...",
        "\u2215etc",
        "fi\u0000le",
    ),
    *("x" * 300, "environ", "root", "fd", "0", "cwd", "new", "swap.other", "flip.other", "\ud800", "e\u0301", "\u00e9"),
)


class Target(Protocol):
    """What is attacked."""

    def read(self, path: str, *, most: int) -> tuple[bytes, str]: ...

    def write(self, path: str, body: bytes) -> str: ...

    def names(self, path: str) -> list[str]: ...


class FencedFolder(RootFolder):
    """The root folder of the tools."""

    def names(self, path: str) -> list[str]:
        with self.entered(path) as (fd, _):
            return os.listdir(fd)


class NaiveFolder:
    """What the campaign must catch: paths that are compared as texts."""

    def __init__(self, root: str) -> None:
        self._root = root

    def read(self, path: str, *, most: int) -> tuple[bytes, str]:
        whole = self._whole(path)
        if not os.path.isfile(os.path.realpath(whole)) or not os.path.realpath(whole).startswith("/tmp"):
            raise PathRefused(path)
        return Path(whole).read_bytes()[:most], path

    def write(self, path: str, body: bytes) -> str:
        raise PathRefused(f"{path}: {len(body)} bytes are not written")

    def names(self, path: str) -> list[str]:
        return os.listdir(self._whole(path))

    def _whole(self, path: str) -> str:
        if "\0" in path or "\ud800" in path or ".." in path.split("/") or path.startswith("/"):
            raise PathRefused(path)
        return f"{self._root}/{path}"


def campaign(attempts: int, seed: int, *, naive: bool = False) -> tuple[Counter[str], list[str]]:
    """Attack; return how often what happened, and the escapes."""
    stage = Path(tempfile.mkdtemp(prefix="evener-paths-")).resolve()
    try:
        root = build(stage)
        before = picture(stage / "outside")
        flipper = subprocess.Popen([sys.executable, "-c", FLIPPER, str(root)], stdout=subprocess.PIPE)
        try:
            assert flipper.stdout is not None
            flipper.stdout.readline()
            target: Target = NaiveFolder(str(root)) if naive else FencedFolder(root, Fence(deny=(".env",), read_only=()))
            counts, escapes = attack(target, attempts, Random(seed), str(root))
        finally:
            flipper.kill()
            flipper.communicate()
        if picture(stage / "outside") != before:
            escapes.append("what is outside was changed")
        return counts, escapes
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def attack(target: Target, attempts: int, random: Random, root: str) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    escapes: list[str] = []
    for _ in range(attempts):
        path = make_path(random, root)
        kind = random.choices(("read", "list", "write"), (8, 1, 1))[0]
        try:
            match kind:
                case "read":
                    body = target.read(path, most=10_000)[0]
                    if CANARY in body or DENIED in body:
                        escapes.append(f"read {path!r}")
                case "list":
                    if "canary-inside-outside" in target.names(path):
                        escapes.append(f"list {path!r}")
                case _:
                    target.write(path, b"written")
        except (PathRefused, FileNotFoundError):
            counts[f"{kind} refused"] += 1
        except OSError as error:
            counts[f"{kind} {error.strerror}"] += 1
        else:
            counts[f"{kind} done"] += 1
    return counts, escapes


def make_path(random: Random, root: str) -> str:
    """Return an odd path."""
    steps = random.choices(STEPS, k=random.randint(1, 7))
    path = "/".join(steps)
    match random.randrange(12):
        case 0:
            return f"/{path}"
        case 1:
            return f"{root}/{path}"
        case 2:
            return f"{root}/../outside/canary"
        case 3:
            return random.choice(
                ("/proc/self/environ", "/proc/self/root/etc/passwd", "/dev/zero", "/proc/self/fd/0", "/etc/passwd")
            )
        case 4:
            return random.choice(
                ("flip/canary", "swap/canary", "deep/swap/canary", "flip/../canary", "swap/../../outside/canary")
            )
        case _:
            return path


def build(stage: Path) -> Path:
    """Make the root and what lies outside of it; return the root."""
    root, outside = stage / "root", stage / "outside"
    for folder in (root / "a" / "deep", root / "deep", root / "folder", outside / "folder"):
        folder.mkdir(parents=True)
    (outside / "canary").write_bytes(CANARY)
    (outside / "canary-inside-outside").write_bytes(CANARY)
    (outside / "folder" / "canary").write_bytes(CANARY)
    for name in ("file", "a/file", "deep/file", "folder/canary", "canary", "\u00e9"):
        (root / name).write_bytes(b"inside")
    (root / ".env").write_bytes(DENIED)
    links = {
        "link": "file", "up": "..", "absolute": str(outside), "self": ".", "loop": "loop", "proc": "/proc/self",
        "device": "/dev/zero", "denied": ".env", "hidden": "a/../.env", "etc": "/etc", "a/canary": "../../outside/canary",
        "deep/up": "../../outside",
        "flip": "folder", "flip.other": "../outside", "swap.other": str(outside), "deep/swap.other": "../../outside/folder",
    }  # fmt: skip
    for name, to in links.items():
        (root / name).symlink_to(to)
    (root / "swap").mkdir()
    (root / "deep" / "swap").mkdir()
    os.mkfifo(root / "pipe")
    return root


def picture(folder: Path) -> list[tuple[str, bytes, int]]:
    """Return all that is in a folder."""
    files = sorted(path for path in folder.rglob("*"))
    return [(str(path), path.read_bytes() if path.is_file() else b"", path.stat().st_mode) for path in files]


def main(attempts: int, seed: int) -> int:
    """Run the campaign, print what happened; the exit code."""
    if not hasattr(ctypes.CDLL(None), "renameat2"):
        print("The flipper needs renameat2, which is not there.")
        return 1
    counts, escapes = campaign(attempts, seed)
    for what, often in sorted(counts.items()):
        print(f"{often:>9,}  {what}")
    print(f"{attempts:,} attempts with seed {seed}: {len(escapes)} escapes", *escapes[:20], sep="\n")
    return 1 if escapes else 0
