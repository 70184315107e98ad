"""Takes the pictures of the viewer in docs/screens, of runs against a fake provider. Needs chromium: `make browser`."""

import asyncio
import shutil
import sys
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from playwright.async_api import async_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from evener import Harness, SqliteStore  # noqa: E402 - the tests are found from the root
from evener import events as ev  # noqa: E402
from evener.model import open_model  # noqa: E402
from evener.testing import Call, FakeServer, Text, turn  # noqa: E402
from evener.testing.scripted_model import ScriptedModel, calls  # noqa: E402
from evener.transcript.blocks import ReasoningBlock, TextBlock, ToolCall  # noqa: E402
from evener.transcript.message import Message  # noqa: E402
from evener.transcript.reply import Stop, Usage  # noqa: E402
from tests.view.stage import ANSWER, PATCH, edit, look, viewing, write  # noqa: E402

SCREENS = {
    "threads": ("#/", 1200, "light"),
    "conversation": ("#/log/parser", 1200, "light"),
    "waterfall": ("#/log/parser/time", 1200, "dark"),
    "context": ("#/log/parser/context", 1200, "light"),
    "sent": ("#/log/{sent}/sent", 1200, "dark"),
    "approvals": ("#/approvals", 390, "light"),
}
SETTLED = 1_500
"""Milliseconds for a screen to be drawn."""
TITLES = [
    ("Why does the nightly import skip rows?", "anthropic:claude-sonnet-5", "done"),
    ("Summarise the incident of Tuesday", "google:gemini-3-pro", "done"),
    ("Write release notes for 2.4", "openai:gpt-5", "done"),
    ("Translate the manual to French", "mistral:mistral-large", "limit"),
    ("Find flaky tests in the last 200 builds", "anthropic:claude-sonnet-5", "done"),
    ("Compare three vendors of scales", "openai:gpt-5", "provider_error"),
]


def one_run(name: str, at: float, model: str, cause: str) -> list[ev.Event]:
    """Return a short run."""
    usage = Usage(21_400, 3_100, 18_300, 0, 900, 200)
    said = Message("assistant", (TextBlock("Done."),), usage=usage)
    return [
        ev.Configured(at=at, model=model),
        ev.Prompted(at=at, run="r", message=Message.user_text(name)),
        ev.ModelCalled(at=at + 0.1, model=model, id="m"),
        ev.Replied(at=at + 4, message=said, stop=Stop("done"), cost=Decimal("0.0631"), seconds=3.9, first=0.6),
        ev.Finished(at=at + 4, run="r", cause=cause),  # type: ignore[arg-type]
    ]


def long_run(at: float) -> list[ev.Event]:
    """Return a run with many requests, a retry and a compaction."""
    found: list[ev.Event] = [
        ev.Configured(
            at=at, model="openai:gpt-5", system=(TextBlock("You repair parsers. " * 90),), tools=(look.spec, edit.spec)
        ),
        ev.Prompted(
            at=at, run="r", message=Message.user_text("The CSV parser drops the last field of each row. Find out why.")
        ),
    ]
    held, now = 1_900, at
    for n in range(14):
        if n == 9:
            summary = Message.user_text("The parser is in a.py; `read_row` cuts the last field. Tests are in test_rows.py.")
            last = next(event.message.id for event in found[::-1] if isinstance(event, ev.Replied))
            used = Usage(held, held, 0, 0, 420)
            found.append(
                ev.Compacted(
                    at=now + 4, id="k", summary=summary, until=last, tokens=held, saved=held - 4_000, model="openai:gpt-5",
                    usage=used, cost=Decimal("0.02"),
                )
            )  # fmt: skip
            held, now = 4_000, now + 4
        if n == 3:
            found += [
                ev.ModelCalled(at=now + 0.1, model="openai:gpt-5", id="x"),
                ev.ModelFailed(at=now + 0.9, error="RateLimited", message="Too many requests (HTTP 429).", retryable=True),
            ]
            now += 3
        cached = 0 if n in (0, 9) else int(held * 0.9)
        usage = Usage(held, held - cached, cached, 0, 260, 120)
        call = ToolCall.of(f"c{n}", "look", {"what": f"rows {n * 40} to {n * 40 + 39}"})
        asks = Message("assistant", (ReasoningBlock("The header has five fields, the rows have four."), call), usage=usage)
        result = PATCH if n == 0 else "\n".join(f"row {n * 40 + k}: id,name,price,unit" for k in range(60 + 12 * n))
        found += [
            ev.ModelCalled(at=now + 0.1, model="openai:gpt-5", id=f"m{n}"),
            ev.Replied(at=now + 1.4, message=asks, stop=Stop("tools"), cost=Decimal("0.0112"), seconds=1.3, first=0.4),
            ev.CallStarted(at=now + 1.5, call=call.id, tool="look", key=f"k{n}"),
            ev.CallFinished(at=now + 2.2, call=call.id, ok=True, content=(TextBlock(result),), seconds=0.7),
        ]
        held, now = held + 900 + 180 * n, now + 2.3
    says = Message("assistant", (TextBlock(ANSWER),), usage=Usage(held, held // 10, held - held // 10, 0, 400, 100))
    return [
        *found,
        ev.ModelCalled(at=now, model="openai:gpt-5", id="last"),
        ev.Replied(at=now + 3, message=says, stop=Stop("done"), cost=Decimal("0.021"), seconds=3, first=0.5),
        ev.Finished(at=now + 3, run="r", cause="done"),
    ]


async def furnish(store: SqliteStore) -> str:
    """Fill the store; the thread whose requests are known to the byte."""
    now = time()
    for place, (title, model, cause) in enumerate(TITLES):
        await write(store, f"thread{place}", *one_run(title, now - 86_400 * (6 - place), model, cause))
    await write(store, "parser", *long_run(now - 4_000))
    await store.describe("parser", title="Repair the CSV parser", tags=["csv", "urgent"])
    change = {"path": "src/rows.py", "old_string": "row.split(',')[:-1]", "new_string": "row.split(',')"}
    asking = ScriptedModel([calls(ToolCall.of("e1", "edit", change))], name="openai:gpt-5")
    await Harness(asking, tools=[look, edit], store=store, name="editor").run("Repair read_row, then run the tests")
    script = [turn(Call("look", {"what": "rows"})), turn(Text("It cuts the last field."))]
    with FakeServer("openai_responses", script, models=("gpt-5.5",)) as server:
        answering = open_model("openai:gpt-5.5", key="not-a-key", base_url=server.url)
        result = await Harness(answering, tools=[look, edit], store=store, system="You repair parsers.").run(
            "What does read_row do?"
        )
    return result.thread


async def main() -> None:
    """Write one picture for each screen."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("There is no chromium here. `make browser` installs Debian's.")
    folder = ROOT / "docs" / "screens"
    folder.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="evener-screens-") as kept:
        store = SqliteStore(Path(kept) / "store.db")
        sent = await furnish(store)
        async with viewing(store) as url, async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name, (path, width, scheme) in SCREENS.items():
                page = await browser.new_page(viewport={"width": width, "height": 760}, color_scheme=scheme)  # type: ignore[arg-type]
                await page.goto(url + path.replace("{sent}", sent))
                await page.wait_for_selector("main section")
                await page.wait_for_timeout(SETTLED)
                await page.screenshot(path=folder / f"{name}.png")
                await page.close()
            await browser.close()
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main())
