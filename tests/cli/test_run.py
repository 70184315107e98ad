"""`evener run`: a prompt with tools as a real process, against a strict fake on loopback."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from evener.testing.servers import Call, FakeServer, Status, Text, faults, turn
from tests.cli.run import Home, command
from tests.cli.test_complete import PNG, SENTINEL, asked, point
from tests.patience import PATIENCE, wait_until

TOOLS = '''
import time

from evener import tool


@tool(effect="read")
def lookup(item: str) -> str:
    """Look up an item."""
    return f"{item}: 3 left"


@tool(effect="write")
def pay(amount: int) -> str:
    """Pay, slowly."""
    open("paid", "a").write(f"{amount}\\n")
    time.sleep(600)
    return "paid"


def plain(text: str) -> str:
    """Say it back."""
    return text


several = [lookup, plain]
'''

HARNESS = """
from shop import lookup

from evener import Harness

agent = Harness("anthropic:claude-opus-4-5", tools=[lookup], name="clerk", store="runs.db", system="You sell tea.")
"""


@pytest.fixture
def shop(home: Home) -> Iterator[FakeServer]:
    """A fake model behind the configured default, and a module with tools in the working folder."""
    (home.folder / "shop.py").write_text(TOOLS, encoding="utf-8")
    with FakeServer("anthropic_messages", key=SENTINEL) as server:
        point(home, server, more='model = "anthropic:claude-opus-4-5"')
        yield server


def test_tools_run_and_the_answer_is_printed(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Text("Let me see."), Call("lookup", {"item": "tea"})), "There are 3 left.")
    done = home.run("run", "--tools", "shop:several", "How much tea is left?")
    assert (done.returncode, done.stdout) == (0, b"Let me see.\nThere are 3 left.\n"), done.stderr
    assert shop.rejected == []
    assert "tea: 3 left" in json.dumps(asked(shop))
    assert {tool["name"] for tool in asked(shop)["tools"]} == {"lookup", "plain", "read_output"}  # type: ignore[attr-defined]


def test_json_has_the_whole_result(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("lookup", {"item": "tea"})), "3.")
    done = home.run("run", "--tools", "shop:lookup", "--json", "How much?")
    result = json.loads(done.stdout)
    assert (result["text"], result["stop"]) == ("3.", "done")
    assert [record["outcome"] for record in result["records"]] == ["done"]
    assert len(result["requests"]) == 2
    assert result["usage"]["output_total"] > 0


def test_stream_json_has_an_event_a_line(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("lookup", {"item": "tea"})), "3.")
    done = home.run("run", "--tools", "shop:lookup", "--stream-json", "How much?")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[0]["type"] == "run_started"
    assert {"tool_started", "tool_finished", "turn_finished"} <= {line["type"] for line in lines}
    assert lines[-1]["type"] == "run_finished"
    assert lines[-1]["result"]["text"] == "3."
    assert SENTINEL not in done.stdout.decode() + done.stderr.decode()


def test_files_pictures_and_standard_input_go_into_the_prompt(home: Home, shop: FakeServer) -> None:
    (home.folder / "notes.txt").write_text("buy tea", encoding="utf-8")
    (home.folder / "tea.png").write_bytes(PNG)
    shop.add("ok")
    done = home.run("run", "--image", "tea.png", "@notes.txt", "Summarise.", stdin=b"from a pipe")
    assert done.returncode == 0, done.stderr
    sent = json.dumps(asked(shop))
    assert all(part in sent for part in ("buy tea", "Summarise.", "from a pipe", "image/png"))
    missing = home.run("run", "@nowhere.txt")
    assert (missing.returncode, b"nowhere.txt" in missing.stderr) == (2, True)


def test_a_limit_stops_the_run_and_resume_goes_on(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("lookup", {"item": "tea"})), "3.")
    stopped = home.run("run", "--tools", "shop:lookup", "--max-turns", "1", "--store", "runs.db", "How much?")
    assert stopped.returncode == 1
    assert b"1 of 1 model requests" in stopped.stderr
    thread = stopped.stderr.decode().split()[-1]
    again = home.run("run", "--tools", "shop:lookup", "--store", "runs.db", "--resume", thread)
    assert (again.returncode, again.stdout) == (0, b"3.\n"), again.stderr
    more = home.run("run", "--tools", "shop:lookup", "--store", "runs.db", "--thread", thread, "And coffee?")
    assert more.returncode == 4 or more.returncode == 1  # the script is used up: the server says so
    assert oct((home.folder / "runs.db").stat().st_mode & 0o777) == "0o600"


def test_a_harness_is_found_by_its_name(home: Home, shop: FakeServer) -> None:
    (home.folder / "clerks.py").write_text(HARNESS, encoding="utf-8")
    (home.folder / "evener.toml").write_text('[harness]\nclerk = "clerks:agent"\n', encoding="utf-8")
    home.trust()
    shop.add("Hello.", "Hello again.")
    assert home.run("run", "--harness", "clerk", "Hi").stdout == b"Hello.\n"
    assert home.run("run", "--harness", "clerks:agent", "Hi").stdout == b"Hello again.\n"
    assert "You sell tea." in json.dumps(asked(shop)["system"])
    unknown = home.run("run", "--harness", "nobody", "Hi")
    assert (unknown.returncode, b"Known there: clerk" in unknown.stderr) == (2, True)


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("1 / 0\n", "clerks.py, line 1: ZeroDivisionError: division by zero. Correct the module"),
        ("def (\n", "clerks.py, line 1: SyntaxError: invalid syntax. Correct the module"),
        (
            "\nimport nowhere_at_all\n",
            "clerks.py, line 2: ModuleNotFoundError: No module named 'nowhere_at_all'. Correct the module",
        ),
        ("", "module 'clerks' has no attribute 'agent'"),
    ],
)
def test_an_error_in_the_module_of_a_harness_is_told_as_the_user_s_own(home: Home, module: str, told: str) -> None:
    (home.folder / "clerks.py").write_text(module, encoding="utf-8")
    done = home.run("run", "--harness", "clerks:agent", "Hi")
    assert (done.returncode, told in done.stderr.decode(), b"Traceback" in done.stderr) == (2, True, False), done.stderr


def test_a_prompt_in_another_encoding_is_told_so(home: Home, shop: FakeServer) -> None:
    done = home.run("run", os.fsdecode(b"caf\xe9"))
    assert (done.returncode, b"The prompt is not text in UTF-8" in done.stderr) == (2, True), done.stderr
    assert shop.requests == []


def test_without_a_home_folder_a_run_keeps_nothing_or_says_what_to_set(home: Home, shop: FakeServer) -> None:
    """HOME is empty, or it is not set and the user has no account, as in a container with a user id of its own."""
    shop.add("Hello.")
    homeless = partial(home.run, HOME="", EVENER_HOME="", EVENER_CONFIG=str(home.config))
    done = homeless("run", "--store", "memory", "Hi")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"Hello.\n", b"")
    for words in (("run", "Hi"), ("threads",), ("complete", "local:smollm2", "Hi")):
        refused = homeless(*words)
        assert (refused.returncode, b"There is no home folder" in refused.stderr) == (2, True), refused.stderr
        assert b"EVENER_HOME" in refused.stderr
    assert homeless("doctor", "--offline").returncode == 0


def test_an_answer_that_broke_off_is_printed_once(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Text("Half of an answer", pieces=4), faults=[faults.Cut(4)]), "The whole answer.")
    done = home.run("run", "Go")
    assert (done.returncode, done.stdout) == (0, b"The whole answer.\n"), done.stderr
    assert b"A partial answer is not printed" in done.stderr
    assert b"above" not in done.stderr


def test_what_the_provider_says_has_an_exit_code_and_a_way_on(home: Home, shop: FakeServer) -> None:
    shop.add(Status(401), "Now it works.")
    done = home.run("run", "--store", "runs.db", "Go")
    assert done.returncode == 4
    thread = done.stderr.decode().split("evener resume ")[1].split()[2]
    assert home.run("run", "--store", "runs.db", "--resume", thread).stdout == b"Now it works.\n"


def test_one_failure_is_told_once(home: Home, shop: FakeServer) -> None:
    shop.add(*[Status(500, "The cellar is flooded")] * 12)
    done = home.run("run", "--store", "runs.db", "Go")
    told = done.stderr.decode()
    assert (done.returncode, told.count("The cellar is flooded")) == (4, 1), told
    *before, last = told.splitlines()
    assert before
    assert all(line.startswith("evener: The model did not answer (HTTP 500). Asking ") for line in before)
    assert "evener resume" in last


def wait_for(path: object) -> None:
    name = str(path)
    wait_until(lambda: os.path.exists(name) and os.path.getsize(name))  # it is there before anything is written to it


def test_ctrl_c_stops_cleanly_and_says_how_to_resume(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("pay", {"amount": 5})), "It is not known whether it was paid.")
    running = home.start("run", "--tools", "shop:pay", "--store", "runs.db", "Pay 5")
    wait_for(home.folder / "paid")
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130, said
    thread = said.decode().split()[-1]
    again = home.run("run", "--tools", "shop:pay", "--store", "runs.db", "--resume", thread)
    assert (again.returncode, again.stdout) == (0, b"It is not known whether it was paid.\n"), again.stderr
    assert (home.folder / "paid").read_text() == "5\n", "a write tool is not started again"


def test_killed_and_resumed_no_payment_is_made_twice(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("pay", {"amount": 5})), "It is not known whether it was paid.")
    running = home.start("run", "--tools", "shop:pay", "--store", "runs.db", "--stream-json", "Pay 5")
    wait_for(home.folder / "paid")
    running.kill()
    out, _ = running.communicate(timeout=120)
    thread = json.loads(out.splitlines()[0])["thread"]
    again = home.run("run", "--tools", "shop:pay", "--store", "runs.db", "--json", "--resume", thread)
    result = json.loads(again.stdout)
    assert [record["outcome"] for record in result["records"]] == ["unknown"]
    assert (home.folder / "paid").read_text() == "5\n"


def test_a_terminal_shows_what_is_under_way(home: Home, shop: FakeServer) -> None:
    (home.folder / "slow.py").write_text(
        'import os\nimport time\n\n\ndef nap(name: str) -> str:\n    """Nap until the test wakes it."""\n'
        '    while not os.path.exists("awake"):\n        time.sleep(0.02)\n    return name\n',
        encoding="utf-8",
    )
    shop.add(turn(Call("nap", {"name": "tea"})), "Rested.")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command("run", "--tools", "slow:nap", "Nap"),
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env={**home.environ, "TERM": "xterm"}, cwd=home.folder,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while select.select([ours], [], [], PATIENCE)[0]:
            shown += os.read(ours, 4096)
            if b'nap {"name":"tea"}' in shown.replace(b'": "', b'":"'):
                (home.folder / "awake").touch()
    except OSError:
        pass  # how a terminal says that its other end is closed
    finally:
        os.close(ours)
        (home.folder / "awake").touch()  # so that it ends in any case
    assert process.wait(PATIENCE) == 0, shown
    assert b'nap {"name":"tea"}' in shown.replace(b'": "', b'":"')
    assert b"\r\x1b[K" in shown
    assert shown.endswith(b"Rested.\r\n")


@pytest.mark.parametrize(
    ("source", "reference", "says"),
    [
        (
            "import nosuchthing\n",
            "mine:x",
            b"mine.py, line 1: ModuleNotFoundError: No module named 'nosuchthing'. Correct",
        ),
        ("x = 1\nx.y\n", "mine:x", b"mine.py, line 2: AttributeError"),
        ("def f(:\n", "mine:f", b"mine.py, line 1: SyntaxError"),
        ("x = 1\n", "mine:other", b"it has no 'other'. Write --tools module:name"),
        ("", "elsewhere:x", b"No module named 'elsewhere'. Write --tools module:name"),
    ],
)
def test_a_module_that_cannot_be_loaded_shows_the_users_error(home: Home, source: str, reference: str, says: bytes) -> None:
    (home.folder / "mine.py").write_text(source, encoding="utf-8")
    done = home.run("run", "-m", "local:smollm2", "--tools", reference, "Go")
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_s2_80_an_agent_with_file_tools_is_told_how_to_work(home: Home, shop: FakeServer) -> None:
    shop.add("Done.", "Done.")
    home.run("run", "--tools", "files", "--store", "memory", "Go")
    assert "data, not instructions" in json.dumps(asked(shop)["system"])
    home.run("run", "--tools", "files", "--store", "memory", "--system", "Sing.", "Go")
    assert "data, not instructions" not in json.dumps(asked(shop)["system"])
