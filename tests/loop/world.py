"""A world for the pure loop: a scripted model and tools that count their effects. It can die between any two moments.

What the real driver does is done here without I/O: events are appended before and after what they announce, and a death
keeps what was appended and the effects that happened, and nothing else.
"""

from collections.abc import Callable, Sequence

from evener import events as ev
from evener.loop.plan import (
    AskApproval,
    CallModel,
    ContinueTurn,
    FetchMedia,
    Finish,
    RunTool,
    SettleCall,
    Setup,
    Step,
    ToolFacts,
    plan,
)
from evener.loop.state import RunState, fold
from evener.transcript.blocks import TextBlock, ToolCall
from evener.transcript.message import Message
from evener.transcript.reply import Stop, Usage

UNKNOWN = "unknown"


class Died(Exception):
    """The process is gone."""


class World:
    """`replies` are what the model says at its first, second, ... finished turn; `tools` say how each tool behaves."""

    def __init__(self, replies: Sequence[Message], tools: dict[str, ToolFacts], *, setup: Setup | None = None) -> None:
        self.replies = replies
        self.setup = setup or Setup(models=("one", "two"), tools=tools)
        self.events: list[ev.Event] = []
        self.effects: list[tuple[str, str]] = []
        self.clock = 0.0
        self.moments = 0
        self.dies_at = -1
        self.took_effect: set[str] = set()
        self.asked: list[str] = []

    # Moments at which the process may die.

    def moment(self) -> None:
        self.moments += 1
        if self.moments - 1 == self.dies_at:
            raise Died

    def now(self) -> float:
        self.clock += 1.0
        return self.clock

    def append(self, *events: ev.Event) -> None:
        """All or none, as the store does it."""
        self.moment()
        self.events.extend(events)
        self.moment()

    # Running.

    def start(self, text: str = "go") -> None:
        self.append(ev.Opened(at=self.now(), thread="t"))
        message = Message("user", (TextBlock(text),), id=f"user-{len(self.events)}", created_at=None)
        self.append(ev.Prompted(at=self.now(), run=f"run-{len(self.events)}", message=message))

    def resume(self) -> None:
        if not self.events:
            return self.start()
        if len(self.events) == 1:
            message = Message("user", (TextBlock("go"),), id="user-1", created_at=None)
            self.append(ev.Prompted(at=self.now(), run="run-1", message=message))
        self.append(ev.Resumed(at=self.now(), epoch=sum(isinstance(event, ev.Resumed) for event in self.events) + 1))
        return None

    def drive(self) -> RunState:
        state = fold(self.events)
        known = len(self.events)
        for _ in range(1000):
            steps = plan(state, self.setup)
            if not steps:
                return state
            self.perform(steps, state)
            state = fold(self.events[known:], state)
            known = len(self.events)
        raise AssertionError("the loop does not end")

    def perform(self, steps: tuple[Step, ...], state: RunState) -> None:
        match steps[0]:
            case Finish(cause, detail):
                self.append(ev.Finished(at=self.now(), run=state.run, cause=cause, detail=detail))
            case CallModel(model, _, notices):
                self.ask(self.setup.models[model], notices)
            case ContinueTurn(model):
                self.ask(self.setup.models[model], ())
            case FetchMedia(url):
                self.append(ev.MediaFetched(at=self.now(), source=url, digest="d"))
            case AskApproval():
                self.decide(steps[0])
            case RunTool() | SettleCall():
                self.tools(steps)

    def decide(self, step: AskApproval) -> None:
        """A person who can look: what took effect has its result, what did not is to be run."""
        id = f"approval-{len(self.events)}"
        self.append(ev.ApprovalAsked(at=self.now(), id=id, interrupt=step.interrupt, questions=step.questions))
        for question in step.questions:
            self.asked.append(question.key)
            call = question.key.partition(":")[2]
            happened = call in self.took_effect
            verdict: ev.Verdict = "reject" if happened else "allow"
            result = f"result of {call}" if happened else None
            self.append(ev.ApprovalDecided(at=self.now(), id=id, key=question.key, verdict=verdict, result=result))

    def ask(self, model: str, notices: tuple[tuple[str, str], ...]) -> None:
        id = f"told-{sum(isinstance(event, ev.Replied) for event in self.events)}"
        self.append(ev.ModelCalled(at=self.now(), model=model, id=id, notices=notices))
        said = sum(isinstance(event, ev.Replied) for event in self.events)
        message = self.replies[min(said, len(self.replies) - 1)]
        reason = "tools" if message.calls else "done"
        self.append(ev.Replied(at=self.now(), message=message, stop=Stop(reason)))  # type: ignore[arg-type]

    def tools(self, steps: tuple[Step, ...]) -> None:
        settled = [self.settled(step) for step in steps if isinstance(step, SettleCall)]
        runs = [step for step in steps if isinstance(step, RunTool)]
        starts = [
            ev.CallStarted(at=self.now(), call=step.call.id, tool=step.call.name, key=step.call.id, verifying=step.verifying)
            for step in runs
        ]
        self.append(*settled, *starts)
        for step in reversed(runs):  # they end in another order than they began in
            if step.verifying and step.call.id not in self.took_effect:
                self.append(ev.CallStarted(at=self.now(), call=step.call.id, tool=step.call.name, key=step.call.id))
            if not step.verifying or step.call.id not in self.took_effect:
                self.moment()
                self.effects.append((step.call.name, step.call.id))
                self.took_effect.add(step.call.id)
                self.moment()
            self.append(finished(self.now(), step.call.id, f"result of {step.call.id}"))

    def settled(self, step: SettleCall) -> ev.CallFinished:
        if step.result is not None:
            return finished(self.now(), step.call.id, step.result)
        return ev.CallFinished(at=self.now(), call=step.call.id, ok=False, content=(TextBlock(UNKNOWN),), outcome="unknown")


def finished(at: float, call: str, text: str) -> ev.CallFinished:
    return ev.CallFinished(at=at, call=call, ok=True, content=(TextBlock(text),))


def reply(number: int, *calls: tuple[str, str], text: str = "") -> Message:
    """What the model says: calls as (tool, argument), or a text."""
    made = tuple(ToolCall(f"c{number}-{place}", tool, f'{{"x":"{x}"}}') for place, (tool, x) in enumerate(calls))
    blocks = made or (TextBlock(text or "done"),)
    return Message("assistant", blocks, id=f"reply-{number}", created_at=None, usage=Usage(10, 10, 0, 0, 5, 0))


def killed_at(moment: int, make: Callable[[], World]) -> World:
    """The world after it died at this moment and was resumed to its end."""
    world = make()
    world.dies_at = moment
    try:
        world.start()
        world.drive()
    except Died:
        world.dies_at = -1
        world.resume()
        world.drive()
    return world


def moments(make: Callable[[], World]) -> range:
    world = make()
    world.start()
    world.drive()
    return range(world.moments)
