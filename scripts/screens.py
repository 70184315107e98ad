"""Takes the pictures of the viewer in docs/screens, from the store that its tests make. Needs chromium: `make browser`."""

import asyncio
import shutil
import sys
from pathlib import Path

from playwright.async_api import async_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from evener import MemoryStore  # noqa: E402 - the tests are found from the root
from tests.view.stage import furnish, viewing  # noqa: E402

SCREENS = {
    "threads": ("#/", 1200, "light"),
    "conversation": ("#/log/parser/talk/57", 1200, "light"),
    "waterfall": ("#/log/parser/time", 1200, "dark"),
    "context": ("#/log/parser/context", 1200, "light"),
    "sent": ("#/log/parser/sent", 1200, "dark"),
    "approvals": ("#/approvals", 390, "light"),
}
SETTLED = 1_500
"""Milliseconds for a screen to be drawn."""


async def main() -> None:
    """Write one picture for each screen."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("There is no chromium here. `make browser` installs Debian's.")
    folder = ROOT / "docs" / "screens"
    folder.mkdir(exist_ok=True)
    store = MemoryStore()
    await furnish(store)
    async with viewing(store) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, (path, width, scheme) in SCREENS.items():
            page = await browser.new_page(viewport={"width": width, "height": 760}, color_scheme=scheme)  # type: ignore[arg-type]
            await page.goto(url + path)
            await page.wait_for_timeout(SETTLED)
            await page.screenshot(path=folder / f"{name}.png")
            await page.close()
        await browser.close()


if __name__ == "__main__":
    asyncio.run(main())
