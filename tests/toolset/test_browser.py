"""A real Chromium, driven by the tools: it fills a form on a page of this machine, and reaches nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from evener import Harness
from evener.errors import EvenerError, UsageError
from evener.policy import Defaults, Policy
from evener.testing import ScriptedModel, calls
from evener.tools.result import ModelRetry
from evener.toolset.computer import Click, Drag, Keypress, Navigate, Point, Scroll, Type, computer_tools
from evener.toolset.computer.browser import HOSTS, BrowserComputer, find_chromium
from evener.toolset.sets import tools_named
from evener.transcript import ImageBlock, Reply, TextBlock, ToolCall
from tests.patience import PATIENCE

NEEDED = pytest.mark.skipif(not find_chromium(), reason="There is no chromium here. `make browser` installs Debian's.")
FREE = Policy(default=Defaults.all("allow"), mixing="allow")
FORM = """<!doctype html><title>Form</title><style>* {{ position: absolute; margin: 0 }}</style>
<form action="/done"><input name="who" style="left: 50px; top: 50px; width: 200px; height: 30px">
<button style="left: 50px; top: 100px; width: 200px; height: 30px">Send</button></form>
<a href="{other}/leak" style="left: 50px; top: 200px; width: 200px; height: 30px; display: block">away</a>
<img src="{other}/picture"><link rel="preconnect" href="{other}"><script>
fetch("{other}/fetched").catch(() => 0); new WebSocket("{other}/socket".replace("http", "ws"))
document.onkeydown = (event) => { if (event.key == "F2") confirm("Leave?") }</script>"""


class Pages:
    """A server of pages: what was asked of it, and the addresses of itself and of another one."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.host = ""
        self.other = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split()[1].decode()
        self.asked.append(path)
        if path.startswith("/away"):
            said = f"HTTP/1.1 302 Found\r\nlocation: {self.other}/redirected\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        else:
            page = FORM.replace("{other}", self.other).replace("{{", "{").replace("}}", "}")
            kind = f"content-type: text/html\r\ncontent-length: {len(page)}\r\nconnection: close"
            said = f"HTTP/1.1 200 OK\r\n{kind}\r\n\r\n{page}"
        writer.write(said.encode())
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serving(pages: Pages) -> AsyncIterator[Pages]:
    server = await asyncio.start_server(pages.answer, "127.0.0.1", 0)
    pages.host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield pages


def browsing(pages: Pages) -> BrowserComputer:
    return BrowserComputer([pages.host], patience=PATIENCE)


@NEEDED
def test_the_browser_gets_no_key_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages run in it. What it reads of our environment is written down before it starts."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-user-0123456789")
    monkeypatch.setenv("DATABASE_URL", "postgres://me:of-the-user@localhost/")
    monkeypatch.setenv("no_proxy", "localhost")
    seen, program = tmp_path / "seen", tmp_path / "chromium"
    program.write_text(f'#!/bin/sh\nenv > {seen}\nexec {find_chromium()} "$@"\n')
    program.chmod(0o755)

    async def go() -> None:
        async with (
            serving(Pages()) as pages,
            BrowserComputer([pages.host], program=str(program), patience=PATIENCE) as browser,
        ):
            await browser.act(Navigate(f"http://{pages.host}/"))

    asyncio.run(go())
    told = seen.read_text()
    assert "of-the-user" not in told
    assert "no_proxy=localhost" in told


@NEEDED
def test_a_model_fills_a_form_through_the_tools() -> None:
    """S1.16: browser use with a real browser; each result shows the page, and the log has the calls."""

    async def main() -> None:
        async with serving(Pages()) as pages, browsing(pages) as browser:
            fill = [
                {"type": "click", "at": {"x": 100, "y": 65}},
                {"type": "type", "text": "Eve"},
                {"type": "keypress", "keys": ["ctrl", "a"]},
                {"type": "type", "text": "Ada"},
            ]
            script: list[Reply | EvenerError | str] = [
                calls(ToolCall.of("c1", "navigate", {"url": f"http://{pages.host}/form"})),
                calls(ToolCall.of("c2", "computer", {"actions": fill})),
                calls(ToolCall.of("c3", "computer", {"actions": [{"type": "click", "at": {"x": 100, "y": 115}}]})),
                "Sent.",
            ]
            tools = computer_tools(browser, approval=False)
            result = await Harness(ScriptedModel(script), tools=tools, policy=FREE, store="memory").run("Send the form.")
            assert result.text == "Sent."
            [sent] = [path for path in pages.asked if path.startswith("/done")]
            assert parse_qs(urlsplit(sent).query) == {"who": ["Ada"]}
            contents = [one.result.content for one in result.records if one.result]
            assert [content[0] for content in contents][-1] == TextBlock(f"[page http://{pages.host}/done?who=Ada]")
            assert all(isinstance(content[-1], ImageBlock) for content in contents)

    asyncio.run(main())


@NEEDED
def test_a_page_reaches_no_other_host_and_no_other_port() -> None:
    """S1.16: neither by parts, scripts, sockets and prefetching, nor by links, redirects and addresses that a model types."""

    async def main() -> None:
        async with (
            serving(Pages()) as other,
            serving(Pages()) as pages,
            BrowserComputer([pages.host], patience=PATIENCE) as browser,
        ):
            pages.other = f"http://{other.host}"
            await browser.act(Navigate(f"http://{pages.host}/form"))
            await browser.act(Click(Point(100, 215)))
            for address in (f"http://{pages.host}/away", f"http://{other.host}/typed", "file:///etc/hosts", "chrome://version"):
                with pytest.raises(ModelRetry):
                    await browser.act(Navigate(address))
            pages.other = f"http://localhost:{other.host.rpartition(':')[2]}"
            await browser.act(Navigate(f"http://{pages.host}/again"))
            assert (await browser.screenshot()).address == f"http://{pages.host}/again"
            assert other.asked == []
            assert {"/form", "/away", "/again"} <= {*pages.asked}

    asyncio.run(main())


@NEEDED
def test_dialogs_are_dismissed_and_told_and_mistakes_are_named() -> None:
    async def main() -> None:
        async with serving(Pages()) as pages, BrowserComputer([pages.host], screen=(640, 480), patience=PATIENCE) as browser:
            await browser.act(Navigate(f"http://{pages.host}/"))
            assert await browser.act(Keypress(("F2",))) == "A dialog (confirm) was dismissed: Leave?"
            assert await browser.act(Drag((Point(60, 65), Point(200, 65)), ("shift",))) == ""
            assert await browser.act(Scroll(0, 100, Point(5, 5))) == ""
            with pytest.raises(ModelRetry, match="outside of the screen, which has 640 x 480"):
                await browser.act(Click(Point(640, 0)))
            with pytest.raises(ModelRetry, match="Unknown key"):
                await browser.act(Keypress(("Any",)))
            await browser.act(Click(Point(100, 65), "left", 2))
            await browser.act(Type("x"))
            await browser.act(Navigate("reload"))
            await browser.act(Click(button="back"))
            assert (await browser.screenshot()).png[16:24] == (640).to_bytes(4) + (480).to_bytes(4)

    asyncio.run(main())


def test_a_browser_by_name_visits_the_hosts_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOSTS, "docs.python.org, *.example.org,127.0.0.1:8000")
    made = tools_named(["browser"])
    assert [(one.name, one.effect, one.approval) for one in made] == [("computer", "write", True), ("navigate", "write", True)]
    monkeypatch.setenv(HOSTS, "https://example.org/")
    with pytest.raises(UsageError, match="is no host"):
        tools_named(["browser"])


@pytest.mark.parametrize(
    ("hosts", "url", "told"),
    [
        (["a.test"], "b.test", "b.test may not be visited. This browser reaches only a.test."),
        (["a.test:8000"], "http://a.test/", "may not be visited"),
        (["*.a.test"], "http://a.test/", "may not be visited"),
        ([], "a.test", "no host: the user has named none, in EVENER_BROWSER_HOSTS"),
        (["a.test"], "http://user:secret@a.test/", "without user and password"),
        (["a.test"], "javascript://a.test", "must begin with http"),
    ],
)
def test_an_address_that_may_not_be_visited_is_refused_with_a_reason(hosts: list[str], url: str, told: str) -> None:
    with pytest.raises(ModelRetry, match=told):
        asyncio.run(BrowserComputer(hosts).act(Navigate(url)))
