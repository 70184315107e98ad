"""`evener view`: serves the viewer on loopback and opens it in the browser. Reads the store; writes decisions and forks."""

import asyncio
import os
import tempfile
import webbrowser
from contextlib import suppress
from html import escape
from pathlib import Path
from threading import Thread
from urllib.parse import quote

from evener.cli.approvals import user_name
from evener.cli.commands.run import AgentOptions, make_harness
from evener.cli.names import find_log
from evener.cli.stores import open_store, same_store
from evener.cli.terminal import say
from evener.errors import UsageError
from evener.harness import Harness
from evener.store.protocol import Store
from evener.transport.loopback import open_socket

INSTALL = "The viewer is not installed. Install it with: pip install 'evener[view]'."


class ViewOptions(AgentOptions, frozen=True, kw_only=True):
    """The options of the command. With a harness, tools or a model, runs can be resumed from the page."""

    id: str = ""
    port: int = 0
    no_browser: bool = False


def run(options: ViewOptions) -> int:
    """Serve until Ctrl-C."""
    harness = make_harness(options) if options.harness or options.tools or options.model else None
    store = harness.store if harness and options.harness else open_store(options.store)
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(store, harness, options))
    return 0


async def _serve(store: Store, harness: Harness | None, options: ViewOptions) -> None:
    try:
        from evener.view.server import Viewer, serve
    except ImportError:
        raise UsageError(INSTALL) from None
    log = await store.head(await find_log(store, options.id)) if options.id else ""

    def tell(url: str) -> None:
        address = url + (f"#/log/{quote(log, safe='')}" if log else "")
        say(f"evener: The viewer is at {address}\nevener: The address contains a secret: do not share it. Ctrl-C ends it.")
        if not options.no_browser:
            pages.append(_open(address))

    pages: list[Path] = []
    viewer = Viewer(store, harness=harness, by=user_name(), words=same_store(options.store))
    try:
        await serve(viewer, open_socket(options.port), tell)
    finally:
        for page in pages:
            page.unlink(missing_ok=True)
        await store.aclose()


def _open(url: str) -> Path:
    """Open the browser by a file that only the user can read, and return it: others can read the words of a process."""
    file, path = tempfile.mkstemp(prefix="evener-view-", suffix=".html")
    with os.fdopen(file, "w") as page:
        page.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(url)}">')
    # Some browsers are waited for, for seconds or until they end: meanwhile the viewer must answer them.
    Thread(target=webbrowser.open, args=(f"file://{path}",), daemon=True).start()
    return Path(path)
