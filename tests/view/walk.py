"""A walk over the screens of one thread, and what must not be found on any of them, whatever the thread holds."""

from pathlib import Path

from playwright.async_api import Page

SCREENS = {
    "talk": "article.end",
    "tree": "ul.tree li",
    "time": ".span",
    "context": ".request",
    "sent": ".empty, .problem, pre",
    "audit": ".event",
}
"""What each shows when it is there."""
HARMLESS = (Path(__file__).parent / "harmless.js").read_text(encoding="utf-8")


async def find_harm(page: Page) -> list[str]:
    """Return what ran, was loaded, or was hidden on this screen, with everything that is folded laid open."""
    found: list[str] = await page.evaluate(HARMLESS)
    return found


async def walk(page: Page, url: str, log: str) -> list[str]:
    """Look at a thread on all screens. Return what was wrong."""
    wrong = []
    for screen, there in SCREENS.items():
        await page.goto(f"{url}#/log/{log}/{screen}")
        await page.wait_for_selector(f"[role=tab][aria-selected=true][href='#/log/{log}/{screen}']")
        await page.locator("main").locator(there).first.wait_for(state="attached")
        wrong += [f"{log}/{screen}: {one}" for one in await find_harm(page)]
    return wrong
