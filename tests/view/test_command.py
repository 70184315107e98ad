"""`evener view` as a process: what it opens in the browser, and what it leaves on the disk."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import sync_playwright

from evener import Harness
from evener.testing import ScriptedModel
from tests.patience import PATIENCE, wait_until
from tests.view.browser import ARGUMENTS, CHROMIUM, NEEDED, SOON

BROWSER = """
import os, sys
from pathlib import Path

page = Path(sys.argv[1].removeprefix("file://"))
seen = f"{page.stat().st_mode & 0o777:o} {page.read_text()}"
Path("seen.part").write_text(seen)
os.rename("seen.part", "seen")
"""


@contextmanager
def viewer_in(folder: Path) -> Iterator[str]:
    """Run the command in a folder, and give the mode and the text of the page that it opens. In the end it is interrupted."""
    (folder / "browser.py").write_text(BROWSER, encoding="utf-8")
    Harness(ScriptedModel(["Hi."]), store=str(folder / "runs.db")).run_sync("Hello")
    environ = {
        **os.environ,
        "BROWSER": f"{sys.executable} browser.py %s",
        "TMPDIR": str(folder),
        "EVENER_HOME": str(folder / "home"),
    }
    command = [sys.executable, "-m", "evener", "view", "--store", "runs.db"]
    with subprocess.Popen(command, cwd=folder, env=environ, stderr=subprocess.PIPE) as viewer:
        try:
            wait_until((folder / "seen").exists)
            yield (folder / "seen").read_text(encoding="utf-8")
            viewer.send_signal(signal.SIGINT)
            viewer.wait(PATIENCE)
        finally:
            viewer.kill()


def test_the_page_that_opens_the_viewer_is_private_and_is_deleted_at_the_end(tmp_path: Path) -> None:
    with viewer_in(tmp_path) as seen:
        assert len(list(tmp_path.glob("evener-view-*"))) == 1
    mode, _, page = seen.partition(" ")
    assert mode == "600"
    assert "http://127.0.0.1:" in page
    assert list(tmp_path.glob("evener-view-*")) == []


@NEEDED
def test_the_page_that_is_opened_leads_a_real_browser_to_the_viewer(tmp_path: Path) -> None:
    """A browser says that it was sent there by another site: a file."""
    with viewer_in(tmp_path), sync_playwright() as playwright:
        (opened,) = tmp_path.glob("evener-view-*")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=SOON)
        page = browser.new_page()
        page.goto(f"file://{opened}")
        page.get_by_text("live", exact=True).wait_for(timeout=SOON)
        page.reload()
        page.get_by_text("live", exact=True).wait_for(timeout=SOON)
        browser.close()


READER = """
import os, re, sys
from pathlib import Path
from urllib.request import urlopen

page = Path(sys.argv[1].removeprefix("file://")).read_text()
with urlopen(re.search('url=([^"]+)"', page)[1]) as answer:  # it ends when it has seen the page
    Path("status.part").write_text(str(answer.status))
os.rename("status.part", "status")
"""


def test_the_viewer_answers_a_browser_that_runs_in_the_foreground(tmp_path: Path) -> None:
    """`webbrowser` waits for any program that BROWSER names until it ends, and for Firefox and Chromium five seconds."""
    (tmp_path / "browser.py").write_text(READER, encoding="utf-8")
    Harness(ScriptedModel(["Hi."]), store=str(tmp_path / "runs.db")).run_sync("Hello")
    folders = {"TMPDIR": str(tmp_path), "EVENER_HOME": str(tmp_path / "home")}
    environ = {**os.environ, **folders, "BROWSER": f"{sys.executable} browser.py %s"}
    command = [sys.executable, "-m", "evener", "view", "--store", "runs.db"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE) as viewer:
        try:
            wait_until((tmp_path / "status").exists)
        finally:
            viewer.kill()
    assert (tmp_path / "status").read_text(encoding="utf-8") == "200"
