"""How fast the viewer is in a real Chromium: a long thread, many threads, and runs under way.

The viewer runs in a process of its own. Each figure is the median of several tries by the page's own clock, each with a new
viewer where it says so. Beside it is what it cost: time in the page's scripts and layout, CPU time of the viewer, requests,
bytes. The costs mean something on a busy machine; the milliseconds hardly do, so the load is printed, too.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from bench.viewer_driver import PIECES, RATE
from evener import Harness, SqliteStore
from evener.store.sqlite.leases import new_claim
from evener.testing.scripted_model import ScriptedModel
from tests.view.stage import turn, write

__all__ = ["main"]

OPENS, FILTERS, BEHIND = 1_000.0, 300.0, 1_000.0
"""Milliseconds: to open a thread of 10,000 events, to list or filter 10,000 threads, to show what was just said."""
EVENTS = 8
"""Events of one turn of the stage."""
RUNS = 5
TRIES = 3
PATIENCE = 60_000
"""Milliseconds after which a page is given up."""
WHOLE = 1_200
"""Seconds after which the whole is given up."""

FIRST = """([path, wanted]) => new Promise((done) => {
  const begun = performance.now(); location.hash = path;
  const look = () => document.querySelector(wanted) ? done(performance.now() - begun) : requestAnimationFrame(look);
  look(); })"""
TYPE = """([words, wanted]) => new Promise((done) => {
  const field = document.querySelector("input[type=search]"), begun = performance.now();
  field.value = words; field.dispatchEvent(new Event("input", { bubbles: true }));
  const look = () => document.querySelector(".sum").textContent.startsWith(wanted) ? done(performance.now() - begun)
    : requestAnimationFrame(look);
  look(); })"""
PRESS = """([name, wanted]) => new Promise((done) => {
  const begun = performance.now();
  [...document.querySelectorAll(".chips button")].find((one) => one.textContent.startsWith(name)).click();
  const look = () => document.querySelector(".sum").textContent.startsWith(wanted) ? done(performance.now() - begun)
    : requestAnimationFrame(look);
  look(); })"""
GAPS = """() => new Promise((done) => {
  let gaps = 0, steps = 0;
  const step = () => {
    const box = document.elementFromPoint(innerWidth / 2, innerHeight / 2);
    if (steps > 0 && !(box && box.closest("article, form, .chunk[data-full]"))) gaps += 1;
    if (steps === 120) return done([gaps, steps]);
    steps += 1; scrollBy(0, 600); requestAnimationFrame(() => requestAnimationFrame(step));
  };
  step(); })"""
FLOOR = """() => new Promise((done) => {
  const begun = performance.now();
  const end = () => requestAnimationFrame(() => done(performance.now() - begun));
  fetch("icon.svg").then((found) => found.text()).then(end); })"""
SHOWN = """() => document.querySelector(".head .id").textContent.includes("EVENTS")
  && [...document.querySelectorAll("article.user")].at(-1)?.textContent.includes("LAST")"""
LAGS = """() => new Promise((done) => {
  const lags = [];
  let last = "";
  const watch = new MutationObserver(() => {
    const text = document.querySelector("article.typing .plain")?.textContent || "";
    const told = text.slice(text.lastIndexOf(" ") + 1);
    if (told !== last && /^\\d+$/.test(told)) { lags.push(Date.now() - Number(told)); last = told; }
    if (document.querySelectorAll("article.end").length === 2) end();
  });
  const end = () => { watch.disconnect(); done(lags); };
  setTimeout(end, 50000);
  watch.observe(document.querySelector("main"), { childList: true, characterData: true, subtree: true }); })"""
SIZES = """() => { const all = performance.getEntriesByType("resource");
  return [all.length, all.reduce((sum, one) => sum + one.transferSize, 0)]; }"""


class Cost(msgspec.Struct):
    """What something took: milliseconds by the page's clock, in its scripts, in its layout and of the viewer's CPU."""

    took: float
    script: float = 0.0
    layout: float = 0.0
    viewer: float = 0.0
    requests: float = 0.0
    kilobytes: float = 0.0


class Figure(msgspec.Struct):
    """One line: the median of several tries, and its limit; no limit where it is negative."""

    what: str
    tries: list[Cost]
    limit: float = -1.0

    @property
    def middle(self) -> Cost:
        """Return the median of each part."""
        return Cost(*(median(getattr(one, name) for one in self.tries) for name in Cost.__struct_fields__))

    @property
    def missed(self) -> bool:
        """True if its limit is missed."""
        return 0 <= self.limit < self.middle.took


def main(events: int, threads: int) -> int:
    """Print the figures; 1 if a limit is missed."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("bench: there is no chromium here. `make browser` installs Debian's.", file=sys.stderr)
        return 1
    print(f"load of this machine: {os.getloadavg()[0] / (os.cpu_count() or 1):.1f} a core; medians of {TRIES} tries")
    print(f"{'':66}{'median':>8}{'limit':>8}   script  layout  viewer  requests       kB")
    figures = asyncio.run(_measure(chromium, events, threads))
    return 1 if any(one.missed for one in figures) else 0


def _print(one: Figure) -> None:
    middle, limit = one.middle, f"{one.limit:,.0f}" if one.limit >= 0 else ""
    costs = f"{middle.script:9,.0f}{middle.layout:8,.0f}{middle.viewer:8,.0f}{middle.requests:10,.0f}{middle.kilobytes:9,.0f}"
    print(f"{one.what:66}{middle.took:8,.0f}{limit:>8}{costs}{'   MISSED' if one.missed else ''}", flush=True)


async def _measure(chromium: str, events: int, threads: int) -> list[Figure]:
    from playwright.async_api import async_playwright

    figures: list[Figure] = []
    with TemporaryDirectory(prefix="evener-view-") as folder:
        async with asyncio.timeout(WHOLE), async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
            )
            parts = (
                partial(_long, events=events),
                partial(_many, threads=threads),
                _written,
                _said,
            )
            for part in parts:
                for figure in await part(browser, folder):
                    _print(figure)
                    figures.append(figure)
            await browser.close()
    return figures


async def _long(browser: Any, folder: str, events: int) -> list[Figure]:
    path, turns = f"{folder}/long.db", range(events // EVENTS)
    store = SqliteStore(path)
    await write(store, "long", *(one for n in turns for one in turn(n, 1_790_000_000.0 + 3 * n, text=f"thing {n} is here")))
    await store.aclose()
    floor = Figure("a request for a small file, and a frame: what nothing can be faster than (ms)", [])
    opened = Figure(f"open a thread of {events:,} events, with a new viewer (ms)", [], OPENS)
    again = Figure("open it again (ms)", [], OPENS)
    gaps = Figure("frames without content while scrolling 120 times 600 pixels", [], 0)
    for _ in range(TRIES):
        async with _viewer(browser, path) as seen:
            await seen.page.wait_for_selector("a.thread")
            floor.tries.append(await seen.cost(lambda: seen.page.evaluate(FLOOR)))
            opened.tries.append(await seen.cost(lambda: seen.page.evaluate(FIRST, ["#/log/long", "article.message"])))
            gaps.tries.append(await seen.cost(_scroll(seen.page)))
            await seen.page.evaluate(FIRST, ["#/", "a.thread"])
            again.tries.append(await seen.cost(lambda: seen.page.evaluate(FIRST, ["#/log/long", "article.message"])))
    return [floor, opened, again, gaps]


def _scroll(page: Any) -> Callable[[], Awaitable[float]]:
    async def scroll() -> float:
        gaps, _ = await page.evaluate(GAPS)
        return float(gaps)

    return scroll


async def _many(browser: Any, folder: str, threads: int) -> list[Figure]:
    path = f"{folder}/many.db"
    store = SqliteStore(path)
    for n in range(threads):
        await write(store, f"t{n:05d}", *turn(n, 1_790_000_000.0 + n)[:1])
    await store.aclose()
    first = Figure(f"list {threads:,} threads, with a new viewer (ms)", [], FILTERS)
    words = Figure(f"filter {threads:,} threads by words (ms)", [], FILTERS)
    cleared = Figure("clear the filter: the whole list again (ms)", [], FILTERS)
    state = Figure(f"filter {threads:,} threads by state (ms)", [], FILTERS)
    everything = f"{threads:,} threads"
    for _ in range(TRIES):
        async with _viewer(browser, path, "#/log/none") as seen:
            await seen.page.wait_for_selector("main section")
            first.tries.append(await seen.cost(lambda: seen.page.evaluate(FIRST, ["#/", "a.thread"])))
            read = "() => !document.querySelector('.sum').textContent.includes('reading')"
            await seen.page.wait_for_function(read)
            for figure, script, what in (
                (words, TYPE, [f"thing {threads - 7},", "1 thread,"]),
                (cleared, TYPE, ["", everything]),
                (state, PRESS, ["waiting", "0 threads"]),
            ):
                figure.tries.append(await seen.cost(lambda script=script, what=what: seen.page.evaluate(script, what)))  # type: ignore[misc]
    return [first, words, cleared, state]


async def _written(browser: Any, folder: str) -> list[Figure]:
    """Five logs at once, a hundred events a second each, written by another process: when the page shows the last."""
    path, turns = f"{folder}/written.db", 4 * RATE // EVENTS
    store = SqliteStore(path)
    behind = Figure(f"{RUNS} logs at {RATE} events a second: after the last event until it is shown (ms)", [], BEHIND)
    for attempt in range(TRIES):
        names = [f"run{attempt}-{n}" for n in range(RUNS)]
        for name in names:
            await write(store, name)
        async with _viewer(browser, path, f"#/log/{names[0]}") as seen:
            await seen.page.wait_for_selector("form.goon")
            told = f"{turns * EVENTS + 1:,} events"
            ended = SHOWN.replace("EVENTS", told).replace("LAST", f"thing {turns - 1},")

            async def work(ended: str = ended, names: list[str] = names, seen: "Seen" = seen) -> float:
                async with asyncio.TaskGroup() as group:
                    for name in names:
                        group.create_task(_write_paced(store, name, turns))
                begun = asyncio.get_running_loop().time()
                await seen.page.wait_for_function(ended)
                return (asyncio.get_running_loop().time() - begun) * 1000

            behind.tries.append(await seen.cost(work))
    await store.aclose()
    return [behind]


async def _write_paced(store: SqliteStore, name: str, turns: int) -> None:
    log, _ = await store.open(name, holder=new_claim())
    clock = asyncio.get_running_loop().time
    begun, said = clock(), 0
    for n in range(turns):
        for event in turn(n, 1_790_000_000.0 + n):
            said += 1
            await asyncio.sleep(max(0.0, begun + said / RATE - clock()))
            await log.append(event)
    await log.aclose()


async def _said(browser: Any, folder: str) -> list[Figure]:
    """Five runs begun by five pages, a hundred deltas a second each: how old what a page shows is when it is drawn."""
    path = f"{folder}/said.db"
    usual = Figure(f"{RUNS} runs at {RATE} deltas a second: age of the last one shown (ms)", [], BEHIND)
    late = Figure("the same in the last second of the runs: no more than before (ms)", [], BEHIND)
    worst = Figure("the same, at worst (ms)", [])
    for _ in range(TRIES):
        store = SqliteStore(path)
        logs = [(await Harness(ScriptedModel(["ready"]), store=store).run(f"run {n}")).thread for n in range(RUNS)]
        await store.aclose()
        async with _viewer(browser, path, f"#/log/{logs[0]}", *(f"#/log/{log}" for log in logs[1:])) as seen:
            for page in seen.pages:
                await page.get_by_label("Say something").fill("go")

            async def work(seen: "Seen" = seen) -> float:
                watching = [asyncio.create_task(page.evaluate(LAGS)) for page in seen.pages]
                await asyncio.gather(*(page.get_by_role("button", name="Send").click() for page in seen.pages))
                lags = [await one for one in watching]
                late.tries.append(Cost(median(lag for of_page in lags for lag in of_page[-len(of_page) * RATE // PIECES :])))
                worst.tries.append(Cost(max(lag for of_page in lags for lag in of_page)))
                return float(median(lag for of_page in lags for lag in of_page))

            usual.tries.append(await seen.cost(work))
    return [usual, late, worst]


class Seen:
    """Pages, and the process of the viewer that they show."""

    def __init__(self, sessions: dict[Any, Any], process: int) -> None:
        self.pages, self._sessions, self._process = list(sessions), sessions, process
        self.page = self.pages[0]

    async def cost(self, work: Callable[[], Awaitable[float]]) -> Cost:
        """Do something that says how long it took, and return what it cost. Of several pages the costs are summed."""
        before = await self._sums()
        took = await work()
        return Cost(took, *(later - earlier for earlier, later in zip(before, await self._sums(), strict=True)))

    async def _sums(self) -> list[float]:
        sums = [0.0] * 5
        for page in self.pages:
            metrics = await self._sessions[page].send("Performance.getMetrics")
            told = {one["name"]: one["value"] for one in metrics["metrics"]}
            requests, size = await page.evaluate(SIZES)
            layout = told["LayoutDuration"] + told["RecalcStyleDuration"]
            parts = (told["ScriptDuration"] * 1000, layout * 1000, 0.0, requests, size / 1000)
            sums = [one + other for one, other in zip(sums, parts, strict=True)]
        sums[2] = _cpu_of(self._process)
        return sums


def _cpu_of(process: int) -> float:
    """Return the CPU time of a process, in milliseconds."""
    parts = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) * 1000 / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def _viewer(browser: Any, path: str, *screens: str) -> AsyncIterator[Seen]:
    """Serve a store from a new process, and open a page for each screen."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.viewer_driver", path, stdout=asyncio.subprocess.PIPE
    )
    contexts = []
    try:
        assert process.stdout is not None
        url = (await process.stdout.readline()).decode().strip()
        sessions = {}
        for screen in screens or ("#/",):
            contexts.append(await browser.new_context(viewport={"width": 1200, "height": 850}))
            page = await contexts[-1].new_page()
            page.set_default_timeout(PATIENCE)
            sessions[page] = await contexts[-1].new_cdp_session(page)
            await sessions[page].send("Performance.enable")
            await page.goto(url + screen)
        yield Seen(sessions, process.pid)
    finally:
        for context in contexts:
            await context.close()
        process.terminate()
        await process.wait()
