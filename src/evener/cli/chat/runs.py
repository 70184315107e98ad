"""From a message to its end: asks, shows each event, asks about approvals, and goes on until the run has stopped.

The same for a terminal and for lines: what differs is the front that shows.
"""

from collections.abc import Awaitable, Sequence
from typing import Protocol

from evener import streaming as st
from evener.cli.approvals import answers_of, who
from evener.cli.chat.approvals import Asker, decide
from evener.cli.chat.session import Session
from evener.errors import AuthFailed, EvenerError, ModelNotFound
from evener.harness import RunStream
from evener.result import RunResult
from evener.transcript.blocks import Block

__all__ = [
    "ChatRuns",
    "Stage",
]


STOPS = {
    "refusal": "The model declined to answer.",
    "length": "The answer was cut: it reached the limit on output tokens, or the model's window is full.",
    "cancelled": "Interrupted. Say what you want instead, or /continue.",
    "limit": "A limit was reached; /continue goes on with a fresh allowance.",
}


class Stage(Asker, Protocol):
    """Where a run is shown."""

    def event(self, event: st.StreamEvent) -> None: ...

    def fail(self, error: EvenerError, advice: str) -> None:
        """A run could not go on."""
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
        """One message, to the end of its run."""
        await self._guarded(self._session.prompt(blocks))

    async def go_on(self) -> None:
        """The last run, to its end."""
        await self._guarded(self._session.go_on())

    async def interrupt(self) -> None:
        """Ask the run under way to stop."""
        if self.stream is not None:
            await self.stream.cancel("The user interrupted it.")

    async def _guarded(self, opening: Awaitable[RunStream]) -> None:
        self.failed = False
        try:
            await self._through(await opening)
        except EvenerError as error:
            self.failed = True
            await self._session.count(None)
            self._stage.fail(error, _advice(error, self._session))

    async def _through(self, stream: RunStream) -> None:
        while True:
            result = await self._watched(stream)
            if result.approvals:
                await self._decide(result)
            elif not (result.stop == "cancelled" and await self._session.unheard()):
                break
            stream = self._session.thread.resume_stream()
        self._conclude(result)

    async def _decide(self, result: RunResult) -> None:
        unseen = await answers_of(self._session.harness.store, result, spoken=True)
        await decide(
            self._session.thread, result.approvals, asker=self._stage, always=self._always, by=who() or "chat", answers=unseen
        )

    async def _watched(self, stream: RunStream) -> RunResult:
        self.stream = stream
        try:
            async with stream:
                async for event in stream:
                    self._stage.event(event)
                result = await stream.result()
        finally:
            self.stream = None
        await self._session.count(result)
        return result

    def _conclude(self, result: RunResult) -> None:
        """What the events did not say."""
        lost = self._session.new_losses(result.losses)
        if lost:
            self._stage.tell(*(f"loss: {line}" for line in lost))
        if result.ok:
            return
        self.failed = result.stop != "cancelled"
        detail = f" ({result.detail})" if result.detail and result.stop != "cancelled" else ""
        self._stage.tell(f"{STOPS.get(result.stop, f'Stopped: {result.stop}.')}{detail}", important=True)


def _advice(error: EvenerError, session: Session) -> str:
    """What to do next, beyond what the error says."""
    if isinstance(error, AuthFailed):
        return (
            f"Store another key with: evener keys set {session.model.partition(':')[0]}. Then /continue, or /model for another."
        )
    if isinstance(error, ModelNotFound):
        return "/model switches to another one."
    return "/continue tries again; /model switches to another one." if session.thread.id else ""
