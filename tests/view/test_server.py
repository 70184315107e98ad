"""What the viewer serves: lists, conversations, trees, requests rebuilt to the byte, decisions that count once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from evener import Harness, MemoryStore, SqliteStore, tool
from evener import events as ev
from evener.errors import ApprovalStale
from evener.harness.approvals import Decision
from evener.model import open_model
from evener.observe import join_trace
from evener.store.postgres import PostgresStore
from evener.store.protocol import Store
from evener.store.sqlite.leases import new_claim
from evener.testing import Call, FakeServer, Text, turn
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.ask import Ask
from evener.transcript.blocks import ImageBlock, Inline, TextBlock, ToolCall
from evener.transcript.delta import Delta
from evener.transcript.message import Message
from evener.transcript.reply import Stop
from evener.transport.exchange import Retries
from evener.view.index import ThreadIndex
from tests.cli.run import Home
from tests.model.stage import NOWHERE, fresh_key
from tests.store.stores import new_schema, postgres
from tests.to_the_end import to_the_end
from tests.view.client import fetch, get, post
from tests.view.stage import edit, furnish, look, open_file, png, shortened, viewing, write
from tests.view.stage import turn as events_of_turn

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m<svg/onload=alert(1)>"


async def wait_until_read(url: str, path: str = "api/threads") -> Any:
    """Return the threads, or what waits, when everything was read."""
    while (found := await get(url, path))["unread"]:
        await asyncio.sleep(0)
    return found["threads" if "threads" in found else "waiting"]


@to_the_end
async def test_threads_are_listed_with_what_they_came_to(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    ids = await furnish(store)
    async with viewing(store) as url:
        lines = {line["thread"]: line for line in await wait_until_read(url)}
        seen: dict[object, dict[str, object]] = {thread: line["seen"] for thread, line in lines.items()}
        assert seen["parser"]["condition"] == "done"
        assert seen["failed"]["condition"] == "provider_error"
        assert seen[ids["waiting"]]["condition"] == "approval"
        assert seen[ids["waiting"]]["waiting"] == 1
        assert (lines["parser"]["title"], lines["parser"]["tags"]) == ("Repair the CSV parser", ["csv", "urgent"])
        assert seen["parser"]["cost"] == 0.0482
        assert lines[ids["forked"]]["branches"] == 2
        assert lines[ids["waiting"]]["group"] == "waiting"
        assert [one["thread"] for one in (await get(url, "api/threads?text=gpt-5%20csv"))["threads"]] == ["parser"]
        assert [one["thread"] for one in (await get(url, "api/threads?group=failed"))["threads"]] == ["failed"]
        assert (await get(url, "api/threads"))["counts"] == {"waiting": 1, "failed": 1}
        said = await get(url, "api/threads?said&text=found%20thing")
        assert said["hits"]["parser"]["n"] > 0
        assert (await get(url, "api/threads?text=found%20thing"))["total"] == 0, "that was said, and is no title"
    await store.aclose()


class ReadLater(MemoryStore):
    """A store whose logs take long to be listed, and are read only when `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.go = 1.0, asyncio.Event()

    async def logs(self, *args: Any, **more: Any) -> Any:
        self.now += 1.0
        return await super().logs(*args, **more)

    async def read(self, *args: Any, **more: Any) -> Any:
        await self.go.wait()
        return await super().read(*args, **more)


@to_the_end
async def test_a_list_that_says_that_all_was_read_shows_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list that took long to make is given again for some time, in which what it did not know may be read."""
    store = ReadLater()
    await write(store, "t", *events_of_turn(0, 1e9))
    monkeypatch.setattr("evener.view.index.monotonic", lambda: store.now)
    monkeypatch.setattr("evener.view.index.AT_ONCE", 0.0)
    index = ThreadIndex(store)
    lines = await index.lines()
    assert (index.left, lines[0].seen) == (1, None)
    store.go.set()
    while index.left:  # in every turn of the loop
        await asyncio.sleep(0)
        lines = await index.lines()
    assert lines[0].condition == "done"


@to_the_end
async def test_calls_stand_beside_their_results_and_only_what_changed_is_sent_again(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    await write(store, "t", *events_of_turn(0, 1e9)[:4])
    async with viewing(store) as url:
        first = await get(url, "api/items/t?start=0")
        (call,) = [item for item in first["items"] if item["kind"] == "call"]
        assert (call["tool"], call["status"], "result" in call) == ("look", "running", False)
        log, _ = await store.open("t", holder=new_claim())
        await log.append(*events_of_turn(0, 1e9)[4:])
        await log.aclose()
        later = await get(url, f"api/items/t?since={first['events']}&have=0")
        (changed,) = [item for item in later["items"] if item["kind"] == "call"]
        assert changed["key"] == call["key"]
        assert changed["status"] == "done"
        assert json.loads(changed["result"][0]["text"])["found"] == "thing 0"
        assert changed["place"] == call["place"] == first["items"].index(call)
    await store.aclose()


@to_the_end
async def test_branches_are_compared_and_agents_are_found(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    ids = await furnish(store)
    async with viewing(store) as url:
        labelled = await Harness(ScriptedModel([]), store=store).thread(branch=ids["branch"]).fork(label="a detour")
        tree = await get(url, f"api/tree/{ids['forked']}")
        assert tree["said"].pop(labelled.log) == "a detour"
        tree["branches"] = [branch for branch in tree["branches"] if branch["log"] != labelled.log]
        assert [branch["log"] for branch in tree["branches"]] == [ids["forked"], ids["branch"]]
        diff = await get(url, f"api/diff/{ids['forked']}/{ids['branch']}")
        assert diff["at"] == 2
        assert [side[0]["pieces"][0]["text"] for side in (diff["a"], diff["b"])] == ["Say something", "Say something else"]
        assert len((await get(url, f"api/tree/{ids['agents']}?marks=1"))["inside"]) == 1
        spans = (await get(url, "api/spans/parser"))["spans"]
        assert {span["kind"] for span in spans} == {"agent", "model", "tool", "retry"}
        assert len((await get(url, "api/requests/parser"))["requests"]) == 15
    await store.aclose()


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@to_the_end
async def test_a_request_is_rebuilt_to_the_byte_and_compared_with_the_one_before(tmp_path: Path) -> None:
    """Marked exact only when it has the recorded digest; and shown as another provider would get it, with losses."""
    store = open_file(tmp_path)
    script = [turn(Call("add", {"a": 1, "b": 2})), turn(Text("3"))]
    with FakeServer("openai_responses", script, models=("gpt-5.5",)) as server:
        model = open_model(
            "openai:gpt-5.5", environ=NOWHERE, key=fresh_key(), base_url=server.url, retries=Retries(attempts=1), effort="low"
        )
        with join_trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"):
            result = await Harness(model, tools=[add], store=store).run("add them")
        sent = [request.body.decode() for request in server.requests]
        headers = [{name.lower(): value for name, value in dict(request.headers).items()} for request in server.requests]
    assert all(one["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c-") for one in headers)
    assert headers[0]["traceparent"] != headers[1]["traceparent"]
    async with viewing(store) as url:
        requests = (await get(url, f"api/requests/{result.thread}"))["requests"]
        first = await get(url, f"api/sent/{result.thread}/{requests[0]['n']}")
        second = await get(url, f"api/sent/{result.thread}/{requests[1]['n']}")
        assert [one["sent"]["body"] for one in (first, second)] == sent
        assert [one["sent"]["exact"] for one in (first, second)] == [True, True]
        assert first["difference"] is None
        assert any(kind == "+" and "function_call_output" in line for kind, line in second["difference"]["lines"])
        assert not any(kind == "-" for kind, _ in second["difference"]["lines"])
        other = await get(url, f"api/sent/{result.thread}/{requests[1]['n']}?as=anthropic:claude-opus-5-5")
        assert "tool_result" in other["sent"]["body"]
        assert not other["sent"]["exact"]
        wrong = await fetch(f"{url}api/sent/{result.thread}/1")
        assert (wrong.status, "is not a request" in wrong.json["error"]) == (409, True)
    await store.aclose()


async def ask_to_edit(store: Store) -> tuple[Harness, str, dict[str, object]]:
    call = calls(ToolCall.of("e1", "edit", {"path": "a", "old_string": "x", "new_string": "y"}))
    harness = Harness(ScriptedModel([call, "done"]), tools=[look, edit], store=store, name="editor")
    result = await harness.run("go")
    return harness, result.thread, {"digest": result.approvals[0].digest}


@to_the_end
async def test_a_decision_of_the_page_counts_when_the_run_goes_on(tmp_path: Path) -> None:
    """The viewer has no tools: it decides by what the log says of them, and the run checks it by its own."""
    store = open_file(tmp_path)
    harness, thread, digest = await ask_to_edit(store)
    async with viewing(store) as url:
        (waiting,) = await wait_until_read(url, "api/approvals")
        assert waiting["asked"][0]["approval"]["call"]["name"] == "edit"
        arguments = {"path": "b", "old_string": "x", "new_string": "z"}
        wrong = await post(
            url, "api/decide", {"log": thread, "decisions": {"e1": {"verdict": "allow", **digest, "arguments": {"path": 1}}}}
        )
        assert (wrong.status, "do not fit" in wrong.json["error"]) == (409, True)
        unseen = await post(url, "api/decide", {"log": thread, "decisions": {"e1": {"verdict": "allow"}}})
        assert unseen.status == 409, "what was not shown cannot be decided"
        made = await post(
            url, "api/decide", {"log": thread, "decisions": {"e1": {"verdict": "allow", **digest, "arguments": arguments}}}
        )
        assert (made.status, made.json["command"][:2]) == (200, ["evener", "resume"])
        assert await wait_until_read(url, "api/approvals") == []
        result = await harness.resume(thread)
        assert result.records[0].result is not None
        assert "edited b" in result.records[0].result.content[1].text  # type: ignore[union-attr]
        decided = [event for event in await store.read(thread) if isinstance(event, ev.ApprovalDecided)]
        assert [event.by for event in decided] == ["tester"]
    await store.aclose()


@to_the_end
async def test_of_two_decisions_at_once_one_wins_and_the_other_is_told_why(tmp_path: Path) -> None:
    """From the browser and from a process of the command line, many times: never both, never none."""
    store = open_file(tmp_path)
    async with viewing(store) as url:
        for _ in range(10):
            harness, thread, digest = await ask_to_edit(store)

            async def decide_elsewhere(harness: Harness = harness, thread: str = thread) -> str:
                try:
                    await harness.decide(thread, {"e1": Decision("reject", "no")})
                except ApprovalStale as stale:
                    return str(stale)
                return ""

            body = {"log": thread, "decisions": {"e1": {"verdict": "allow", **digest}}}
            answer, error = await asyncio.gather(post(url, "api/decide", body), decide_elsewhere())
            assert (answer.status == 200) != (error == "")
            assert "the first decision counts" in (error or answer.json["error"])
    await store.aclose()


def test_the_command_line_sees_what_the_browser_decided(tmp_path: Path, home: Home) -> None:
    async def decide_here() -> str:
        store = SqliteStore(tmp_path / "store.db")
        _, thread, digest = await ask_to_edit(store)
        async with viewing(store) as url:
            body = {"log": thread, "decisions": {"e1": {"verdict": "allow", **digest}}}
            assert (await post(url, "api/decide", body)).status == 200
        await store.aclose()
        return thread

    thread = asyncio.run(decide_here())
    words = ("reject", thread, "--why", "no", "--store", str(tmp_path / "store.db"), "--tools", "tests.view.stage:edit")
    done = home.run(*words, PYTHONPATH=str(Path(__file__).parents[2]))
    assert done.returncode != 0
    assert b"decided already" in done.stderr


@to_the_end
async def test_a_fork_is_made_and_a_run_goes_on_from_the_page(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    result = await Harness(ScriptedModel(["one"]), store=store).run("go")
    async with viewing(store) as url:
        made = (await post(url, "api/fork", {"log": result.thread, "at": 3})).json
        assert made["command"] == ["evener", "chat", "--store", "x.db", "-r", made["log"]]
        told = (await post(url, "api/run", {"log": made["log"], "prompt": "more", "model": "openai:gpt-5"})).json
        assert (told["started"], "-m" in told["command"]) == (False, True)
    async with viewing(store, harness=Harness(ScriptedModel(["two"]), store=store)) as url:
        assert (await post(url, "api/run", {"log": made["log"], "prompt": "more"})).json["started"]
        while not any(item["kind"] == "end" for item in (await get(url, f"api/items/{made['log']}"))["items"][-1:]):
            await asyncio.sleep(0)
    await store.aclose()


@to_the_end
async def test_only_pictures_that_are_pictures_are_served(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    svg = "PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIi8+"
    blocks = tuple(
        ImageBlock(Inline(data), kind) for data, kind in ((png(), "text/html"), (svg, "image/png"), (svg, "image/svg+xml"))
    )
    await write(store, "t", ev.Prompted(at=1.0, run="r", message=Message("user", (TextBlock("x"), *blocks))))
    async with viewing(store) as url:
        answers = [await fetch(f"{url}api/media/t/2/message/blocks/{place}") for place in range(5)]
        assert [answer.status for answer in answers] == [204, 200, 204, 204, 204]
        assert answers[1].headers["content-type"] == "image/png", "by its bytes, not by what is said of them"
    await store.aclose()


@to_the_end
async def test_the_chain_is_verified_and_erased_payloads_are_tombstones(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    await furnish(store)
    async with viewing(store) as url:
        audit = await get(url, "api/audit/erased")
        assert audit["intact"]
        items = (await get(url, "api/items/erased"))["items"]
        assert [item["n"] for item in items if item.get("erased")] == [3, 5]
        assert "secret of the user" in (await fetch(f"{url}export/erased.html")).body.decode()
        assert json.loads((await fetch(f"{url}export/parser.jsonl")).body.splitlines()[0])
    await store.aclose()


@to_the_end
async def test_an_export_to_html_runs_nothing(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    message = Message("assistant", (TextBlock(HOSTILE), ToolCall("c", HOSTILE, json.dumps({"x": HOSTILE}))))
    await write(
        store,
        "t",
        ev.Prompted(at=1.0, run="r", message=Message.user_text(HOSTILE)),
        ev.ModelCalled(at=2.0, model=HOSTILE),
        ev.Replied(at=3.0, message=message, stop=Stop("done")),
    )
    async with viewing(store) as url:
        page = (await fetch(f"{url}export/t.html")).body.decode()
    assert "<script" not in page.replace("&lt;", "")
    assert "<svg" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
    await store.aclose()


@to_the_end
async def test_what_cannot_be_exported_is_told_in_a_sentence() -> None:
    async with viewing(MemoryStore()) as url:
        for path in ("export/nope.html", "export/nope.jsonl", "api/media/nope/1/message/blocks/0"):
            answer = await fetch(url + path)
            assert (answer.status, answer.json["kind"]) == (409, "NoLog"), path


@to_the_end
async def test_a_page_is_told_when_a_log_grows(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    await write(store, "t", *events_of_turn(0, 1e9)[:1])
    async with viewing(store) as url:
        host, _, port = url.split("/")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        path = "/" + url.split("/", 3)[3]
        writer.write(f"GET {path}api/live?log=t HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
        first = json.loads(
            (await reader.readuntil(b"\n\n")).partition(b"data: ")[2]
            or (await reader.readuntil(b"\n\n")).partition(b"data: ")[2]
        )
        assert first["events"] == 2
        log, _ = await store.open("t", holder=new_claim())
        await log.append(*events_of_turn(0, 1e9)[1:3])
        told = first
        while told["events"] < 4:
            told = json.loads((await reader.readuntil(b"\n\n")).partition(b"data: ")[2])
        await log.aclose()
        writer.close()
    await store.aclose()


@to_the_end
async def test_metrics_of_the_store_can_be_scraped(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    await write(store, "t", *events_of_turn(0, 1e9))
    async with viewing(store) as url:
        answer = await fetch(f"{url}metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b'evener_requests_total{provider="openai",model="gpt-5"} 2' in answer.body
    await store.aclose()


@to_the_end
async def test_what_a_request_holds_is_told_by_kind_and_why_the_cache_broke(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    setup = ev.Configured(at=1.0, model="openai:gpt-5", system=(TextBlock("You find things."),), tools=(look.spec,))
    await write(store, "t", setup, *shortened(1e9))
    async with viewing(store) as url:
        requests = (await get(url, "api/requests/t"))["requests"]
        assert [one.get("shortened", "") for one in requests] == ["", "", "compacted", ""]
        for one in requests:
            assert abs(sum(one["kinds"].values()) - one["usage"]["input_total"]) <= len(one["kinds"])
        assert {"system", "tools", "user"} <= set(requests[0]["kinds"])
        assert requests[1]["kinds"]["results"] > 0
        sent = await get(url, f"api/sent/t/{requests[2]['n']}")
        assert "Thing 0 was found." in sent["sent"]["body"], "requests hold the summary, not what it stands for"
        assert "Find thing 0" not in sent["sent"]["body"]
        why = " ".join(sent["difference"]["why"])
        assert "compacted" in why
        assert "The requests first differ at input[" in why
        assert "10 minutes" in why
        tree = await get(url, "api/tree/t?marks=1")
        assert [mark["kind"] for mark in tree["marks"]["t"]] == ["evicted", "compacted"]
        titles = [item.get("title", "") for item in (await get(url, "api/items/t"))["items"] if item["kind"] == "context"]
        assert titles[0] == "Left out of requests from here on: 1 result"
    await store.aclose()


class HeldModel(ScriptedModel):
    """A scripted model that says nothing after so many pieces, until it is let go."""

    def __init__(self, pieces: int) -> None:
        super().__init__(["one two three four five"])
        self.go, self._before = asyncio.Event(), pieces

    def stream(self, ask: Ask, *, after: object = None) -> Any:
        made = super().stream(ask, after=after)
        read, left = made.read, [self._before]

        async def held() -> list[Delta]:
            left[0] -= 1
            if left[0] < 0:
                await self.go.wait()
            return await read()

        made.read = held  # type: ignore[method-assign]
        return made


@to_the_end
async def test_an_answer_is_seen_before_it_is_whole(tmp_path: Path) -> None:
    """Of a run that was begun here: the log has whole answers only."""
    store = open_file(tmp_path)
    result = await Harness(ScriptedModel(["ready"]), store=store).run("hello")
    model = HeldModel(3)
    async with viewing(store, harness=Harness(model, store=store)) as url:
        host, _, port = url.split("/")[2].partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        path = "/" + url.split("/", 3)[3]
        writer.write(f"GET {path}api/live?log={result.thread} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode())
        assert (await post(url, "api/run", {"log": result.thread, "prompt": "go"})).json["started"]
        partial = None
        while not (partial and partial["text"]):
            told = (await reader.readuntil(b"\n\n")).partition(b"data: ")[2]
            partial = json.loads(told)["partial"] if told else None
        assert "one two three four five".startswith(partial["text"])
        model.go.set()
        while partial is not None:
            told = (await reader.readuntil(b"\n\n")).partition(b"data: ")[2]
            partial = json.loads(told)["partial"] if told else partial
        writer.close()
    await store.aclose()


@to_the_end
async def test_a_store_on_postgresql_is_viewed_and_decided_as_a_file_is() -> None:
    store = PostgresStore(postgres().address, schema=new_schema())
    try:
        harness, thread, digest = await ask_to_edit(store)
        async with viewing(store) as url:
            assert [line["thread"] for line in await wait_until_read(url)] == [thread]
            assert len(await wait_until_read(url, "api/approvals")) == 1
            body = {"log": thread, "decisions": {"e1": {"verdict": "allow", **digest}}}
            assert (await post(url, "api/decide", body)).status == 200
            assert await wait_until_read(url, "api/approvals") == [], "what is decided waits no longer"
            await harness.resume(thread)
            assert (await get(url, f"api/audit/{thread}"))["intact"]
            assert json.loads((await fetch(f"{url}export/{thread}.jsonl")).body.splitlines()[0])
    finally:
        await store.aclose()
