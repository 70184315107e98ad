"""The hooks of one run: who is told what, and what comes of their answers. Knows nothing of the plan; appends nothing.

A fatal hook that fails about a call does not tear down the calls beside it: they end, their results are kept, and then the
run ends with its error.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from evener import events as ev
from evener import streaming as st
from evener.driver.telling import Teller
from evener.hooks import AddContext, Answer, Cancel, HookEvent, HookFailed, Hooks, Moment, rewritten
from evener.loop.steps import RunTool
from evener.transcript.blocks import TextBlock
from evener.transcript.message import Message

__all__ = ["Hooking", "with_context"]

REFUSED = "A hook cancelled the prompt."


class Hooking:
    """`warnings` is what went wrong with hooks that are not fatal."""

    def __init__(self, hooks: Hooks, teller: Teller) -> None:
        self._hooks = hooks
        self._any = bool(hooks)
        self._teller = teller
        self._failed: list[HookFailed] = []
        self._broken: set[str] = set()  # calls inside which a fatal hook failed
        self.warnings: list[str] = []

    def told(self, event: HookEvent, **about: object) -> tuple[Answer, ...]:
        """What the hooks for this event answer."""
        if not self._any:
            return ()
        place = self._teller.place
        moment = Moment(event=event, run=place.run, thread=place.thread, agent=place.agent, **about)  # type: ignore[arg-type]
        return self._hooks.call(moment, self.warn)

    def warn(self, text: str) -> None:
        """Say it to whoever watches, and with the result."""
        self.warnings.append(text)
        self._teller.tell(st.Warned, text=text)

    # What the user says.

    def prompted(self, message: Message) -> tuple[Message, str]:
        """What the user said, with what hooks add to it, and why it may not pass; empty when it may."""
        answers = self.told("user_prompt_submit", prompt=message)
        stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
        return with_context(message, answers), "" if stop is None else stop.why or REFUSED

    def heard(self, event: ev.Event) -> ev.Event:
        """What was said to a run under way passes the same hooks as a prompt. The run goes on without what is refused."""
        if not isinstance(event, ev.Steered):
            return event
        message, refused = self.prompted(event.message)
        if refused:
            self.warn(f"A hook did not let pass what was said to the run: {refused}")
        return replace(event, message=message, refused=refused)

    # Calls.

    def stopped(self, steps: Sequence[RunTool]) -> dict[str, str]:
        """The calls that hooks cancel, and why. They see what would run."""
        found: dict[str, str] = {}
        for step in steps if self._any else ():
            answers = self.told("before_tool_call", call=step.runs)
            stop = next((answer for answer in answers if isinstance(answer, Cancel)), None)
            if stop is not None:
                found[step.call.id] = stop.why
        return found

    def finished(self, step: RunTool, done: ev.CallFinished) -> ev.CallFinished:
        """The result as the model shall see it; as it is, if a fatal hook fails."""
        if not self._any:
            return done
        try:
            return rewritten(done, self.told("after_tool_call", call=step.runs, result=done))
        except HookFailed as error:
            self._failed.append(error)
            return done

    def inside(self, call: str, event: HookEvent, **about: object) -> tuple[Answer, ...]:
        """What hooks answer to something that happens inside a call. After a fatal failure the call has no result."""
        try:
            return self.told(event, **about)
        except HookFailed as error:
            self._failed.append(error)
            self._broken.add(call)
            raise

    def is_broken(self, call: str) -> bool:
        """Whether a fatal hook failed inside this call: it was not done, and is begun again when the run is resumed."""
        return call in self._broken

    def check(self) -> None:
        """End the run, if a fatal hook failed about a call."""
        if self._failed:
            raise self._failed[0]


def with_context(message: Message, answers: Sequence[Answer]) -> Message:
    """The message with what hooks add to it."""
    added = tuple(TextBlock(answer.text) for answer in answers if isinstance(answer, AddContext))
    return replace(message, blocks=(*message.blocks, *added)) if added else message
