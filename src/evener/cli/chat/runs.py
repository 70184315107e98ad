"""Runs a message to its end: sends it, shows each event, asks about approvals, and resumes until the run has stopped.

The same code serves the terminal and the line mode; they differ in the stage that shows the run.
"""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from evener import streaming as st
from evener.cli.approvals import Asker, ask_decisions, read_answers, user_name
from evener.cli.chat.session import Session
from evener.cli.printers import is_noise
from evener.errors import AuthFailed, EvenerError, ModelNotFound, UsageError
from evener.harness import RunStream
from evener.result import RunResult
from evener.transcript.blocks import Block

STOPS = {
    "refusal": "The model declined to answer.",
    "length": "The answer was cut: it reached the output token limit, or the context window is full.",
    "cancelled": "Interrupted. Write a new message, or /continue.",
    "limit": "A limit was reached. /continue resumes with fresh limits.",
}


class Stage(Asker, Protocol):
    """Where a run is shown and the user is asked."""

    def event(self, event: st.StreamEvent) -> None: ...

    def fail(self, error: EvenerError, advice: str) -> None:
        """Show why a run failed, and what to do."""
        ...


class ChatRuns:
    """The runs of one chat, one at a time. `stream` is the one under way."""

    def __init__(self, session: Session, stage: Stage) -> None:
        self._session = session
        self._stage = stage
        self._always: set[str] = set()
        self.stream: RunStream | None = None
        self.failed = False

    async def say(self, blocks: Sequence[Block]) -> None:
        """Send a message and run it to its end."""
        await self._guard(self._session.prompt(blocks))

    async def go_on(self) -> None:
        """Resume the last run and run it to its end."""
        await self._guard(self._session.go_on())

    async def interrupt(self) -> None:
        """Ask the run under way to stop."""
        if self.stream is not None:
            await self.stream.cancel("The user interrupted it.")

    async def _guard(self, opening: Awaitable[RunStream]) -> None:
        self.failed = False
        try:
            await self._run_to_end(await opening)
        except EvenerError as error:
            self.failed = True
            await self._session.add_usage(None)
            self._stage.fail(error, _advice(error, self._session))

    async def _run_to_end(self, stream: RunStream) -> None:
        while True:
            result = await self._watch(stream)
            if result.approvals:
                await self._decide(result)
            elif not (result.stop == "cancelled" and await self._session.has_unsent()):
                break
            stream = self._session.thread.resume_stream()
        self._conclude(result)

    async def _decide(self, result: RunResult) -> None:
        unseen = await read_answers(self._session.harness.store, result, shown=True)
        by = user_name() or "chat"
        thread = self._session.thread
        await ask_decisions(thread, result.approvals, asker=self._stage, always=self._always, by=by, answers=unseen)

    async def _watch(self, stream: RunStream) -> RunResult:
        self.stream = stream
        try:
            async with stream:
                async for event in stream:
                    self._stage.event(event)
                result = await stream.result()
        finally:
            self.stream = None
        await self._session.add_usage(result)
        return result

    def _conclude(self, result: RunResult) -> None:
        """Show what the events did not: losses, and why the run stopped."""
        lost = self._session.new_losses([one for one in result.losses if self._session.verbose or not is_noise(one)])
        if lost:
            self._stage.tell(*(f"loss: {line}" for line in lost))
        if result.ok:
            return
        self.failed = result.stop != "cancelled"
        detail = f" ({result.detail})" if result.detail and result.stop != "cancelled" else ""
        self._stage.tell(f"{STOPS.get(result.stop, f'Stopped: {result.stop}.')}{detail}", important=True)


def _advice(error: EvenerError, session: Session) -> str:
    """Return what the user can do next, beyond what the error says."""
    if isinstance(error, AuthFailed):
        provider = session.model.partition(":")[0]
        return f"Store another key with: evener keys set {provider}. Then /continue, or switch with /model."
    if isinstance(error, ModelNotFound):
        return "Use /model to switch to another one."
    if isinstance(error, UsageError):
        return ""  # nothing was begun
    return "/continue retries; /model switches to another model." if session.thread.id else ""
