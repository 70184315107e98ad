"""What only a store on PostgreSQL has: a server that dies, roles, notices, several machines' clocks, and copies from files."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from evener import Harness, tool
from evener.cli import main
from evener.cli.stores import without_password
from evener.errors import BadValue, StoreError, UsageError
from evener.store import LeaseHeld, LeaseLost, Note, SqliteStore, export_lines, import_lines
from evener.store.postgres import PostgresStore
from evener.store.postgres.connection import StoreUnreachable
from evener.store.postgres.schema import STEPS, grants, upgrade
from evener.store.redaction import Funnel
from evener.testing import ScriptedModel, calls
from evener.testing.postgres import PostgresServer
from evener.transcript.blocks import ToolCall
from tests.patience import PATIENCE
from tests.store.stores import QUICK, Clock, new_schema, opened, postgres, run, said, texts

OUTAGE = 18
"""So many reads of 0.2 seconds fail. A pool of psycopg then waits for four more seconds before it connects again."""


@asynccontextmanager
async def stores(count: int = 1, **named: object) -> AsyncIterator[list[PostgresStore]]:
    """Several stores on one schema: to the server they are so many processes."""
    schema = new_schema()
    made = [PostgresStore(postgres().address, schema=schema, **named) for _ in range(count)]  # type: ignore[arg-type]
    try:
        yield made
    finally:
        for store in made:
            await store.aclose()


def execute(statement: str, *values: object, schema: str = "evener") -> list[tuple[object, ...]]:
    import psycopg

    with psycopg.connect(postgres().address, autocommit=True, options=f"-c search_path={schema}") as connection:
        done = connection.execute(statement.encode(), values)
        return done.fetchall() if done.description else []


def test_a_note_from_another_process_is_heard() -> None:
    async def scenario() -> None:
        async with stores(2) as (mine, other):
            log = await mine.create("a", opened(), holder="me")
            while not mine._notices.is_quiet(1):  # until it hears
                assert await log.notes() == []
                await asyncio.sleep(0.01)
            await other.post("a", Note("k", "steer", '{"text":"ä"}'))
            while mine._notices.is_quiet(1):
                await asyncio.sleep(0.01)
            assert [note.key for note in await log.notes()] == ["k"]
            await log.settle(1, said("heard"))
            assert await log.notes() == []

    run(scenario())


def test_staged_events_are_written_first_and_a_note_stops_what_would_follow() -> None:
    async def scenario() -> None:
        async with stores() as (store,):
            log = await store.create("a", opened(), holder="me")
            assert log.stage(said("one")) == (said("one"),)
            assert await log.append_unless_noted(said("two")) == (said("two"),)
            await store.post("a", Note("k", "steer"))
            log.stage(said("three"))
            assert await log.append_unless_noted(said("four")) is None
            assert texts(await store.read("a")) == ["one", "two", "three"]
            assert await store.verify() == []

    run(scenario())


def test_a_holder_on_another_machine_is_replaced_when_its_lease_is_over_and_writes_nothing_then() -> None:
    async def scenario() -> None:
        clock = Clock()
        async with stores(2, clock=clock, lease=30.0) as (old, new):
            log = await old.create("a", opened(), holder="me")
            with pytest.raises(LeaseHeld):
                await new.open("a", holder="you")
            clock.now += 31
            taken, _ = await new.open("a", holder="you")
            with pytest.raises(LeaseLost, match="'you' took over"):
                await log.append(said("stale"))
            await taken.append(said("fresh"))
            assert texts(await old.read("a")) == ["fresh"]

    run(scenario())


def test_the_server_s_clock_counts_and_not_the_machine_s() -> None:
    async def scenario() -> None:
        async with stores(2) as (store, other):
            log = await store.create("a", opened(), holder="me")
            assert abs(store._clock() - other._clock()) > 1_000  # not asked yet
            with pytest.raises(LeaseHeld):
                await other.open("a", holder="you")
            assert abs(store._clock() - other._clock()) < 60
            await log.aclose()

    run(scenario())


def test_many_stores_write_many_logs_without_waiting_for_each_other() -> None:
    async def write(store: PostgresStore, name: str) -> None:
        log = await store.create(name, opened(), holder="me")
        for number in range(5):
            await log.append(said(f"{number}"), said("+"))
        await log.aclose()

    async def scenario() -> None:
        async with stores(3) as several:
            await asyncio.gather(*(write(store, f"{place}.{one}") for place, store in enumerate(several) for one in range(20)))
            assert len(await several[0].logs()) == 60
            assert await several[1].verify() == []

    run(scenario())


def test_a_server_that_is_killed_and_comes_back_loses_nothing_and_the_holder_goes_on() -> None:
    postgres()  # skips where there is none

    async def scenario(server: PostgresServer) -> None:
        store = PostgresStore(server.address, busy=PATIENCE)
        log = await store.create("a", opened(), holder="me")
        for number in range(3):
            await log.append(said(f"before {number}"))
            server.kill()
            writing = asyncio.create_task(log.append(said(f"after {number}")))
            await asyncio.to_thread(server.start)
            await writing
        assert texts(await store.read("a")) == [f"{when} {number}" for number in range(3) for when in ("before", "after")]
        assert await store.verify() == []
        await store.aclose()

    with PostgresServer(within=QUICK) as server:
        run(scenario(server))


def test_after_an_outage_that_outlasts_our_patience_a_store_reads_and_erases_at_once() -> None:
    async def scenario() -> None:
        with PostgresServer(within=QUICK) as server:
            store = PostgresStore(server.address, busy=0.2)
            await (await store.create("a", opened("a"), holder="me")).aclose()
            await store.read("a")
            server.kill()
            for _ in range(OUTAGE):
                with pytest.raises(StoreUnreachable):
                    await store.read("a")
            server.start()
            assert len(await store.read("a")) == 1
            assert await store.erase("a") == 1
            await store.aclose()

    run(scenario())


def test_what_broke_before_its_commit_was_sent_is_done_again() -> None:
    async def scenario() -> None:
        async with stores() as (store,):
            await (await store.create("a", opened(), holder="me")).aclose()
            for number in range(3):
                execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'evener'")
                assert await store.post("a", Note(f"k{number}", "steer"))  # the connection was idle when it was cut
            log, _ = await store.open("a", holder="me")
            assert [note.key for note in await log.notes()] == ["k0", "k1", "k2"]

    run(scenario())


def test_a_server_that_stays_away_is_said_so_without_the_password(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = PostgresStore(f"postgresql://me:hunter2secret@/db?host={tmp_path}", busy=0.2)
        with pytest.raises(StoreUnreachable, match="did not answer") as caught:
            await store.read("a")
        shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
        assert "hunter2" not in f"{caught.value!r}{store!r}{''.join(shown.format())}"
        assert caught.value.__context__ is None  # the frames of psycopg have the address among their locals
        assert Funnel().text("The password is hunter2secret.") == "The password is [secret]."
        await store.aclose()

    run(scenario())


def test_a_command_to_resume_does_not_show_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    address = postgres().address.replace("postgres@", "postgres:hunter2secret@")

    async def scenario() -> None:
        store = PostgresStore(address)
        await (await store.create("to-resume", opened("to-resume"), holder="me")).aclose()
        await store.aclose()

    run(scenario())
    assert main(["resume", "--store", f"{address}&sslpassword=hunter2secret&pass%77ord=hunter2secret", "to-resume"]) == 2
    said = capsys.readouterr().err
    assert "evener run --store 'postgresql://postgres@/postgres?host=" in said
    assert "hunter2" not in said


DAMAGE = {
    "payload": "UPDATE events SET payload = '\\x7b7d' WHERE seq = 3",
    "missing": "DELETE FROM events WHERE seq = 3",
    "end": "DELETE FROM events WHERE seq = 4",
    "swapped": "UPDATE events SET seq = 7 - seq WHERE seq IN (3, 4)",
    "length": "UPDATE logs SET length = 3",
    "head": "UPDATE heads SET log = 'b'",
    "settled": "UPDATE inbox SET settled = 99",
    "blob": "UPDATE blobs SET content = 'x'",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_not_read_as_truth(damage: str) -> None:
    async def scenario() -> None:
        async with stores() as (store,):
            log = await store.create("a", opened("a"), holder="me")
            await store.create("b", opened("b"), holder="me")
            await log.append(said("one"), said("two"), said("three"))
            await store.move_head("a", "a")
            await store.post("a", Note("k", "steer"))
            await store.put_blob(b"abc")
            assert await store.verify() == []
            schema = store._dial._schema
            if damage == "swapped":
                execute("ALTER TABLE events DROP CONSTRAINT events_pkey", schema=schema)
            execute(DAMAGE[damage], schema=schema)
            assert any(finding.damage for finding in await store.verify())
            if damage in ("payload", "missing", "end", "swapped"):
                with pytest.raises(StoreError, match="damaged"):
                    await store.read("a")

    run(scenario())


def test_threads_move_between_a_file_and_a_database_and_are_the_same(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with stores() as (database,):
            file = SqliteStore(tmp_path / "evener.db")
            log = await file.create("a", opened("a"), holder="me")
            await log.append(said("one"), said("two " + await file.put_blob(b"abc")))
            await log.aclose()
            await file.describe("a", title="Moon", tags=["cheese"])
            lines = [line async for line in export_lines(file, "a")]
            await import_lines(database, iter(lines))
            assert [line async for line in export_lines(database, "a")] == lines
            assert await database.verify() == []
            assert [found.summary.title for found in await database.search("moon")] == ["Moon"]
            await database.backup(tmp_path / "back.db")
            back = SqliteStore(tmp_path / "back.db")
            assert await back.read("a") == await file.read("a")
            assert await back.link("a") == await database.link("a")
            await back.aclose()
            await file.aclose()

    run(scenario())


def test_the_command_line_copies_lists_and_verifies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import psycopg

    with psycopg.connect(postgres().address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE copies")
    address = postgres().address.replace("/postgres?", "/copies?")

    async def scenario() -> None:
        file = SqliteStore(tmp_path / "evener.db")
        for name in "ab":
            await (await file.create(name, opened(name), holder="me")).append(said(name))
        await file.aclose()

    run(scenario())
    source = str(tmp_path / "evener.db")
    assert main(["copy", "--from", source, "--to", address]) == 0
    assert sorted(capsys.readouterr().out.split()) == ["a", "b"]
    assert main(["verify", "--store", address]) == 0
    assert "2 logs verified" in capsys.readouterr().err
    assert main(["copy", "a", "--from", address, "--to", str(tmp_path / "new.db")]) == 0
    assert main(["threads", "--json", "--store", str(tmp_path / "new.db")]) == 0
    assert '"a"' in capsys.readouterr().out
    assert main(["copy", "--from", source, "--to", source]) == 2


def test_a_copy_goes_on_after_a_thread_that_the_new_store_has_with_other_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = str(tmp_path / "evener.db"), str(tmp_path / "new.db")

    async def add(name: str, path: str) -> None:
        store = SqliteStore(path)
        log, _ = await store.open(name, holder="me")
        await log.append(said("more"))
        await store.aclose()

    async def make(name: str) -> None:
        store = SqliteStore(source)
        await (await store.create(name, opened(name), holder="me")).aclose()
        await store.aclose()

    for name in "ab":
        run(make(name))
    assert main(["copy", "--from", source, "--to", target]) == 0
    run(add("a", source))
    run(add("b", source))
    run(make("c"))
    capsys.readouterr()
    assert main(["copy", "--from", source, "--to", target]) == 1
    said_then = capsys.readouterr()
    assert said_then.out.split() == ["c"]
    assert said_then.err.count("with other content") == 2
    assert "Copied 1 thread, and not 2" in said_then.err


def test_a_harness_takes_the_address_of_a_database() -> None:
    @tool
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def scenario() -> None:
        async with stores() as (store,):
            harness = Harness(ScriptedModel([calls(ToolCall("c", "add", '{"a": 1, "b": 2}')), "3"]), tools=[add], store=store)
            result = await harness.run("1 + 2?")
            assert result.text == "3"
            assert await store.verify() == []
        named = Harness(ScriptedModel([]), store=postgres().address).store
        assert isinstance(named, PostgresStore)
        await named.aclose()

    run(scenario())


def test_roles_have_the_least_rights() -> None:
    async def scenario(address: str) -> None:
        schema = new_schema()
        owner = PostgresStore(address, schema=schema)
        await owner.logs()
        for role in ('"Shop-Works"', "looks"):
            execute(f"DROP ROLE IF EXISTS {role}")
            execute(f"CREATE ROLE {role} LOGIN")
        for statement in grants(schema, worker="Shop-Works", reader="looks"):
            execute(statement)
        worker = PostgresStore(address.replace("postgres@", "Shop-Works@"), schema=schema)
        reader = PostgresStore(address.replace("postgres@", "looks@"), schema=schema)
        log = await worker.create("a", opened("a"), holder="me")
        await log.append(said("one"))
        await worker.post("a", Note("k", "steer"))
        await log.aclose()
        assert texts(await reader.read("a")) == ["one"]
        for call in (reader.open("a", holder="me"), reader.post("a", Note("l", "steer")), reader.put_blob(b"abc")):
            with pytest.raises(StoreError, match="does not grant this role the rights"):
                await call
        import psycopg

        with psycopg.connect(address.replace("postgres@", "Shop-Works@"), options=f"-c search_path={schema}") as connection:
            for statement in ("UPDATE events SET chain = 'x'", "DELETE FROM events", "DROP TABLE events", "DELETE FROM logs"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement.encode())
                connection.rollback()
        assert await worker.erase("a") == 2
        for store in (owner, worker, reader):
            await store.aclose()
        for statement in (f"DROP SCHEMA {schema} CASCADE", 'DROP ROLE "Shop-Works"', "DROP ROLE looks"):
            execute(statement)

    run(scenario(postgres().address))


def test_tables_of_a_newer_evener_are_left_alone_and_older_ones_are_upgraded() -> None:
    import psycopg

    async def scenario() -> None:
        async with stores() as (store,):
            await store.logs()
            schema = store._dial._schema
            with psycopg.connect(postgres().address, autocommit=True, options=f"-c search_path={schema}") as connection:
                upgrade(connection, schema, [*STEPS, ("CREATE TABLE later (one int)",)])
                assert connection.execute("SELECT count(*) FROM later").fetchone() == (0,)
            newer = PostgresStore(postgres().address, schema=schema)
            with pytest.raises(StoreError, match=f"version {len(STEPS) + 1}"):
                await newer.logs()
            await newer.aclose()

    run(scenario())
    with pytest.raises(BadValue, match="lower-case"):
        PostgresStore("postgresql://", schema='x"; DROP TABLE logs')


async def refused(address: str, **named: object) -> str:
    """Return what a store says that cannot be used."""
    store = PostgresStore(address, **named)  # type: ignore[arg-type]
    try:
        with pytest.raises(StoreError) as caught:
            await store.create("a", opened("a"), holder="me")
        assert not isinstance(caught.value, StoreUnreachable)
        return str(caught.value)
    finally:
        await store.aclose()


def test_a_server_that_refuses_a_connection_is_not_taken_for_one_that_is_away() -> None:
    async def scenario(address: str) -> None:
        for role, limit in (("full", 0), ("outside", 9)):
            execute(f"DROP ROLE IF EXISTS {role}")
            execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT {limit}")
        assert "no database of that name" in await refused(address.replace("/postgres?", "/nowhere?"))
        assert "does not let this user in" in await refused(address.replace("postgres@", "nobody@"))
        assert "short of memory or connections" in await refused(address.replace("postgres@", "full@"), busy=0.1)
        async with stores() as (store,):
            await store.logs()
            schema = store._dial._schema
            assert "does not grant this role the rights" in await refused(
                address.replace("postgres@", "outside@"), schema=schema
            )
        for role in ("full", "outside"):
            execute(f"DROP ROLE {role}")

    run(scenario(postgres().address))


def test_readers_say_why_they_get_no_connection() -> None:
    async def scenario(address: str) -> None:
        execute("DROP ROLE IF EXISTS narrow")
        execute("CREATE ROLE narrow LOGIN CONNECTION LIMIT 1")
        execute("GRANT CREATE ON DATABASE postgres TO narrow")
        schema = new_schema()
        store = PostgresStore(address.replace("postgres@", "narrow@"), schema=schema, busy=0.5)
        log = await store.create("a", opened("a"), holder="me")  # the writer has the one connection
        with pytest.raises(StoreError, match="short of memory or connections"):
            await store.read("a")
        await log.aclose()
        await store.aclose()
        for statement in (f"DROP SCHEMA {schema} CASCADE", "DROP OWNED BY narrow", "DROP ROLE narrow"):
            execute(statement)

    run(scenario(postgres().address))


@pytest.mark.parametrize(("encoding", "harness"), [("SQL_ASCII", "ä 中 🙂"), ("LATIN1", "ä")])
def test_a_database_may_have_another_encoding(encoding: str, harness: str) -> None:
    async def scenario(address: str) -> None:
        name = f"other_{encoding.lower()}"
        execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
        there = address.replace("/postgres?", f"/{name}?")
        store = PostgresStore(there)
        agent = Harness(ScriptedModel(["ö 中 🙂"]), store=store, name=harness)
        result = await agent.run("ü 中 🙂")
        again = PostgresStore(there)
        [summary] = await again.logs()
        assert (summary.log, summary.harness) == (result.thread, harness)
        state = await agent.thread(result.thread).state()
        assert [message.text for message in state.transcript] == ["ü 中 🙂", "ö 中 🙂"]
        if encoding == "LATIN1":
            with pytest.raises(StoreError, match="Use a database with the encoding UTF8"):
                await Harness(ScriptedModel(["x"]), store=store, name="中").run("x")
        for one in (store, again):
            await one.aclose()
        execute(f"DROP DATABASE {name}")

    run(scenario(postgres().address))


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_database_can_hold_is_told_as_such(name: str) -> None:
    async def scenario() -> None:
        async with stores() as (store,):
            with pytest.raises(StoreError, match=r"cannot hold NUL or a lone surrogate .* \(SQLSTATE 22021\)"):
                await store.create(name, opened(name), holder="me")

    run(scenario())


@pytest.mark.parametrize("setting", ["extra_float_digits = 0", "synchronous_commit = off", "search_path = nowhere"])
def test_settings_of_the_database_and_the_address_do_not_change_what_is_kept(setting: str) -> None:
    async def scenario(address: str) -> None:
        execute("CREATE DATABASE other_settings")
        execute(f"ALTER DATABASE other_settings SET {setting}")
        there = address.replace("/postgres?", "/other_settings?") + "&options=-c%20work_mem%3D8MB"
        store = PostgresStore(there)
        log = await store.create("a", opened(at=1795004645.2820499), holder="me")
        await log.append(said("one", at=1795004645.2820502))
        await log.aclose()
        assert texts(await store.read("a")) == ["one"]
        assert await store.verify() == []
        names = ("synchronous_commit", "search_path", "work_mem")
        for read in (store._read, store._write):
            found = await read(lambda connection: [connection.execute(f"SHOW {name}").fetchone()[0] for name in names])
            assert found == ["on", "evener", "8MB"]
        await store.aclose()
        execute("DROP DATABASE other_settings")

    run(scenario(postgres().address))


def test_a_role_that_owns_the_schema_needs_no_right_to_make_one() -> None:
    async def scenario(address: str) -> None:
        execute("DROP ROLE IF EXISTS owns")
        execute("CREATE ROLE owns LOGIN")
        schema = new_schema()
        execute(f"CREATE SCHEMA {schema} AUTHORIZATION owns")
        store = PostgresStore(address.replace("postgres@", "owns@"), schema=schema)
        await (await store.create("a", opened("a"), holder="me")).aclose()
        await store.aclose()
        for statement in (f"DROP SCHEMA {schema} CASCADE", "DROP ROLE owns"):
            execute(statement)

    run(scenario(postgres().address))


def test_a_schema_may_be_called_as_a_word_of_sql_and_one_of_another_program_is_left_alone() -> None:
    async def scenario(address: str) -> None:
        store = PostgresStore(address, schema="select")
        await (await store.create("a", opened("a"), holder="me")).aclose()
        await store.aclose()
        execute("CREATE SCHEMA foreign_program")
        execute("CREATE TABLE foreign_program.events (one int)")
        assert "tables in this schema that are not those of Evener" in await refused(address, schema="foreign_program")
        for schema in ('"select"', "foreign_program"):
            execute(f"DROP SCHEMA {schema} CASCADE")

    run(scenario(postgres().address))


@pytest.mark.parametrize("address", ["postgresql://[", "postgresql://u:se/cret@host/x", "postgresql://host/x?nonsense=1"])
def test_what_is_no_address_is_told_without_its_password(address: str) -> None:
    with pytest.raises(UsageError, match="not the address of a PostgreSQL database") as caught:
        PostgresStore(address)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert "cret" not in "".join(shown.format_exception_only())
    assert not any(address in repr(frame.locals) for frame in shown.stack if frame.name == "check_address")


@pytest.mark.parametrize("given", [" postgresql://u:hunter2@host/x", "postgresql:u:hunter2@host/x", "host=h password=hunter2"])
def test_a_misspelt_address_is_no_file_and_its_password_is_not_shown(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["threads", "--store", given]) == 2
    said = capsys.readouterr()
    assert "no path of a store file" in said.err
    assert "hunter2" not in said.err + said.out


def test_a_password_with_signs_that_libpq_takes_is_not_shown() -> None:
    for password in ("a#hunter2", "a?hunter2", "a:hunter2", "a@hunter2"):
        assert without_password(f"postgresql://u:{password}@host/x?sslmode=require") == "postgresql://u@host/x?sslmode=require"
