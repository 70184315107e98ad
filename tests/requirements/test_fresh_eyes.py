"""Requirements whose tests proved something else, shown once more through the public API."""

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pytest
from annotated_types import Ge, Le

from evener import Harness, Limits, Message, Model, ModelSettings, ToolOutput, Transcript, open_model, run, tool
from evener import streaming as st
from evener.errors import BadDocument, BadValue
from evener.events import Compacted, Configured, Replied
from evener.loop.state import fold
from evener.policy import Defaults, Policy, Rule
from evener.testing import Call, FakeServer, Raw, ScriptedModel, Status, Text, Thinking, Tokens, check_request, turn
from evener.tools.context import ToolContext
from evener.transcript import Extra, ReasoningBlock, Reply, Stop, TextBlock, ToolCall, Usage, dump_transcript, load_transcript
from evener.transport.exchange import Retries
from tests.harness.test_settings import ROWS

FOREIGN = {"instructions": "Sing.", "input": "x", "store": True, "parallel_tool_calls": False}


@pytest.mark.parametrize("wire", ROWS)
def test_s3_23_fields_of_another_wire_are_left_out_and_told(wire: str) -> None:
    other = "openai_responses" if wire != "openai_responses" else "openai_chat"
    settings = ModelSettings(extra=(Extra(other, json.dumps(FOREIGN)),))
    with FakeServer(wire, [turn(Text("done"))]) as server:
        model = open_model(ROWS[wire], base_url=server.url, key="k", environ={})
        result = Harness(model, store="memory", settings=settings).run_sync("Go")
        body = json.loads(server.requests[0].body)
    assert "Sing." not in json.dumps(body)
    told = " ".join(str(loss) for loss in result.losses)
    assert [name for name in FOREIGN if name not in told] == []


@pytest.mark.parametrize(("rule", "kept"), [("all", [True, True]), ("latest", [False, True]), ("none", [False, False])])
def test_s3_20_the_row_says_which_turns_keep_their_thinking_on_anthropics_wire(
    rule: str, kept: list[bool], tmp_path: Path
) -> None:
    script = [turn(Thinking("first"), Text("one")), turn(Thinking("second"), Call("look", '{"item":"cup"}')), turn(Text("two"))]
    with FakeServer("anthropic_messages", script) as server:
        row = f'[providers.lab]\nwire = "anthropic_messages"\nkeyless = true\nbase_url = "{server.url}"\n'
        (tmp_path / "evener").mkdir()
        (tmp_path / "evener" / "config.toml").write_text(f'{row}quirks.thinking_replay = "{rule}"\n', encoding="utf-8")
        model = open_model("lab:m", environ={"XDG_CONFIG_HOME": str(tmp_path)}, thinking_budget=2048, max_output_tokens=4096)
        harness = Harness(model, tools=[look], store="memory")
        first = harness.run_sync("Go")
        result = harness.run_sync("Go on", thread=first.thread)
        sent = json.dumps(json.loads(server.requests[2].body)["messages"])
    assert result.text == "two"
    assert [f'"thinking": "{text}"' in sent for text in ("first", "second")] == kept


@tool(effect="read")
def look(item: str) -> str:
    """Look at an item."""
    return f"a blue {item}"


class Odd(msgspec.Struct, frozen=True):
    """A block of a kind that there is not."""

    text: str = "hi"


def test_s0_37_a_block_of_an_unknown_kind_is_an_error_and_never_left_out() -> None:
    with pytest.raises(BadValue, match="blocks"):
        Message("user", (Odd(),))  # type: ignore[arg-type]
    stored = json.loads(dump_transcript(Transcript([Message.user_text("hi")])))
    stored["messages"][0]["blocks"][0]["kind"] = "hologram"
    with pytest.raises(BadDocument, match="hologram"):
        load_transcript(json.dumps(stored))


def test_s0_51_a_tool_owns_its_schema_function_effect_and_validation() -> None:
    seen: list[Any] = []

    @tool(effect="idempotent")
    def pay(amount: int, context: ToolContext[Any]) -> str:
        """Pay an amount."""
        seen.append((amount, bool(context.key)))
        return "paid"

    schema = json.loads(pay.schema)
    assert (pay.name, pay.description, pay.effect) == ("pay", "Pay an amount.", "idempotent")
    assert (list(schema["properties"]), schema["required"], schema["additionalProperties"]) == (["amount"], ["amount"], False)
    with FakeServer("openai_chat", [turn(Call("pay", '{"amount":"much"}')), turn(Call("pay", '{"amount":3}')), "ok"]) as server:
        model = open_model(ROWS["openai_chat"], base_url=server.url, key="k", environ={})
        result = Harness(model, tools=[pay], store="memory").run_sync("Pay")
        declared = json.loads(server.requests[0].body)["tools"]
    assert [record.ok for record in result.records] == [False, True]
    assert seen == [(3, True)]  # what is not valid never reaches the function
    assert "pay" in [one["function"]["name"] for one in declared]


def test_s1_17_what_modifies_is_a_tool_of_the_client_and_asks_first() -> None:
    ran: list[str] = []

    @tool
    def send(to: str) -> str:
        """Send a message."""
        ran.append(to)
        return "sent"

    script = [turn(Call("look", '{"item":"cup"}')), turn(Call("send", '{"to":"Ada"}')), turn(Text("never"))]
    with FakeServer("openai_chat", script) as server:
        model = open_model(ROWS["openai_chat"], base_url=server.url, key="k", environ={})
        result = Harness(model, tools=[look, send], store="memory", policy=Policy()).run_sync("Go")
    assert (result.stop, [record.ok for record in result.records], ran) == ("approval", [True, False], [])
    assert [one.call.name for one in result.approvals if one.call] == ["send"]


def opened(wire: str, server: FakeServer, **more: Any) -> Model:
    return open_model(ROWS[wire], base_url=server.url, key="k", environ={}, **more)


@pytest.mark.parametrize("wire", ROWS)
def test_s0_1_each_message_of_a_run_tells_who_made_it_when_and_at_what_cost(wire: str) -> None:
    said = turn(Call("look", '{"item":"cup"}'), usage=Tokens(input=40, output=7))
    with FakeServer(wire, [said, turn(Text("blue"), usage=Tokens(input=60, output=9))]) as server:
        model = opened(wire, server)
        result = Harness(model, tools=[look], store="memory").run_sync("Go")
    made = [message for message in result.transcript if message.role == "assistant"]
    origins = [message.origin for message in made if message.origin]
    assert [(one.wire, one.model, one.endpoint) for one in origins] == [
        (wire, ROWS[wire].partition(":")[2], model.endpoint.url)
    ] * 2
    assert [(one.usage.input_total, one.usage.output_total) for one in made if one.usage] == [(40, 7), (60, 9)]
    times = [message.created_at for message in result.transcript if message.created_at]
    assert (len(times), times) == (4, sorted(times))
    assert len({message.id for message in result.transcript}) == 4


@pytest.mark.parametrize("wire", ROWS)
def test_s0_40_s1_3_a_stream_is_the_same_events_on_every_wire_and_reasoning_comes_in_pieces(wire: str) -> None:
    cost = Tokens(input=100, output=20, cached=40)
    asked = (Call("look", '{"item":"cup"}'), Call("look", '{"item":"pen"}'))
    script = [turn(Thinking("one two three four", pieces=4), *asked, usage=cost), turn(Text("both blue"), usage=cost)]

    async def go() -> list[st.StreamEvent]:
        harness = Harness(opened(wire, server), tools=[look], store="memory", settings=ModelSettings(show="summary"))
        async with harness.stream("Go") as stream:
            return [event async for event in stream]

    with FakeServer(wire, script) as server:
        events = asyncio.run(go())
    thoughts = [event.text for event in events if isinstance(event, st.ReasoningStreamed)]
    assert ("".join(thoughts), len(thoughts) > 1) == ("one two three four", True)
    started = [event.call for event in events if isinstance(event, st.ToolStarted)]
    assert [(call.name, call.args) for call in started] == [("look", {"item": "cup"}), ("look", {"item": "pen"})]
    finished = [event for event in events if isinstance(event, st.ToolFinished)]
    assert sorted(event.call.id for event in finished) == sorted(call.id for call in started)
    assert {event.result.content[0] for event in finished} == {TextBlock("a blue cup"), TextBlock("a blue pen")}
    turns = [event.usage for event in events if isinstance(event, st.TurnFinished)]
    assert [(one.input_total, one.cache_read, one.output_total) for one in turns] == [(100, 40, 20)] * 2
    [last] = [event.result for event in events if isinstance(event, st.RunFinished)]
    assert (last.text, [one.cost > 0 for one in last.requests]) == ("both blue", [True, True])


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("vllm", "http://localhost:8000/v1"),
        ("llamacpp", "http://localhost:8080/v1"),
        ("ollama", "http://localhost:11434/v1"),
        ("lmstudio", "http://localhost:1234/v1"),
    ],
)
def test_s0_45_s0_50_a_model_of_a_server_here_is_opened_at_its_address_without_a_key(name: str, address: str) -> None:
    assert open_model(f"{name}:m", environ={}).endpoint.url == address


@pytest.mark.parametrize("wire", ["anthropic_messages", "openai_responses", "openai_chat"])
def test_s1_30_arguments_that_were_cut_off_at_the_limit_never_run(wire: str) -> None:
    ran: list[str] = []

    @tool(effect="read")
    def note(text: str = "") -> str:
        """Note a text."""
        ran.append(text)
        return "noted"

    script = [turn(Call("note", '{"text":"half of a sen'), stop="length"), turn(Text("sorry"))]
    with FakeServer(wire, script) as server:
        result = Harness(opened(wire, server), tools=[note], store="memory").run_sync("Go")
    assert ran == []
    assert [record.ok for record in result.records] in ([], [False])


def test_s0_7_s0_21_a_thread_tells_its_tokens_by_kind_of_block() -> None:
    asked = Reply((ReasoningBlock("r" * 4_000), ToolCall.of("c", "look", {"item": "i" * 16_000})), Stop("tools"))
    model = ScriptedModel([asked, "a" * 2_000])
    thread = Harness(model, tools=[look], store="memory", system="s" * 1_000).thread()

    async def go() -> Any:
        await thread.run("u" * 8_000)
        return (await thread.context()).tally

    tally = asyncio.run(go())
    kinds = ["system", "assistant", "reasoning", "user", "calls"]
    assert sorted(kinds, key=tally.of) == kinds
    assert 0.9 < tally.of("reasoning") / tally.of("user") * 2 < 1.1
    assert tally.of("results") > tally.of("user")
    assert tally.media == 0


def test_s0_16_the_id_of_a_message_that_was_compacted_away_still_names_it() -> None:
    model = ScriptedModel(
        [
            "one " * 500,
            "two " * 500,
            "<summary>The user had me count, and I said one and then two, many times.</summary>",
            "three",
        ]
    )
    thread = Harness(model, store="memory").thread()

    async def go() -> None:
        first = (await thread.run("Count.")).transcript.messages[1]
        await thread.run("Go on.")
        assert isinstance(await thread.compact(), Compacted)
        result = await thread.run("And?")
        sent = model.asks[-1].transcript
        assert first.id not in [message.id for message in sent]
        assert "one one" not in str(sent.messages)
        assert [message for message in result.transcript if message.id == first.id] == [first]
        assert (await thread.at(first.id)).transcript.last == first
        assert (await (await thread.fork(first.id)).state()).transcript.last == first

    asyncio.run(go())


@pytest.mark.parametrize("wire", ROWS)
def test_s0_21_reasoning_is_spent_as_output_on_every_wire(wire: str) -> None:
    said = turn(Call("look", '{"item":"cup"}'), usage=Tokens(input=10, output=120, reasoning=110))
    with FakeServer(wire, [said, "never"]) as server:
        harness = Harness(opened(wire, server), tools=[look], store="memory", limits=Limits(output_tokens=100))
        result = harness.run_sync("Go")
        assert len(server.requests) == 1
    assert (result.stop, result.usage.output_total, result.usage.reasoning) == ("limit", 120, 110)
    assert "120 of 100 output tokens" in result.detail


def test_s0_23_s0_24_thinking_goes_back_signed_while_it_is_on_and_not_at_all_while_it_is_off() -> None:
    wire = "anthropic_messages"
    script = [turn(Thinking("hm"), Call("look", '{"item":"cup"}')), turn(Text("blue")), turn(Text("bye"))]
    with FakeServer(wire, script) as server:
        on = Harness(opened(wire, server, thinking_budget=2048, max_output_tokens=4096), tools=[look], store="memory")
        thread = on.run_sync("Go").thread
        off = Harness(opened(wire, server, thinking=False), tools=[look], store=on.store).run_sync("Bye", thread=thread)
        assert server.rejected == []
        with_it, without = (json.loads(request.body)["messages"][1]["content"] for request in server.requests[1:])
    assert [(block["type"], block.get("thinking"), bool(block.get("signature"))) for block in with_it] == [
        ("thinking", "hm", True), ("tool_use", None, False),
    ]  # fmt: skip
    assert [block["type"] for block in without] == ["tool_use"]
    assert [(loss.kind, loss.what) for loss in off.losses] == [("dropped", "reasoning")]


def test_s0_26_a_reasoning_item_is_kept_with_id_and_encrypted_content_and_sent_back() -> None:
    script = [turn(Thinking("hm"), Call("look", '{"item":"cup"}')), turn(Text("blue"))]
    with FakeServer("openai_responses", script) as server:
        result = Harness(opened("openai_responses", server), tools=[look], store="memory").run_sync("Go")
        assert server.rejected == []
        [item] = [one for one in json.loads(server.requests[1].body)["input"] if one.get("type") == "reasoning"]
    [block] = [one for one in result.transcript.messages[1].blocks if isinstance(one, ReasoningBlock)]
    assert block.text == "hm"
    sealed = {name: block.metadata[name] for name in ("id", "encrypted_content")}
    assert all(sealed.values())
    assert item == {"type": "reasoning", "summary": [], **sealed}


def test_s0_28_reasoning_of_another_provider_is_skipped_on_responses() -> None:
    first = [turn(Thinking("my secret plan"), Call("look", '{"item":"cup"}')), turn(Text("blue"))]
    with FakeServer("anthropic_messages", first) as one, FakeServer("openai_responses", ["bye"]) as two:
        here = Harness(opened("anthropic_messages", one), tools=[look], store="memory")
        thread = here.run_sync("Go").thread
        there = Harness(opened("openai_responses", two), tools=[look], store=here.store)
        result = there.run_sync("Bye", thread=thread)
        assert two.rejected == []
        body = json.loads(two.requests[0].body)
    assert "reasoning" not in [one.get("type") for one in body["input"]]
    assert "my secret plan" not in json.dumps(body)
    assert ("dropped", "reasoning") in [(loss.kind, loss.what) for loss in result.losses]


UNCOUNTED = {
    "openai_chat": (
        {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
         "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]},
    ),
    "gemini": ({"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]},),
}  # fmt: skip


@pytest.mark.parametrize("wire", UNCOUNTED)
def test_s0_32_counts_that_a_server_does_not_tell_are_zero(wire: str) -> None:
    stream = "".join(f"data: {json.dumps(one)}\n\n" for one in UNCOUNTED[wire])
    raw = Raw((stream + ("data: [DONE]\n\n" if wire == "openai_chat" else "")).encode(), content_type="text/event-stream")
    with FakeServer(wire, [raw]) as server:
        result = Harness(opened(wire, server), store="memory").run_sync("Go")
    assert (result.text, result.usage, result.requests[0].usage) == ("hi", Usage(), Usage())


@pytest.mark.parametrize("wire", ROWS)
def test_s0_20_s0_38_thinking_text_and_calls_of_one_turn_are_all_kept_in_order(wire: str) -> None:
    script = [turn(Thinking("hm"), Text("Let me see."), Call("look", '{"item":"cup"}')), turn(Thinking("so"), Text("blue"))]
    with FakeServer(wire, script) as server:
        harness = Harness(opened(wire, server), tools=[look], store="memory", settings=ModelSettings(show="summary"))
        result = harness.run_sync("Go")
    said = [message.blocks for message in result.transcript if message.role == "assistant"]
    kinds = [list(dict.fromkeys(block.kind for block in blocks)) for blocks in said]  # Gemini signs an empty text at the end
    assert kinds == [["reasoning", "text", "tool_call"], ["reasoning", "text"]]
    assert [blocks[0].text for blocks in said if isinstance(blocks[0], ReasoningBlock)] == ["hm", "so"]


@pytest.mark.parametrize("wire", ROWS)
def test_s0_39_calls_side_by_side_stay_allowed_and_each_is_run(wire: str) -> None:
    script = [turn(Call("look", '{"item":"cup"}'), Call("look", '{"item":"pen"}')), turn(Text("blue"))]
    with FakeServer(wire, script) as server:
        result = Harness(opened(wire, server), tools=[look], store="memory").run_sync("Go")
        first, second = (request.body.decode() for request in server.requests)
    assert '"disable_parallel_tool_use":true' not in first
    assert '"parallel_tool_calls":false' not in first
    assert [record.call.args for record in result.records] == [{"item": "cup"}, {"item": "pen"}]
    assert "a blue cup" in second
    assert "a blue pen" in second


@pytest.mark.parametrize("named", ["input_schema", "parameters"])
def test_s0_41_a_plain_schema_is_a_flat_function_on_responses_under_either_name(named: str) -> None:
    shape = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
    with FakeServer("openai_responses", [turn(Call("twice", '{"n":4}')), turn(Text("eight"))]) as server:
        model = opened("openai_responses", server)
        schema = {"name": "twice", "description": "Double it.", named: shape}
        text = run(model, {"twice": lambda n: 2 * n}, tool_schemas=[schema], user_message="4?", system="Be brief.")
        first, second = (json.loads(request.body) for request in server.requests)
    [declared] = [one for one in first["tools"] if one["name"] == "twice"]
    assert (declared["type"], declared["description"], declared["parameters"]) == ("function", "Double it.", shape)
    assert (text, first["instructions"]) == ("eight", "Be brief.")
    assert [(one["type"], one.get("arguments"), one.get("output")) for one in second["input"][1:]] == [
        ("function_call", '{"n":4}', None), ("function_call_output", None, "8"),
    ]  # fmt: skip


def test_s0_52_each_request_is_logged_with_the_time_it_took() -> None:
    with FakeServer("openai_chat", [turn(Call("look", '{"item":"cup"}')), turn(Text("blue"))]) as server:
        harness = Harness(opened("openai_chat", server), tools=[look], store="memory")
        result = harness.run_sync("Go")
    logged = [event.seconds for event in asyncio.run(harness.store.read(result.thread)) if isinstance(event, Replied)]
    assert [one.seconds for one in result.requests] == logged
    assert all(0 < seconds <= result.seconds for seconds in logged)
    assert all(one.usage.input_total and one.usage.output_total for one in result.requests)


UNENCODED_CALL = {"name": "f", "arguments": {"a": 1}}
UNENCODED: dict[str, dict[str, Any]] = {
    "openai_chat": {"model": "m", "messages": [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": UNENCODED_CALL}]},
        {"role": "tool", "tool_call_id": "c", "content": "1"},
    ]},
    "openai_responses": {"model": "m", "input": [
        {"role": "user", "content": "Go"},
        {"type": "function_call", "call_id": "c", **UNENCODED_CALL},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]},
}  # fmt: skip


@pytest.mark.parametrize("wire", UNENCODED)
def test_s0_53_arguments_that_a_translator_forgot_to_encode_are_caught_by_name(wire: str) -> None:
    text = json.dumps(UNENCODED[wire])
    [found] = check_request(wire, text)
    assert "arguments" in str(found)
    assert check_request(wire, text.replace('{"a": 1}', '"{}"')) == []


def test_s1_11_anthropics_calls_are_validated_run_and_answered_in_the_next_user_message() -> None:
    script = [turn(Call("look", '{"item":"cup"}'), Call("look", '{"thing":"pen"}')), turn(Text("blue"))]
    with FakeServer("anthropic_messages", script) as server:
        result = Harness(opened("anthropic_messages", server), tools=[look], store="memory").run_sync("Go")
        assert server.rejected == []
        *_, called, answered = json.loads(server.requests[1].body)["messages"]
    ids = [block["id"] for block in called["content"] if block["type"] == "tool_use"]
    assert answered["role"] == "user"
    assert [(one["type"], one["tool_use_id"], one.get("is_error", False)) for one in answered["content"]] == [
        ("tool_result", ids[0], False), ("tool_result", ids[1], True),
    ]  # fmt: skip
    assert "a blue cup" in json.dumps(answered["content"][0])
    assert "thing: unknown field" in json.dumps(answered["content"][1])
    assert [record.ok for record in result.records] == [True, False]


def test_s1_14_validation_permission_budget_and_trace_are_the_same_on_every_wire() -> None:
    policy = Policy((Rule(tool="send", verdict="deny", name="no mail"),), Defaults.all("allow"))
    ran: list[str] = []

    @tool
    def send(to: str) -> str:
        """Send a message."""
        ran.append(to)
        return "sent"

    batch = [Call("look", '{"item":5}'), Call("send", '{"to":"Ada"}'), Call("look", '{"item":"cup"}')]
    seen: list[object] = []
    for wire in ROWS:
        with FakeServer(wire, [turn(*batch), turn(*batch[2:]), "never"]) as server:
            harness = Harness(
                opened(wire, server), tools=[look, send], store="memory", policy=policy, limits=Limits(requests=2)
            )
            result = harness.run_sync("Go")
        told = [(record.ok, record.result.content if record.result else ()) for record in result.records]
        events = [type(event).__name__ for event in asyncio.run(harness.store.read(result.thread))]
        seen.append((told, result.stop, result.detail, events))
        assert [ok for ok, _ in told[:3]] == [False, False, True]
        assert "expected a string" in str(told[0])
        assert "no mail" in str(told[1])
        assert (result.stop, ran) == ("limit", [])
    assert [one for one in seen if one != seen[0]] == []


@pytest.mark.parametrize("wire", ROWS)
def test_s1_19_required_choices_and_bounds_are_declared_and_enforced(wire: str) -> None:
    ran: list[object] = []

    @tool(effect="read", retries=9)
    def move(way: Literal["up", "down"], steps: Annotated[int, Ge(1), Le(9)], note: str = "") -> str:
        """Move."""
        ran.append((way, steps, note))
        return "moved"

    wrong = ['{"way":"left","steps":1}', '{"way":"up","steps":10}', '{"way":"up","steps":0}', '{"way":"up"}']
    wrong.append('{"way":"up","steps":1,"fast":true}')
    script = [turn(*(Call("move", raw) for raw in wrong)), turn(Call("move", '{"way":"up","steps":9}')), turn(Text("done"))]
    with FakeServer(wire, script) as server:
        result = Harness(opened(wire, server), tools=[move], store="memory").run_sync("Go")
        sent = server.requests[0].body.decode().replace(" ", "")
    assert [record.ok for record in result.records] == [False] * 5 + [True]
    assert ran == [("up", 9, "")]
    for word in (
        '"enum":["up","down"]',
        '"minimum":1',
        '"maximum":9',
        '"required":["way","steps"]',
        '"additionalProperties":false',
    ):
        assert word in sent, word


def test_s1_32_the_log_has_each_version_of_the_tools_and_requests_keep_their_order() -> None:
    def made(about: str) -> list[Any]:
        return [tool(look.function, name=name, effect="read", description=about) for name in ("zebra", "ant", "look")]

    with FakeServer("openai_chat", ["one", "two", "three"]) as server:
        first = Harness(opened("openai_chat", server), tools=made("Old."), store="memory")
        thread = first.run_sync("Go").thread
        first.run_sync("Again", thread=thread)
        Harness(opened("openai_chat", server), tools=made("New."), store=first.store).run_sync("Now", thread=thread)
        sent = [[one["function"] for one in json.loads(request.body)["tools"]] for request in server.requests]
    versions = [event.tools for event in asyncio.run(first.store.read(thread)) if isinstance(event, Configured)]
    assert [[(one.name, one.description) for one in version[:3]] for version in versions] == [
        [("zebra", "Old."), ("ant", "Old."), ("look", "Old.")], [("zebra", "New."), ("ant", "New."), ("look", "New.")],
    ]  # fmt: skip
    assert sent[0] == sent[1]
    assert [[one["name"] for one in request[:3]] for request in sent] == [["zebra", "ant", "look"]] * 3


def test_s2_22_the_model_gets_the_content_and_the_program_the_metadata() -> None:
    @tool(effect="read")
    def count() -> ToolOutput:
        """Count."""
        return ToolOutput("many", {"rows_found": 5})

    with FakeServer("openai_chat", [turn(Call("count", "{}")), turn(Call("nothing", "{}")), "ok"]) as server:
        model = open_model(ROWS["openai_chat"], base_url=server.url, key="k", environ={})
        result = Harness(model, tools=[count], store="memory").run_sync("Go")
        second = server.requests[1].body
    done, refused = (record.result for record in result.records)
    assert done is not None
    assert refused is not None
    assert (done.ok, json.loads(done.metadata), refused.ok) == (True, {"rows_found": 5}, False)
    assert b"many" in second
    assert b"rows_found" not in second


def test_s4_22_a_failure_is_a_state_of_its_own() -> None:
    with FakeServer("openai_chat", [Status(503), turn(Call("look", '{"item":"cup"}')), "ok"]) as server:
        model = open_model(ROWS["openai_chat"], base_url=server.url, key="k", environ={}, retries=Retries(1))
        harness = Harness(model, tools=[look], store="memory")
        thread = harness.run_sync("Go").thread
    events = asyncio.run(harness.store.read(thread))
    seen = [fold(events[:number]).phase for number in range(1, len(events) + 1)]
    assert list(dict.fromkeys(seen)) == ["awaiting_input", "processing", "error_recovery", "executing_tools", "respond"]
