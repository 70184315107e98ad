"""`evener view` as a process: what it leaves on the disk."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from evener import Harness
from evener.testing import ScriptedModel
from tests.patience import PATIENCE, wait_until

BROWSER = """
import os, sys
from pathlib import Path

page = Path(sys.argv[1].removeprefix("file://"))
seen = f"{page.stat().st_mode & 0o777:o} {page.read_text()}"
Path("seen.part").write_text(seen)
os.rename("seen.part", "seen")
"""


def test_the_page_that_opens_the_viewer_is_private_and_is_deleted_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "browser.py").write_text(BROWSER, encoding="utf-8")
    Harness(ScriptedModel(["Hi."]), store=str(tmp_path / "runs.db")).run_sync("Hello")
    environ = {
        **os.environ,
        "BROWSER": f"{sys.executable} browser.py %s",
        "TMPDIR": str(tmp_path),
        "EVENER_HOME": str(tmp_path / "home"),
    }
    command = [sys.executable, "-m", "evener", "view", "--store", "runs.db"]
    with subprocess.Popen(command, cwd=tmp_path, env=environ, stderr=subprocess.PIPE) as viewer:
        try:
            wait_until((tmp_path / "seen").exists)
            pages = list(tmp_path.glob("evener-view-*"))
            viewer.send_signal(signal.SIGINT)
            viewer.wait(PATIENCE)
        finally:
            viewer.kill()
    mode, _, page = (tmp_path / "seen").read_text(encoding="utf-8").partition(" ")
    assert (mode, len(pages)) == ("600", 1)
    assert "http://127.0.0.1:" in page
    assert list(tmp_path.glob("evener-view-*")) == []


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
