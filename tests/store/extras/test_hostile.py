"""Files made by hand, with every digest, link and checksum right, that still are not what a store would write."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from evener.errors import BadDocument, StoreError
from evener.store import export_lines, import_lines
from evener.store.integrity.digests import digest_of, link, origin_of
from tests.store.extras.stores import KINDS, AnyStore, asked, fork_of
from tests.store.stores import Clock, opened, run


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    made = KINDS[request.param](tmp_path, Clock())
    yield made
    run(made.aclose())


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def branch(log: str, *payloads: dict[str, object], **fields: object) -> list[bytes]:
    """The lines of a root with these events, linked as they should be."""
    line = {"kind": "branch", "log": log, "harness": "", "began": 5.0, "changed": 5.0, "length": len(payloads)} | fields
    lines, chain = [compact(line) + b"\n"], origin_of(log)
    for seq, payload in enumerate(payloads, 1):
        data, kind = compact(payload), str(payload["kind"])
        digest = digest_of(data)
        chain = link(chain, digest, seq=seq, version=1, at=5.0, kind=kind)
        head = {"kind": "event", "log": log, "seq": seq, "version": 1, "rule": 2, "at": 5.0, "event": kind}
        head |= {"digest": digest.hex(), "chain": chain.hex()}
        lines.append(compact(head)[:-1] + b',"payload":' + data + b"}\n")
    return lines


def first(thread: str) -> dict[str, object]:
    return {"kind": "opened", "at": 5.0, "thread": thread}


SAID = {"kind": "cancelled", "at": 5.0, "why": "something"}


def file(thread: str, *branches: list[bytes], **fields: object) -> list[bytes]:
    """A whole file, with the right end."""
    line = {"kind": "evener.thread", "version": 1, "thread": thread, "head": json.loads(branches[0][0])["log"]} | fields
    lines = [compact(line) + b"\n", *(one for lines in branches for one in lines)]
    end = {"kind": "end", "lines": len(lines), "sha256": sha256(b"".join(lines)).hexdigest()}
    return [*lines, compact(end) + b"\n"]


WRONG: dict[str, tuple[list[bytes], str]] = {
    "no events": (file("t", branch("t")), "no events of its own"),
    "a root of another id": (file("t", branch("other", first("t"))), "one root"),
    "two roots": (file("t", branch("t", first("t")), branch("other", first("t"))), "one root"),
    "another beginning": (file("t", branch("t", first("t"), began=1.0)), "contradicts the lines"),
    "another last change": (file("t", branch("t", first("t"), SAID, changed=1e15)), "another time"),
    "erased, and still there": (file("t", branch("t", first("t"), SAID, erased=7.0)), "marked as erased"),
    "a long title": (file("t", branch("t", first("t")), title="x" * 1_000), "at most 200"),
    "a title that steers a terminal": (file("t", branch("t", first("t")), title="x\x1b[0m"), "visible characters"),
    "a thousand tags": (file("t", branch("t", first("t")), tags=[str(number) for number in range(1_000)]), "at most 32 tags"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_store_would_write_is_not_taken_in(store: AnyStore, name: str) -> None:
    lines, told = WRONG[name]

    async def scenario() -> None:
        with pytest.raises(BadDocument, match=told):
            await import_lines(store, lines)
        assert await store.logs() == []

    run(scenario())


def test_a_file_made_in_the_same_way_without_a_fault_is_taken_in(store: AnyStore) -> None:
    async def scenario() -> None:
        assert await import_lines(store, file("t", branch("t", first("t"), SAID), title="A title", tags=["x"])) == "t"
        assert await store.verify() == []

    run(scenario())


def test_a_thread_that_has_the_id_of_a_fork_is_not_taken_in(store: AnyStore) -> None:
    """Else whoever asks for the fork would get what came in."""

    async def scenario() -> None:
        log = await store.create("mine", opened("mine"), holder="me")
        await log.append(asked("something"))
        await log.aclose()
        await fork_of(store, "mine", 2, "fork")
        with pytest.raises(StoreError, match="'fork' exists already"):
            await import_lines(store, file("fork", branch("fork", first("fork"))))
        assert await store.head("fork") == "fork"
        assert len(await store.read("fork")) == 3

    run(scenario())


def test_what_was_erased_here_does_not_come_back_and_the_error_says_so(store: AnyStore) -> None:
    async def scenario() -> None:
        lines = file("t", branch("t", first("t"), SAID))
        await import_lines(store, lines)
        await store.erase("t")
        with pytest.raises(StoreError, match="was erased in this store and stays erased, so nothing was imported"):
            await import_lines(store, lines)
        erased = [line async for line in export_lines(store, "t")]
        assert await import_lines(store, erased) == "t", "the same, as it is"

    run(scenario())
