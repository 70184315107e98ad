"""Threads are found again: by title, by tags, and by what was said in them. The same in every store."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evener.errors import BadValue
from evener.store import MemoryStore, SqliteStore
from evener.store.protocol import NoLog
from evener.store.redaction import UNREADABLE, Funnel
from tests.store.extras.stores import KINDS, AnyStore, answered, asked, fork_of, returned
from tests.store.stores import Clock, opened, run, said


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AnyStore]:
    made = KINDS[request.param](tmp_path, Clock())
    yield made
    run(made.aclose())


def test_title_and_tags_are_the_threads(store: AnyStore) -> None:
    async def scenario() -> None:
        await (await store.create("a", opened("t"), holder="me")).aclose()
        await store.create("b", opened("t2"), holder="me")
        await store.describe("t", title="  A trip\n to  Rome ", tags=["travel", "italy", "travel", " "])
        await fork_of(store, "a", 1, "c")
        await store.describe("t", tags=None)
        found = {summary.log: (summary.title, summary.tags) for summary in await store.logs()}
        assert found == {
            "a": ("A trip to Rome", ("italy", "travel")),
            "b": ("", ()),
            "c": ("A trip to Rome", ("italy", "travel")),
        }
        await store.describe("c", title="Paris")
        assert {summary.title for summary in await store.logs(thread="t")} == {"Paris"}
        await store.describe("t", title="", tags=[])
        assert [(summary.title, summary.tags) for summary in await store.logs(thread="t")] == [("", ())] * 2

    run(scenario())


def test_what_cannot_be_a_title_or_a_tag_is_refused(store: AnyStore) -> None:
    async def scenario() -> None:
        await store.create("a", opened("t"), holder="me")
        with pytest.raises(NoLog):
            await store.describe("nowhere", title="x")
        with pytest.raises(BadValue, match="title"):
            await store.describe("t", title="x" * 201)
        with pytest.raises(BadValue, match="title"):
            await store.describe("t", title="bell \a")
        with pytest.raises(BadValue, match="tag"):
            await store.describe("t", tags=["x" * 65])
        with pytest.raises(BadValue, match="32"):
            await store.describe("t", tags=map(str, range(33)))
        with pytest.raises(BadValue, match="several"):
            await store.describe("t", tags="one")
        assert [(summary.title, summary.tags) for summary in await store.logs()] == [("", ())]

    run(scenario())


async def talk(store: AnyStore) -> None:
    log = await store.create("a", opened("t"), holder="me")
    await log.append(asked("Where is the “Größe” of C:\\temp?"), answered('It said "hello\tworld" there.'))
    await log.append(returned("total 12\n-rw-r--r-- notes.txt"), said("not a word of this: hello"))
    await log.aclose()
    other = await store.create("b", opened("t2"), holder="me")
    await other.append(asked("Hello again, hello world " + "x" * 500 + " needle " + "y" * 500, 9.0))
    await store.describe("t2", title="About hello", tags=["greetings"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("GRÖSSE", []),
        ("größe", [("a", 2)]),
        ("HELLO", [("b", 0), ("b", 2), ("a", 3)]),
        ("hello world", [("b", 2), ("a", 3)]),
        ('"hello world"', [("b", 2)]),
        ("world again", [("b", 2)]),
        ("notes.txt total", [("a", 4)]),
        ("c:\\temp", [("a", 2)]),
        ("greet", [("b", 0)]),
        ("about greetings", [("b", 0)]),
        ("prompted", []),
        ("nothing of the kind", []),
    ],
)
def test_words_and_phrases_are_found_where_they_were_said(store: AnyStore, text: str, found: list[tuple[str, int]]) -> None:
    async def scenario() -> None:
        await talk(store)
        hits = await store.search(text)
        assert [(hit.summary.log, hit.seq) for hit in hits] == found

    run(scenario())


def test_an_excerpt_shows_the_hit_and_not_the_whole(store: AnyStore) -> None:
    async def scenario() -> None:
        await talk(store)
        [hit] = await store.search("Needle")
        assert "needle" in hit.excerpt
        assert len(hit.excerpt) < 150
        assert hit.excerpt.startswith("...")
        assert hit.excerpt.endswith("...")
        assert hit.summary.title == "About hello"
        [hit] = await store.search("Größe")
        assert hit.excerpt == "Where is the “Größe” of C:\\temp?"

    run(scenario())


def test_a_search_has_a_limit_and_needs_a_word(store: AnyStore) -> None:
    async def scenario() -> None:
        await talk(store)
        assert [hit.seq for hit in await store.search("hello", limit=2)] == [0, 2]
        for text in ("", "  ", '""', "x" * 1001):
            with pytest.raises(BadValue, match="at least one word"):
                await store.search(text)

    run(scenario())


def test_a_search_goes_through_every_page(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = SqliteStore(tmp_path / "evener.db")
        log = await store.create("a", opened("t"), holder="me")
        await log.append(asked("the first needle"))
        await log.append(*(answered(f"straw {number}") for number in range(2_500)))
        await log.append(asked("the last needle"))
        assert [hit.seq for hit in await store.search("needle")] == [2503, 2]
        assert len(await store.search("straw", limit=1_500)) == 1_500
        await store.aclose()

    run(scenario())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET version = 99 WHERE seq = 2 AND log = 2",
        "UPDATE events SET payload = CAST('needle{' AS BLOB) WHERE seq = 2 AND log = 2",
        "UPDATE events SET payload = 'needle' WHERE seq = 2 AND log = 2",
        "UPDATE events SET payload = 5 WHERE seq = 2 AND log = 2",
    ],
)
def test_an_event_that_cannot_be_read_hides_no_other(tmp_path: Path, change: str) -> None:
    async def scenario() -> None:
        path = tmp_path / "evener.db"
        store = SqliteStore(path)
        for name in ("one", "two", "three"):
            log = await store.create(name, opened(name), holder="me")
            await log.append(asked("a needle"))
            await log.aclose()
        hits = await store.search("needle")
        assert ([hit.summary.log for hit in hits], hits.unread) == (["three", "two", "one"], 0)
        await store.aclose()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(change)
        store = SqliteStore(path)
        hits = await store.search("needle")
        assert ([hit.summary.log for hit in hits], hits.unread) == (["three", "one"], 1)
        await store.aclose()

    run(scenario())


def test_a_title_that_is_no_text_hides_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "evener.db"
        store = SqliteStore(path)
        for name in ("one", "two"):
            await (await store.create(name, opened(name), holder="me")).aclose()
            await store.describe(name, title=f"title {name}", tags=["tag"])
        await store.aclose()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE logs SET title = x'ff' WHERE log = 'one'")
            connection.execute("UPDATE tags SET tag = x'ff' WHERE thread = 'two'")
        store = SqliteStore(path)
        assert {(one.title, one.tags) for one in await store.logs()} == {(UNREADABLE, ("tag",)), ("title two", (UNREADABLE,))}
        assert [hit.summary.log for hit in await store.search("title")] == ["two"]
        found = [(one.log, one.what) for one in await store.verify()]
        assert found == [("one", "A title of it cannot be read."), ("two", "A tag of it cannot be read.")]
        assert await store.verify("two") != await store.verify("one") != []
        await store.aclose()

    run(scenario())


def test_titles_and_tags_pass_the_funnel(tmp_path: Path) -> None:
    async def scenario() -> None:
        for store in (
            MemoryStore(funnel=Funnel(secrets=lambda: ["sk-Title-123456"])),
            SqliteStore(tmp_path / "evener.db", funnel=Funnel(secrets=lambda: ["sk-Title-123456"])),
        ):
            await store.create("a", opened("t"), holder="me")
            await store.describe("t", title="the sk-Title-123456", tags=["sk-Title-123456!"])
            [summary] = await store.logs()
            assert (summary.title, summary.tags) == ("the [secret]", ("[secret]!",))
            await store.aclose()

    run(scenario())
