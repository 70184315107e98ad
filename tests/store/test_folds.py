"""A kept fold is a help and never a truth: with it, without it, or with a broken one, a state is the fold of all events."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from evener import Harness, tool
from evener.errors import StoreError
from evener.events import Cancelled, Compacted, ContextRestored, Event, Evicted, Opened, Prompted
from evener.harness.approvals import Decision
from evener.loop.state import RunState, fold
from evener.model import open_model
from evener.store import Cipher, SqliteStore, export_lines, import_lines
from evener.store.sqlite.rekey import rekey
from evener.store.sqlite.snapshots import EVERY
from evener.testing import FakeServer, ScriptedModel
from evener.testing.scripted_model import Line, calls
from evener.transcript import ImageBlock, Inline, Message, Stored, TextBlock, ToolCall
from tests.patience import PATIENCE
from tests.store.extras.samples import EVENTS
from tests.store.extras.toycipher import ToyCipher
from tests.store.longthreads import KINDS, fill, happenings
from tests.store.stores import opened, run

LONG = 3 * EVERY + 100
SECRET = "the moon is made of cheese"


def kept(path: Path) -> list[int]:
    """The events that kept folds stand at, after the store was closed."""
    with closing(sqlite3.connect(path)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'folds'").fetchone():
            return []
        return [seq for (seq,) in connection.execute("SELECT seq FROM folds ORDER BY seq")]


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement).rowcount != 0


async def state_at(path: Path, log: str, *, until: int | None = None, cipher: Cipher | None = None) -> RunState:
    """The state as a new store tells it, which is the fold of all events."""
    store = SqliteStore(path, cipher=cipher)
    try:
        state = await store.state(log, until=until)
        whole = fold(await store.read(log, until=until))
        assert state == whole
        assert (state.used, state.most_spent, state.phase) == (whole.used, whole.most_spent, whole.phase)
        return state
    finally:
        await store.aclose()


async def built(path: Path, *events: Event, cipher: Cipher | None = None) -> None:
    """A log `t` of some hundred events more than three folds have, and then these."""
    store = SqliteStore(path, cipher=cipher)
    log = await store.create("t", opened(), holder="me")
    await log.append(*islice(happenings(*KINDS["many runs"]), LONG), *events)
    await log.aclose()
    await store.aclose()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happened_the_state_is_the_fold_of_all_events(tmp_path: Path, seed: int) -> None:
    path, dice = tmp_path / "evener.db", Random(seed)
    rare = [one for one in EVENTS if isinstance(one, Opened | Evicted | Compacted | ContextRestored)]
    common = [one for one in EVENTS if one not in rare]

    async def scenario() -> None:
        for _ in range(3):
            store = SqliteStore(path)
            if not path.exists():
                await (await store.create("t", opened(), holder="me")).aclose()
            log, state = await store.open_folded("t", holder="me")
            assert state == fold(await store.read("t"))
            await log.append(*(dice.choice(common if dice.random() < 0.999 else rare) for _ in range(dice.randrange(2_000))))
            await log.aclose()
            await store.aclose()
            length = log.length
        for until in (None, length - 1, length // 2, EVERY, EVERY - 1, 1):
            await state_at(path, "t", until=until)

    run(scenario())


def test_branches_use_the_folds_of_the_logs_before_them(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        await built(path)
        store = SqliteStore(path)
        harness = Harness(ScriptedModel(["One.", "Two.", "Three."]), store=store)
        first = await harness.thread("t").fork(at=2 * EVERY + 10)
        await first.run("And on this branch?")
        second = await first.fork(at=2 * EVERY + 12)
        await second.run("And on that one?")
        third = await second.fork(at=EVERY - 1)
        await third.run("And before all that?")
        await store.aclose()
        for branch in (first, second, third):
            await state_at(path, branch.id)

    run(scenario())


BROKEN = {
    "another chain": "UPDATE folds SET chain = zeroblob(32)",
    "other code": "UPDATE folds SET code = 'older'",
    "no JSON": "UPDATE folds SET state = zeroblob(40)",
    "another shape": 'UPDATE folds SET state = CAST(\'{"state":{},"depth":"many"}\' AS BLOB)',
    "a later event": "UPDATE folds SET seq = seq + 1",
    "an event that is not there": "UPDATE folds SET seq = seq + 10000",
    "another type": "UPDATE folds SET state = 7",
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_fold_that_does_not_fit_is_as_if_it_were_not_there(tmp_path: Path, how: str) -> None:
    path = tmp_path / "evener.db"
    run(built(path))
    assert kept(path) == [EVERY, 2 * EVERY, 3 * EVERY]
    change(path, BROKEN[how])
    run(state_at(path, "t"))
    assert set(kept(path)) >= {EVERY, 2 * EVERY, 3 * EVERY}
    run(state_at(path, "t"))


def test_verify_and_replay_do_not_look_at_folds(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        await built(path)
        change(path, "UPDATE folds SET chain = zeroblob(32), state = zeroblob(3)")
        store = SqliteStore(path)
        assert await store.verify() == []
        assert len(await store.read("t")) == LONG + 1
        await store.aclose()

    run(scenario())


@pytest.mark.parametrize("seqs", [(LONG + 2,), None])
def test_what_is_erased_leaves_the_folds_of_its_thread(tmp_path: Path, seqs: tuple[int, ...] | None) -> None:
    path = tmp_path / "evener.db"
    until = 4 * EVERY - LONG - 2

    async def scenario() -> None:
        await built(path, Cancelled(at=1.0, why=SECRET), *islice(happenings(10, 2), until))
        await fill(other := SqliteStore(path), "other", 2 * EVERY)
        await other.aclose()
        store = SqliteStore(path)
        harness = Harness(ScriptedModel([]), store=store)
        fork = await harness.thread("t").fork(at=LONG + 2)
        held, state = await store.open_folded(fork.id, holder="me")
        assert state.cancelled == SECRET
        await held.append(*islice(happenings(10, 2), EVERY))
        await held.aclose()
        await store.aclose()
        store = SqliteStore(path)
        await store.erase("t", seqs=seqs)
        await store.aclose()
        assert {file.name for file in tmp_path.iterdir() if SECRET.encode() in file.read_bytes()} == set()
        assert kept(path) == [EVERY, 2 * EVERY]  # those of the other thread
        if seqs is not None:
            await state_at(path, "t")
            await state_at(path, fork.id)

    run(scenario())


def test_a_fold_made_before_an_erasure_is_not_kept_after_it(tmp_path: Path) -> None:
    """One process folds, another erases, then the first wants to keep what it has."""
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        await built(path, Cancelled(at=1.0, why=SECRET))
        change(path, "DROP TABLE folds")
        store = SqliteStore(path)
        found = await store._reader.run(store._folder.job("t"))
        assert found.due
        await store.erase("t", seqs=[LONG + 2])
        store._folder.keep(found)
        await store.aclose()
        assert kept(path) == []

    run(scenario())


def test_an_encrypted_store_seals_them_and_another_key_drops_them(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    old, new = ToyCipher(b"old"), ToyCipher(b"new")

    async def scenario() -> None:
        await built(path, cipher=old)
        assert kept(path)
        with closing(sqlite3.connect(path)) as connection:
            sealed = [state for (state,) in connection.execute("SELECT state FROM folds")]
        assert not any(b"question" in one or b"scripted" in one for one in sealed)
        before = await state_at(path, "t", cipher=old)
        await rekey(path, old=old, new=new)
        assert kept(path) == []
        assert await state_at(path, "t", cipher=new) == before
        assert kept(path)

    run(scenario())


def test_copies_have_the_same_state(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        await built(path)
        store = SqliteStore(path)
        await store.backup(tmp_path / "copy.db")
        lines = [line async for line in export_lines(store, "t")]
        state = await store.state("t")
        await store.aclose()
        other = SqliteStore(tmp_path / "other.db")
        await import_lines(other, lines)
        await other.aclose()
        assert kept(tmp_path / "other.db") == []
        for copy in ("copy.db", "other.db"):
            assert await state_at(tmp_path / copy, "t") == state

    run(scenario())


def test_the_messages_of_a_result_can_be_read_after_the_store_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        await built(path)
        store = SqliteStore(path)
        result = await Harness(ScriptedModel(["Good."]), store=store).thread("t").run("How is it?")
        other = await store.state("t")
        events = await store.read("t")
        await store.aclose()
        assert result.transcript == fold(events).transcript
        assert result.transcript.first == fold(events).transcript.first
        path.rename(tmp_path / "elsewhere.db")
        with pytest.raises(StoreError, match=r"evener\.db"):
            _ = other.transcript.messages
        assert len(other.transcript) == len(result.transcript)

    run(scenario())


def test_a_model_is_asked_with_the_whole_conversation(tmp_path: Path) -> None:
    """With media from the blob store far back, which are put in for the request."""
    path = tmp_path / "evener.db"

    async def scenario() -> None:
        store = SqliteStore(path)
        digest = await store.put_blob(b"a picture")
        picture = ImageBlock(Stored(digest, 9), "image/png")
        log = await store.create("t", opened(), holder="me")
        first, *more = islice(happenings(*KINDS["many runs"]), LONG)
        looked = Message("user", (TextBlock("Look."), picture))
        await log.append(first, Prompted(at=1.0, run="r", message=looked), *more)
        await log.aclose()
        await store.aclose()
        store = SqliteStore(path)
        model = ScriptedModel(["Good."])
        await Harness(model, store=store).thread("t").run("How is it?")
        messages = model.asks[0].transcript.messages
        [shown] = [block for block in messages[0].blocks if isinstance(block, ImageBlock)]
        assert isinstance(shown.source, Inline)
        assert len(messages) == len((await store.state("t")).transcript) - 1
        await store.aclose()

    run(scenario())


def test_a_server_gets_the_whole_conversation(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    async def scenario(url: str) -> int:
        await built(path)
        store = SqliteStore(path)
        model = open_model("openai:gpt-5.5", key="no key", base_url=url)
        result = await Harness(model, store=store).thread("t").run("How is it?")
        assert result.text == "Good."
        await store.aclose()
        return len(result.transcript)

    with FakeServer("openai_responses", ["Good."], models=("gpt-5.5",)) as server:
        messages = run(scenario(server.url))
        assert [rejected.violations for rejected in server.rejected] == []
        [request] = server.requests
        assert request.body.count(b"function_call_output") > messages // 6


def test_a_decision_and_a_scratchpad_of_a_long_thread_are_those_of_its_events(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"

    @tool(effect="write", approval=True)
    def pay() -> str:
        """Pays."""
        return "Paid."

    def harness(store: SqliteStore, *script: Line) -> Harness:
        return Harness(ScriptedModel(script), store=store, tools=[pay], scratchpad=True)

    async def scenario() -> None:
        await built(path)
        note = ToolCall.of("n", "scratchpad", {"action": "append", "section": "plan", "text": "It rains."})
        store = SqliteStore(path)
        noted = await harness(store, calls(note), "Noted.").thread("t").run("Note that it rains.")
        assert noted.scratchpad
        await fill_on(store, EVERY)
        await store.aclose()
        store = SqliteStore(path)
        waiting = await harness(store, calls(ToolCall.of("p", "pay", {}))).thread("t").run("Pay.")
        assert waiting.scratchpad == noted.scratchpad
        await store.aclose()
        store = SqliteStore(path)
        thread = harness(store, "Done.").thread("t")
        await thread.decide({waiting.approvals[0].key: Decision("allow")})
        done = await thread.resume()
        assert (done.text, [record.call.id for record in done.records], done.scratchpad) == ("Done.", ["p"], noted.scratchpad)
        await store.aclose()
        await state_at(path, "t")

    run(scenario())


async def fill_on(store: SqliteStore, events: int) -> None:
    """Let more happen in the log `t`."""
    log, _ = await store.open("t", holder="me", after=0)
    await log.append(*islice(happenings(10, 2), events))
    await log.aclose()


def test_killed_while_it_folds_a_store_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "evener.db"
    run(built(path))
    code = (
        "import asyncio, sys\n"
        "from evener.store import SqliteStore\n"
        "async def go():\n"
        "    while True:\n"
        "        store = SqliteStore(sys.argv[1])\n"
        "        await store.state('t')\n"
        "        await store._writer.run(lambda connection: connection.execute('DELETE FROM folds').rowcount)\n"
        "        print('folded', flush=True)\n"
        "        await store.aclose()\n"
        "asyncio.run(go())\n"
    )
    dice = Random(7)
    for _ in range(4):
        child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        for _ in range(dice.randrange(1, 4)):
            assert child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        child.wait(PATIENCE)
        child.stdout.close()
        run(state_at(path, "t"))

    async def verified() -> None:
        store = SqliteStore(path)
        assert await store.verify() == []
        await store.aclose()

    asyncio.run(verified())
