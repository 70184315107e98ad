"""Fails a run of tests that leaves new files in the repository: hooks of pytest, for `tests/conftest.py`."""

import subprocess
from pathlib import Path

import pytest

BEFORE: pytest.StashKey[frozenset[str]] = pytest.StashKey()
LEFT: pytest.StashKey[list[str]] = pytest.StashKey()


def untracked_files(folder: Path) -> frozenset[str]:
    """Return the files that git neither tracks nor ignores; none where there is no git or no repository."""
    try:
        found = subprocess.run(
            ["git", "ls-files", "--others", "--exclude-standard", "-z"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return frozenset()
    return frozenset(found.stdout.split("\0")) - {""}


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note what was there before. Workers leave that to the process that started them."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[BEFORE] = untracked_files(session.config.rootpath)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a file was added."""
    config = session.config
    before = config.stash.get(BEFORE, None)
    if before is not None and (left := sorted(untracked_files(config.rootpath) - before)):
        config.stash[LEFT] = left
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the files."""
    if left := config.stash.get(LEFT, None):
        terminalreporter.write_line(
            f"ERROR: This run left {len(left)} new files in the repository: {', '.join(left[:20])}. "
            "Have the test that made them use tmp_path, then delete them."
        )
