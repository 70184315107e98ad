"""Takes the pictures of the command line in docs/screens: a chat and a list in tmux, and an exported page in chromium.

Needs tmux and chromium (`make browser`). The models are scripted: what is shown is what the commands print for them.
"""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.async_api import async_playwright
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from evener.testing.servers import Call, FakeServer, turn  # noqa: E402 - the tests are found from the root
from tests.cli.kept import said  # noqa: E402
from tests.cli.run import Home, command  # noqa: E402
from tests.cli.tmux import PROGRAM, Tmux  # noqa: E402

FOLDER = ROOT / "docs" / "screens"
FONTS = re.compile(r"@font-face \{.*?\}", re.DOTALL)
COLUMNS = 88
TOOLS = '''
from evener import tool


@tool(effect="read")
def orders(status: str) -> str:
    """List the orders of a status."""
    return "A-17, late by 3 days\\nA-21, late by 1 day"


@tool(effect="read")
def carrier(order: str) -> str:
    """Ask the carrier where an order is."""
    raise TimeoutError("the carrier did not answer")


@tool(effect="write", approval=True)
def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return f"refunded {amount} for {order}"


shop = [orders, carrier, refund]
'''
ANSWER = (
    "Two orders are late:\n\n| order | late by |\n|---|---|\n| A-17 | 3 days |\n| A-21 | 1 day |\n\nShall I refund **A-17**?"
)


def chat(home: Home, server: FakeServer) -> str:
    """Chat as a user would; return the screen with its colours."""
    server.add(turn(Call("orders", {"status": "late"}), Call("carrier", {"order": "A-17"})), ANSWER)
    server.add(turn(Call("refund", {"order": "A-17", "amount": 40})), "The 40 euros are on their way.")
    with Tmux(home, command("chat", "--tools", "shop:shop"), columns=COLUMNS, rows=38) as pane:
        pane.until("/help for commands")
        pane.say("Which orders are late?")
        pane.until("Shall I refund")
        pane.say("Yes.")
        pane.until("[y]es")
        pane.keys("y")
        pane.until("on their way")
        time.sleep(0.5)
        return pane.screen(colours=True)


def threads(home: Home) -> str:
    """List threads; return the screen with its colours."""
    for prompt in (
        "Compare the prices of our three carriers.",
        "Summarise the complaints of this week, by product and by carrier.",
        "Translate the manual.",
    ):
        said(home, prompt, "Done.", name="run")
    said(home, "Find the cheapest carrier for 40 kg to Oslo.", turns=1)
    with Tmux(home, ["sh", "-c", f"{' '.join(command('threads'))}; sleep 600"], columns=COLUMNS, rows=9) as pane:
        pane.until("TITLE")
        time.sleep(0.5)
        return pane.screen(colours=True)


def write_svg(name: str, screen: str, title: str) -> None:
    """Draw a screen. Its fonts are those of the reader: nothing is fetched from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi(screen.rstrip("\n")))
    picture = FONTS.sub("", console.export_svg(title=title, unique_id=f"evener-{name}"))
    (FOLDER / f"{name}.svg").write_text(picture.replace("Fira Code", "DejaVu Sans Mono"), encoding="utf-8")


async def write_page(home: Home, thread: str) -> None:
    """Export a thread as a page, and take its picture."""
    page = home.folder / "thread.html"
    done = subprocess.run(command("export", "--html", "-o", str(page), thread), cwd=home.folder, env=home.environ, check=True)
    assert done.returncode == 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            shown = await browser.new_page(viewport={"width": 900, "height": 900}, color_scheme=scheme)
            await shown.goto(page.as_uri())
            await shown.screenshot(path=FOLDER / f"export-{scheme}.png")
        await browser.close()


def main() -> None:
    """Write all pictures."""
    if PROGRAM is None or shutil.which("chromium") is None:
        raise SystemExit("There is no tmux or no chromium here. `make browser` installs Debian's.")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, FakeServer("anthropic_messages", key="k") as server:
        home = Home(Path(folder), ANTHROPIC_API_KEY="k", LOGNAME="ann")
        home.configure(f'model = "anthropic:claude-opus-4-5"\n[providers.anthropic]\nbase_url = "{server.url}"\n')
        (home.folder / "shop.py").write_text(TOOLS, encoding="utf-8")
        write_svg("chat", chat(home, server), "evener chat --tools shop:shop")
        listed = subprocess.run(
            command("threads", "--json"), cwd=home.folder, env=home.environ, capture_output=True, check=True
        )
        thread = re.search(rb'"thread": "(\w+)"', listed.stdout)
        assert thread is not None
        asyncio.run(write_page(home, thread[1].decode()))
        write_svg("list", threads(home), "evener threads")


if __name__ == "__main__":
    main()
