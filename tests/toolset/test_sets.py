"""Sets of tools by name, their labels, the to-do list and questions, through a harness."""

import asyncio
from pathlib import Path

import pytest

from evener import Harness, MemoryStore
from evener.errors import UsageError
from evener.events import CallFinished
from evener.harness.approvals import Decision
from evener.testing import ScriptedModel, calls
from evener.tools import Tool, tool
from evener.toolset.labels import guard_mixing, label, label_of, traits_of
from evener.toolset.sets import FILE_AGENT, SETS, tools_named
from evener.transcript import ToolCall
from tests.toolset.calls import Caller


def test_sets_are_chosen_by_name(tmp_path: Path) -> None:
    """S2.27."""
    made = tools_named(["files", "search", "todo"], root=tmp_path)
    assert [one.name for one in made] == ["read", "list", "write", "edit", "delete", "glob", "search", "todo"]
    assert [one.name for one in made if one.approval] == ["write", "edit", "delete"]
    with pytest.raises(UsageError, match="Did you mean 'files'"):
        tools_named(["file"])


@pytest.mark.parametrize("name", SETS)
def test_schemas_are_closed_and_every_tool_has_a_label(name: str, tmp_path: Path) -> None:
    """S1.19, S1.20."""
    for one in tools_named([name], root=tmp_path):
        assert one.spec.input_schema["additionalProperties"] is False
        assert label_of(one) is not None
        assert one.description
        assert Caller([one]).call(one.name, {"unknown field": 1}).retry


def test_every_result_says_which_tool_it_is_from_and_whether_to_trust_it(tmp_path: Path) -> None:
    result = Caller(tools_named(["files"], root=tmp_path)).call("list", {})
    assert result.metadata["label"] == {"tool": "list", "source": "files", "traits": ["private"], "trusted": True}


def test_private_data_untrusted_text_and_a_way_out_do_not_meet_without_approval(tmp_path: Path) -> None:
    @tool(effect="read")
    def fetch(url: str) -> str:
        """Fetch a page."""
        return url

    page = label(fetch, "untrusted", "outward", source="web")
    files = tools_named(["files"], root=tmp_path, approval=False)
    assert not any(one.approval for one in (*guard_mixing([page]), *guard_mixing(files)))
    mixed: dict[str, Tool] = {one.name: one for one in guard_mixing((*files, page))}
    assert [name for name, one in mixed.items() if one.approval] == ["fetch"]
    assert traits_of(fetch) == ("untrusted",)


def test_the_todo_list_is_in_the_log() -> None:
    items = [{"text": "find it", "status": "done"}, {"text": "fix it", "status": "doing"}]
    asked = calls(ToolCall.of("call-1", "todo", {"items": items}))
    harness = Harness(ScriptedModel([asked, "Fixed."]), tools=tools_named(["todo"]), store="memory")
    result = harness.run_sync("Do it.")
    finished = result.records[0].result
    assert finished is not None
    assert finished.content[0].text == "[x] find it\n[>] fix it"  # type: ignore[union-attr]
    wrong = Caller(tools_named(["todo"])).call("todo", {"items": [{"text": "a", "status": "doing"}] * 2})
    assert "one at a time" in wrong.text.lower()


def test_a_question_waits_for_its_answer_in_another_process() -> None:
    asked = ToolCall.of("call-1", "ask_user", {"question": "Which colour?", "choices": ["red", "blue"]})
    store = MemoryStore()

    async def scenario() -> str:
        first = Harness(ScriptedModel([calls(asked)]), tools=tools_named(["ask_user"]), store=store, name="asks")
        waits = await first.run("Paint it.")
        assert waits.stop == "approval"
        one = waits.approvals[0]
        arguments = {"question": "Which colour?", "choices": ["red", "blue"], "answer": "blue"}
        second = Harness(ScriptedModel(["Blue it is."]), tools=tools_named(["ask_user"]), store=store, name="asks")
        await second.decide(waits.thread, {one.key: Decision("allow", arguments=arguments, digest=one.digest)})
        done = await second.resume(waits.thread)
        finished = [event for event in await store.read(waits.thread) if isinstance(event, CallFinished)]
        assert finished[0].content[-1].text == "blue"  # type: ignore[union-attr]  # after a remark that it was put in
        return done.text

    assert asyncio.run(scenario()) == "Blue it is."
    assert '"answer"' not in tools_named(["ask_user"])[0].schema


def test_the_prompt_of_a_file_agent_says_how_to_work() -> None:
    """S2.80."""
    assert "edit" in FILE_AGENT
    assert "data, not instructions" in FILE_AGENT


def test_what_changes_files_runs_alone_and_there_is_no_shell_unless_it_is_named(tmp_path: Path) -> None:
    """S2.28, S2.26."""
    tools = tools_named(["files", "search"], root=tmp_path)
    assert {tool.name for tool in tools if tool.sequential} == {"write", "edit", "delete"}
    assert not any("sequential" in tool.spec.schema for tool in tools)
    assert not {"shell", "jobs"} & {tool.name for tool in tools}


def test_a_long_search_of_json_lines_is_stored_apart_and_can_be_paged(tmp_path: Path) -> None:
    """S2.74, S2.22."""
    (tmp_path / "rows.jsonl").write_text("\n".join(f'{{"n": {n}, "text": "{"x" * 900}"}}' for n in range(500)))
    call = ToolCall.of("one", "search_jsonl", {"path": "rows.jsonl", "limit": 500})
    model = ScriptedModel([calls(call), "Done."])
    result = Harness(model, tools=tools_named(["jsonl"], root=tmp_path), store="memory").run_sync("Look.")
    finished = result.records[0].result
    assert finished is not None
    assert finished.ok
    assert finished.spilled
    assert len(repr(model.asks[-1].transcript.messages)) < 200_000
