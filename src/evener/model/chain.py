"""A chain of models: if one fails, the next is called. A stream falls back only before a part of its answer was shown."""

from collections.abc import AsyncIterator, Sequence

from evener.errors import (
    AuthFailed,
    ContextTooLong,
    EvenerError,
    ModelNotFound,
    PermissionDenied,
    QuotaExceeded,
    UsageError,
)
from evener.model.model import Model
from evener.model.stream import PIECES, Answer, Stream
from evener.transcript.ask import Ask
from evener.transcript.delta import Delta, Stopped
from evener.transcript.loss import LossRefused

SHOWN = PIECES | {Stopped}
ELSEWHERE = (AuthFailed, PermissionDenied, QuotaExceeded, ModelNotFound, ContextTooLong, LossRefused)
"""Errors that the same provider would repeat, and another need not have."""


def falls_back(error: EvenerError) -> bool:
    """True if another model may succeed. An invalid request is invalid everywhere."""
    return error.retryable or isinstance(error, ELSEWHERE)


class Chain:
    """Models in the order in which they are called."""

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise UsageError("A chain needs at least one model. Give it the models to ask, the preferred one first.")
        self._models = tuple(models)

    @property
    def models(self) -> tuple[Model, ...]:
        return self._models

    @property
    def name(self) -> str:
        return " > ".join(model.name for model in self._models)

    def stream(self, ask: Ask, *, keep_raw: bool = False) -> "ChainStream":
        """Return the call, not yet begun. The ask is retargeted for each model."""
        return ChainStream(self._models, ask, keep_raw=keep_raw)

    async def complete(self, ask: Ask, *, keep_raw: bool = False) -> Answer:
        """Return the whole answer of the first model that gives one."""
        for model in self._models[:-1]:
            try:
                return await model.stream(ask, keep_raw=keep_raw).complete()
            except EvenerError as error:
                if not falls_back(error):
                    raise
        return await self._models[-1].stream(ask, keep_raw=keep_raw).complete()


class ChainStream:
    """Like the stream of one model. `failures` lists the models that failed, with their errors."""

    def __init__(self, models: Sequence[Model], ask: Ask, *, keep_raw: bool = False) -> None:
        self._ask = ask
        self._keep_raw = keep_raw
        self._left = list(models)
        self._stream: Stream | None = None
        self._shown = False
        self._held: list[Delta] = []
        self.failures: list[tuple[str, EvenerError]] = []

    @property
    def answer(self) -> Answer:
        """Return the whole answer, once the deltas have ended."""
        if self._stream is None:
            raise UsageError("No model was asked yet. Read the deltas to the end first.")
        return self._stream.answer

    async def read(self) -> list[Delta]:
        """Return the next deltas; empty at the end. Raises the last model's error when none could answer."""
        while True:
            model = self._left[0]
            if self._stream is None:
                self._stream = model.stream(self._ask, keep_raw=self._keep_raw)
            try:
                deltas = await self._stream.read()
            except EvenerError as error:
                if self._shown or len(self._left) == 1 or not falls_back(error):
                    raise
                self.failures.append((model.name, error))
                self._left.pop(0)
                self._stream = None
                self._held = []
                continue
            if self._shown or not deltas:
                return deltas
            self._held += deltas
            if not SHOWN.isdisjoint(map(type, deltas)):  # until then the next model may be asked
                self._shown = True
                return self._held

    async def __aiter__(self) -> AsyncIterator[Delta]:
        while deltas := await self.read():
            for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        """Release the connection."""
        if self._stream is not None:
            await self._stream.aclose()

    async def __aenter__(self) -> "ChainStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
