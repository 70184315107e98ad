"""`evener resume`: on with a run after any stop, as a real process, with what the log says and what the words add."""

import json
import re
import signal
from collections.abc import Iterator

import pytest

from evener.events import ModelCalled, Opened, Prompted
from evener.store import SqliteStore
from evener.testing.servers import Call, FakeServer, Status, turn
from evener.transcript.message import Message
from tests.cli.kept import kept
from tests.cli.run import Home
from tests.cli.test_complete import SENTINEL, asked, point
from tests.cli.test_decide import HARNESS as CLERK
from tests.cli.test_decide import SHOP
from tests.cli.test_run import TOOLS, wait_for


@pytest.fixture
def shop(home: Home) -> Iterator[FakeServer]:
    (home.folder / "shop.py").write_text(SHOP, encoding="utf-8")
    (home.folder / "slow.py").write_text(TOOLS, encoding="utf-8")
    with FakeServer("anthropic_messages", key=SENTINEL) as server:
        point(home, server, more='model = "anthropic:claude-opus-4-5"')
        yield server


def hinted(said: bytes) -> list[str]:
    """The words of the command that a run named as the way on."""
    [line] = re.findall(r"esume with: evener (resume .*)", said.decode())
    return str(line).split()


def test_after_a_limit_it_goes_on_with_the_prompt_of_the_log(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("send", {"to": "ann"})), "Sent.", "Again.")
    stopped = home.run("run", "--tools", "shop:send", "-s", "You are polite.", "--max-turns", "1", "Send it")
    assert stopped.returncode == 1
    words = hinted(stopped.stderr)
    assert words[:-1] == ["resume", "--tools", "shop:send"], "model, system prompt and the usual store need not be said"
    done = home.run(*words)
    assert (done.returncode, done.stdout) == (0, b"Sent.\n"), done.stderr
    assert "You are polite." in json.dumps(asked(shop)["system"])
    assert shop.rejected == []
    over = home.run(*words)
    hint = f"evener chat --tools shop:send -r {words[-1]}"
    assert (over.returncode, hint in over.stderr.decode()) == (2, True), over.stderr
    more = home.run("run", "--thread", words[-1][:8], "Once more")
    assert (more.returncode, more.stdout) == (0, b"Again.\n"), more.stderr


def test_after_an_error_with_another_model_of_another_provider(home: Home, shop: FakeServer) -> None:
    """S3.3."""
    with FakeServer("openai_responses", key=SENTINEL) as other:
        home.configure(
            f'model = "anthropic:claude-opus-4-5"\n[providers.anthropic]\nbase_url = "{shop.url}"\n'
            f'[providers.openai]\nbase_url = "{other.url}"\n'
        )
        home.environ["OPENAI_API_KEY"] = SENTINEL
        shop.add(Status(401))
        other.add("Here I am.")
        failed = home.run("run", "Hello?")
        assert failed.returncode == 4
        thread = hinted(failed.stderr)[-1]
        done = home.run("resume", thread[:10], "-m", "openai:gpt-5.1", "--json")
        result = json.loads(done.stdout)
        assert (done.returncode, result["text"], result["thread"]) == (0, "Here I am.", thread), done.stderr
        assert (other.rejected, "Hello?" in json.dumps(asked(other))) == ([], True)


def test_after_ctrl_c_and_after_a_kill_no_write_happens_twice(home: Home, shop: FakeServer) -> None:
    for how in (signal.SIGINT, signal.SIGKILL):
        shop.add(turn(Call("pay", {"amount": 5})), "It is not known whether it was paid.")
        running = home.start("run", "--tools", "slow:pay", "--stream-json", "Pay 5")
        wait_for(home.folder / "paid")
        running.send_signal(how)
        out, said = running.communicate(timeout=120)
        thread = json.loads(out.splitlines()[0])["thread"]
        if how == signal.SIGINT:
            assert (running.returncode, hinted(said)) == (130, ["resume", "--tools", "slow:pay", thread])
        again = home.run("resume", "--tools", "slow:pay", thread)
        assert (again.returncode, again.stdout) == (0, b"It is not known whether it was paid.\n"), again.stderr
        assert (home.folder / "paid").read_text() == "5\n"
        (home.folder / "paid").unlink()


def test_after_an_approval_and_instead_of_one(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("pay", {"amount": 5})), "Paid.")
    stopped = home.run("run", "--tools", "shop:pay", "Pay 5")
    words = hinted(stopped.stderr)
    waits = home.run(*words)
    assert (waits.returncode, b"evener approve" in waits.stderr) == (1, True), "nobody has decided yet"
    assert home.run("approve", "--tools", "shop:pay", words[-1][:8]).returncode == 0
    done = home.run(*words)
    assert (done.returncode, done.stdout, (home.folder / "paid").read_text()) == (0, b"Paid.\n", "5\n"), done.stderr
    shop.add(turn(Call("pay", {"amount": 6})), "Not paid.")
    words = hinted(home.run("run", "--tools", "shop:pay", "Pay 6").stderr)
    denied = home.run(*words, "--approval", "deny")
    assert (denied.returncode, denied.stdout) == (0, b"Not paid.\n"), denied.stderr


def test_a_harness_is_found_by_the_name_in_the_log(home: Home, shop: FakeServer) -> None:
    (home.folder / "clerks.py").write_text(CLERK.replace(', store="runs.db"', ""), encoding="utf-8")
    (home.folder / "evener.toml").write_text('[harness]\nclerk = "clerks:agent"\n', encoding="utf-8")
    home.trust()
    shop.add(turn(Call("pay", {"amount": 5})), "Paid.")
    stopped = home.run("run", "--harness", "clerk", "Pay 5")
    thread = hinted(stopped.stderr)[-1]
    done = home.run("resume", thread[:8], "--approval", "auto")
    assert (done.returncode, done.stdout, (home.folder / "paid").read_text()) == (0, b"Paid.\n", "5\n"), done.stderr


def test_a_harness_that_is_not_there_or_keeps_its_threads_elsewhere_is_said(home: Home, shop: FakeServer) -> None:
    (home.folder / "clerks.py").write_text(CLERK, encoding="utf-8")
    (home.folder / "evener.toml").write_text('[harness]\nclerk = "clerks:agent"\n', encoding="utf-8")
    home.trust()
    shop.add(turn(Call("pay", {"amount": 5})), "Paid.")
    thread = hinted(home.run("run", "--harness", "clerk", "Pay 5").stderr)[-1]
    lost = home.run("resume", thread)
    assert (lost.returncode, b"There is no store at" in lost.stderr) == (2, True), lost.stderr
    (home.folder / "clerks.py").write_text(CLERK.replace("runs.db", "other.db"), encoding="utf-8")
    elsewhere = home.run("resume", "--store", "runs.db", thread)
    assert (elsewhere.returncode, b"uses another store" in elsewhere.stderr) == (2, True), elsewhere.stderr
    (home.folder / "evener.toml").unlink()
    unknown = home.run("resume", "--store", "runs.db", thread)
    assert (unknown.returncode, b"There is no harness 'clerk'" in unknown.stderr) == (2, True), unknown.stderr
    assert b"give --model and --tools" in unknown.stderr
    done = home.run("resume", "--store", "runs.db", thread, "--tools", "shop:pay", "--approval", "auto")
    assert (done.returncode, done.stdout) == (0, b"Paid.\n"), done.stderr
    both = home.run("resume", "--harness", "clerk", "--tools", "shop:pay", thread)
    assert both.returncode == 2


def test_code_is_not_run_because_a_log_names_it(home: Home) -> None:
    (home.folder / "trap.py").write_text('open("sprung", "w").close()\n', encoding="utf-8")

    async def planted(store: SqliteStore) -> None:
        held = await store.create("aaaa", Opened(at=1.0, thread="aaaa", harness="trap:agent"), holder="test")
        await held.append(Prompted(at=2.0, run="r", message=Message.user_text("Hi")), ModelCalled(at=3.0, model="local:x"))
        await held.aclose()

    kept(home, planted)
    done = home.run("resume", "aaaa")
    assert (done.returncode, b"--harness trap:agent" in done.stderr) == (2, True), done.stderr
    assert not (home.folder / "sprung").exists()


def test_tools_that_are_missing_are_said_and_needed_ones_are_demanded(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("send", {"to": "ann"})), "Sent.")
    thread = hinted(home.run("run", "--tools", "shop:both", "--max-turns", "1", "Send").stderr)[-1]
    done = home.run("resume", thread)
    assert (done.returncode, done.stdout) == (0, b"Sent.\n"), done.stderr
    assert b"Resuming without these tools of the run: pay, send." in done.stderr
    shop.add(turn(Call("pay", {"amount": 5})), "Paid.")
    thread = hinted(home.run("run", "--tools", "shop:both", "Pay").stderr)[-1]
    needed = home.run("resume", thread)
    assert (needed.returncode, b"open calls to pay" in needed.stderr) == (2, True), needed.stderr


def test_a_run_that_another_process_is_at_is_left_alone(home: Home, shop: FakeServer) -> None:
    shop.add(turn(Call("pay", {"amount": 5})), "Done.")
    running = home.start("run", "--tools", "slow:pay", "--stream-json", "Pay 5")
    wait_for(home.folder / "paid")
    [one] = json.loads(home.run("threads", "--json").stdout)
    assert one["state"] == "running"
    done = home.run("resume", "--tools", "slow:pay", str(one["thread"]))
    assert (done.returncode, b"is being written by" in done.stderr) == (1, True), done.stderr
    running.kill()
    running.communicate(timeout=120)
    assert json.loads(home.run("threads", "--json").stdout)[0]["state"] == "interrupted"


def test_a_run_in_memory_promises_no_way_on(home: Home, shop: FakeServer) -> None:
    shop.add(Status(401))
    failed = home.run("run", "--store", "memory", "Hi")
    assert (failed.returncode, b"The run is lost" in failed.stderr, b"resume" in failed.stderr) == (4, True, False)
