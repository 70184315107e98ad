"""A server's question waits for the user like any other; a request for the model is approved, bounded and counted (S2.77)."""

import asyncio
import json
import sys
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from evener import Harness, SqliteStore
from evener.errors import ApprovalStale
from evener.harness import Decision
from evener.harness.approvals import keyed
from evener.loop.state import Limits
from evener.mcp import McpServer, McpServers, load_servers
from evener.policy.rules import Policy, Rule, Verdict
from evener.result import RunResult
from evener.store import Store
from evener.testing import ScriptedModel, calls
from evener.transcript import ToolCall
from tests.patience import PATIENCE, wait_until
from tests.to_the_end import to_the_end
from tests.view.client import get, post
from tests.view.stage import viewing

SERVER = Path(__file__).with_name("asking_server.py")
PROTOCOLS = ("legacy", "2026-07-28")
ORDER = ToolCall("c1", "mcp__shop__order", '{"item":"shoe"}')
RHYME = ToolCall("c1", "mcp__shop__rhyme", '{"word":"cat"}')


def shop(folder: Path, protocol: str = "legacy", *, allowed: bool = True, wait: float = 600) -> McpServer:
    return McpServer(
        name="shop", command=sys.executable, args=(str(SERVER), str(folder / "orders")), timeout=PATIENCE,
        connect_timeout=PATIENCE, protocol=protocol, elicitation=allowed, sampling=allowed, question_timeout=wait,
    )  # fmt: skip


def orders(folder: Path) -> int:
    file = folder / "orders"
    return len(file.read_text().splitlines()) if file.exists() else 0


def agent(
    servers: McpServers, store: Store, *script: object, policy: Policy | None = None, limits: Limits | None = None
) -> Harness:
    model = ScriptedModel(list(script), price=Decimal("0.5"))  # type: ignore[arg-type]
    return Harness(model, tools=servers.load_sync(), store=store, name="buyer", policy=policy, limits=limits)


def answers(result: RunResult, given: Mapping[str, str]) -> dict[str, Decision]:
    """Answer each field; the name of a field is in the last line of its question."""
    made: dict[str, Decision] = {}
    for key, one in keyed(result.approvals).items():
        assert one.call is not None
        assert one.call.name == "ask_user"
        asked = json.loads(one.call.raw)
        assert "'shop'" in asked["question"]
        field = next(name for name in given if f"\n{name}" in asked["question"])
        made[key] = Decision("allow", arguments={**asked, "answer": given[field]}, digest=one.digest)
    return made


def told(result: RunResult) -> str:
    record = result.records[-1]
    return "".join(block.text for block in record.result.content)  # type: ignore[union-attr]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_form_waits_field_by_field_until_its_answers_fit(protocol: str, tmp_path: Path) -> None:
    with McpServers([shop(tmp_path, protocol)]) as servers:
        harness = agent(servers, SqliteStore(tmp_path / "runs.db"), calls(ORDER), "Done.")
        waits = harness.run_sync("Buy.")
        assert waits.stop == "approval"
        assert len(waits.approvals) == 3
        assert '"choices":["red","blue"]' in waits.approvals[1].call.raw  # type: ignore[union-attr]
        harness.decide_sync(waits.thread, answers(waits, {"size": "99", "colour": "Red", "gift": ""}))
        again = harness.resume_sync(waits.thread)
        assert again.stop == "approval"
        assert len(again.approvals) == 1
        assert "does not fit" in again.approvals[0].call.raw  # type: ignore[union-attr]
        harness.decide_sync(again.thread, answers(again, {"size": "42"}))
        done = harness.resume_sync(again.thread)
        assert done.text == "Done."
        assert told(done) == "ordered 42 red False"
        assert orders(tmp_path) == 1


def test_a_page_to_visit_is_shown_and_confirmed(tmp_path: Path) -> None:
    with McpServers([shop(tmp_path)]) as servers:
        harness = agent(servers, SqliteStore(tmp_path / "runs.db"), calls(ToolCall("c1", "mcp__shop__pay", "{}")), "Done.")
        waits = harness.run_sync("Pay.")
        (one,) = waits.approvals
        assert one.call is not None
        assert "https://bank.example/pay/7" in one.call.raw
        given = {**json.loads(one.call.raw), "answer": "done"}
        harness.decide_sync(waits.thread, {one.key: Decision("allow", arguments=given)})
        assert told(harness.resume_sync(waits.thread)) == "paid: accept"


@pytest.mark.parametrize("how", ["rejected", "allowed without an answer", "late", "nobody to ask"])
def test_without_an_answer_the_server_is_told_that_it_was_declined(how: str, tmp_path: Path) -> None:
    with McpServers([shop(tmp_path, wait=0.2 if how == "late" else 600)]) as servers:
        harness = agent(servers, SqliteStore(tmp_path / "runs.db"), calls(ORDER), "Done.")
        if how == "nobody to ask":
            found = asyncio.run(harness.call(ORDER, approve=True))
            assert found.text == "not ordered: decline"
            return
        waits = harness.run_sync("Buy.")
        verdict = "reject" if how == "rejected" else "allow"
        if how == "late":
            wait_until(lambda: orders(tmp_path))  # the server goes on once its question is over
        else:
            made = {key: Decision(verdict, "no", digest=one.digest) for key, one in keyed(waits.approvals).items()}  # type: ignore[arg-type]
            harness.decide_sync(waits.thread, made)
        assert waits.stop == "approval" or how == "late", "only a question that is over need not be put"
        done = harness.resume_sync(waits.thread) if waits.stop == "approval" else waits
        assert done.text == "Done."
        assert told(done) == "not ordered: decline"
        with pytest.raises(ApprovalStale):
            harness.decide_sync(waits.thread, {})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_process_answers_and_goes_on(protocol: str, tmp_path: Path) -> None:
    """The first process is gone, and the server with it. A server of the newer protocol expects the call again."""
    file = tmp_path / "runs.db"
    with McpServers([shop(tmp_path, protocol)]) as servers:
        waits = agent(servers, SqliteStore(file), calls(ORDER)).run_sync("Buy.")
        assert waits.stop == "approval"
    with McpServers([shop(tmp_path, protocol)]) as servers:
        harness = agent(servers, SqliteStore(file), "Done.")
        harness.decide_sync(waits.thread, answers(waits, {"size": "42", "colour": "blue", "gift": "yes"}))
        done = harness.resume_sync(waits.thread)
        assert done.text == "Done."
        if protocol == "legacy":
            assert "could not be found out" in told(done)
            assert orders(tmp_path) == 0
        else:
            assert told(done) == "ordered 42 blue True"
            assert orders(tmp_path) == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_model_answers_a_server_after_approval_and_its_cost_counts(protocol: str, tmp_path: Path) -> None:
    with McpServers([shop(tmp_path, protocol)]) as servers:
        harness = agent(servers, SqliteStore(tmp_path / "runs.db"), calls(RHYME), "bat", "Done.")
        waits = harness.run_sync("Rhyme.")
        (one,) = waits.approvals
        assert one.call is not None
        assert one.call.name == "mcp_sampling__shop"
        assert "A rhyme for cat?" in one.call.raw
        harness.decide_sync(waits.thread, {one.key: Decision("allow", digest=one.digest)})
        done = harness.resume_sync(waits.thread)
        assert done.text == "Done."
        assert told(done) == "cat, bat"
        assert done.cost == Decimal("1.5")  # two answers of the run, and one for the server
        model = harness.models[0]
        assert isinstance(model, ScriptedModel)
        asked = model.asks[1]
        assert asked.tools == ()
        assert "poet" in str(asked.transcript.system)
        assert asked.settings.max_output_tokens == 50


def rule(tool: str, verdict: Verdict) -> Rule:
    return Rule(tool=tool, verdict=verdict)


@pytest.mark.parametrize(
    ("rules", "limits", "says"),
    [
        ((rule("mcp_sampling__shop", "deny"), rule("*", "allow")), None, "Denied"),
        ((rule("*", "allow"),), None, "cat, bat"),
        ((rule("*", "allow"),), Limits(cost=Decimal("0.7")), "The model did not answer (limit)"),
    ],
)
def test_policy_and_budget_hold_for_a_server_that_asks_the_model(
    rules: tuple[Rule, ...], limits: Limits | None, says: str, tmp_path: Path
) -> None:
    with McpServers([shop(tmp_path)]) as servers:
        policy = Policy(rules)
        harness = agent(servers, SqliteStore(tmp_path / "runs.db"), calls(RHYME), "bat", "Done.", policy=policy, limits=limits)
        done = harness.run_sync("Rhyme.")
        assert says in told(done)
        assert limits is None or done.cost <= Decimal("0.7")


def test_a_server_may_not_ask_unless_its_configuration_allows_it(tmp_path: Path) -> None:
    with McpServers([shop(tmp_path, allowed=False)]) as servers:
        done = agent(servers, SqliteStore(tmp_path / "runs.db"), calls(ORDER), "Done.").run_sync("Buy.")
        assert done.stop == "done"
        assert not done.records[0].ok
        assert orders(tmp_path) == 0


def test_a_file_allows_it_by_name(tmp_path: Path) -> None:
    file = tmp_path / "servers.json"
    entry = {"command": "x", "elicitation": True, "sampling": True, "questionTimeout": 5}
    file.write_text(json.dumps({"mcpServers": {"a": entry, "b": {"command": "x"}}}))
    one, other = load_servers(file, environ={})
    assert (one.elicitation, one.sampling, one.question_timeout) == (True, True, 5)
    assert (other.elicitation, other.sampling) == (False, False)


def test_a_call_that_was_given_up_does_not_keep_the_server_busy(tmp_path: Path) -> None:
    """The user says something else instead of an answer: the next call of the thread is not refused."""
    with McpServers([shop(tmp_path)]) as servers:
        store = SqliteStore(tmp_path / "runs.db")
        harness = agent(servers, store, calls(ORDER), calls(ORDER), "Done.")
        first = harness.run_sync("Buy.")
        other = agent(servers, store, calls(ORDER), "Later.").run_sync("Buy.")
        assert "waits for the user's answer" in told(other)
        second = harness.run_sync("Buy another.", thread=first.thread)
        assert second.stop == "approval"
        made = {key: Decision("reject", "no") for key in keyed(second.approvals)}
        harness.decide_sync(second.thread, made)
        assert told(harness.resume_sync(second.thread)) == "not ordered: decline"


@to_the_end
async def test_the_inbox_of_the_viewer_shows_a_question_once_and_answers_it(tmp_path: Path) -> None:
    """The viewer has neither the server nor its tools: it decides by what the log says of them."""
    store = SqliteStore(tmp_path / "runs.db")
    async with McpServers([shop(tmp_path)]) as servers, viewing(store) as url:
        harness = Harness(ScriptedModel([calls(ORDER), "Done."]), tools=await servers.load(), store=store)
        waits = await harness.run("Buy.")
        (line,) = (await get(url, "api/approvals"))["waiting"]
        assert line["thread"] == waits.thread
        shown = {one["approval"]["call"]["raw"] for one in line["asked"]}
        assert len(shown) == 3
        made = answers(waits, {"size": "42", "colour": "blue", "gift": "no"})
        body = {"log": waits.thread, "decisions": json.loads(msgspec.json.encode(made))}
        decided = await post(url, "api/decide", body)
        assert decided.status == 200, decided.body
        assert told(await harness.resume(waits.thread)) == "ordered 42 blue False"
    await store.aclose()
