"""`evener mcp login`: OAuth at a strict server; tokens are kept, refreshed by other processes, and revoked (S2.77)."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.cli.run import Home
from tests.mcp.authorization import guarded
from tests.patience import PATIENCE, moment, wait_until
from tests.ports import reserved_port

USE = """
from evener.cli.outside import load_outside
print(*(tool.name for tool in load_outside(("notes",)).tools))
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def use(home: Home) -> str:
    """Load the tools in a process of its own; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", USE], env=home.environ, cwd=home.folder, capture_output=True, text=True, timeout=PATIENCE
    )
    return done.stdout + done.stderr


def log_in(home: Home) -> str:
    """Log in, as a browser that follows redirects; return everything that the command printed."""
    words = (sys.executable, "-m", "evener", "mcp", "login", "notes", "--no-browser", "--port")
    with (
        reserved_port() as port,
        subprocess.Popen((*words, str(port)), env=home.environ, cwd=home.folder, stderr=subprocess.PIPE, text=True) as process,
    ):
        assert process.stderr
        first = process.stderr.readline()
        found = re.search(r"http://\S+/authorize\?\S+", first)
        assert found, first + process.stderr.read()
        with pytest.raises(HTTPError, match="400"):
            urlopen(f"http://127.0.0.1:{port}/callback?code=forged&state=forged", timeout=PATIENCE)
        with urlopen(found[0], timeout=PATIENCE) as page:
            assert b"Done" in page.read()
        rest = process.stderr.read()
        assert process.wait(PATIENCE) == 0, rest
    return first + rest


def test_a_login_is_kept_refreshed_in_other_processes_and_revoked(home: Home) -> None:
    with guarded() as authority:
        home.configure(f'[mcp.notes]\nurl = "{authority.resource}"\noauth = true\n')
        assert "evener mcp login notes" in use(home)  # a run does not wait for a browser
        authority.life = 1.0
        said = log_in(home)
        assert "1 tool" in said
        assert stat.S_IMODE(os.stat(home.keys).st_mode) == 0o600
        held = home.keys.read_text()
        assert not [token for token in (*authority.access, *authority.refresh) if token in said or token in held]
        authority.expire()
        over = moment(authority.life)
        wait_until(lambda: moment() > over)
        authority.life, before = 3_600.0, len(authority.seen)
        for _ in range(2):
            assert "mcp__notes__echo" in use(home)
        assert authority.seen[before:] == ["refresh_token"]
        assert authority.faults == []
        assert home.run("mcp", "logout", "notes").returncode == 0
        assert authority.seen[-1] == "revoked"
        assert authority.refresh == {}
        assert home.run("mcp", "logout", "notes").returncode == 1
        assert "evener mcp login notes" in use(home)


def test_only_a_server_over_http_has_a_login(home: Home) -> None:
    home.configure('[mcp.local]\ncommand = "x"\n')
    for words, says in (
        (("login", "local"), b"over HTTP"),
        (("login",), b"Name the server"),
        (("logout", "no"), b"no MCP server"),
    ):
        done = home.run("mcp", *words)
        assert (done.returncode, says in done.stderr) == (2, True), done.stderr
