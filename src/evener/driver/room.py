"""Room in a budget for one model call, and what a call that came to nothing may have cost. Decides nothing beyond that.

What other calls of the tree hold is waited for; where little is left, the answer is shortened.
"""

from collections.abc import Awaitable, Callable
from decimal import Decimal

import msgspec

from evener.budget import Budget, Refusal, Reservation
from evener.errors import ConnectFailed, EvenerError, ProviderError, TransportError, WireError
from evener.model.seam import Askable
from evener.transcript.ask import Ask, Settings

__all__ = ["Room", "had_begun", "room_for", "unpriced"]

FREE = Decimal(0)


class Room(msgspec.Struct, frozen=True):
    """What a call may use. `settings` make its answer so short that it fits; None where it fits as it is."""

    held: Reservation
    settings: Settings | None = None


async def room_for(
    model: Askable, *, next_ask: Callable[[], Ask], budget: Budget, whole: Decimal | None, wait: Callable[[], Awaitable[bool]]
) -> Room | Refusal:
    """Room for a call of this model. `next_ask` is what would be sent, `whole` the run's own limit, if it has one.

    `wait` lets some time pass; it says False when there is no sense in waiting any longer.
    """
    while True:
        ask = next_ask()
        most = model.most_cost(ask)
        found = budget.reserve(cost=most)
        if not isinstance(found, Refusal):
            return Room(found)
        if not (found.money and budget.holds and await wait()):
            break
    shorter = _shortened(model, ask, most, budget)
    if shorter is not None:
        return shorter
    hopeless = whole is not None and found.money and most > whole and model.capped(ask, whole) is None
    return msgspec.structs.replace(found, final=True) if hopeless else found


def _shortened(model: Askable, ask: Ask, most: Decimal, budget: Budget) -> Room | None:
    left = budget.left
    if not FREE < left < most:
        return None
    short = model.capped(ask, left)
    held = budget.reserve(cost=left) if short is not None else None
    return Room(held, short.settings) if short is not None and isinstance(held, Reservation) else None


def had_begun(error: EvenerError) -> bool:
    """Whether the provider may have worked on a request that failed like this, and will be paid for it."""
    match error:
        case ConnectFailed():
            return False
        case ProviderError():
            return not error.status  # it came inside the stream: the answer had begun
        case _:
            return isinstance(error, TransportError | WireError)


def unpriced(model: Askable) -> str:
    """What is told once, where a limit on the cost meets a model whose price is not known."""
    return (
        f"The price of {model.name} is not known, so the limit on the cost cannot hold for it: what it costs is not counted. "
        "Limit its requests or tokens as well, or install a price list that has it."
    )
