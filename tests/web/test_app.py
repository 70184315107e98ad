"""The app that serves a harness to pages: who may ask, what is refused, and what happens when a page goes away."""

import asyncio
import json
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import pytest

from evener.events import Cancelled
from evener.testing.scripted_model import calls
from evener.transcript import ToolCall
from evener.web import app as web_app
from evener.web.app import make_app
from evener.web.guard import WebGuard
from tests.patience import run_on_virtual_time, until
from tests.web.runs import ERASE, harness_of

Headers = Mapping[str, str]
JSON: Headers = {"host": "127.0.0.1:8000", "content-type": "application/json"}


class Page:
    """A page that posts to the app without a socket. `leave` is what a closed tab does."""

    def __init__(self, app: WebGuard) -> None:
        self._app = app
        self._gone = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    def leave(self) -> None:
        self._gone.set()

    async def send(self, path: str, body: bytes, headers: Headers = JSON, method: str = "POST") -> "Page":
        bodies = [body]
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "scheme": "http", "http_version": "1.1", "asgi": {"version": "3.0", "spec_version": "2.4"}, "server": ("x", 80),
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "client": ("127.0.0.1", 9),
        }  # fmt: skip

        async def receive() -> MutableMapping[str, Any]:
            if bodies:
                return {"type": "http.request", "body": bodies.pop(), "more_body": False}
            await self._gone.wait()
            return {"type": "http.disconnect"}

        async def take(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                self.body += message.get("body", b"")

        await self._app(scope, receive, take)
        return self

    @property
    def frames(self) -> list[dict[str, Any]]:
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line) for line in lines if line != "[DONE]"]


def chat(text: str = "Go.", id: str = "t1") -> bytes:
    return json.dumps({"id": id, "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}]}).encode()


def ag_ui(**more: object) -> bytes:
    return json.dumps(
        {"threadId": "t1", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "Go."}], **more}
    ).encode()


def test_both_protocols_are_served() -> None:
    async def go() -> None:
        app = make_app(harness_of(["One.", "Two."]))
        first = await Page(app).send("/api/chat", chat())
        assert (first.status, first.headers["x-vercel-ai-ui-message-stream"]) == (200, "v1")
        assert first.body.endswith(b"data: [DONE]\n\n")
        second = await Page(app).send("/ag-ui", ag_ui(context=[{"description": "d", "value": "v"}]))
        assert [frame["type"] for frame in second.frames][:2] == ["RUN_STARTED", "CUSTOM"]
        assert second.frames[-1]["result"]["output"] == "Two."
        assert (await Page(app).send("/api/chat/t1/stream", b"", method="GET")).status == 204

    asyncio.run(go())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**JSON, "host": "evil.test:8000"}, 403),
        ({**JSON, "host": "[::1"}, 403),
        ({**JSON, "host": ""}, 403),
        ({**JSON, "origin": "https://evil.test"}, 403),
        ({**JSON, "origin": "null"}, 403),
        ({**JSON, "origin": "http://127.0.0.1:9999"}, 403),
        ({**JSON, "origin": "http://127.0.0.1:8000"}, 401),
        ({**JSON, "origin": "http://localhost:3000"}, 401),
        ({**JSON, "authorization": "Bearer wrong"}, 401),
        ({**JSON, "authorization": "Basic secret"}, 401),
        ({**JSON, "authorization": "Bearer secret"}, 200),
        ({**JSON, "authorization": "Bearer secret", "content-type": "text/plain"}, 415),
    ],
)
def test_only_allowed_pages_with_the_token_are_answered(headers: Headers, status: int) -> None:
    async def go() -> None:
        harness = harness_of(["Hi."])
        app = make_app(harness, origins=["http://localhost:3000"], token="secret")
        assert (await Page(app).send("/api/chat", chat(), headers)).status == status

    asyncio.run(go())


def test_a_page_elsewhere_may_ask_first_if_it_is_allowed() -> None:
    async def go() -> None:
        app = make_app(harness_of(["Hi."]), origins=["http://localhost:3000"], token="secret")
        asked = {**JSON, "origin": "http://localhost:3000", "access-control-request-method": "POST"}
        done = await Page(app).send("/api/chat", b"", asked, method="OPTIONS")
        assert (done.status, done.headers["access-control-allow-origin"]) == (200, "http://localhost:3000")

    asyncio.run(go())


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b"[]", 400), (b'{"id": "t1"}', 400), (b"[" * 100_000, 400), (b" " * 2_000, 413), (b"\xff", 400)],
)
def test_what_cannot_be_read_is_refused_with_a_reason(body: bytes, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_app, "MOST_BODY", 1_000 if status == 413 else 1 << 20)

    async def go() -> None:
        done = await Page(make_app(harness_of([]))).send("/api/chat", body)
        assert done.status == status
        assert json.loads(done.body)["error"]

    asyncio.run(go())


def test_a_page_that_goes_away_cancels_its_run_and_makes_room() -> None:
    async def go() -> None:
        harness = harness_of([calls(ToolCall("c1", "wait", "{}")), "Done."])
        app = make_app(harness, most_runs=1)
        page = Page(app)
        running = asyncio.ensure_future(page.send("/api/chat", chat()))
        await until(lambda: b"tool-input-available" in page.body)
        refused = await Page(app).send("/api/chat", chat(id="t2"))
        assert refused.status == 503
        page.leave()
        await running
        state = await harness.thread("t1").state()
        assert state.finished is None  # it can be resumed
        assert not any(isinstance(event, Cancelled) for event in await harness.store.read("t1"))
        assert (await Page(app).send("/ag-ui", ag_ui(threadId="t3"))).frames[-1]["result"]["output"] == "Done."

    asyncio.run(go())


def test_a_run_ends_at_the_deadline() -> None:
    async def go() -> None:
        harness = harness_of([calls(ToolCall("c1", "wait", "{}"))])
        page = await Page(make_app(harness, seconds=0.2)).send("/api/chat", chat())
        assert not page.body.endswith(b"[DONE]\n\n")
        assert (await harness.thread("t1").state()).finished is None

    run_on_virtual_time(go())


def test_silence_is_broken_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_app, "BEAT", 0.01)

    async def go() -> None:
        page = Page(make_app(harness_of([calls(ToolCall("c1", "wait", "{}"))])))
        running = asyncio.ensure_future(page.send("/api/chat", chat()))
        await until(lambda: b": still here\n\n" in page.body)
        page.leave()
        await running

    asyncio.run(go())


def test_an_approval_is_decided_by_another_process_of_the_app(tmp_path: Path) -> None:
    async def go() -> None:
        first = harness_of([ERASE], store=tmp_path / "runs.db")
        page = await Page(make_app(first)).send("/ag-ui", ag_ui())
        (asked,) = page.frames[-1]["outcome"]["interrupts"]
        await first.aclose()
        second = harness_of(["Done."], store=tmp_path / "runs.db")
        app = make_app(second)
        resume = [{"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}]
        page = await Page(app).send("/ag-ui", ag_ui(runId="r2", resume=resume))
        assert [frame["content"] for frame in page.frames if frame["type"] == "TOOL_CALL_RESULT"] == ["erased /x"]
        late = await Page(app).send("/ag-ui", ag_ui(runId="r3", resume=resume))
        assert late.frames[-1]["type"] == "RUN_ERROR"  # it was decided, and the run is over
        await second.aclose()

    asyncio.run(go())


def test_another_answer_takes_the_last_prompt_back() -> None:
    async def go() -> None:
        harness = harness_of(["One.", "Two."])
        app = make_app(harness)
        await Page(app).send("/api/chat", chat())
        again = json.loads(chat()) | {"trigger": "regenerate-message"}
        await Page(app).send("/api/chat", json.dumps(again).encode())
        texts = [message.text for message in (await harness.thread("t1").state()).transcript.messages]
        assert texts == ["Go.", "Two."]

    asyncio.run(go())
