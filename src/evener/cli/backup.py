"""`evener backup`: a copy of the whole store, consistent while others write. Never writes over a file."""

from evener.cli.stores import inside
from evener.cli.terminal import say
from evener.store.log import Store

__all__ = ["run"]


def run(file: str, *, store: str) -> int:
    """Write the copy."""
    return inside(store, lambda opened: _copied(opened, file))


async def _copied(store: Store, file: str) -> int:
    await store.backup(file)
    say(f"evener: Copied to {file}. To look into it: evener threads --store {file}")
    return 0
