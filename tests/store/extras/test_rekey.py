"""A store is given another key: everything is sealed anew, nothing is lost, and the old key is of no use any more."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from evener.events import Opened
from evener.store import LeaseHeld, Note, SqliteStore, WrongCipher, rekey
from tests.store.extras.samples import EVENTS
from tests.store.extras.stores import KEY, asked
from tests.store.extras.toycipher import ToyCipher
from tests.store.proofs.adapter import recorded
from tests.store.proofs.disk import files_after
from tests.store.proofs.scene import HEADS, laid_out
from tests.store.stores import opened, run

OLD, NEW = ToyCipher(KEY), ToyCipher(b"another key" * 3)
MOMENTS = 24


class OtherMethod(ToyCipher):
    """The same by another name."""

    name = "another method"


async def filled(path: Path) -> None:
    store = SqliteStore(path, cipher=OLD)
    log = await store.create("t", opened("t"), holder="me")
    await log.append(asked("a remarkable question"), *EVENTS[1:], *(asked(f"{number} " + "x" * 500) for number in range(30)))
    link = await store.link("t", 5)
    first = Opened(at=3.0, thread="t", harness="h", parent=link.log, parent_seq=link.seq, parent_hash=link.hash)
    fork = await store.create("fork", first, holder="me")
    await fork.append(asked("on the fork"))
    link = await store.link("fork", 7)
    second = Opened(at=4.0, thread="t", harness="h", parent=link.log, parent_seq=link.seq, parent_hash=link.hash)
    await (await store.create("fork of fork", second, holder="me")).aclose()
    await store.post("t", Note("k", "steer", '{"text":"a note"}'))
    await store.describe("t", title="A title", tags=["one", "two"])
    await store.put_blob(b"a blob" * 500)
    await store.erase("t", seqs=[2])
    await store.move_head("t", "fork")
    gone = await store.create("gone", opened("gone"), holder="me")
    await gone.append(asked("soon erased"))
    await gone.aclose()
    await store.erase("gone")
    await store.aclose()


async def seen(path: Path, cipher: ToyCipher) -> object:
    """All that the store says, but for hashes; and that nothing is wrong with it."""
    store = SqliteStore(path, cipher=cipher)
    try:
        assert [one.what for one in await store.verify() if "relies on the blob" not in one.what] == []  # of the samples
        logs = {one.log: (one.events, one.title, one.tags, one.erased, one.head) for one in await store.logs()}
        events = [
            [event for event in await store.read(log) if not isinstance(event, Opened)] for log in ("t", "fork", "fork of fork")
        ]
        log, _ = await store.open("t", holder="me")
        notes = await log.notes()
        return logs, events, notes, [hit.excerpt for hit in await store.search("question")]
    finally:
        await store.aclose()


def sealed(path: Path) -> list[bytes]:
    """Every piece of content as it lies in the file."""
    queries = ("SELECT payload FROM events", "SELECT body FROM inbox", "SELECT title FROM logs", "SELECT content FROM blobs")
    with closing(sqlite3.connect(path)) as connection:
        found = [piece for query in queries for (piece,) in connection.execute(query)]
        found += [tag for (tag,) in connection.execute("SELECT tag FROM tags")]
        found += [bytes.fromhex(note) for (note,) in connection.execute("SELECT value FROM meta WHERE key LIKE 'cipher_%'")]
    return [piece for piece in found if isinstance(piece, bytes)]


@pytest.mark.parametrize("new", [NEW, OtherMethod(KEY)])
def test_after_it_only_the_new_key_opens_what_is_the_same_as_before(tmp_path: Path, new: ToyCipher) -> None:
    path = tmp_path / "evener.db"
    run(filled(path))
    before, pieces = run(seen(path, OLD)), sealed(path)
    assert len(pieces) > 50
    run(rekey(path, old=OLD, new=new))
    run(rekey(path, old=OLD, new=new))  # it is done already
    assert run(seen(path, new)) == before
    with pytest.raises(WrongCipher):
        run(seen(path, OLD))
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not [piece for piece in pieces if piece[:60] in content]
    with pytest.raises(WrongCipher):
        run(rekey(path, old=ToyCipher(b"neither"), new=ToyCipher(b"nor")))


def test_killed_anywhere_it_is_as_before_or_done_and_can_be_called_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    path = tmp_path / "run" / "evener.db"
    run(filled(path))
    before = run(seen(path, OLD))
    with recorded() as recorder:
        recorder.watched = tmp_path / "run" / HEADS
        run(rekey(path, old=OLD, new=NEW))
        steps = list(recorder.steps)
    ends = set()
    for moment in range(MOMENTS + 1):
        files = files_after(steps[: moment * len(steps) // MOMENTS])
        if not files:
            continue
        left = laid_out(files, tmp_path / f"moment {moment}")
        try:
            assert run(seen(left, OLD)) == before
            ends.add("as before")
        except WrongCipher:
            assert run(seen(left, NEW)) == before
            ends.add("done")
        run(rekey(left, old=OLD, new=NEW))
        assert run(seen(left, NEW)) == before
    assert ends == {"as before", "done"}


def test_whoever_has_it_open_cannot_write_with_the_old_key(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        await filled(path)
        store = SqliteStore(path, cipher=OLD)
        log = await store.create("held", opened("held"), holder="me")
        with pytest.raises(LeaseHeld):
            await rekey(path, old=OLD, new=NEW)
        await log.aclose()
        await rekey(path, old=OLD, new=NEW)
        with pytest.raises(WrongCipher, match="another key while it was open"):
            await store.create("new", opened("new"), holder="me")
        await store.aclose()

    run(scenario())
