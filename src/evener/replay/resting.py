"""The state at providers, played back: each request rests on the recorded state. Sends nothing."""

from collections.abc import Iterator

from msgspec.structs import replace

from evener import events as ev
from evener.errors import EvenerError
from evener.loop.state import RunState as Run
from evener.model.seam import Answered
from evener.model.server_state import Rest, Trail
from evener.replay.tape import Tape
from evener.transcript.ask import State
from evener.transcript.blocks import Origin
from evener.transcript.transcript import Transcript


class RecordedResting:
    """See `Resting`. What is made of it (asking again, what it counts for) is the plan's, as ever."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._trail = Trail()

    def before(self, run: Run, model: str, target: Origin) -> Rest:
        """Return the provider-side state that the recorded request used."""
        del run, model, target
        called = next((event for event in self._tape.ahead() if isinstance(event, ev.ModelCalled)), None)
        rests = called.rests if called else None
        return Rest(State() if rests is None else State(rests.mode, rests.id, store=True))

    def answered(self, told: ev.Replied, answer: Answered, rest: Rest, transcript: Transcript) -> ev.Replied:
        """Return the event with the provider-side state of the recording. Its fingerprint is computed again."""
        del answer, rest
        held = next((event.held for event in self._replies()), None)
        if held is not None and held.trail:
            held = replace(held, trail=self._trail.after(transcript, told.message))
        return replace(told, held=held)

    def failed(self, event: ev.ModelFailed, error: EvenerError, rest: Rest) -> ev.ModelFailed:
        """Return the event with the recorded consequences for the provider-side state."""
        del error, rest
        for recorded in self._tape.ahead():
            if isinstance(recorded, ev.ModelFailed):
                return replace(event, stale=recorded.stale, untaken=recorded.untaken)
        return event

    def _replies(self) -> Iterator[ev.Replied]:
        return (event for event in self._tape.ahead() if isinstance(event, ev.Replied))
