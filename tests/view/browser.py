"""A real Chromium on a viewer: what its page says on the console and asks for is watched."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Page, async_playwright, expect

from evener import Harness
from evener.store.protocol import Store
from tests.patience import PATIENCE
from tests.view.stage import viewing

SOON = PATIENCE * 1000
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
NEEDED = pytest.mark.skipif(not CHROMIUM, reason="There is no chromium here. `make browser` installs Debian's.")
ARGUMENTS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync"
).split()

expect.set_options(timeout=SOON)


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
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=SOON)
        try:
            context = await browser.new_context(viewport={"width": width, "height": 850}, color_scheme=scheme)  # type: ignore[arg-type]
            watched = Watched(await context.new_page(), url)
            yield watched
            watched.check()
        finally:
            await browser.close()
