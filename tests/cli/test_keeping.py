"""`evener verify`, `export`, `import`, `replay`, `rm`, `retain`, `backup`: what is kept is whole, can move, and can go."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from evener import Harness
from evener.cli.commands.stored.store import parse_age
from evener.errors import UsageError
from evener.events import ApprovalAsked, CallPaused, Cancelled, Event, Opened, Prompted, Question
from evener.harness import Subagent
from evener.store import SqliteStore
from evener.testing import ScriptedModel, calls
from evener.transcript.blocks import ToolCall
from evener.transcript.message import Message
from tests.cli.kept import kept, more, said
from tests.cli.run import Home
from tests.cli.test_decide import terminal

PAY = calls(ToolCall.of("c1", "pay", {"amount": 5}))


def store_of(home: Home) -> Path:
    return home.folder / "evener" / "evener.db"


def tampered(home: Home, statement: str) -> None:
    with sqlite3.connect(store_of(home)) as connection:
        connection.execute(statement)
    connection.close()


def threads(home: Home, *words: str) -> list[str]:
    return [one["thread"] for one in json.loads(home.run("threads", "--json", *words).stdout)]


# verify


def test_a_whole_store_is_found_whole(home: Home) -> None:
    thread = said(home)
    for words in (("verify",), ("verify", thread[:8], "--json")):
        done = home.run(*words)
        assert done.returncode == 0, (done.stdout, done.stderr)
        assert b"damage" not in done.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET payload = CAST(replace(payload, 'tea', 'gin') AS BLOB) WHERE seq = 3",
        "UPDATE events SET kind = 'steered' WHERE seq = 3",
        "DELETE FROM events WHERE seq = 3",
    ],
)
def test_a_change_is_found_and_has_an_exit_code(statement: str, home: Home) -> None:
    thread, other = said(home), said(home, "Hi", "Hello.")
    tampered(home, f"{statement} AND log = 1")
    done = home.run("verify")
    assert done.returncode == 1, done.stderr
    assert done.stdout.decode().startswith(f"damage  {thread} event ")
    found = home.run("verify", thread, "--json")
    assert found.returncode == 1
    assert all(one["log"] == thread and one["damage"] and one["what"] for one in json.loads(found.stdout))
    assert home.run("verify", other).returncode == 0


def test_damage_on_any_branch_of_a_thread_is_found(home: Home) -> None:
    thread = said(home)
    branch = home.run("fork", thread).stdout.decode().strip()
    more(home, branch, "And coffee?", "None.")
    tampered(home, "UPDATE events SET payload = CAST(replace(payload, 'coffee', 'brandy') AS BLOB) WHERE log = 2")
    assert home.run("verify", thread).returncode == 1
    assert home.run("verify", branch).returncode == 1
    assert b"is damaged" in home.run("show", branch).stderr
    assert home.run("show", thread).returncode == 0


# export and import


def test_a_thread_goes_out_and_comes_in_again(home: Home) -> None:
    thread = said(home)
    branch = home.run("fork", thread).stdout.decode().strip()
    more(home, branch, "And coffee?", "None.")
    home.run("title", thread, "Tea")
    done = home.run("export", thread[:8], "-o", "tea.jsonl")
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
    file = home.folder / "tea.jsonl"
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    piped = home.run("export", thread)
    assert piped.stdout == file.read_bytes()
    assert all(isinstance(json.loads(line), dict) for line in piped.stdout.splitlines())
    taken = home.run("import", "tea.jsonl", "--store", "new.db")
    assert (taken.returncode, taken.stdout.decode().strip()) == (0, thread), taken.stderr
    assert f"evener show --store new.db {thread}" in taken.stderr.decode()
    for id in (thread, branch):
        assert home.run("show", id, "--store", "new.db").stdout == home.run("show", id).stdout
    assert home.run("verify", "--store", "new.db").returncode == 0
    stdin = home.run("import", "-", "--store", "third.db", stdin=piped.stdout)
    assert (stdin.returncode, stdin.stdout.decode().strip()) == (0, thread), stdin.stderr


def test_nothing_is_written_over_and_nothing_is_taken_in_twice(home: Home) -> None:
    thread = said(home)
    (home.folder / "tea.jsonl").write_text("mine", encoding="utf-8")
    done = home.run("export", thread, "-o", "tea.jsonl")
    assert (done.returncode, b"exists already" in done.stderr) == (2, True), done.stderr
    assert (home.folder / "tea.jsonl").read_text() == "mine"
    assert home.run("export", thread, "-o", "nowhere/tea.jsonl").returncode == 2
    lines = home.run("export", thread).stdout
    again = home.run("import", "-", stdin=lines)
    assert (again.returncode, again.stdout.decode().strip()) == (0, thread), "what is the same is there already"
    more(home, thread, "And coffee?", "None.")
    other = home.run("import", "-", stdin=lines)
    assert (other.returncode, other.stdout, b"Traceback" in other.stderr) == (1, b"", False), other.stderr
    assert b"And coffee?" in home.run("show", thread).stdout


@pytest.mark.parametrize("content", [b"", b"not JSON\n", b"[]\n", b'{"kind":"something"}\n', b"\xff\xfe\n", b"{" * 10_000])
def test_a_file_that_is_no_export_is_refused(content: bytes, home: Home) -> None:
    (home.folder / "file").write_bytes(content)
    done = home.run("import", "file")
    assert (done.returncode, done.stdout, b"Traceback" in done.stderr) == (2, b"", False), done.stderr
    assert kept(home, lambda store: store.logs()) == []


def test_a_file_that_is_not_there_is_said(home: Home) -> None:
    done = home.run("import", "no such file")
    assert (done.returncode, b"Cannot read no such file" in done.stderr) == (2, True), done.stderr


def test_an_export_that_was_changed_or_cut_is_refused_as_a_whole(home: Home) -> None:
    lines = home.run("export", said(home)).stdout
    cut = b"".join(lines.splitlines(keepends=True)[:-1])
    for spoiled in (lines.replace(b"tea", b"gin"), cut, lines[: len(lines) // 2]):
        done = home.run("import", "-", "--store", "new.db", stdin=spoiled)
        assert (done.returncode in (1, 2), done.stdout, b"Traceback" in done.stderr) == (True, b"", False), done.stderr
    assert threads(home, "--store", "new.db") == []


# replay


def test_a_replay_gives_the_same_events(home: Home) -> None:
    """S1.24."""
    for thread in (said(home), said(home, "Pay", PAY), said(home, "Go", PAY, turns=1)):
        done = home.run("replay", thread[:8])
        assert (done.returncode, b"they are the same" in done.stderr) == (0, True), (done.stdout, done.stderr)
        assert json.loads(home.run("replay", thread, "--json").stdout)["same"] is True


def test_a_replay_that_comes_out_otherwise_lists_the_differences(home: Home) -> None:
    async def planted(store: SqliteStore) -> None:
        held = await store.create("aaaa", Opened(at=1.0, thread="aaaa", harness="run"), holder="test")
        await held.append(Prompted(at=2.0, run="r", message=Message.user_text("Hi")))
        await held.append(Prompted(at=3.0, run="s", message=Message.user_text("Hi again, without an answer")))
        await held.append(Opened(at=4.0, thread="bbbb"))
        await held.aclose()

    kept(home, planted)
    done = home.run("replay", "aaaa")
    assert (done.returncode, done.stdout != b"", b"Traceback" in done.stderr) == (1, True, False), (done.stdout, done.stderr)
    assert json.loads(home.run("replay", "aaaa", "--json").stdout)["same"] is False


# rm, retain, backup


def test_rm_asks_and_erases_for_good(home: Home) -> None:
    thread, other = said(home, "The secret tea", "Oolong."), said(home, "Hi", "Hello.")
    silent = home.run("rm", thread)
    assert (silent.returncode, b"--yes" in silent.stderr) == (2, True), silent.stderr
    with terminal(home, "rm", thread[:8]) as seen:
        seen.until("Erase this for good? [y/n] ")
        assert "The secret tea" in seen.shown
        seen.type("n\n")
        assert seen.end() == 1
    assert threads(home) == [other, thread]
    with terminal(home, "rm", thread[:8]) as seen:
        seen.until("[y/n] ")
        seen.type("perhaps\n")
        seen.until("[y/n] ")
        seen.type("y\n")
        assert seen.end() == 0, seen.shown
    assert "Tombstones remain" in seen.shown
    assert threads(home) == [other]
    gone = home.run("show", thread)
    assert (gone.returncode, b"erased" in gone.stderr) == (1, True), gone.stderr
    assert home.run("verify").returncode == 0
    home.run("threads")  # whoever opens it last puts the log of changes into the file
    assert all(b"secret tea" not in path.read_bytes() for path in (home.folder / "evener").iterdir() if path.is_file())


def test_rm_takes_several_and_erases_none_if_one_is_unknown(home: Home) -> None:
    one, two = said(home), said(home, "Hi", "Hello.")
    assert home.run("rm", "--yes", one, "ffffffff").returncode == 2
    assert len(threads(home)) == 2
    done = home.run("rm", "--yes", one, two, one)
    assert (done.returncode, threads(home)) == (0, []), done.stderr


def test_rm_of_a_branch_leaves_the_thread(home: Home) -> None:
    thread = said(home)
    branch = home.run("fork", thread).stdout.decode().strip()
    more(home, branch, "And coffee?", "None.")
    done = home.run("rm", "--yes", branch)
    assert done.returncode == 0, done.stderr
    assert home.run("show", thread).returncode == 0
    assert b"And coffee?" not in home.run("show", branch).stdout


def test_rm_says_how_many_agents_go_with_a_thread(home: Home) -> None:
    """S3.4: what was told to an agent goes with the thread that told it."""

    async def asked(store: SqliteStore) -> str:
        clerk = Harness(ScriptedModel(["Bought."]), store=store)
        agent = Subagent(name="clerk", description="buys", harness=clerk)
        model = ScriptedModel([calls(ToolCall.of("c1", "clerk", {"task": "a private errand"})), "Done."])
        return (await Harness(model, store=store, agents=[agent]).run("Have it bought")).thread

    async def found(store: SqliteStore) -> int:
        return len(await store.search("errand"))

    thread = kept(home, asked)
    assert kept(home, found) > 0
    done = home.run("rm", "--yes", thread)
    assert (done.returncode, b", with 1 thread of subagents" in done.stderr) == (0, True), done.stderr
    assert kept(home, found) == 0


def test_retain_erases_what_is_old(home: Home) -> None:
    young = said(home)

    async def planted(store: SqliteStore) -> None:
        held = await store.create("old1", Opened(at=1.0, thread="old1"), holder="test")
        await held.append(Prompted(at=2.0, run="r", message=Message.user_text("Long ago")))
        await held.aclose()

    kept(home, planted)
    dry = home.run("retain", "--older-than", "90d", "--dry-run")
    assert (dry.returncode, b"old1" in dry.stderr, young.encode() in dry.stderr) == (0, True, False), dry.stderr
    assert sorted(threads(home)) == sorted([young, "old1"])
    assert home.run("retain", "--older-than", "90d").returncode == 2, "there is no terminal to ask on"
    done = home.run("retain", "--older-than", "90d", "--yes")
    assert (done.returncode, threads(home)) == (0, [young]), done.stderr
    again = home.run("retain", "--older-than", "90d", "--yes")
    assert (again.returncode, b"0 threads of that age" in again.stderr) == (0, True), again.stderr


def test_retain_leaves_what_waits_or_cannot_be_read_and_says_so(home: Home) -> None:
    async def planted(store: SqliteStore) -> None:
        question = ApprovalAsked(at=2.0, id="q", interrupt="tool", questions=(Question("c", "d"),))
        inside = CallPaused(at=2.0, call="c", thread="inner")
        planned: dict[str, Event] = {"old1": Cancelled(at=2.0), "asks": question, "inside": inside, "broken": Cancelled(at=2.0)}
        for name, event in planned.items():
            held = await store.create(name, Opened(at=1.0, thread=name), holder="test")
            await held.append(event)
            await held.aclose()

    kept(home, planted)
    tampered(home, "UPDATE events SET payload = x'7b7d' WHERE seq = 2 AND log = (SELECT number FROM logs WHERE log = 'broken')")
    dry = home.run("retain", "--older-than", "90d", "--dry-run")
    done = home.run("retain", "--older-than", "90d", "--yes")
    assert (dry.returncode, done.returncode) == (0, 0), done.stderr
    for told in (dry.stderr, done.stderr):
        assert b"asks  kept: it waits for a decision" in told, told
        assert b"inside  kept: it waits for a decision" in told, told
        assert b"broken  kept: it cannot be read" in told, told
    assert b"of 1 thread." in done.stderr
    assert sorted(threads(home)) == ["asks", "broken", "inside"]
    forced = home.run("retain", "--older-than", "90d", "--yes", "--force")
    assert (forced.returncode, threads(home), b"of 3 threads" in forced.stderr) == (0, [], True), forced.stderr


@pytest.mark.parametrize(("text", "seconds"), [("90d", 7776000), ("24h", 86400), (" 2w ", 1209600), ("1y", 31536000)])
def test_an_age_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert parse_age(text) == seconds


@pytest.mark.parametrize("text", ["", "d", "0d", "90", "-1d", "1.5d", "90m", "99999999d"])
def test_anything_else_is_no_age(text: str) -> None:
    with pytest.raises(UsageError, match="90d for ninety days"):
        parse_age(text)


def test_a_backup_is_a_store_of_its_own(home: Home) -> None:
    thread = said(home)
    done = home.run("backup", "copy.db")
    assert done.returncode == 0, done.stderr
    assert oct((home.folder / "copy.db").stat().st_mode & 0o777) == "0o600"
    assert home.run("show", thread, "--store", "copy.db").stdout == home.run("show", thread).stdout
    assert home.run("verify", "--store", "copy.db").returncode == 0
    twice = home.run("backup", "copy.db")
    assert (twice.returncode, b"Traceback" in twice.stderr) == (1, False), twice.stderr
    assert os.listdir(home.folder).count("copy.db") == 1
    assert b"evener threads --store 'a copy.db'" in home.run("backup", "a copy.db").stderr
