"""The walk: of how many of our files does one prompt run a function? A newcomer who follows it reads so many files.

One prompt without a tool, on the default SQLite store and a strict fake over HTTP, from `open_model` to the result.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evener.testing import FakeServer, turn
from tests.driver.stage import WIRES
from tests.driver.test_wires import TARGETS

MOST = 50
"""Files, `testing` aside."""
BESIDE = 9
"""More files of which a function runs only while a module is imported, or in the thread that writes traces."""
WALKER = Path(__file__).with_name("walker.py")


Files = dict[str, list[str]]


def walk(wire: str, folder: Path) -> tuple[Files, Files]:
    """The files of which a function ran, with these functions: on the walk, and beside it."""
    model, dialect = TARGETS[wire]
    with FakeServer(wire, [turn("Hello.")], dialect=dialect, models=(model.partition(":")[2],)) as server:
        command = [sys.executable, str(WALKER), model, server.url]
        usual = {name: value for name, value in os.environ.items() if name != "EVENER_TRACES"}  # on, as they are by default
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env={**usual, "EVENER_HOME": str(folder / "home")}
        )
        assert done.returncode == 0, done.stderr
        assert server.rejected == []
    told = json.loads(done.stdout)
    assert told["text"] == "Hello."
    return told["files"], told["beside"]


@pytest.mark.parametrize("wire", WIRES)
def test_one_prompt_runs_functions_of_few_files(wire: str, tmp_path: Path) -> None:
    files, beside = walk(wire, tmp_path)
    shown = "\n".join(f"{file}: {', '.join(names)}" for file, names in files.items())
    print(f"{wire}: {len(files)} files\n{shown}")
    assert len(files) <= MOST, f"{len(files)} files on the walk of {wire}:\n{shown}"
    more = sorted(beside.keys() - files.keys())
    print(f"{len(more)} more beside it: {', '.join(more)}")
    assert len(more) <= BESIDE, f"{len(more)} files beside the walk of {wire}: {', '.join(more)}"
    assert {"harness/thread.py", "driver/driver.py", "store/sqlite/writer.py", f"wire/{wire}/decode.py"} <= files.keys()
