"""The page in a real Chromium: every screen, by keyboard too, in both colours, small and large; and nothing from elsewhere."""

import asyncio
import json
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace
from playwright.async_api import expect

from evener import Harness, MemoryStore
from evener import events as ev
from evener.model import open_model
from evener.store.sqlite.leases import new_claim
from evener.testing import FakeServer, Text
from evener.testing import turn as answer
from evener.testing.scripted_model import ScriptedModel
from evener.transcript.blocks import TextBlock
from tests.model.stage import NOWHERE, fresh_key
from tests.to_the_end import to_the_end
from tests.view.browser import NEEDED, looking
from tests.view.client import fetch
from tests.view.hostile import GROUPS, PAYLOADS, furnish_hostile
from tests.view.stage import furnish, shortened, turn, write
from tests.view.walk import SCREENS, find_harm, walk

pytestmark = NEEDED

FILLED = "() => document.elementFromPoint(600, 425)?.closest('article, form, .chunk[data-full]')"
READY = {**SCREENS, "": "a.thread", "approvals": "form.decide"}
CHECK = (Path(__file__).parent / "accessible.js").read_text(encoding="utf-8")


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
        line = page.locator("a.thread")
        for text in ("Repair the CSV parser", "openai:gpt-5", "urgent", "done", "25k tokens", "$0.0482", "ago"):
            await expect(line).to_contain_text(text)
        await page.get_by_role("searchbox").fill("picture")
        await expect(page.get_by_text("No thread was found.")).to_be_visible()
        await page.get_by_role("searchbox").press("Enter")
        await expect(page.locator(".sum")).to_contain_text("1 thread where it was said")
        await line.click()
        await expect(page.locator("article:focus")).to_contain_text("What is in this picture?")

        await watched.open("#/log/parser/talk/57")
        await expect(page.locator(".markdown table")).to_contain_text("a.py")
        await expect(page.locator(".markdown .code")).to_contain_text("def read_row")
        await expect(page.locator(".row.added").first).to_contain_text("+    return row.split(',')")
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
        call = page.locator("article.call").first
        await expect(call).to_contain_text("300 ms")
        await expect(call.locator(".beside > div").nth(0)).to_contain_text("what: thing 0")
        await expect(call.locator(".beside > div").nth(1).locator(".json")).to_contain_text("places: [2]")
        await call.get_by_role("button", name="raw").nth(1).click()
        await expect(call.locator(".json pre")).to_contain_text('"places": ["a.py", "b.py"]')
        await expect(page.locator("article.assistant").first).to_contain_text(
            "1.0 s · first token 400 ms · 1.0k in · 60 out · $0.0021"
        )
        image = page.locator("article.user img")
        assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 32

        await watched.open("#/log/parser/time")
        await expect(page.locator(".block.retry")).to_have_count(1)
        await page.locator(".span").nth(4).click()
        await expect(page).to_have_url(watched.url + "#/log/parser/talk/56")

        await watched.open("#/log/parser/context")
        await expect(page.get_by_role("img", name="Tokens of 15 requests")).to_be_visible()
        await expect(page.get_by_text("$0.0482").first).to_be_visible()
        await expect(page.get_by_text("window: 400k tokens")).to_be_visible()
        await expect(page.locator(".read-line").first).to_be_attached()
        await expect(page.get_by_role("img", name="Cost: $0.0482")).to_be_visible()
        await expect(page.get_by_role("img", name="Read from the cache: 92 % of the last request")).to_be_visible()
        await page.locator(".request").nth(3).click()
        await expect(page.get_by_role("combobox", name="Request")).to_have_value("16")

        await watched.open("#/log/parser/sent")
        await expect(page.locator(".row.added").first).to_be_visible()
        await page.get_by_label("As another model").fill("anthropic:claude-sonnet-5")
        await page.get_by_role("button", name="Show").click()
        await expect(page.get_by_text("As anthropic:claude-sonnet-5 would get it")).to_be_visible()
        await expect(page.locator(".loss").first).to_be_visible()
        await page.get_by_role("button", name="as a tree").click()
        await expect(page.locator(".json .key").filter(has_text="max_tokens:")).to_be_visible()

        await watched.open(f"#/log/{ids['forked']}/tree")
        await page.get_by_label("right").nth(1).check()
        await expect(page.locator(".side").nth(1)).to_contain_text("Say something else")
        await watched.open(f"#/log/{ids['agents']}/tree")
        await expect(page.get_by_text("Agents inside its calls")).to_be_visible()
        await page.locator(".tree a").last.click()
        await expect(page.get_by_text("Found it.")).to_be_visible()

        await watched.open("#/log/erased/audit")
        await expect(page.get_by_text("The chain of hashes is intact")).to_be_visible()
        await expect(page.locator(".event .tombstone")).to_have_count(2)
        async with page.expect_download() as download:
            await page.get_by_text("Export as HTML").click()
        assert (await download.value).suggested_filename == "erased.html"
        async with page.expect_download() as download:
            await page.get_by_text("Export the thread as JSON lines").click()
        assert (await download.value).suggested_filename == "erased.jsonl"
        await page.locator(".event > summary").nth(1).click()
        await expect(page.locator(".event .json").nth(1)).to_contain_text("model: openai:gpt-5")


@to_the_end
async def test_what_was_sent_is_exact_and_why_the_cache_broke_is_told() -> None:
    store = MemoryStore()
    await write(store, "short", *shortened(1_790_000_000.0))
    with FakeServer("openai_responses", [answer(Text("one")), answer(Text("two"))], models=("gpt-5.5",)) as server:
        model = open_model("openai:gpt-5.5", environ=NOWHERE, key=fresh_key(), base_url=server.url)
        thread = Harness(model, store=store).thread()
        await thread.run("first")
        await thread.run("second")
        await thread.rollback()
        body = server.requests[1].body.decode()
    async with looking(store) as watched:
        page = await watched.open("#/log/short/tree")
        await expect(page.locator(".marks a")).to_have_text(
            ["evicted at event 10: 300 of 900 tokens", "compacted at event 11: 500 of 600 tokens"]
        )
        await page.locator(".marks a").last.click()
        await expect(page.locator("article.context").last).to_contain_text("Thing 0 was found.")
        await watched.open("#/log/short/sent/13")
        await expect(page.get_by_text("the conversation was compacted")).to_be_visible()
        await expect(page.get_by_text("The requests first differ at input[")).to_be_visible()
        await watched.open("#/")
        await page.get_by_text("first", exact=True).click()
        await page.keyboard.press("2")
        await expect(page.locator(".tree li")).to_have_count(2)
        await expect(page.locator(".tree li").nth(1)).to_contain_text("head")
        await page.locator(".tree a").first.click()
        await page.keyboard.press("5")
        await expect(page.get_by_text("Exact: these bytes have the SHA-256")).to_be_visible()
        await page.get_by_role("button", name="bytes").click()
        await expect(page.locator("pre.bytes")).to_have_text(body)


@to_the_end
async def test_a_run_goes_on_from_the_page() -> None:
    """Fork from a message, go on, resume; and without a harness the page says how, on another model, too."""
    store = MemoryStore()
    result = await Harness(ScriptedModel(["one"]), store=store).run("go")
    async with looking(store) as watched:
        page = await watched.open(f"#/log/{result.thread}")
        await page.get_by_label("Say something").fill("more")
        await page.get_by_label("Model (empty: the same)").fill("anthropic:claude-opus-5-5")
        await page.get_by_role("button", name="Send").click()
        await expect(
            page.get_by_text(f"evener chat --store x.db -m anthropic:claude-opus-5-5 -r {result.thread}")
        ).to_be_visible()
        await page.get_by_label("Say something").fill("")
        await page.get_by_label("Model (empty: the same)").fill("")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.get_by_text(f"evener resume --store x.db {result.thread}")).to_be_visible()
    async with looking(store, harness=Harness(ScriptedModel(["two"]), store=store)) as watched:
        page = await watched.open(f"#/log/{result.thread}")
        await page.locator("article.user").hover()
        await page.get_by_role("button", name="Fork after event 3").click()
        await expect(page.get_by_text("A branch begins here, after event 3.")).to_be_visible()
        await page.get_by_label("Say something").fill("something else")
        await page.get_by_role("button", name="Send").click()
        await expect(page.locator("article.assistant")).to_contain_text("two")
        await expect(page.locator("article.end")).to_have_count(1)
        await page.get_by_label("Say something").fill("again")
        await page.get_by_label("Model (empty: the same)").fill("nowhere:none")
        await page.get_by_role("button", name="Send").click()
        await expect(page.get_by_role("alert")).to_contain_text("nowhere")
        watched.said.clear()  # the refusal


@to_the_end
async def test_a_thread_of_any_name_is_shown_forked_and_exported() -> None:
    """Callers name threads as they like, and a command that is shown is for a shell."""
    name = "tenant 7/chat?#1 100% 'ü'"
    store = MemoryStore()
    await Harness(ScriptedModel(["First."]), store=store).thread(name, begin=True).run("Hello")
    async with looking(store) as watched:
        page = await watched.open()
        await page.locator("a.thread").click()
        for place, there in enumerate(SCREENS.values()):
            await page.get_by_role("tab").nth(place).click()
            await expect(page.locator("main").locator(there).first).to_be_visible()
        for link in ("Export as HTML", "Export the thread as JSON lines"):
            async with page.expect_download() as download:
                await page.get_by_text(link).click()
            assert (await (await download.value).path()).stat().st_size > 0
        await page.get_by_role("tab", name="Conversation").click()
        await page.get_by_role("button", name="Resume").click()
        words = ["evener", "resume", "--store", "x.db", name]
        await expect(page.locator(".goon .mark")).to_have_text(f"This viewer has no harness. Run: {shlex.join(words)}")
        await page.locator("article.assistant").get_by_role("button", name="Fork").click()
        await expect(page.get_by_text("A branch begins here")).to_be_visible()
        await watched.open("#/log/%E0%A4%A")
        await expect(page.get_by_role("alert").first).to_contain_text("There is no log")
        watched.said.clear()  # the refusal


@to_the_end
async def test_json_that_is_nested_thousands_deep_is_shown_as_far_as_it_is_opened() -> None:
    events = turn(0, 1_790_000_000.0)
    deep = TextBlock("[" * 5_000 + "]" * 5_000)
    store = MemoryStore()
    await write(store, "deep", *(replace(one, content=(deep,)) if isinstance(one, ev.CallFinished) else one for one in events))
    async with looking(store) as watched:
        page = await watched.open("#/log/deep")
        levels = page.locator("article.call .beside > div:last-child details")
        await expect(levels).to_have_count(20)
        await levels.last.locator("summary").click()
        await expect(levels).to_have_count(40)
        await expect(page.locator("article.end")).to_be_visible()


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
            *(f"#/log/parser/{tab}" for tab in SCREENS),
        ]
        for path in screens:
            page = await watched.open(path)
            await expect(page.locator("main").locator(READY[path.rpartition("/")[2]]).first).to_be_visible()
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
async def test_hostile_texts_in_every_field_run_nothing_on_any_screen() -> None:
    """All texts at once in each field of every event; `python -m bench viewer-hostile` takes them one by one."""
    store = MemoryStore()
    await furnish_hostile(store, {name: "\n\n".join(texts) for name, texts in GROUPS.items()} | {"huge": PAYLOADS[-1]})
    async with looking(store) as watched:
        page = await watched.open()
        await expect(page.locator("a.thread")).to_have_count(len(GROUPS) + 1)
        await page.get_by_role("searchbox").fill("window")
        await page.get_by_role("searchbox").press("Enter")
        await expect(page.locator(".sum")).to_contain_text("where it was said")
        wrong = await find_harm(page)
        for log in (*GROUPS, "huge"):
            wrong += await walk(page, watched.url, log)
            exported = await fetch(f"{watched.url}export/{log}.html")
            assert b"<script" not in exported.body
        assert wrong == []


@to_the_end
async def test_of_two_hundred_hostile_texts_none_runs_and_none_hides_in_an_approval() -> None:
    store = MemoryStore()
    assert len(PAYLOADS) >= 200
    await furnish_hostile(store, {f"h{place:03d}": text for place, text in enumerate(PAYLOADS)})
    async with looking(store) as watched:
        page = await watched.open("#/approvals")
        await expect(page.locator("form.decide")).to_have_count(len(PAYLOADS))
        shown = await page.locator("form.decide pre.arguments").all_text_contents()
        names = await page.locator("form.decide legend code").all_text_contents()
        assert await find_harm(page) == []
        await expect(page.get_by_text("too many for this page")).to_have_count(1)
        assert await page.locator("form.decide button:text-is('approve'):disabled").count() == 1
    wanted = {escaped(json.dumps({"k": text}, indent=1, ensure_ascii=False)) for text in PAYLOADS if len(text) < 200_000}
    assert {visible(text) for text in wanted} <= {visible(text) for text in shown}
    assert len(names) == len(PAYLOADS)
    assert not any(is_active(char) for text in (*shown, *names) for char in text), "every such character is written out"


def is_active(char: str) -> bool:
    return (
        char in "\u2028\u2029\u200b\u200e\u200f\u2060\ufeff\u00ad\x1b\x07\x00\x7f"
        or "\u202a" <= char <= "\u202e"
        or "\u2066" <= char <= "\u2069"
    )


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04x}" if is_active(char) else char for char in text)


def visible(text: str) -> str:
    """Return a text without its spaces: how they are laid out does not matter here."""
    return "".join(text.split())
