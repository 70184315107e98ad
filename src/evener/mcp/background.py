"""An event loop in its own thread, for connections: runs may each be on another event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """Starts with the first work. The thread is a daemon: it keeps no program from exiting."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, work: Coroutine[object, object, T]) -> "Future[T]":
        """Start the work on the loop, from any thread. Cancelling the future cancels the work."""
        return asyncio.run_coroutine_threadsafe(work, self._ensure_running())

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Run the work on the loop, and wait for it on the present loop."""
        return await asyncio.wrap_future(self.submit(work))

    def stop(self) -> None:
        """End the thread, if it runs. Running work is cancelled."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _ensure_running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.get_loop().run_forever()
