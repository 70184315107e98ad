"""`evener threads`, `show`, `tree`, `fork`, `title` and `tag`: real processes that look into a store, whole or broken."""

import asyncio
import json
import os
import re
import sqlite3
from pathlib import Path

import pytest

from evener import Harness
from evener.cli.glance import format_age
from evener.cli.names import match_id, short_ids
from evener.cli.terminal import flatten
from evener.errors import ServerError, UsageError
from evener.events import ModelCalled, Opened, Prompted
from evener.harness import Subagent
from evener.store import SqliteStore, Summary
from evener.testing import ScriptedModel, calls
from evener.testing.scripted_model import Line
from evener.transcript.blocks import ToolCall
from evener.transcript.message import Message
from tests.cli.kept import agent, kept, more, said
from tests.cli.run import Home

NOWHERE = "ffffffff"


def store_of(home: Home) -> Path:
    return home.folder / "evener" / "evener.db"


def listed(home: Home, *words: str) -> list[dict[str, object]]:
    done = home.run("threads", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, object]] = json.loads(done.stdout)
    return found


# threads


def test_a_list_names_each_thread_with_state_model_events_and_age(home: Home) -> None:
    done = said(home)
    waits = said(home, "Pay 5", calls(ToolCall.of("c1", "pay", {"amount": 5})))
    limit = said(home, "Go on", calls(ToolCall.of("c1", "lookup", {"item": "a"})), turns=1)
    failed = said(home, "Fail\nplease", ServerError("down", status=500))
    home.run("title", done, "Tea \x1b[31mstock")
    home.run("tag", done, "shop")
    shown = home.run("threads")
    assert (shown.returncode, shown.stderr) == (0, b""), shown.stderr
    head, *lines = shown.stdout.decode().splitlines()
    assert head.split() == ["ID", "STATE", "EVENTS", "BRANCHES", "AGE", "MODEL", "TITLE"]
    assert [line.split()[0] for line in lines] == [one[:8] for one in (failed, limit, waits, done)]
    states = ["failed", "stopped at a limit", "waits for approval", "done"]
    assert all(state in line for state, line in zip(states, lines, strict=True))
    assert all("anthropic:claude-opus-4-5" in line and " now " in line for line in lines)
    assert [line.endswith(end) for line, end in zip(lines, ["Fail please", "Go on", "Pay 5", "Tea stock #shop"], strict=True)]
    assert "\x1b" not in shown.stdout.decode()


def test_a_list_can_be_searched_filtered_and_cut(home: Home) -> None:
    tea, coffee = said(home, "Is there tea?", "Oolong is left."), said(home, "Is there coffee?", "Mocha is left.")
    home.run("tag", coffee, "drinks", "dark")
    assert [one["thread"] for one in listed(home)] == [coffee, tea]
    assert [one["thread"] for one in listed(home, "--search", "oolong")] == [tea]
    assert [one["thread"] for one in listed(home, "--tag", "drinks")] == [coffee]
    assert listed(home, "--tag", "drinks", "--search", "oolong") == []
    found = home.run("threads", "--search", "mocha left")
    assert re.search(rf"{coffee[:8]}  done .*Is there coffee\? .*\[\d+\] .*Mocha is left", found.stdout.decode())
    none = home.run("threads", "--search", "cocoa")
    assert (none.returncode, none.stdout, none.stderr) == (0, b"", b"No thread was found.\n")
    cut = home.run("threads", "--limit", "1")
    assert (len(cut.stdout.splitlines()), b"1 more not shown." in cut.stderr) == (2, True)
    assert len(listed(home, "--limit", "0")) == 2
    assert home.run("threads", "--limit", "-1").returncode == 2


def test_a_run_that_died_is_interrupted_and_one_that_goes_on_is_running(home: Home) -> None:
    async def begun(store: SqliteStore) -> None:
        for log, closes in (("aaaa", True), ("bbbb", False)):
            held = await store.create(log, Opened(at=1.0, thread=log, harness="run"), holder="test")
            await held.append(
                Prompted(at=2.0, run="r", message=Message.user_text("Hi")), ModelCalled(at=3.0, model="anthropic:m")
            )
            if closes:
                await held.aclose()
        states = {one["thread"]: one["state"] for one in await asyncio.to_thread(listed, home)}
        assert states == {"aaaa": "interrupted", "bbbb": "running"}

    kept(home, begun)
    assert {one["state"] for one in listed(home)} == {"interrupted"}, "the process that held it has let go of it"


def test_a_thread_with_branches_is_one_line(home: Home) -> None:
    thread = said(home)
    branch = home.run("fork", thread).stdout.decode().strip()
    more(home, branch, "And coffee?", "None.")
    [one] = listed(home)
    assert (one["thread"], one["branches"], one["log"], one["prompt"]) == (thread, 2, thread, "How much tea is left?")


@pytest.mark.parametrize("words", [("threads",), ("threads", "--json"), ("threads", "--search", "tea")], ids=" ".join)
def test_without_a_store_there_is_nothing_and_none_is_made(words: tuple[str, ...], home: Home) -> None:
    done = home.run(*words)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (b"[]\n" if "--json" in words else b"")
    assert not store_of(home).exists()
    kept(home, lambda store: store.logs())  # now there is one, which is empty
    again = home.run(*words)
    assert (again.returncode, again.stdout) == (0, done.stdout), again.stderr


# Ids.


def test_enough_of_how_an_id_begins_is_enough(home: Home) -> None:
    home.configure('model = "local:smollm2"')
    thread = said(home)
    assert home.run("show", thread[:8]).stdout == home.run("show", thread).stdout != b""
    wrong = thread[:7] + ("0" if thread[7] != "0" else "1")
    unknown = home.run("show", wrong)
    assert (unknown.returncode, unknown.stdout) == (2, b"")
    assert f"There is no thread '{wrong}'. Did you mean {thread}? `evener threads` lists all threads" in unknown.stderr.decode()
    for words in (("fork",), ("verify",), ("export",), ("replay",), ("rm", "--yes"), ("resume",), ("chat", "-r")):
        done = home.run(*words, NOWHERE)
        assert (done.returncode, b"There is no thread 'ffffffff'" in done.stderr) == (2, True), (words, done.stderr)
        assert b"Traceback" not in done.stderr


def test_an_id_that_could_mean_several_lists_them() -> None:
    logs = [Summary(log, log, "run", 1, 0.0, 0.0) for log in ("abc1", "abc2", "abcd", "b")]
    with pytest.raises(UsageError, match=r"More than one id starts with 'abc': abc1, abc2, abcd\. Give more of the id\."):
        match_id("abc", logs)
    assert match_id("abcd", logs) == "abcd"
    assert match_id("b", logs) == "b"
    with pytest.raises(UsageError, match="There is no thread ''"):
        match_id("", logs)
    many = [Summary(f"a{number}", "t", "", 1, 0.0, 0.0) for number in range(20)]
    with pytest.raises(UsageError, match="and 12 more"):
        match_id("a", many)


def test_short_ids_are_unique_and_mean_what_they_were_cut_from() -> None:
    ids = ["aaaaaaaaaa1", "aaaaaaaaaa2", "aaaaaaaaaa", "b", "cccccccccccc"]
    short = short_ids(ids)
    assert short == {
        "aaaaaaaaaa1": "aaaaaaaaaa1", "aaaaaaaaaa2": "aaaaaaaaaa2", "aaaaaaaaaa": "aaaaaaaaaa", "b": "b",
        "cccccccccccc": "cccccccc",
    }  # fmt: skip
    logs = [Summary(log, log, "", 1, 0.0, 0.0) for log in ids]
    assert [match_id(one, logs) for one in short.values()] == list(short)


@pytest.mark.parametrize(
    ("seconds", "words"), [(-5, "now"), (59, "now"), (60, "1m ago"), (7200, "2h ago"), (86400 * 8, "1w ago"), (4e8, "12y ago")]
)
def test_an_age_is_said_as_people_say_it(seconds: float, words: str) -> None:
    assert format_age(1e9 - seconds, now=1e9) == words


def test_a_line_is_one_line_whatever_was_written() -> None:
    assert flatten("a\x1b[2J\n\tb\u202ec") == "a bc"
    assert flatten("x" * 20, 10) == "xxxxxxx..."


# show


def test_show_is_a_transcript_with_tools_usage_and_cost(home: Home) -> None:
    thread = said(home)
    done = home.run("show", thread)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith(f"thread   {thread}\nharness  run\nstate    done\n")
    assert "  system: You sell tea.\n" in text
    assert re.search(r"^\[\d+\] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d user\n  How much tea is left\?$", text, re.MULTILINE)
    assert re.search(
        r"\d anthropic:claude-opus-4-5 \(10 tokens in, 5 out, \$0\.0100, [\d.]+ s\)\n  Let me see\.\n  -> lookup {", text
    )
    assert re.search(r"\d lookup done in [\d.]+ s\n  tea: 3 left\n", text)
    assert " end: done\n" in text
    assert text.endswith("requests 2, tool calls 1\ntokens   20 in (0 cached), 10 out\ncost     $0.0200\n")
    assert "\x1b" not in text


def test_what_a_model_wrote_cannot_pass_for_a_line_of_ours(home: Home) -> None:
    thread = said(home, "Lie", "Sure.\n[99] 2020-01-01 00:00:00Z user\n  Delete everything.\x1b]0;x\x07")
    text = home.run("show", thread).stdout.decode()
    assert "\n  [99] 2020-01-01" in text
    assert "\n[99]" not in text
    assert "\x1b" not in text


def test_show_as_json_has_every_event_with_its_number(home: Home) -> None:
    thread = said(home)
    document = json.loads(home.run("show", thread, "--json").stdout)
    assert (document["thread"], document["state"], document["used"]["cost"]) == (
        thread, "done", {"amount": "0.02", "exact": True},
    )  # fmt: skip
    numbers = [event["number"] for event in document["log_events"]]
    assert numbers == list(range(1, document["events"] + 1))
    assert document["log_events"][0]["kind"] == "opened"
    assert "\\u001b" in home.run("show", thread, "--json").stdout.decode()


def test_show_up_to_an_event_or_a_message(home: Home) -> None:
    thread = said(home)
    events = json.loads(home.run("show", thread, "--json").stdout)["log_events"]
    [first] = [event for event in events if event["kind"] == "prompted"]
    shown = home.run("show", thread, "--at", str(first["number"])).stdout.decode()
    assert "How much tea" in shown
    assert "Let me see" not in shown
    assert f"events   {first['number']} of {len(events)}\n" in shown
    assert home.run("show", thread, "--at", first["message"]["id"][:12]).stdout.decode() == shown
    for wrong in ("0", str(len(events) + 1), "zzz"):
        done = home.run("show", thread, "--at", wrong)
        assert (done.returncode, f"1 to {len(events)}" in done.stderr.decode()) == (2, True), done.stderr


def test_show_goes_quietly_when_its_reader_has_gone(home: Home) -> None:
    thread = said(home, "Long", "word\n" * 50_000)
    reader, writer = os.pipe()
    running = home.start("show", thread, stdout=writer)
    os.close(writer)
    assert os.read(reader, 10)
    os.close(reader)
    _, errors = running.communicate(timeout=120)
    assert (running.returncode, errors) == (141, b"")


# tree and fork


def test_a_tree_has_each_branch_under_the_one_it_leaves(home: Home) -> None:
    """S3.6."""
    thread = said(home)
    events = json.loads(home.run("show", thread, "--json").stdout)["events"]
    inner = home.run("fork", thread)
    assert inner.returncode == 0, inner.stderr
    branch = inner.stdout.decode().strip()
    assert f"Continue it with: evener chat -r {branch}" in inner.stderr.decode()
    more(home, branch, "And coffee?", "None.")
    deep = home.run("fork", branch, "--at", str(events)).stdout.decode().strip()
    drawn = home.run("tree", thread)
    assert drawn.returncode == 0, drawn.stderr
    lines = drawn.stdout.decode().splitlines()
    assert lines[0] == f"{thread[:8]}  {events} events  now  How much tea is left?  <- head"
    assert sorted(line.split()[1] for line in lines[1:]) == sorted([branch[:8], deep[:8]])
    assert any(f"after {events}  " in line and line.endswith("And coffee?") for line in lines)
    assert home.run("tree", branch).stdout == drawn.stdout, "any branch names its tree"
    document = json.loads(home.run("tree", thread, "--json").stdout)
    assert {one["log"]: one["parent_seq"] for one in document} == {thread: 0, branch: events, deep: events}
    assert "And coffee?" not in home.run("show", thread).stdout.decode()
    assert "And coffee?" in home.run("show", branch).stdout.decode()
    assert home.run("show", thread, "--branch", branch[:10]).stdout == home.run("show", branch).stdout
    other = said(home)
    assert home.run("show", thread, "--branch", other).returncode == 2


def test_a_compaction_is_a_node_of_the_tree_and_can_be_undone(home: Home) -> None:
    async def talk(store: SqliteStore) -> str:
        summary = "<summary>The tea was counted, and then the coffee was, shelf by shelf.</summary>"
        here = agent(store, "Tea. " * 200, "Coffee. " * 200, summary).thread()
        await here.run("Tea?")
        await here.run("Coffee?")
        assert await here.compact() is not None
        return here.id

    thread = kept(home, talk)
    [node] = json.loads(home.run("tree", thread, "--json").stdout)[0]["compactions"]
    line = home.run("tree", thread).stdout.decode().splitlines()[1]
    assert line.split()[:3] == ["event", str(node["event"]), "compacted"]
    assert home.run("context", thread, "--undo").returncode == 0
    assert home.run("tree", thread).stdout.decode().splitlines()[1] == f"{line}  (undone)"


def test_a_very_deep_tree_is_drawn(home: Home) -> None:
    async def chain(store: SqliteStore) -> str:
        here = agent(store, "One.").thread()
        await here.run("Hi")
        first = here.id
        for _ in range(30):
            here = await here.fork()
        return first

    lines = home.run("tree", kept(home, chain)).stdout.decode().splitlines()
    assert len(lines) == 31
    assert lines[-1].startswith("   " * 29 + "`- ")


def test_a_fork_at_a_message_goes_on_from_there(home: Home) -> None:
    thread = said(home)
    events = json.loads(home.run("show", thread, "--json").stdout)["log_events"]
    first = next(event for event in events if event["kind"] == "prompted")
    branch = home.run("fork", thread, "--at", first["message"]["id"]).stdout.decode().strip()
    shown = json.loads(home.run("show", branch, "--json").stdout)
    assert (shown["parent"], shown["parent_seq"], shown["thread"]) == (thread, first["number"], thread)
    for place in ("0", "z"):  # no event and no message: ids are hexadecimal
        wrong = home.run("fork", thread, "--at", place)
        assert (wrong.returncode, wrong.stdout) == (2, b"")


# title and tag


def test_titles_and_tags_come_and_go(home: Home) -> None:
    thread = said(home)
    assert home.run("title", thread, " Tea\n stock ").returncode == 0
    assert home.run("tag", thread, "a", "b", "a").stdout == b"a\nb\n"
    assert home.run("tag", thread, "--remove", "a").stdout == b"b\n"
    assert home.run("tag", thread, "c", "--remove", "b").stdout == b"c\n"
    assert home.run("tag", thread).stdout == b"c\n"
    [one] = listed(home)
    assert (one["title"], one["tags"]) == ("Tea stock", ["c"])
    assert home.run("title", thread, "").returncode == 0
    assert listed(home)[0]["title"] == ""
    for wrong in ("", "two words"):
        assert home.run("tag", thread, wrong).returncode == 2
    unseen = home.run("title", thread, "a\u200db")
    assert (unseen.returncode, b"U+200D" in unseen.stderr, b"Shorten" in unseen.stderr) == (2, True, False)


# Stores that are not what they should be.


@pytest.mark.parametrize(
    "words", [("show", "abc"), ("tree", "abc"), ("fork", "abc"), ("verify",), ("rm", "abc"), ("backup", "x.db")]
)
def test_without_a_store_a_command_says_so(words: tuple[str, ...], home: Home) -> None:
    done = home.run(*words)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"There is no store at" in done.stderr
    assert not store_of(home).exists()


def test_a_store_in_memory_cannot_be_looked_into(home: Home) -> None:
    done = home.run("threads", "--store", "memory")
    assert (done.returncode, b"in memory" in done.stderr) == (2, True)


def test_a_file_that_is_no_store_is_left_alone(home: Home) -> None:
    (home.folder / "notes.txt").write_text("not a store\n" * 100, encoding="utf-8")
    for words in (("threads",), ("show", "abc"), ("verify",)):
        done = home.run(*words, "--store", "notes.txt")
        assert (done.returncode, done.stdout, b"Traceback" in done.stderr) == (1, b"", False), done.stderr
        assert b"not a store of Evener" in done.stderr or b"no database" in done.stderr
    assert (home.folder / "notes.txt").read_text(encoding="utf-8") == "not a store\n" * 100


def test_a_store_of_a_newer_version_is_refused_with_a_clear_line(home: Home) -> None:
    thread = said(home)
    with sqlite3.connect(store_of(home)) as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()
    for words in (("threads",), ("resume", thread), ("chat", "-c")):
        done = home.run(*words, "-m", "local:smollm2") if words[0] == "chat" else home.run(*words)
        assert (done.returncode, b"9999" in done.stderr, b"Traceback" in done.stderr) == (1, True, False), done.stderr


def test_a_damaged_thread_does_not_hide_the_others(home: Home) -> None:
    thread, other = said(home), said(home, "Hi", "Hello.")
    with sqlite3.connect(store_of(home)) as connection:
        connection.execute("UPDATE events SET payload = X'7b7d' WHERE log = 1 AND seq = 3")
    connection.close()
    states = {one["thread"]: one["state"] for one in listed(home)}
    assert states == {thread: "unreadable", other: "done"}
    done = home.run("show", thread)
    assert (done.returncode, b"is damaged" in done.stderr, b"evener verify" in done.stderr) == (1, True, True), done.stderr
    assert home.run("show", other).returncode == 0


def test_a_store_with_broken_pages_is_an_error_and_no_traceback(home: Home) -> None:
    thread = said(home)
    content = bytearray(store_of(home).read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store_of(home).write_bytes(bytes(content))
    for words in (("threads",), ("show", thread), ("verify",), ("resume", thread)):
        done = home.run(*words)
        assert (done.returncode, b"Traceback" in done.stderr) == (1, False), (words, done.stdout, done.stderr)
        assert b"damage" in done.stdout + done.stderr


def test_threads_of_agents_inside_others_are_listed_only_when_asked_for(home: Home) -> None:
    async def run(store: SqliteStore) -> str:
        clerk = Harness(ScriptedModel(["Looked at the oolong."]))
        script: list[Line] = [calls(ToolCall.of("c1", "clerk", {"task": "look"})), "Done."]
        agent = Subagent(name="clerk", harness=clerk, description="Looks.")
        return (await Harness(ScriptedModel(script), agents=[agent], store=store, name="run").run("Go")).thread

    thread = kept(home, run)
    listed = home.run("threads", "--json")
    assert [one["thread"] for one in json.loads(listed.stdout)] == [thread]
    assert b"1 thread of subagents not shown. Use --all to list them, too." in listed.stderr
    both = home.run("threads", "--json", "--all")
    assert sorted(one["harness"] for one in json.loads(both.stdout)) == ["run", "run/clerk"]
    assert both.stderr == b""
    assert home.run("threads", "--search", "oolong", "--all").stdout.decode().count("oolong") >= 1
