"""A rate limiter per key, shared by all calls of the process, from any event loop or thread. Fair: first come, first served.

In no minute are more requests begun, or more tokens sent, than the rate allows. Only the first of those who wait looks whether
it may go; whoever makes room wakes it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic
from types import TracebackType

import msgspec

from evener.errors import BadValue, TimedOut

__all__ = ["Limiter", "Rate", "Slot", "limiter_for"]

WITHIN = 900.0
LONGEST_PAUSE = 3600.0
"""Seconds: a provider that asks for more is asked again after this."""


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a key may do. Zero: no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrent: int = 0

    def __post_init__(self) -> None:
        if min(self.requests_per_minute, self.tokens_per_minute, self.concurrent) < 0:
            raise BadValue("A rate cannot be negative; zero means no limit.")

    def tightened(self, other: "Rate") -> "Rate":
        """The lower of both limits, each."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        requests, tokens, concurrent = (min(pair) or max(pair) for pair in pairs)
        return Rate(requests_per_minute=requests, tokens_per_minute=tokens, concurrent=concurrent)


class Limiter:
    """Gives slots. `minute` is in seconds; a test may have it pass faster."""

    def __init__(self, rate: Rate, *, minute: float = 60.0, clock: Callable[[], float] = monotonic) -> None:
        self._rate = rate
        self._unlimited = rate == Rate()
        self._minute = minute
        self._clock = clock
        self._lock = Lock()
        self._queue: deque[_Waiter] = deque()
        self._recent: deque[_Begun] = deque()
        self._tokens = 0
        self._active = 0
        self._paused_until = 0.0

    @property
    def rate(self) -> Rate:
        """What it allows now."""
        return self._rate

    def slot(self, *, tokens: int = 0, within: float = WITHIN) -> "Slot":
        """Enter it to wait for your turn; leave it when the call is over. `tokens` is an estimate, settled later.

        Raises TimedOut when the turn does not come within so many seconds.
        """
        return Slot(self, tokens, within)

    def pause(self, seconds: float) -> None:
        """Begin no call for so long: the provider asked for it. Calls that are on their way go on."""
        with self._lock:
            until = self._clock() + min(max(seconds, 0.0), LONGEST_PAUSE)
            self._paused_until = max(self._paused_until, until)
            self._wake()

    def tighten(self, rate: Rate) -> None:
        """Take the lower of both rates from now on."""
        with self._lock:
            self._rate = self._rate.tightened(rate)
            self._unlimited = self._rate == Rate()

    def _begun(self, tokens: int) -> "_Begun | None":
        """A turn at once, if there is room and nobody waits."""
        with self._lock:
            if self._unlimited and not self._paused_until:
                self._active += 1
                return _Begun(0.0, tokens)
            return None if self._queue else self._look(tokens)[0]

    async def _enter(self, tokens: int, within: float) -> "_Begun":
        with self._lock:
            waiter = _Waiter(tokens)
            self._queue.append(waiter)
        end = self._clock() + within
        try:
            while True:
                with self._lock:
                    begun, wait = self._first(waiter)
                if begun is not None:
                    return begun
                left = end - self._clock()
                if left <= 0:
                    raise TimedOut(
                        f"The rate limit of this key left no room for a call within {within:g} seconds. "
                        "Raise the rate, make fewer calls at once, or wait longer."
                    )
                await waiter.sleep(left if wait is None else min(wait, left))
        finally:
            with self._lock:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                self._wake()

    def _leave(self) -> None:
        with self._lock:
            self._active -= 1
            if self._queue:
                self._wake()

    def _settle(self, begun: "_Begun", tokens: int) -> None:
        if not begun.counted:
            return
        with self._lock:
            if begun.counted:
                self._tokens += tokens - begun.tokens
            begun.tokens = tokens
            if self._queue:
                self._wake()

    # All of these are called with the lock held.

    def _first(self, waiter: "_Waiter") -> tuple["_Begun | None", float | None]:
        """Only the first of those who wait looks."""
        if self._queue[0] is not waiter:
            return None, None
        begun, wait = self._look(waiter.tokens)
        if begun is not None:
            self._queue.popleft()
        return begun, wait

    def _look(self, tokens: int) -> tuple["_Begun | None", float | None]:
        """A turn, or how long until there may be one; without a time, whoever makes room will say so."""
        if self._rate.concurrent and self._active >= self._rate.concurrent:
            return None, None
        now = self._clock()
        self._forget(now)
        wait = self._wait(tokens, now)
        if wait > 0:
            return None, wait
        self._active += 1
        begun = _Begun(now, tokens)
        if self._rate.requests_per_minute or self._rate.tokens_per_minute:
            begun.counted = True
            self._recent.append(begun)
            self._tokens += begun.tokens
        return begun, None

    def _wait(self, tokens: int, now: float) -> float:
        """Seconds until the window has room."""
        wait = self._paused_until - now
        most, allowed = self._rate.requests_per_minute, self._rate.tokens_per_minute
        if most and len(self._recent) >= most:
            wait = max(wait, self._recent[len(self._recent) - most].at + self._minute - now)
        if allowed and self._tokens + tokens > allowed:
            over = self._tokens + tokens - allowed
            for begun in self._recent:  # a call that never fits goes when the window is empty
                over -= begun.tokens
                wait = max(wait, begun.at + self._minute - now)
                if over <= 0:
                    break
        return wait

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0].at + self._minute <= now:
            begun = self._recent.popleft()
            begun.counted = False
            self._tokens -= begun.tokens

    def _wake(self) -> None:
        """Have the first who waits look again. One whose loop has ended is gone."""
        while self._queue and not self._queue[0].wake():
            self._queue.popleft()


class Slot:
    """One call's place. `async with limiter.slot(tokens=500) as slot: ...; slot.settle(612)`."""

    def __init__(self, limiter: Limiter, tokens: int, within: float) -> None:
        self._limiter = limiter
        self._tokens = tokens
        self._within = within
        self._begun: _Begun | None = None
        self._held = False

    def entered(self) -> bool:
        """Take the turn if it is ours at once."""
        self._begun = self._limiter._begun(self._tokens)
        self._held = self._begun is not None
        return self._held

    async def enter(self) -> "Slot":
        """Wait for the turn."""
        if not self.entered():
            self._begun = await self._limiter._enter(self._tokens, self._within)
            self._held = True
        return self

    def leave(self) -> None:
        """The call is over. More than once does no harm."""
        if self._held:
            self._held = False
            self._limiter._leave()

    async def __aenter__(self) -> "Slot":
        return await self.enter()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def settle(self, tokens: int) -> None:
        """Say how many tokens it was in truth."""
        if self._begun is not None:
            self._limiter._settle(self._begun, tokens)


class _Begun:
    """A call that has begun: when, and with how many tokens. `counted` while it is in the window."""

    __slots__ = ("at", "counted", "tokens")

    def __init__(self, at: float, tokens: int) -> None:
        self.at = at
        self.tokens = tokens
        self.counted = False


class _Waiter:
    """One who waits, in a loop of its own."""

    __slots__ = ("_loop", "_woken", "tokens")

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Until woken, or so long."""
        timer = self._loop.call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
            self._woken.clear()

    def wake(self) -> bool:
        """From any thread; False when its loop has ended."""
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            return False
        return True


_limiters: dict[str, Limiter] = {}
_lock = Lock()


def limiter_for(key_fingerprint: str, rate: Rate) -> Limiter:
    """The limiter of this key: one for the whole process. When rates differ, the lower limits hold."""
    with _lock:
        limiter = _limiters.get(key_fingerprint)
        if limiter is None:
            limiter = _limiters[key_fingerprint] = Limiter(rate)
        else:
            limiter.tighten(rate)
        return limiter
