"""A rate limiter per key, shared by all calls of the process, from any event loop or thread. Fair: first come, first served.

No minute begins more requests, or sends more tokens, than the rate allows. Only the first waiter checks whether it may begin; a
call that frees room wakes it. Where `share_rates` names tables that several machines use, a call needs room there, too.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from threading import Lock
from time import monotonic
from typing import Protocol
from weakref import ref

import msgspec

from evener.errors import BadValue, TimedOut
from evener.transcript.mint import new_id

WITHIN = 900.0
LONGEST_LOOK = 1.0
"""Seconds after which a call that waits for other machines asks again: one of them may have ended earlier."""
LONGEST_SILENCE = 60.0
"""Seconds that the tables of all machines have to answer; a server that is down fails earlier."""
LONGEST_PAUSE = 3600.0
"""Seconds: a provider that asks for more is asked again after this."""


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The limits of a key. Zero: no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0
    concurrent: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if type(getattr(self, name)) is not int:
                raise BadValue(f"Rate.{name} must be a whole number, not {getattr(self, name)!r:.80}. Zero means no limit.")
        if min(self.requests_per_minute, self.tokens_per_minute, self.concurrent) < 0:
            raise BadValue("A rate cannot be negative; zero means no limit.")

    def tightened(self, other: "Rate") -> "Rate":
        """Return the lower of both for each limit."""
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other), strict=True)
        requests, tokens, concurrent = (min(pair) or max(pair) for pair in pairs)
        return Rate(requests_per_minute=requests, tokens_per_minute=tokens, concurrent=concurrent)


class RateTables(Protocol):
    """The tables in which all machines count the calls of a key. `key` is its fingerprint."""

    async def admit(self, key: str, *, id: str, tokens: int, rate: Rate, within: float, minute: float = 60.0) -> float:
        """Begin a call with the key and return 0.0; if there is no room, return the seconds after which to ask again."""
        ...

    def leave(self, id: str) -> None:
        """End a call. Does not wait."""
        ...

    def recount(self, id: str, tokens: int) -> None:
        """Replace the estimate of a call by its usage. Does not wait."""
        ...

    def pause(self, key: str, seconds: float) -> None:
        """Keep all machines from beginning calls with the key for so many seconds. Does not wait."""
        ...


class RateStore(Protocol):
    """A store whose tables several machines use."""

    @property
    def cluster(self) -> RateTables: ...


class Limiter:
    """Hands out slots. `minute` is in seconds; a test may shorten it. `key` names the limiter on other machines."""

    def __init__(self, rate: Rate, *, minute: float = 60.0, clock: Callable[[], float] = monotonic, key: str = "") -> None:
        self._rate = rate
        self._key = key
        self._unlimited = rate == Rate()
        self._minute = minute
        self._clock = clock
        self._lock = Lock()
        self._queue: deque[_Waiter] = deque()
        self._recent: deque[Slot] = deque()
        self._lost: deque[Slot] = deque()
        self._tokens = 0
        self._active = 0
        self._paused_until = 0.0

    @property
    def rate(self) -> Rate:
        """Return the present limits."""
        return self._rate

    def slot(self, *, tokens: int = 0, within: float = WITHIN) -> "Slot":
        """Return a slot. Entering it waits for room; leaving it ends the call. `tokens` is an estimate, which `settle`
        corrects.

        Entering raises TimedOut after `within` seconds.
        """
        return Slot(self, tokens, within)

    def pause(self, seconds: float) -> None:
        """Keep calls from beginning for so many seconds, as the provider asked. Running calls continue."""
        with self._lock:
            until = self._clock() + min(max(seconds, 0.0), LONGEST_PAUSE)
            self._paused_until = max(self._paused_until, until)
            self._wake()
        if self._key and (tables := _sharing.get()) is not None:
            tables.pause(self._key, min(max(seconds, 0.0), LONGEST_PAUSE))

    def tighten(self, rate: Rate) -> None:
        """Apply the lower of both rates from now on."""
        with self._lock:
            self._rate = self._rate.tightened(rate)
            self._unlimited = self._rate == Rate()

    async def _enter(self, slot: "Slot", within: float) -> None:
        with self._lock:
            waiter = _Waiter(slot)
            self._queue.append(waiter)
        end = self._clock() + within
        try:
            while True:
                with self._lock:
                    wait = self._try_first(waiter)
                if wait is None:
                    return
                left = end - self._clock()
                if left <= 0:
                    raise TimedOut(
                        f"The rate limit of this key left no room for a call within {within:g} seconds. "
                        "Raise the rate, make fewer calls at once, or wait longer."
                    )
                await waiter.sleep(min(wait, left))
        finally:
            with self._lock:
                if waiter in self._queue:
                    self._queue.remove(waiter)
                self._wake()

    def _settle(self, slot: "Slot", tokens: int) -> None:
        if not slot.counted:
            return
        with self._lock:
            if slot.counted:
                self._tokens += tokens - slot.tokens
            slot.tokens = tokens
            if self._queue:
                self._wake()

    # These are called with the lock held.

    def _try_first(self, waiter: "_Waiter") -> float | None:
        """Begin the waiter's call and return None if it is the first and there is room; else return the seconds to wait."""
        if self._queue[0] is not waiter:
            return inf
        wait = self._try_begin(waiter.slot)
        if wait is None:
            self._queue.popleft()
        return wait

    def _try_begin(self, slot: "Slot") -> float | None:
        """Begin the call and return None if there is room; else return the seconds to wait (`inf`: until woken)."""
        while self._lost:
            self._give_back(self._lost.popleft())
        if self._rate.concurrent and self._active >= self._rate.concurrent:
            return inf
        now = self._clock()
        self._forget(now)
        wait = self._wait(slot.tokens, now)
        if wait > 0:
            return wait
        self._active += 1
        if self._rate.requests_per_minute or self._rate.tokens_per_minute:
            if slot.counted:  # it was entered before: that call keeps its place in the window
                self._recent[self._recent.index(slot)] = slot._past()
            slot.at, slot.counted = now, True
            self._recent.append(slot)
            self._tokens += slot.tokens
        return None

    def _give_back(self, slot: "Slot") -> None:
        if slot._held:
            slot._held = False
            self._active -= 1
            if slot._shared is not None:
                tables, id = slot._shared
                tables.leave(id)

    def _wait(self, tokens: int, now: float) -> float:
        """Return the seconds until the window has room."""
        wait = self._paused_until - now
        most, allowed = self._rate.requests_per_minute, self._rate.tokens_per_minute
        if most and len(self._recent) >= most:
            wait = max(wait, self._recent[len(self._recent) - most].at + self._minute - now)
        if allowed and self._tokens + tokens > allowed:
            over = self._tokens + tokens - allowed
            for begun in self._recent:  # a call that is larger than the rate begins when the window is empty
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
        """Let the first waiter check again. A waiter whose event loop has ended is removed."""
        while self._queue and not self._queue[0].wake():
            self._queue.popleft()


class Slot(msgspec.Struct, eq=False):
    """The permit of one call. `async with limiter.slot(tokens=500) as slot: ...; slot.settle(612)`.

    `at` is when it began. It is `counted` while it is in the window.
    """

    _limiter: Limiter
    tokens: int
    _within: float
    at: float = 0.0
    counted: bool = False
    _held: bool = False
    _shared: tuple[RateTables, str] | None = None

    def try_enter(self) -> bool:
        """Begin the call if there is room and no other call waits. True if it has begun. Without a limit nothing is counted."""
        limiter = self._limiter
        if limiter._unlimited and not limiter._paused_until:
            return True
        if limiter._key and _sharing.get() is not None:
            return False  # the tables of all machines must be asked, which needs a wait
        with limiter._lock:
            if limiter._queue or limiter._try_begin(self) is not None:
                return False
        self._held = True
        return True

    async def enter(self) -> "Slot":
        """Wait for room, and begin the call."""
        if not self.try_enter():
            await self._limiter._enter(self, self._within)
            self._held = True
            await self._enter_shared()
        return self

    async def _enter_shared(self) -> None:
        """Wait for room among the calls of all machines, if they share the rate."""
        limiter, tables = self._limiter, _sharing.get()
        if tables is None or not limiter._key:
            return
        id, end = new_id(), limiter._clock() + self._within
        self._shared = (tables, id)  # from now on: a call that is cancelled here may have been admitted there
        try:
            while wait := await self._admit(tables, id, min(end - limiter._clock(), LONGEST_SILENCE)):
                if limiter._clock() + wait > end:
                    raise TimedOut(
                        f"Calls of other machines left no room for a call with this key within {self._within:g} seconds. "
                        "Raise the rate, make fewer calls at once, or wait longer."
                    )
                await asyncio.sleep(min(wait, LONGEST_LOOK))
        except BaseException:
            self.leave()
            raise

    async def _admit(self, tables: RateTables, id: str, patience: float) -> float:
        limiter = self._limiter
        try:
            async with asyncio.timeout(patience):
                return await tables.admit(
                    limiter._key, id=id, tokens=self.tokens, rate=limiter._rate, within=self._within, minute=limiter._minute
                )
        except TimeoutError:
            raise TimedOut(
                f"The store in which all machines count the calls of this key did not answer within {patience:.3g} seconds, "
                "so the call was not sent. Check the database server, or open the model without a rate."
            ) from None

    def leave(self) -> None:
        """End the call. Idempotent."""
        if self._held:
            limiter = self._limiter
            with limiter._lock:
                limiter._give_back(self)
                if limiter._queue:
                    limiter._wake()

    def forget(self) -> None:
        """Release a slot that was never left.

        Called by the garbage collector, perhaps while the lock is held, so it takes no lock.
        """
        self._limiter._lost.append(self)
        for waiter in tuple(self._limiter._queue):
            if waiter.wake():
                break

    async def __aenter__(self) -> "Slot":
        return await self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def settle(self, tokens: int) -> None:
        """Replace the estimate by the number of tokens that the call used."""
        self._limiter._settle(self, tokens)
        if self._shared is not None:
            tables, id = self._shared
            tables.recount(id, tokens)

    def _past(self) -> "Slot":
        """Return a copy that represents the earlier call in the window."""
        return Slot(self._limiter, self.tokens, self._within, self.at, True)


class _Waiter:
    """A call that waits, in the event loop that it belongs to."""

    __slots__ = ("_loop", "_woken", "slot")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Sleep until woken, or so many seconds."""
        timer = self._loop.call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
            self._woken.clear()

    def wake(self) -> bool:
        """Wake the waiter, from any thread. False if its event loop has ended."""
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            return False
        return True


LIMITERS: dict[str, Limiter] = {}
"""The limiter of each key that has a rate, or whose provider has asked for a pause, by the key's fingerprint."""
_lock = Lock()


class _Sharing:
    """The store whose tables count the calls of all machines; none at first. It is a weak reference."""

    _store: Callable[[], RateStore | None] = staticmethod(lambda: None)

    def get(self) -> RateTables | None:
        store = self._store()
        return None if store is None else store.cluster

    def begin(self, store: RateStore) -> None:
        """Count the rates of keys in the tables of this store from now on, so that they apply to all machines."""
        self._store = ref(store)

    def end(self, store: RateStore) -> None:
        """Count in this process only, if this store was used for counting."""
        if self._store() is store:
            self._store = lambda: None


_sharing = _Sharing()
share_rates, unshare_rates = _sharing.begin, _sharing.end


def limiter_for(key_fingerprint: str, rate: Rate | None = None) -> Limiter:
    """Return the limiter of this key: one for the whole process. If callers give different rates, the lowest applies."""
    with _lock:
        limiter = LIMITERS.get(key_fingerprint)
        if limiter is None:
            limiter = LIMITERS[key_fingerprint] = Limiter(rate or Rate(), key=key_fingerprint)
        elif rate is not None:
            limiter.tighten(rate)
        return limiter
