"""Our streams read by the libraries that web pages use: npm `ai` (UI message stream) and `@ag-ui/client` (AG-UI).

Each scene is a fake provider on loopback, a harness, and the served app. A Node process plays every scene against the app as
a page would, approvals included, and prints what the page shows in the end; here it is compared with what it should show.
"""

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from bench.npm_packages import NoNode, npm_environment
from evener import Harness, open_model, tool
from evener.events import Limits
from evener.testing import Call, FakeServer, Status, Text, Thinking, Turn, faults, turn
from evener.web.app import serve_web

__all__ = ["PACKAGES", "SCENES", "FrontScene", "main", "play"]

PACKAGES = {"ai": "7.0.169", "@ag-ui/client": "1.0.0"}
DRIVER = Path(__file__).with_name("front_driver.mjs")
SECONDS = 300


@tool(effect="read")
def get_weather(city: str) -> str:
    """Look up the weather."""
    return f"Snow in {city}."


@tool(effect="read", retries=0)
def break_down(part: str) -> str:
    """Fail."""
    raise ValueError(f"no {part}")


@tool(approval=True)
def erase(path: str) -> str:
    """Erase a file."""
    return f"erased {path}"


class FrontScene(msgspec.Struct, frozen=True, kw_only=True):
    """What the model says, what the user answers, and what a page then shows. `tools`: name, and output or None."""

    name: str
    script: Sequence[Turn | Status]
    text: str = ""
    reasoning: str = ""
    tools: tuple[tuple[str, str | None], ...] = ()
    states: tuple[str, ...] = ()  # of the tools, as the UI stream has them
    answers: tuple[bool, ...] = ()
    error: str = ""
    limits: Limits = Limits()


ERASE = turn(Text("I will."), Call("erase", {"path": "/x"}))
OSLO = "It is very cold in Oslo today."
BROKEN = turn(Text(OSLO, pieces=6), faults=[faults.Cut(after=6)])
THOUGHT = turn(Thinking("Let me think about it.", pieces=4), Text("Yes.", pieces=2), faults=[faults.Torn(after=4)])
HALF_CALL = turn(Text("I look."), Call("get_weather", {"city": "Oslo"}), faults=[faults.Cut(after=8)])
LOOK = Call("get_weather", {"city": "Oslo"})

SCENES = (
    FrontScene(name="text", script=[turn(Text("It is cold.", pieces=3))], text="It is cold."),
    FrontScene(name="reasoning", script=[turn(Thinking("I look."), Text("Cold."))], text="Cold.", reasoning="I look."),
    FrontScene(
        name="tool call",
        script=[turn(Text("I look."), LOOK), turn(Text("Snow."))],
        text="I look.Snow.",
        tools=(("get_weather", "Snow in Oslo."),),
        states=("output-available",),
    ),
    FrontScene(
        name="two tool calls at once",
        script=[turn(LOOK, Call("get_weather", {"city": "Rome"})), turn(Text("Both."))],
        text="Both.",
        tools=(("get_weather", "Snow in Oslo."), ("get_weather", "Snow in Rome.")),
        states=("output-available", "output-available"),
    ),
    FrontScene(
        name="tool that fails",
        script=[turn(Call("break_down", {"part": "wheel"})), turn(Text("Sorry."))],
        text="Sorry.",
        tools=(("break_down", None),),
        states=("output-error",),
    ),
    FrontScene(
        name="approval, allowed",
        script=[ERASE, turn(Text("Done."))],
        text="I will.Done.",
        tools=(("erase", "erased /x"),),
        states=("output-available",),
        answers=(True,),
    ),
    FrontScene(
        name="approval, rejected",
        script=[ERASE, turn(Text("Then not."))],
        text="I will.Then not.",
        tools=(("erase", None),),
        states=("output-denied",),
        answers=(False,),
    ),
    FrontScene(name="error of the provider", script=[Status(401)], error="401"),
    FrontScene(
        name="limit",
        script=[turn(Text("I look."), LOOK), turn(Text("Never."))],
        text="I look.",
        tools=(("get_weather", "Snow in Oslo."),),
        states=("output-available",),
        error="Stopped",
        limits=Limits(requests=1),
    ),
    FrontScene(name="broken stream", script=[BROKEN, turn(Text("It is cold."))], text="It is cold."),
    FrontScene(name="broken twice", script=[BROKEN, BROKEN, turn(Text("Cold."))], text="Cold."),
    FrontScene(
        name="broken in the reasoning",
        script=[THOUGHT, turn(Thinking("I know."), Text("Yes."))],
        text="Yes.",
        reasoning="I know.",
    ),
    FrontScene(name="broken in the reasoning, then none", script=[THOUGHT, turn(Text("Yes."))], text="Yes."),
    FrontScene(
        name="broken in a call",
        script=[HALF_CALL, turn(Text("Now."), LOOK), turn(Text("Snow."))],
        text="Now.Snow.",
        tools=(("get_weather", "Snow in Oslo."),),
        states=("output-available",),
    ),
    *(
        FrontScene(
            name=f"broken after {after} events",
            script=[turn(Thinking("Hm."), Text(OSLO, pieces=3), LOOK, faults=[faults.Reset(after=after)]), turn(Text("Cold."))],
            text="Cold.",
        )
        for after in range(2, 17, 2)
    ),
    FrontScene(name="broken, no try left", script=[BROKEN] * 3, error="stream"),
)


@contextmanager
def serve_scene(scene: FrontScene) -> Iterator[str]:
    """Serve the scene's harness from a thread of its own; give the address."""
    with FakeServer("anthropic_messages", scene.script) as provider:
        model = open_model("anthropic:claude-opus-5-5", key="test", base_url=provider.url, effort="low")
        harness = Harness(model, tools=[get_weather, break_down, erase], store="memory", limits=scene.limits)
        found: list[str] = []
        ready = threading.Event()

        def tell(url: str) -> None:
            found.append(url)
            ready.set()

        stops: list[Callable[[], object]] = []

        async def serve() -> None:
            serving = asyncio.ensure_future(serve_web(harness, ready=tell))
            stops.append(partial(asyncio.get_running_loop().call_soon_threadsafe, serving.cancel))
            with suppress(asyncio.CancelledError):
                await serving

        thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        thread.start()
        ready.wait(SECONDS)
        try:
            yield found[0]
        finally:
            stops[0]()
            thread.join(SECONDS)


def play(scenes: Sequence[FrontScene], protocols: Sequence[str], *, own: bool = True) -> list[tuple[str, str, int, list[str]]]:
    """Play scenes over protocols; give for each its name, the protocol, the number of frames, and what was wrong."""
    folder, programs = npm_environment("fronts", PACKAGES, least=20, own=own)
    driver = folder / DRIVER.name
    shutil.copyfile(DRIVER, driver)
    played = [(scene, protocol) for scene in scenes for protocol in protocols]
    with ExitStack() as served:
        orders = []
        for scene, protocol in played:
            order = {"url": served.enter_context(serve_scene(scene)), "protocol": protocol, "answers": scene.answers}
            orders.append({**order, "thread": "t1", "prompt": "Is it cold?"})
        done = subprocess.run(
            [programs / "node", driver], input=json.dumps(orders), capture_output=True, text=True, timeout=SECONDS
        )
    if done.returncode:
        raise NoNode(done.stderr[-600:])
    return [
        (scene.name, protocol, said["frames"], problems_of(scene, protocol, said))
        for (scene, protocol), said in zip(played, json.loads(done.stdout), strict=True)
    ]


def problems_of(scene: FrontScene, protocol: str, said: dict[str, object]) -> list[str]:
    """Return what a page shows otherwise than it should."""
    bad = said["bad"]
    assert isinstance(bad, list)
    if bad:
        return [f"refused: {one}" for one in bad]
    tools, errors, longest = said["tools"], said["errors"], said["longest"]
    assert isinstance(tools, list)
    assert isinstance(errors, list)
    assert isinstance(longest, int)
    found = []
    for what, shown, right in (
        ("text", said["text"], scene.text),
        ("reasoning", said["reasoning"], scene.reasoning),
        ("tools", [one[0] for one in tools], [name for name, _ in scene.tools]),
        ("outputs", [one[2] for one, (_, output) in zip(tools, scene.tools, strict=False) if output], _outputs(scene)),
        ("states", [one[1] for one in tools] if protocol == "ui" else list(scene.states), list(scene.states)),
        ("left open", said["open"], 0),
        ("shown twice at some time", longest > max(len(scene.text), len(OSLO)), False),
        ("an error", any(scene.error in one for one in errors), bool(scene.error)),
    ):
        if shown != right:
            found.append(f"{what}: {shown!r} instead of {right!r} {errors}")
    return found


def _outputs(scene: FrontScene) -> list[str]:
    return [output for _, output in scene.tools if output]


def main() -> int:
    """Play every scene over both protocols, and print a table."""
    try:
        found = play(SCENES, ("ui", "ag-ui"))
    except NoNode as why:
        print(f"not run: {why}")
        return 1
    print(f"npm ai {PACKAGES['ai']} reads the UI stream, @ag-ui/client {PACKAGES['@ag-ui/client']} AG-UI")
    for name, protocol, frames, problems in found:
        print(f"{name:36} {protocol:6} {frames:4} frames  {'; '.join(problems) or 'as it should be'}")
    wrong = sum(bool(problems) for *_, problems in found)
    print(f"{len(found) - wrong} of {len(found)} scenes are shown as they should be")
    return 1 if wrong else 0
