"""A computer on four wires: in the form that a model knows, or as a plain function; the calls in the log are the same."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from evener import Harness, MemoryStore, open_model
from evener.context import ContextRules
from evener.context.view import REMOVED_SCREENSHOT
from evener.encodings.native.actions import rescale
from evener.encodings.native.computer import COMPUTER_FORMS
from evener.encodings.own_tools import choose_own_tools
from evener.harness.approvals import Decision
from evener.policy import Defaults, Policy, Rule
from evener.result import Approval, RunResult
from evener.testing import Call, FakeComputer, FakeServer, Native, Received, Thinking, Tokens, Turn, turn
from evener.tools import Toolbox, tool
from evener.toolset.computer import (
    Action,
    Click,
    Delay,
    Drag,
    Keypress,
    MouseDown,
    Move,
    Navigate,
    Point,
    Screenshot,
    Scroll,
    Type,
    computer_tools,
)
from evener.transcript import State, Transcript
from tests.oracle import oracle_errors

TOOLSET, SINGLE, OLDEST = "anthropic:claude-sonnet-5", "anthropic:claude-opus-4-5", "anthropic:claude-sonnet-4-5"
ITEMS, PREVIEW = "openai:gpt-5.4", "openai:computer-use-preview"
FUNCTIONS, OLDER = "google:gemini-3.5-flash", "google:gemini-2.5-computer-use-preview-10-2025"
CHAT, PLAIN = "groq:openai/gpt-oss-120b", "openai:gpt-4o"
FREE = Policy(default=Defaults.all("allow"), mixing="allow")
SCREEN = (1000, 500)
Json = dict[str, Any]


def item(id: str, *actions: Json, checks: tuple[Json, ...] = ()) -> Turn:
    made = {"type": "computer_call", "id": f"cu_{id}", "call_id": id, "status": "completed"}
    return turn(Native({**made, "pending_safety_checks": list(checks), "actions": list(actions)}))


def member(name: str, given: Json, toolset: str = "computer") -> Turn:
    return turn(Call(name, given, toolset=toolset))


def one(name: str, **given: object) -> Turn:
    return turn(Call(name, given))


def plain(*actions: Json) -> Turn:
    return turn(Call("computer", {"actions": list(actions)}))


LOOK, HIT, SAY = Screenshot(), Click(Point(100, 50)), Type("Ada")
SCRIPTS: dict[str, list[Turn]] = {
    TOOLSET: [member("screenshot", {}), member("left_click", {"coordinate": [100, 50]}), member("type", {"text": "Ada"})],
    SINGLE: [
        one("computer", action="screenshot"),
        one("computer", action="left_click", coordinate=[100, 50]),
        one("computer", action="type", text="Ada"),
    ],
    ITEMS: [
        item("c1", {"type": "screenshot"}),
        item("c2", {"type": "click", "button": "left", "x": 100, "y": 50}, {"type": "type", "text": "Ada"}),
    ],
    FUNCTIONS: [one("take_screenshot", intent="look"), one("click", x=100, y=100), one("type", text="Ada")],
    CHAT: [
        plain({"type": "screenshot"}),
        plain({"type": "click", "at": {"x": 100, "y": 50}}),
        plain({"type": "type", "text": "Ada"}),
    ],
}
SCRIPTS |= {OLDEST: SCRIPTS[SINGLE], PREVIEW: SCRIPTS[ITEMS], PLAIN: SCRIPTS[CHAT]}
OFFERED = {
    TOOLSET: "computer_toolset_20260801",
    SINGLE: "computer_20251124",
    OLDEST: "computer_20250124",
    ITEMS: "computer",
    PREVIEW: "computer_use_preview",
    FUNCTIONS: "ENVIRONMENT_DESKTOP",
    CHAT: "function",
    PLAIN: "function",
}


Deciding = Callable[[Approval], Decision]
Script = Sequence[Turn | str] | Callable[[Received], Turn]


async def drive(
    name: str, script: Script, computer: FakeComputer, decide: Deciding | None = None, **more: Any
) -> tuple[RunResult, list[Json], FakeServer]:
    """Run a script on the fake of a model's wire, which refuses all that is not legal."""
    wire = open_model(name, key="k").origin.wire
    tools = [*computer_tools(computer, approval=False), *more.pop("tools", ())]
    async with FakeServer(wire, script, key="k") as server:
        model = open_model(name, key="k", base_url=server.url)
        thread = Harness(model, tools=tools, **{"policy": FREE, "store": "memory", **more}).thread()
        result = await thread.run("Go.")
        while result.stop == "approval":
            assert decide is not None
            await thread.decide({one.key: decide(one) for one in result.approvals})
            result = await thread.resume()
        bodies = check(server, wire)
    return result, bodies, server


def check(server: FakeServer, wire: str) -> list[Json]:
    """Return the bodies of the requests: the fake and the types of the vendor's SDK take them all."""
    bodies: list[Json] = [json.loads(one.body) for one in server.requests]
    assert server.rejected == []
    assert [oracle_errors(wire, body) for body in bodies] == [[] for _ in bodies]
    return bodies


def run(name: str, script: Script, computer: FakeComputer, **more: Any) -> tuple[RunResult, list[Json]]:
    result, bodies, _ = asyncio.run(drive(name, script, computer, **more))
    return result, bodies


def actions_of(result: RunResult) -> list[Json]:
    return [action for one in result.records for action in one.call.args["actions"]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", OFFERED)
def test_a_model_looks_clicks_and_types_in_the_form_that_it_knows(name: str) -> None:
    """S1.16: computer use on each wire, natively where a row has it; the log has the same calls, in pixels."""
    computer = FakeComputer(SCREEN)
    result, bodies = run(name, [*SCRIPTS[name], "Done."], computer)
    assert result.text == "Done."
    assert computer.done == [LOOK, HIT, SAY]
    assert {one.call.name for one in result.records} == {"computer"}
    assert actions_of(result) == [
        {"type": "screenshot"},
        {"type": "click", "at": {"x": 100, "y": 50}},
        {"type": "type", "text": "Ada"},
    ]
    assert OFFERED[name] in json.dumps(bodies[0]["tools"])
    shots = json.dumps(bodies[-1]).count("iVBORw0KGgo")
    assert shots == len(SCRIPTS[name])  # each result shows the screen


def blocks_of(body: Json) -> list[Json]:
    contents = [message["content"] for message in body["messages"] if isinstance(message["content"], list)]
    return [block for content in contents for block in content]


def results_of(wire: str, body: Json) -> list[Json]:
    match wire:
        case "anthropic_messages":
            blocks = [
                block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]
            ]
            return [block for block in blocks if block["type"] == "tool_result"]
        case "openai_responses":
            return [one for one in body["input"] if str(one.get("type")).endswith("_output")]
    parts = [part for content in body["contents"] for part in content["parts"]]
    return [part["functionResponse"] for part in parts if "functionResponse" in part]


def test_calls_go_back_as_the_model_made_them_and_results_in_their_shape() -> None:
    """S1.16: the makers' own words, ids and signatures return unchanged."""
    body = run(TOOLSET, [*SCRIPTS[TOOLSET], "Done."], FakeComputer(SCREEN))[1][-1]
    calls = [
        part for one in body["messages"] for part in one["content"] if isinstance(part, dict) and part["type"] == "tool_use"
    ]
    assert [(one["name"], one["input"], one["toolset_name"]) for one in calls] == [
        ("screenshot", {}, "computer"),
        ("left_click", {"coordinate": [100, 50]}, "computer"),
        ("type", {"text": "Ada"}, "computer"),
    ]
    assert {one["toolset_name"] for one in results_of("anthropic_messages", body)} == {"computer"}
    assert body["tools"][0]["configs"] == {"cursor_position": {"enabled": False}, "zoom": {"enabled": False}}

    body = run(ITEMS, [*SCRIPTS[ITEMS], "Done."], FakeComputer(SCREEN))[1][-1]
    sent = [dict(part.value) for one in SCRIPTS[ITEMS] for part in one.parts if isinstance(part, Native)]
    assert [one for one in body["input"] if one.get("type") == "computer_call"] == sent
    assert {one["output"]["type"] for one in results_of("openai_responses", body)} == {"computer_screenshot"}

    body = run(FUNCTIONS, [*SCRIPTS[FUNCTIONS], "Done."], FakeComputer(SCREEN))[1][-1]
    made = [part for content in body["contents"] for part in content["parts"] if "functionCall" in part]
    assert [one["functionCall"]["args"] for one in made] == [{"intent": "look"}, {"x": 100, "y": 100}, {"text": "Ada"}]
    assert all("thoughtSignature" in one for one in made)
    assert [one["name"] for one in results_of("gemini", body)] == ["take_screenshot", "click", "type"]


def test_the_size_of_the_screen_and_the_beta_are_declared_where_they_must_be() -> None:
    _, bodies, server = asyncio.run(drive(SINGLE, ["Hi."], FakeComputer(SCREEN)))
    entry = next(one for one in bodies[0]["tools"] if one.get("type") == "computer_20251124")
    assert (entry["display_width_px"], entry["display_height_px"]) == SCREEN
    assert server.requests[0].headers["anthropic-beta"] == "computer-use-2025-11-24"
    _, bodies = run(PREVIEW, ["Hi."], FakeComputer(SCREEN))
    assert bodies[0]["tools"][0]["environment"] == "linux"
    assert bodies[0]["truncation"] == "auto"


BROWSING: dict[str, list[Turn]] = {
    TOOLSET: [
        member("navigate", {"url": "http://a.test/"}, "browser"),
        member("left_click", {"target": {"type": "coordinate", "x": 100, "y": 50}}, "browser"),
        member("key", {"text": "ctrl+a Delete"}, "browser"),
    ],
    ITEMS: [
        one("navigate", url="http://a.test/"),
        item("c1", {"type": "click", "button": "left", "x": 100, "y": 50}),
        item("c2", {"type": "keypress", "keys": ["ctrl", "a"]}, {"type": "keypress", "keys": ["Delete"]}),
    ],
    FUNCTIONS: [one("navigate", url="http://a.test/"), one("click", x=100, y=100), one("hotkey", keys=["ctrl", "a"])],
    OLDER: [
        one("navigate", url="http://a.test/"),
        one("click_at", x=100, y=100),
        one("key_combination", keys="ctrl+a"),
    ],
    CHAT: [
        one("navigate", url="http://a.test/"),
        plain({"type": "click", "at": {"x": 100, "y": 50}}, {"type": "keypress", "keys": ["ctrl", "a"]}),
    ],
}


@pytest.mark.parametrize("name", BROWSING)
def test_a_browser_is_offered_as_one_where_the_maker_has_a_form_for_it(name: str) -> None:
    """S1.16: browser use."""
    computer = FakeComputer(SCREEN, browses=True)
    result, bodies = run(name, [*BROWSING[name], "Done."], computer)
    assert computer.done[:2] == [Navigate("http://a.test/"), HIT]
    assert computer.done[2] == Keypress(("ctrl", "a"))
    assert [one.call.name for one in result.records][:2] == ["navigate", "computer"]
    told = json.dumps(results_of(open_model(name, key="k").origin.wire, bodies[-1])) if name != CHAT else json.dumps(bodies[-1])
    assert "http://a.test/" in told
    if name == TOOLSET:
        [state] = results_of("anthropic_messages", bodies[-1])[0]["content"][1:]
        assert state["tabs"] == [{"tab_id": "1", "title": "", "url": "http://a.test/", "active": True}]
        assert bodies[0]["tools"][0]["type"] == "browser_toolset_20260801"
    if name in (FUNCTIONS, OLDER):
        assert results_of("gemini", bodies[-1])[0]["response"] == {"url": "http://a.test/"}


DESK, PAGE, OLD, ITEM, NEW, GRID = (
    *("computer_toolset_20260801", "browser_toolset_20260801", "computer_20250124"),
    *("computer", "computer_use", "computer_use_2025"),
)
DRAGGED = Drag((Point(10, 10), Point(30, 20)))
FROM, TO = {"type": "coordinate", "x": 10, "y": 10}, {"type": "coordinate", "x": 30, "y": 20}
CLEARED = [Keypress(("ControlOrMeta", "a")), Keypress(("Backspace",))]
WORDS: list[tuple[str, str, Json, list[Action]]] = [
    (DESK, "double_click", {"coordinate": [7, 8], "text": "shift"}, [Click(Point(7, 8), "left", 2, ("shift",))]),
    (DESK, "triple_click", {}, [Click(None, "left", 3)]),
    (DESK, "scroll", {"scroll_direction": "up", "scroll_amount": 2}, [Scroll(0, -200)]),
    (DESK, "left_click_drag", {"start_coordinate": [10, 10], "coordinate": [30, 20]}, [DRAGGED]),
    (DESK, "key", {"text": "ctrl++", "repeat": 3}, [Keypress(("ctrl", "+"), 3)]),
    (DESK, "hold_key", {"text": "shift", "duration": 2}, [Keypress(("shift",), 1, 2.0)]),
    (DESK, "left_mouse_down", {}, [MouseDown()]),
    (DESK, "wait", {"duration": 3}, [Delay(3.0)]),
    (PAGE, "hover", {"target": TO}, [Move(Point(30, 20))]),
    (PAGE, "left_click_drag", {"from": FROM, "target": TO}, [DRAGGED]),
    (PAGE, "left_click", {"target": {"type": "ref", "ref": "ref_1"}}, []),
    (OLD, "computer", {"action": "right_click", "coordinate": [7, 8]}, [Click(Point(7, 8), "right")]),
    (OLD, "computer", {"action": "cursor_position"}, []),
    (ITEM, "click", {"button": "wheel", "x": 1, "y": 2, "keys": ["SHIFT"]}, [Click(Point(1, 2), "middle", 1, ("SHIFT",))]),
    (ITEM, "drag", {"path": [{"x": 10, "y": 10}, {"x": 30, "y": 20}]}, [DRAGGED]),
    (ITEM, "scroll", {"x": 1, "y": 2, "scroll_x": 0, "scroll_y": 70}, [Scroll(0, 70, Point(1, 2))]),
    (ITEM, "dance", {}, []),
    (NEW, "click", {"x": 999, "y": 999}, [Click(Point(999, 499))]),
    (NEW, "click", {"x": 5000, "y": 0}, [Click(Point(999, 0))]),
    (NEW, "click", {"x": -1, "y": 0}, []),
    (NEW, "scroll", {"x": 0, "y": 0, "direction": "down"}, [Scroll(0, 300, Point(0, 0))]),
    (NEW, "drag_and_drop", {"start_x": 10, "start_y": 20, "end_x": 30, "end_y": 40}, [DRAGGED]),
    (NEW, "type", {"text": "a", "press_enter": True}, [Type("a"), Keypress(("Enter",))]),
    (NEW, "wait", {}, [Delay(2.0)]),
    (GRID, "scroll_document", {"direction": "down"}, [Scroll(0, 400)]),
    (GRID, "scroll_at", {"x": 500, "y": 500, "direction": "left", "magnitude": 100}, [Scroll(-100, 0, Point(500, 250))]),
    (GRID, "drag_and_drop", {"x": 10, "y": 20, "destination_x": 30, "destination_y": 40}, [DRAGGED]),
    (GRID, "type_text_at", {"x": 10, "y": 20, "text": "a", "press_enter": False}, [Click(Point(10, 10)), *CLEARED, Type("a")]),
    (GRID, "search", {}, []),
]


@pytest.mark.parametrize(("form", "name", "given", "actions"), WORDS, ids=[f"{one[0]}-{one[1]}" for one in WORDS])
def test_the_words_of_every_maker_are_understood(form: str, name: str, given: Json, actions: list[Action]) -> None:
    given = {"actions": [{"type": name, **given}]} if form == ITEM else given
    found = COMPUTER_FORMS[form].read(given, name, SCREEN)
    assert found == (("computer", {"actions": msgspec.to_builtins(actions)}) if actions else None)


CHECK = {"id": "sc_1", "code": "malicious_instructions", "message": "The page asks for a password."}
UNSAFE: dict[str, Turn] = {
    ITEMS: item("c1", {"type": "click", "button": "left", "x": 100, "y": 50}, checks=(CHECK,)),
    FUNCTIONS: one(
        "click",
        x=100,
        y=100,
        safety_decision={"decision": "require_confirmation", "explanation": "The page asks for a password."},
    ),
}


@pytest.mark.parametrize("policy", [None, FREE, Policy((Rule(tool="computer", verdict="allow"),))])
@pytest.mark.parametrize("name", UNSAFE)
def test_a_safety_check_is_an_approval_and_acknowledged_when_it_was_given(name: str, policy: Policy | None) -> None:
    """S1.16: whatever a policy allows, a user decides."""
    computer, asked = FakeComputer(SCREEN, browses=True), list[str]()

    def decide(approval: Approval) -> Decision:
        asked.append(approval.why)
        assert computer.done == []
        return Decision("allow")

    result, bodies = run(name, [UNSAFE[name], "Done."], computer, policy=policy, decide=decide)
    assert result.text == "Done."
    assert computer.done == [HIT]
    [why] = asked
    assert "The page asks for a password." in why
    [answer] = results_of(open_model(name, key="k").origin.wire, bodies[-1])
    acknowledged = answer.get("acknowledged_safety_checks") or answer["response"]["safety_acknowledgement"]
    assert acknowledged in ([CHECK], "true")


@pytest.mark.parametrize("name", UNSAFE)
def test_a_model_is_told_that_what_it_wanted_was_rejected(name: str) -> None:
    """S1.16: nothing is done, and nothing is acknowledged."""
    computer = FakeComputer(SCREEN, browses=True)
    result, bodies = run(
        name, [UNSAFE[name], "I see."], computer, decide=lambda _: Decision("reject", why="Never type a password.")
    )
    assert result.text == "I see."
    assert computer.done == []
    said = json.dumps(bodies[-1])
    assert "Never type a password." in said
    assert "acknowledge" not in said


def test_a_rule_that_denies_counts_more_than_a_check() -> None:
    computer = FakeComputer(SCREEN)
    rules = Policy(
        (Rule(tool="computer", verdict="deny", arguments={"actions.*.type": "click"}, name="no clicks"),), FREE.default
    )
    result, bodies = run(ITEMS, [UNSAFE[ITEMS], "I see."], computer, policy=rules)
    assert (result.stop, computer.done) == ("done", [])
    assert "no clicks" in json.dumps(bodies[-1])


def test_a_conversation_goes_on_at_another_maker() -> None:
    """S1.16: calls that were made in another form are plain ones there, which is a loss that has a name."""
    computer, store = FakeComputer(SCREEN, browses=True), MemoryStore()
    scripts = {**BROWSING, SINGLE: SCRIPTS[SINGLE], PREVIEW: SCRIPTS[ITEMS]}

    async def main() -> list[str]:
        thread, codes = "", list[str]()
        for name in (TOOLSET, ITEMS, FUNCTIONS, CHAT, OLDER, SINGLE, PREVIEW, TOOLSET):
            wire = open_model(name, key="k").origin.wire
            script: list[Turn | str] = [*scripts.pop(name, []), "Next."]
            async with FakeServer(wire, script, key="k") as server:
                model = open_model(name, key="k", base_url=server.url)
                harness = Harness(model, tools=computer_tools(computer, approval=False), policy=FREE, store=store, name="hops")
                result = await harness.run("Go on.", thread=thread)
                assert result.text == "Next."
                thread, _ = result.thread, check(server, wire)
                codes += [loss.code for loss in result.losses]
        return codes

    codes = asyncio.run(main())
    assert "tool_call.degraded" in codes


def test_a_screenshot_that_was_taken_out_leaves_words_and_a_legal_request() -> None:
    """S1.16, S3.22."""
    looks = {
        ITEMS: [item(f"c{number}", {"type": "move", "x": number, "y": 0}) for number in range(12)],
        TOOLSET: [member("mouse_move", {"coordinate": [number, 0]}) for number in range(12)],
        FUNCTIONS: [one("move", x=number, y=0) for number in range(12)],
    }
    for name, turns in looks.items():
        script = iter([*turns, turn("Done.")])

        def speak(received: Received, script: Iterator[Turn] = script) -> Turn:
            return replace(next(script), usage=Tokens(input=500 + 1_100 * received.body.count(b"iVBORw0KGgo"), output=20))

        _, bodies = run(name, speak, FakeComputer(SCREEN), context=ContextRules(window=12_000, reserve=1_000))
        assert REMOVED_SCREENSHOT in json.dumps(bodies[-1])


def test_a_large_screen_is_shown_smaller_and_coordinates_are_those_of_what_is_shown() -> None:
    from PIL import Image

    computer = FakeComputer((2560, 1440))
    [made] = computer_tools(computer, approval=False)
    assert made.spec.screen == (1280, 720)
    _, bodies = run(CHAT, [plain({"type": "click", "at": {"x": 1279, "y": 100}}), "Done."], computer)
    assert computer.done == [Click(Point(2558, 200))]
    [url] = [block["image_url"]["url"] for block in blocks_of(bodies[-1]) if "image_url" in block]
    assert Image.open(BytesIO(b64decode(url.partition(",")[2]))).size == (1280, 720)
    assert rescale(Delay(1.0), (10, 10), (20, 20)) == Delay(1.0)


def test_forms_are_not_used_where_they_could_not_be_answered_or_told_apart() -> None:
    @tool(effect="read")
    def click(x: int) -> int:
        """Another tool of that name."""
        return x

    specs = Toolbox(computer_tools(FakeComputer(SCREEN))).specs
    for name, more in ((ITEMS, ()), (FUNCTIONS, (click.spec,))):
        model = open_model(name, key="k")
        quirks, ask = model.endpoint.facts.quirks, model.ask(Transcript(), specs)
        assert choose_own_tools(ask, quirks) != ()
        other = replace(ask, tools=(*specs, *more), state=State("replay" if more else "chain"))
        assert choose_own_tools(other, quirks) == ()


def test_another_tool_may_have_the_name_of_a_member_of_a_set() -> None:
    """S1.16: what belongs to a set says so."""

    @tool(effect="read")
    def wait(minutes: int) -> str:
        """Wait for a person."""
        return f"waited {minutes} minutes"

    computer = FakeComputer(SCREEN)
    script: Script = [turn(Call("wait", {"minutes": 2})), member("wait", {"duration": 1}), "Done."]
    result, _ = run(TOOLSET, script, computer, tools=[wait])
    assert [one.call.name for one in result.records] == ["wait", "computer"]
    assert computer.done == [Delay(1.0)]


@pytest.mark.parametrize("streams", [True, False])
def test_whole_answers_and_streams_are_read_alike(streams: bool) -> None:
    for name in (TOOLSET, ITEMS, FUNCTIONS):
        computer = FakeComputer(SCREEN)
        wire = open_model(name, key="k").origin.wire

        async def main(name: str = name, wire: str = wire, computer: FakeComputer = computer) -> None:
            async with FakeServer(wire, [*SCRIPTS[name], "Done."], key="k") as server:
                model = open_model(name, key="k", base_url=server.url)
                harness = Harness(model, tools=computer_tools(computer, approval=False), policy=FREE, store="memory")
                await (harness.run("Go.") if not streams else harness.stream("Go.").result())
                check(server, wire)

        asyncio.run(main())
        assert computer.done == [LOOK, HIT, SAY]


def test_reasoning_stays_beside_the_call_that_was_made_with_it() -> None:
    call = SCRIPTS[ITEMS][0].parts[0]
    _, bodies = run(ITEMS, [turn(Thinking("Look first."), call), "Done."], FakeComputer(SCREEN))
    types = [one.get("type", "message") for one in bodies[-1]["input"]]
    assert types[types.index("reasoning") + 1] == "computer_call"


def test_a_call_that_cannot_be_understood_gets_an_answer_in_its_form() -> None:
    result, bodies = run(TOOLSET, [member("cursor_position", {}), "Sorry."], FakeComputer(SCREEN))
    assert result.text == "Sorry."
    [answer] = results_of("anthropic_messages", bodies[-1])
    assert (answer["is_error"], answer["toolset_name"]) == (True, "computer")
