"""The vendors' SDKs decoding the same bytes, each in an environment of its own that is made once. No connection is made.

Compared is CPU per delta: our decoder on the chunks, and the SDK's stream iterated to its end on the same chunks, from its
first event on, so that building and sending the request does not count. The SDK's HTTP client hands it the chunks, as it must.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL

import msgspec

from bench.clock import cheapest
from bench.decode import CHUNKS, check, decode
from bench.streams import SHAPES, Stream, stream_of
from bench.table import Figure
from evener.wire import CODECS

__all__ = ["PEERS", "Peer", "figures"]

LEAST = 5.0
ENVIRONMENTS = Path(__file__).with_name(".envs")
DRIVER = Path(__file__).with_name("peer_driver.py")
SECONDS = 300


class Peer(msgspec.Struct, frozen=True):
    """A package of a vendor, and the wire it speaks."""

    wire: str
    package: str
    version: str


PEERS = (
    Peer("anthropic_messages", "anthropic", "2.8.0"),
    Peer("openai_responses", "openai", "3.49.0"),
    Peer("openai_chat", "openai", "3.49.0"),
    Peer("gemini", "google-genai", "3.1.0"),
)


class Missing(Exception):
    """A peer that cannot be had; the text says why."""


def figures(peers: Sequence[Peer], deltas: int, passes: int) -> list[Figure]:
    """Every peer, every shape, both sizes of chunks."""
    found = []
    for peer in peers:
        name = f"{peer.package} {peer.version} {peer.wire}"
        try:
            python = environment(peer)
        except Missing as why:
            found.append(Figure(name, least=LEAST, note=f"not measured: {why}"))
            continue
        for shape in SHAPES:
            stream = stream_of(peer.wire, shape, deltas)
            found += (_figure(name, stream, called, python, passes) for called in CHUNKS)
    return found


def environment(peer: Peer, *, seconds: float = SECONDS) -> Path:
    """The Python that has this peer. Made when it is not there: then, and only then, the package registry is asked, and that
    for at most so many seconds.
    """
    folder = ENVIRONMENTS / f"{peer.package}-{peer.version}-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"making an environment for {peer.package} {peer.version} (once)", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder), seconds=seconds)
        pip = (sys.executable, "-m", "pip", "--python", str(python), "--quiet", "--disable-pip-version-check")
        _run(*pip, "install", "--no-compile", f"{peer.package}=={peer.version}", seconds=seconds)
        ready.touch()
    return python


def _run(*command: str, seconds: float) -> None:
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip
    try:
        told, _ = running.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, SIGKILL)  # pip works in a process of its own
        running.wait()
        raise Missing(f"installing it took more than {seconds:g} seconds") from None
    if running.returncode:
        said = told.strip().splitlines()
        raise Missing(said[-1] if said else f"installing it ended with code {running.returncode}")


def _figure(name: str, stream: Stream, called: str, python: Path, passes: int) -> Figure:
    chunks = stream.chunks(CHUNKS[called])
    name = f"{name} {stream.shape}, {called} a chunk"
    try:
        theirs = _theirs(stream, chunks, python, passes) / stream.deltas * 1e6
    except Missing as why:
        return Figure(name, least=LEAST, note=f"not measured: {why}")
    if stream.wire not in CODECS:
        return Figure(name, least=LEAST, note=f"we do not speak this wire yet; the peer takes {theirs:.1f} us")
    check(stream)
    ours = cheapest((lambda: decode(stream.wire, chunks),), passes)[0] / stream.deltas * 1e6
    return Figure(name, ours, theirs, least=LEAST)


def _theirs(stream: Stream, chunks: Sequence[bytes], python: Path, passes: int) -> float:
    """CPU seconds of the peer for the whole stream."""
    order = json.dumps({"wire": stream.wire, "lengths": [len(chunk) for chunk in chunks], "passes": passes})
    told = order.encode() + b"\n" + stream.data
    done = subprocess.run([python, "-W", "ignore", DRIVER], input=told, capture_output=True, timeout=SECONDS)
    if done.returncode:
        raise Missing(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    said = json.loads(done.stdout)
    if said["events"] < stream.deltas:
        raise Missing(f"it gave {said['events']} events of at least {stream.deltas}")
    return float(said["cpu"])
