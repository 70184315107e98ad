"""What a chat has used: tokens, what of them was cached, cost, and how full the model's window is. Pure."""

from decimal import Decimal

from evener.loop.limits import Spent
from evener.transcript.usage import Usage

__all__ = ["Tally", "short"]


class Tally:
    """Runs by their id, so that a run that was resumed counts once. `window` is the model's, in tokens; 0 is unknown."""

    def __init__(self) -> None:
        self._runs: dict[str, Spent] = {}
        self._under_way = Usage()
        self._last = Usage()
        self.window = 0

    def turn(self, usage: Usage) -> None:
        """The model has answered once, in a run that goes on."""
        self._under_way += usage
        self._last = usage

    def run(self, id: str, spent: Spent) -> None:
        """A run has come to a stop, and used all this since it began."""
        self._runs[id] = spent
        self._under_way = Usage()

    def forget_context(self) -> None:
        """The conversation has changed: how full the window is shows with the next answer."""
        self._last = Usage()

    @property
    def spent(self) -> Spent:
        """All runs together."""
        runs = self._runs.values()
        return Spent(
            sum(run.requests for run in runs),
            sum(run.tool_calls for run in runs),
            sum((run.usage for run in runs), self._under_way),
            sum((run.cost for run in runs), Decimal(0)),
            all(run.exact for run in runs),
            sum(run.seconds for run in runs),
        )

    @property
    def filled(self) -> float | None:
        """The part of the window that the conversation takes; None when it is not known."""
        return self._last.total / self.window if self.window and self._last.total else None

    def status(self, model: str) -> str:
        """One line."""
        spent, filled = self.spent, self.filled
        parts = [model]
        if spent.usage.total:
            parts.append(f"{short(spent.usage.total)} tokens")
            parts.append(f"{_percent(spent.usage.cache_read, spent.usage.input_total)} cached")
        if self._runs:
            parts.append(self.cost)
        if filled is not None:
            parts.append(f"context {_percent(self._last.total, self.window)}")
        return " \u00b7 ".join(parts)

    @property
    def cost(self) -> str:
        """In US dollars; a lower bound is marked as one."""
        spent = self.spent
        return f"{'' if spent.exact else '>='}${_amount(spent.cost)}"

    def lines(self) -> list[str]:
        """All of it, a line each."""
        spent, usage = self.spent, self.spent.usage
        made = [
            f"requests      {spent.requests:,}",
            f"tool calls    {spent.tool_calls:,}",
            f"tokens in     {usage.input_total:,} (cached {usage.cache_read:,}, written to the cache {usage.cache_write:,})",
            f"tokens out    {usage.output_total:,} (reasoning {usage.reasoning:,})",
            f"cost          {self.cost}{'' if spent.exact else ' (a lower bound: not every price is known)'}",
        ]
        if self.filled is not None:
            made.append(f"context       {self._last.total:,} of {self.window:,} tokens ({self.filled:.0%})")
        return made


def short(count: int) -> str:
    """A count as people say it: 950, 1.2k, 34k, 1M."""
    for size, sign in ((1_000_000, "M"), (1_000, "k")):
        if count >= size:
            value = count / size
            return f"{value:.1f}".rstrip("0").rstrip(".") + sign if value < 100 else f"{value:.0f}{sign}"
    return str(count)


def _percent(part: int, whole: int) -> str:
    if not part or not whole:
        return "0%"
    return f"{part / whole:.0%}" if part / whole >= 0.005 else "<1%"


def _amount(cost: Decimal) -> str:
    return f"{cost:.2f}" if cost >= 1 or not cost else f"{cost:.4f}"
