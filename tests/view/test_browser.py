"""The page in a real Chromium: every screen, by keyboard too, in both colours, small and large; and nothing from elsewhere."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import Page, async_playwright, expect

from evener import Harness, MemoryStore
from evener import events as ev
from evener.errors import BadValue
from evener.store.protocol import Store
from evener.store.sqlite.leases import new_claim
from evener.testing.scripted_model import ScriptedModel, calls
from evener.transcript.blocks import Citation, ReasoningBlock, TextBlock, ToolCall
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Stop
from tests.patience import PATIENCE
from tests.to_the_end import to_the_end
from tests.view.client import post
from tests.view.hostile import PAYLOADS
from tests.view.stage import edit, furnish, look, turn, viewing, write

SOON = PATIENCE * 1000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="There is no chromium here. `make browser` installs Debian's.")

expect.set_options(timeout=SOON)

FILLED = "() => document.elementFromPoint(600, 425)?.closest('article, form, .chunk[data-full]')"
CHECK = (Path(__file__).parent / "accessible.js").read_text(encoding="utf-8")


class Watched:
    """A page, what it said on its console, and which requests it made."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.said: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(SOON)
        page.on("console", lambda message: self.said.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: self.said.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: self.asked.append(request.url))

    async def open(self, path: str = "") -> Page:
        await self.page.goto(self.url + path)
        await expect(self.page.get_by_text("live", exact=True)).to_be_visible()
        return self.page

    def check(self) -> None:
        """Nothing was said, and nothing was asked of anyone else."""
        assert self.said == []
        assert [url for url in self.asked if not url.startswith((self.url, "blob:" + self.url))] == []


@asynccontextmanager
async def looking(
    store: Store, *, width: int = 1200, scheme: str = "light", harness: Harness | None = None
) -> AsyncIterator[Watched]:
    """Open a browser on a viewer of this store; in the end nothing may have gone wrong on the page."""
    async with viewing(store, harness=harness) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            context = await browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)  # type: ignore[arg-type]
            watched = Watched(await context.new_page(), url)
            yield watched
            watched.check()
        finally:
            await browser.close()


@to_the_end
async def test_every_screen_shows_what_it_is_for() -> None:
    store = MemoryStore()
    ids = await furnish(store)
    async with looking(store) as watched:
        page = await watched.open()
        await expect(page.locator("a.thread")).to_have_count(6)
        await page.get_by_role("button", name="waiting").click()
        await expect(page.locator("a.thread")).to_have_count(1)
        await page.get_by_role("button", name="failed").click()
        await expect(page.locator("a.thread")).to_contain_text("failed")
        await page.get_by_role("button", name="all").click()
        await page.get_by_role("searchbox").fill("csv")
        await expect(page.locator("a.thread")).to_have_count(1)
        await page.get_by_role("searchbox").fill("gradient what")
        await page.get_by_role("searchbox").press("Enter")
        await page.get_by_role("searchbox").fill("")

        await watched.open("#/log/parser/talk/57")
        await expect(page.locator(".markdown table")).to_contain_text("a.py")
        await expect(page.locator(".markdown .code")).to_contain_text("def read_row")
        await expect(page.locator(".row.added").first).to_contain_text("+++ b/a.py")
        await expect(page.get_by_text("loss reasoning.dropped")).to_be_visible()
        await expect(page.get_by_role("list", name="Citations")).to_contain_text("as it says")
        await expect(page.get_by_text("searched the web for csv")).to_be_visible()
        await expect(page.locator("article.failure")).to_contain_text("RateLimited")
        assert (
            await page.locator("article.call img").first.evaluate("image => image.decode().then(() => image.naturalWidth)")
            == 32
        )
        folded = page.locator("details.reasoning").first
        assert not await folded.evaluate("one => one.open")
        await expect(page.locator("article.call").first).to_contain_text("300 ms")

        await watched.open("#/log/parser/time")
        await expect(page.locator(".block.retry")).to_have_count(1)
        await page.locator(".span").nth(4).click()
        await expect(page).to_have_url(watched.url + "#/log/parser/talk/56")

        await watched.open("#/log/parser/context")
        await expect(page.get_by_role("img", name="Tokens of 15 requests")).to_be_visible()
        await expect(page.get_by_text("$0.0482").first).to_be_visible()
        await page.locator(".request").nth(3).click()
        await expect(page.get_by_role("region").or_(page.locator("section[aria-label='What was sent']")).first).to_be_visible()

        await watched.open("#/log/parser/sent")
        await expect(page.locator(".row.added").first).to_be_visible()
        await page.get_by_label("As another model").fill("anthropic:claude-sonnet-5")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_text("As anthropic:claude-sonnet-5 would get it")).to_be_visible()
        await expect(page.locator(".loss").first).to_be_visible()

        await watched.open(f"#/log/{ids['forked']}/tree")
        await page.get_by_label("right").nth(1).check()
        await expect(page.locator(".side").nth(1)).to_contain_text("Say something else")
        await watched.open(f"#/log/{ids['agents']}/tree")
        await expect(page.get_by_text("Agents inside its calls")).to_be_visible()

        await watched.open("#/log/erased/audit")
        await expect(page.get_by_text("The chain of hashes is intact")).to_be_visible()
        await expect(page.locator(".event .tombstone")).to_have_count(2)
        async with page.expect_download() as download:
            await page.get_by_text("Export as HTML").click()
        assert (await download.value).suggested_filename == "erased.html"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1200])
@to_the_end
async def test_every_control_has_a_name_every_text_has_contrast_and_nothing_is_wider_than_the_screen(
    width: int, scheme: str
) -> None:
    store = MemoryStore()
    await furnish(store)
    async with looking(store, width=width, scheme=scheme) as watched:
        screens = [
            "",
            "#/approvals",
            "#/log/parser",
            *(f"#/log/parser/{tab}" for tab in ("tree", "time", "context", "sent", "audit")),
        ]
        for path in screens:
            page = await watched.open(path)
            await expect(page.locator("main > section")).to_be_visible()
            assert await page.evaluate(CHECK) == [], path
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, path


@to_the_end
async def test_everything_is_within_reach_of_the_keyboard() -> None:
    store = MemoryStore()
    ids = await furnish(store)
    async with looking(store) as watched:
        page = await watched.open()
        await expect(page.locator("a.thread")).to_have_count(6)
        await page.keyboard.press("/")
        await page.keyboard.type("csv")
        await expect(page.locator("a.thread")).to_have_count(1)
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("tab", name="Conversation")).to_have_attribute("aria-selected", "true")
        for key, name in (
            ("2", "Tree"),
            ("3", "Waterfall"),
            ("4", "Context"),
            ("5", "Sent"),
            ("6", "Audit"),
            ("1", "Conversation"),
        ):
            await page.keyboard.press(key)
            await expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        await expect(page.locator("article.user").first).to_be_visible()
        await page.keyboard.press("j")
        await page.keyboard.press("j")
        await expect(page.locator("article.user").first).to_be_focused()
        await page.keyboard.press("f")
        await expect(page.get_by_text("A branch begins here, after event 3.")).to_be_visible()
        await page.keyboard.press("?")
        await expect(page.get_by_role("region", name="Keys")).to_be_visible()
        await page.keyboard.press("a")
        await expect(page.locator("form.decide")).to_have_count(1)
        await page.keyboard.press("j")
        await expect(page.locator("form.decide")).to_be_focused()
        for _ in range(20):  # to the decision by Tab alone
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.textContent") == "reject":
                break
        await page.keyboard.press("Enter")
        await page.get_by_label("Reason").focus()
        await page.keyboard.type("not now")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Nothing waits for a decision.")).to_be_visible()
    assert await store.has_note(ids["waiting"], f"decide:{await approval_of(store, ids['waiting'])}")


async def approval_of(store: MemoryStore, log: str) -> str:
    return next(event.id for event in await store.read(log) if isinstance(event, ev.ApprovalAsked))


@to_the_end
async def test_a_decision_that_was_made_elsewhere_is_told_in_the_browser() -> None:
    store = MemoryStore()
    call = calls(ToolCall.of("e1", "edit", {"path": "a", "old_string": "x", "new_string": "y"}))
    result = await Harness(ScriptedModel([call, "done"]), tools=[look, edit], store=store).run("go")
    async with looking(store) as watched:
        page = await watched.open("#/approvals")
        await page.get_by_role("button", name="edit", exact=True).click()
        await page.get_by_label("New arguments").fill('{"path": "b", "old_string": "x", "new_string": "z"}')
        await expect(page.get_by_text("Your change")).to_be_visible()
        await page.route("**/api/approvals", lambda route: route.abort())  # the page does not learn of it by itself
        body = {"log": result.thread, "decisions": {"e1": {"verdict": "reject", "digest": result.approvals[0].digest}}}
        assert (await post(watched.url, "api/decide", body)).status == 200
        await page.get_by_role("button", name="Decide").click()
        await expect(page.get_by_role("alert")).to_contain_text("was decided before")
        watched.said.clear()  # the refusal, and the requests that this test gave up


@to_the_end
async def test_a_run_is_seen_as_it_goes_on() -> None:
    """Five runs at once, a hundred events a second each: all of them are on the page soon after the last."""
    store = MemoryStore()
    for name in "abcde":
        await write(store, name)
    async with looking(store) as watched:
        page = await watched.open("#/log/a")

        async def go(name: str) -> None:
            log, _ = await store.open(name, holder=new_claim())
            for n in range(14):
                for event in turn(n, 1_790_000_000.0 + n):
                    await log.append(event)
                    await asyncio.sleep(0.01)
            await log.aclose()

        async with asyncio.TaskGroup() as group:
            for name in "abcde":
                group.create_task(go(name))
        await expect(page.locator("article.end")).to_have_count(14)
        await expect(page.locator("article.asking")).to_have_count(0)
        assert await page.locator("article.call .status").all_text_contents() == ["done"] * 14


@to_the_end
async def test_a_thread_of_ten_thousand_events_scrolls_without_gaps() -> None:
    store = MemoryStore()
    await write(store, "long", *(event for n in range(1250) for event in turn(n, 1_790_000_000.0 + 3 * n)))
    async with looking(store) as watched:
        page = await watched.open("#/log/long")
        await expect(page.locator("article").first).to_be_visible()
        for _ in range(12):
            await page.mouse.wheel(0, 6_000)
            await page.wait_for_function(FILLED)
        await page.keyboard.press("G")
        await expect(page.get_by_text("Find thing 1249, please.")).to_be_attached()
        await page.goto(watched.url + "#/log/long/talk/5000")
        await expect(page.locator("article:focus")).to_be_in_viewport()
        assert await page.locator("article").count() < 2_000, "what is far away is not kept on the page"


@to_the_end
async def test_of_two_hundred_hostile_texts_none_runs_and_none_hides_in_an_approval() -> None:
    store = MemoryStore()
    assert len(PAYLOADS) >= 200
    for place, text in enumerate(PAYLOADS):
        await write(store, f"h{place:03d}", *_hostile(text), harness=text[:200].replace("/", "|"))
        with suppress(BadValue):  # what is too long for a label, or cannot be printed
            await store.describe(f"h{place:03d}", title=text[:150], tags=[text[:60]])
    async with looking(store) as watched:
        page = await watched.open()
        await expect(page.locator("a.thread").first).to_be_visible()
        await expect(page.locator(".sum")).not_to_contain_text("reading")
        for screen in ("talk", "tree", "time", "context", "audit"):
            for place in range(0, len(PAYLOADS), 40):
                await page.goto(f"{watched.url}#/log/h{place:03d}/{screen}")
                await expect(page.locator("section[aria-label=Thread]")).to_be_visible()
        await watched.open("#/approvals")
        await expect(page.locator("form.decide")).to_have_count(len(PAYLOADS))
        shown = await page.locator("form.decide pre.arguments").all_text_contents()
        names = await page.locator("form.decide legend code").all_text_contents()
        assert await page.evaluate("window.ran === undefined && document.querySelectorAll('script').length === 1")
        assert (
            await page.evaluate("document.querySelectorAll('iframe, object, embed, main svg, main link, main style').length")
            == 0
        )
        await expect(page.get_by_text("too many for a page")).to_have_count(1)
        assert await page.locator("form.decide button:text-is('approve'):disabled").count() == 1
    wanted = {visible(json.dumps({"text": text}, indent=1, ensure_ascii=False)) for text in PAYLOADS if len(text) < 200_000}
    assert {visible(escaped(text)) for text in wanted} <= {visible(text) for text in shown}
    assert len(names) == len(PAYLOADS)
    assert not any(is_active(char) for text in (*shown, *names) for char in text), "every such character is written out"


def is_active(char: str) -> bool:
    return (
        char in "\u200b\u200e\u200f\u2060\ufeff\u00ad\x1b\x07\x00\x7f"
        or "\u202a" <= char <= "\u202e"
        or "\u2066" <= char <= "\u2069"
    )


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if is_active(char) else char for char in text)


def visible(text: str) -> str:
    """Return a text without its spaces: how they are laid out does not matter here."""
    return "".join(text.split())


def _hostile(text: str) -> list[ev.Event]:
    """Return events with the text in every field that has one."""
    call = ToolCall("c", text[:2000] or "x", json.dumps({"text": text}, ensure_ascii=False))
    cited = TextBlock(text, citations=(Citation(text[:500], text[:500], text[:500]),))
    answer = Message("assistant", (ReasoningBlock(text), cited, call))
    loss = Loss("dropped", text[:500], text[:500])
    return [
        ev.Configured(at=1.0, model=text[:200], system=(TextBlock(text),)),
        ev.Prompted(at=2.0, run="r", message=Message.user_text(text)),
        ev.ModelCalled(at=3.0, model=text[:200], id="m1", notices=(("k", text),)),
        ev.ModelFailed(at=4.0, error=text[:200], message=text),
        ev.ModelCalled(at=5.0, model=text[:200], id="m2"),
        ev.Replied(at=6.0, message=answer, stop=Stop("tools"), losses=(loss,), problems=(text,)),
        ev.ApprovalAsked(at=7.0, id="a", interrupt="tool", questions=(ev.Question("c", "d", text, text[:200]),)),
    ]
