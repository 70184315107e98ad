"""Runs an async test to its end, in a loop of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def to_the_end(test: Callable[P, Coroutine[object, object, None]]) -> Callable[P, None]:
    """Return the test as a plain function."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run
