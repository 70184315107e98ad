"""A page of an installed Chromium, driven by Playwright (the extra `browser`). It reaches only the hosts that it was given.

All other names and addresses are blocked: for pages, their parts and scripts, redirects, sockets and prefetching. It has a
profile of its own, which is deleted with it: no cookies, no passwords, no downloads.
"""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal, assert_never
from urllib.parse import urlsplit

from evener.encodings.native import actions as a
from evener.errors import UsageError
from evener.local.environment import child_environment
from evener.tools.result import ModelRetry
from evener.toolset.computer.tools import Shot

if TYPE_CHECKING:
    from playwright.async_api import Browser as Chromium
    from playwright.async_api import Dialog, Page, Playwright

__all__ = ["HOSTS", "BrowserComputer", "find_chromium"]

HOSTS = "EVENER_BROWSER_HOSTS"
"""The variable with the hosts of a browser that is asked for by name."""
HOST = re.compile(r"(\*\.)?[\w.-]+|[\w.-]+:\d{1,5}", re.ASCII)
PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
ARGUMENTS = (
    *("--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-proxy-server"),  # a proxy would look names up itself
)
MOST_LATE = 5
"""Times that a visit is begun again because an earlier one has come late."""
SETTLED = 500.0
"""Milliseconds for what an action has begun to be seen."""
LOADED: Literal["domcontentloaded"] = "domcontentloaded"
HISTORY = ("back", "forward", "reload")
"""Words in the place of an address."""
SPELLINGS = {
    "Control": "ctrl control", "ControlOrMeta": "controlormeta", "Meta": "cmd command meta super win windows",
    "Alt": "alt option", "Shift": "shift", "Enter": "enter return kp_enter", "Escape": "esc escape", "Tab": "tab",
    " ": "space spacebar", "Backspace": "backspace", "Delete": "delete del", "Insert": "insert", "Home": "home", "End": "end",
    "PageUp": "pageup page_up prior", "PageDown": "pagedown page_down next", "+": "plus", "-": "minus",
    **{f"Arrow{side}": f"{side.lower()} arrow{side.lower()}" for side in ("Up", "Down", "Left", "Right")},
    **{f"F{number}": f"f{number}" for number in range(1, 13)},
}  # fmt: skip
KEYS = {spelling: key for key, spellings in SPELLINGS.items() for spelling in spellings.split()}
"""Names of keys in all vocabularies, in small letters."""


def find_chromium() -> str:
    """Return the path of the Chromium that is installed; empty if there is none."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), "")


class BrowserComputer:
    """One page. `hosts` are names or addresses that may be reached, each with a port if only that port may; `*.example.org`
    are all hosts below that one. `patience` is in seconds: an action that takes longer is abandoned. It starts with the
    first action; `async with` ends it, and so does the end of its event loop.
    """

    browses = True

    def __init__(
        self, hosts: Iterable[str], *, screen: a.Screen = (1280, 800), program: str = "", patience: float = 30.0
    ) -> None:
        self._hosts = tuple(hosts)
        for host in self._hosts:
            if not HOST.fullmatch(host):
                raise UsageError(f"{host!r} is no host. Write 'docs.python.org', '*.example.org' or '127.0.0.1:8000'.")
        self._program = program
        self._patience = patience * 1000  # milliseconds
        self.screen = screen
        self._page: Page | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: tuple[Playwright, Chromium] | None = None
        self._said: list[str] = []

    async def __aenter__(self) -> "BrowserComputer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the browser. The next action starts another one."""
        opened, self._open, self._page = self._open, None, None
        if opened is not None and self._loop is asyncio.get_running_loop():
            playwright, chromium = opened
            await chromium.close()
            await playwright.stop()

    async def screenshot(self) -> Shot:
        """Return a screenshot of the page."""
        page = await self._ready()
        from playwright.async_api import Error

        try:
            png = await page.screenshot(timeout=self._patience)
        except Error:  # a page that has just changed cannot be taken at once
            await page.wait_for_timeout(2 * SETTLED)
            png = await page.screenshot(timeout=self._patience)
        return Shot(png, page.url)

    async def act(self, action: a.Action) -> str:
        """Perform an action, and return the text of dialogs that appeared meanwhile. Dialogs are dismissed."""
        if isinstance(action, a.Navigate) and action.url not in HISTORY:
            action = a.Navigate(self._check(action.url))
        page = await self._ready()
        from playwright.async_api import Error

        try:
            if isinstance(action, a.Navigate):
                await self._navigate(page, action.url)
            else:
                await self._perform(page, action)
                await page.wait_for_timeout(SETTLED)
            await page.wait_for_load_state(LOADED, timeout=self._patience)
        except Error as error:
            raise ModelRetry(error.message.partition("\n")[0]) from None
        said, self._said = self._said, []
        return "\n".join(said)

    # Acting.

    async def _perform(self, page: "Page", action: a.ScreenAction) -> None:
        match action:
            case a.Screenshot():
                pass
            case a.Click() | a.MouseDown() | a.MouseUp() | a.Move() | a.Drag():
                await self._point(page, action)
            case a.Scroll(dx, dy, at, keys):
                await self._move(page, at)
                async with _hold_keys(page, keys):
                    await page.mouse.wheel(dx, dy)
            case a.Type(text):
                await page.keyboard.type(text)
            case a.Keypress(keys, repeat, seconds):
                for _ in range(repeat):
                    async with _hold_keys(page, keys):
                        await page.wait_for_timeout(seconds * 1000)
            case a.Delay(seconds):
                await page.wait_for_timeout(seconds * 1000)
            case _:
                assert_never(action)

    async def _point(self, page: "Page", action: a.Click | a.MouseDown | a.MouseUp | a.Move | a.Drag) -> None:
        if isinstance(action, a.Drag):
            await self._drag(page, action.path, action.keys)
        elif isinstance(action, a.Click):
            await self._click(page, action)
        else:
            await self._move(page, action.at)
            if isinstance(action, a.MouseDown):
                await page.mouse.down()
            elif isinstance(action, a.MouseUp):
                await page.mouse.up()

    async def _click(self, page: "Page", action: a.Click) -> None:
        button = action.button
        if button == "back" or button == "forward":
            await self._navigate(page, button)
            return
        await self._move(page, action.at)
        async with _hold_keys(page, action.keys):
            for number in range(1, action.count + 1):
                await page.mouse.down(button=button, click_count=number)
                await page.mouse.up(button=button, click_count=number)

    async def _move(self, page: "Page", at: a.Point | None) -> None:
        if at is None:
            return
        if at.x >= self.screen[0] or at.y >= self.screen[1]:
            raise ModelRetry(
                f"({at.x}, {at.y}) is outside of the screen, which has {self.screen[0]} x {self.screen[1]} pixels."
            )
        await page.mouse.move(at.x, at.y)

    async def _drag(self, page: "Page", path: tuple[a.Point, ...], keys: tuple[str, ...]) -> None:
        await self._move(page, path[0])
        async with _hold_keys(page, keys):
            await page.mouse.down()
            for point in path[1:]:
                await self._move(page, point)
            await page.mouse.up()

    async def _navigate(self, page: "Page", url: str) -> None:
        if url == "back":
            await page.go_back(wait_until=LOADED, timeout=self._patience)
        elif url == "forward":
            await page.go_forward(wait_until=LOADED, timeout=self._patience)
        elif url == "reload":
            await page.reload(wait_until=LOADED, timeout=self._patience)
        else:
            await self._visit(page, url)

    async def _visit(self, page: "Page", url: str) -> None:
        """Go to an address. An earlier navigation, such as Chromium's own error page, may still finish late."""
        from playwright.async_api import Error

        for _ in range(MOST_LATE):
            try:
                await page.goto(url, wait_until=LOADED, timeout=self._patience)
                return
            except Error as error:
                if "interrupted by another navigation" not in error.message:
                    raise
            await page.wait_for_timeout(SETTLED)
            if page.url == url:  # it went on nevertheless
                return
        raise ModelRetry(f"{url} was not reached: the page before it keeps opening other addresses.")

    def _check(self, url: str) -> str:
        """Return the address if it may be visited. The browser enforces this itself; this check gives the better message."""
        whole = url if "://" in url else f"https://{url}"
        parts = urlsplit(whole)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ModelRetry("The address must begin with http:// or https:// and name a host, without user and password.")
        named = {parts.hostname, f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"}
        if not any(_fits(one, host) for host in self._hosts for one in named):
            known = f"only {', '.join(self._hosts)}" if self._hosts else f"no host: the user has named none, in {HOSTS}"
            raise ModelRetry(f"{parts.hostname} may not be visited. This browser reaches {known}.")
        return whole

    # The browser.

    async def _ready(self) -> "Page":
        loop = asyncio.get_running_loop()
        if self._page is not None and self._loop is loop and not self._page.is_closed():
            return self._page
        await self.aclose()
        self._loop = loop
        self._page = await self._start()
        return self._page

    async def _start(self) -> "Page":
        try:
            from playwright.async_api import async_playwright
        except ImportError:
            raise UsageError("A browser needs Playwright: pip install 'evener[browser]'.") from None
        program = self._program or find_chromium()
        if not program:
            raise UsageError("A browser needs a Chromium, and none of that name is installed. Install one, or give its path.")
        playwright = await async_playwright().start()
        rules = [f"MAP {one} {one}" if ":" in one else f"EXCLUDE {one}" for one in self._hosts]
        known = f"--host-resolver-rules={', '.join([*rules, 'MAP * ~NOTFOUND'])}"
        root = sys.platform != "win32" and os.geteuid() == 0  # which Chromium gives no sandbox
        arguments = [*ARGUMENTS, known, *(["--no-sandbox"] if root else [])]
        proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        chromium = await playwright.chromium.launch(
            executable_path=program, args=arguments, timeout=self._patience, env={**child_environment(os.environ), **proxies}
        )
        self._open = (playwright, chromium)
        context = await chromium.new_context(
            viewport={"width": self.screen[0], "height": self.screen[1]}, accept_downloads=False, service_workers="block"
        )
        context.on("page", self._follow)
        return await context.new_page()

    async def _follow(self, page: "Page") -> None:
        """Use the page that was opened last. Dialogs are dismissed, and their text is reported."""
        page.on("dialog", self._dismiss)
        page.set_default_timeout(self._patience)
        self._page = page

    async def _dismiss(self, dialog: "Dialog") -> None:
        self._said.append(f"A dialog ({dialog.type}) was dismissed: {dialog.message[:500]}")
        await dialog.dismiss()


@asynccontextmanager
async def _hold_keys(page: "Page", keys: Iterable[str]) -> AsyncIterator[None]:
    """Hold keys down during the block."""
    named = [KEYS.get(key.lower(), key) for key in keys]
    for key in named:
        await page.keyboard.down(key)
    try:
        yield
    finally:
        for key in reversed(named):
            await page.keyboard.up(key)


def _fits(host: str, allowed: str) -> bool:
    return host.endswith(allowed[1:]) if allowed.startswith("*.") else host == allowed
