"""Replays a recorded log offline: one driver after another, each with the recorded input. Sends and runs nothing.

The input of the plan is read from the log: limits, tools, models and questions as facts, the policy from its decisions. Or
the setup of a harness is used, and then the replay shows whether that harness would do the same.
"""

from collections.abc import Iterable
from typing import TypedDict

import msgspec
from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener.driver import Agent, Driver
from evener.harness.harness import Harness
from evener.hooks import Hooks
from evener.loop.plan import Setup, ToolOffer
from evener.loop.state import Limits, RunState, apply
from evener.replay.answers import RecordedModel
from evener.replay.difference import Difference, compare_events, kind_of
from evener.replay.moments import Inbox, RecordedMoment, begins, moments
from evener.replay.old_logs import infer_setup
from evener.replay.players import RecordedCaller, RecordedLog, RecordedMedia, RecordedRoom, recorded_hooks, recorded_router
from evener.replay.policy import gate_of, run_around
from evener.replay.resting import RecordedResting
from evener.replay.setup import budget_of, setup_of
from evener.replay.tape import RecordingEnded, Strayed, Tape
from evener.tools.outputs import OutputShape
from evener.transcript.ask import HostedTool, ToolSpec


class Played(TypedDict):
    """The parts of an agent that are played back."""

    models: tuple[RecordedModel, ...]
    caller: RecordedCaller
    hooks: Hooks
    bearings: RecordedResting
    context: RecordedRoom


class Replayed(msgspec.Struct, frozen=True):
    """The outcome of a replay: its events, and where they differ from the recording. None: byte for byte the same."""

    events: tuple[ev.Event, ...]
    differences: tuple[Difference, ...] = ()

    @property
    def ok(self) -> bool:
        """True if the replay gave the same events."""
        return not self.differences


async def replay(
    events: Iterable[ev.Event], *, log: str = "", harness: Harness | None = None, limits: Limits | None = None
) -> Replayed:
    """Make these events happen again, from the first of a thread on (along the path, for a fork).

    `log` is the id of the log that they were read from: needed for a fork only, whose own id is in none of its events. With
    a `harness` its tools, policy, output and `limits` are held against the recording; without one they are inferred from it.
    After a difference the replay goes on with what was recorded. What was erased cannot happen again, and differs.
    """
    return await _Replay(Tape(tuple(events)), log, harness, limits).whole()


class _Replay:
    """One replay in progress."""

    def __init__(self, tape: Tape, log: str, harness: Harness | None, limits: Limits | None) -> None:
        self._tape = tape
        self._logs = _logs(tape.recorded, log)
        self._agent = None if harness is None else harness.thread(limits=limits).agent
        self._state = RunState()
        self._driving: Driver | None = None
        self._differences: list[Difference] = []
        tape.knows_shape = self._agent is not None

    async def whole(self) -> Replayed:
        tape = self._tape
        while tape.next is not None:
            before = tape.at
            try:
                self._begin()
                await self._drive()
                self._check_done(before)
            except Strayed as strayed:
                self._differences += strayed.differences
                self._go_on()
        return Replayed(tuple(tape.made), tuple(self._differences))

    def _begin(self) -> None:
        """Apply the recorded events with which a driver began. Raises Strayed if one does not fit the state."""
        tape = self._tape
        while (event := tape.next) is not None and begins(event):
            if isinstance(event, ev.Continued) and self._state.finished is None:
                break  # the plan itself goes on beyond a limit
            differences = compare_events(event, _due(event, self._state), number=tape.at + 1)
            if differences:
                raise Strayed(*differences)
            self._state = apply(self._state, event)
            tape.accept(event)

    async def _drive(self) -> None:
        tape = self._tape
        if tape.next is None:
            return
        self._driving = driver = self._driver()
        tape.nudge = driver.nudge
        try:
            await driver.drive()
        except RecordingEnded:
            pass
        finally:
            self._state, self._driving = driver.state, None

    def _check_done(self, before: int) -> None:
        """Check that the recording has ended together with the driver, or continues with an action of a user."""
        tape = self._tape
        event = tape.next
        if event is None:
            return
        later = begins(event) or isinstance(event, Inbox | ev.ApprovalAsked)  # what is asked anew when its time is over
        if later and tape.at > before:
            return
        raise Strayed(Difference(tape.at + 1, "kind", kind_of(event), "nothing: there is nothing to do"))

    def _go_on(self) -> None:
        """Apply recorded events after a difference, up to the next point at which the plan is made."""
        tape = self._tape
        while (event := tape.next) is not None:
            self._state = apply(self._state, event)
            tape.accept(event)
            under_way = self._state.asking or any(one.status == "started" for one in self._state.calls)
            if not under_way or begins(tape.next):
                return

    def _driver(self) -> Driver:
        tape, state = self._tape, self._state
        found = moments(tape.recorded[tape.at :], state)
        name = self._logs[tape.at - 1] if tape.at else ""
        tape.keyed = bool(name)
        agent = self._make_agent(found)
        return Driver(
            RecordedLog(name, tape),
            state,
            agent=agent,
            place=st.Place(run=state.run, thread=name),
            media=RecordedMedia(tape),
            answers={},
            budget=budget_of(found, state, agent.setup.limits),
            show=_discard,
            clock=tape,
        )

    def _make_agent(self, found: list[RecordedMoment]) -> Agent:
        """Return the recorded driver's agent, or the harness's own.

        Its models, tools and provider-side state are played back.
        """
        tape, config, agent = self._tape, self._state.config, self._agent
        run = run_around(tape)
        recorded = config.setup if config else None
        if recorded is None:
            recorded = infer_setup(found, self._state, past=tape.recorded[: tape.at], run=run)
        specs = config.tools if config else ()
        setup = setup_of(recorded, config, gate_of(tape, specs, recorded.interrupts, run))
        if agent is not None and agent.setup.models[0] == setup.models[0]:
            setup = agent.setup
        elif agent is not None:  # another model was asked: its chain is played back with the harness's tools and rules
            setup = replace(agent.setup, models=setup.models, fetches=setup.fetches, choose=None)
        if recorded.routed:
            setup = replace(setup, choose=recorded_router(tape, setup.models))
        if agent is not None:
            return replace(agent, setup=setup, **self._play(setup, _functions(agent.specs), agent.shape))
        declared: tuple[ToolSpec | HostedTool, ...] = (*specs, *config.hosted) if config else specs
        return Agent(
            specs=declared,
            offered=ToolOffer.of(declared, setup.tools),
            setup=setup,
            decide_within=recorded.decide_within,
            **self._play(setup, specs, None),
        )

    def _play(self, setup: Setup, specs: Iterable[ToolSpec], shape: OutputShape | None) -> Played:
        tape = self._tape
        models = tuple(
            RecordedModel(name, tape, fetches=fetches, shape=shape, tools=setup.tools)
            for name, fetches in zip(setup.models, setup.fetches, strict=True)
        )
        caller = RecordedCaller(tape, self._present, specs=specs)
        return {
            "models": models,
            "caller": caller,
            "hooks": recorded_hooks(tape),
            "bearings": RecordedResting(tape),
            "context": RecordedRoom(tape),
        }

    def _present(self) -> RunState:
        """Return the driver's present state."""
        return self._state if self._driving is None else self._driving.state


def _functions(specs: Iterable[ToolSpec | HostedTool]) -> list[ToolSpec]:
    """Return the tools that run here, without those that a provider runs."""
    return [spec for spec in specs if isinstance(spec, ToolSpec)]


def _logs(events: tuple[ev.Event, ...], last: str) -> list[str]:
    """Return the id of the log of each event.

    A fork's id is the parent that the next fork names; the caller knows the last one.
    """
    opened = [place for place, event in enumerate(events) if isinstance(event, ev.Opened)]
    names: list[str] = []
    if not opened:
        return [last] * len(events)
    for place, after in zip(opened, [*opened[1:], None], strict=True):
        first, following = events[place], None if after is None else events[after]
        own = first.thread if isinstance(first, ev.Opened) and not first.parent else ""
        named = following.parent if isinstance(following, ev.Opened) else last
        names += [own or named] * ((len(events) if after is None else after) - len(names))
    return names


def _due(event: ev.Event, state: RunState) -> ev.Event:
    """Return the event as the state requires it, to be compared with the recorded one."""
    match event:
        case ev.Opened() if state.thread:
            return replace(event, thread=state.thread)
        case ev.Resumed():
            return replace(event, epoch=state.epoch + 1)
        case ev.Continued():
            return replace(event, run=state.run)
        case _:
            return event


def _discard(event: st.StreamEvent) -> None:
    """Show nothing: no caller watches."""
    del event
