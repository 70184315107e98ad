"""Extract a typed invoice from each of fifty letters: a fan-out with an output type, one budget for all, and progress.

Prints:
    10 of 50
    20 of 50
    30 of 50
    40 of 50
    50 of 50
    50 invoices, 1275 euros in all
    the first: Invoice(number='INV-1', total=1)
"""

import asyncio
import re
from dataclasses import dataclass

from evener import Harness, Limits
from evener.harness import fan_out
from evener.testing import ScriptedModel
from evener.testing.scripted_model import Line
from evener.transcript import Ask


@dataclass(frozen=True)
class Invoice:
    """What a letter asks for."""

    number: str
    total: int


LETTERS = [f"Dear Sir, please pay our invoice INV-{number} over {number} euros." for number in range(1, 51)]


def answer(ask: Ask) -> Line:
    """Play the model."""
    last = ask.transcript.last
    found = re.search(r"INV-(\d+)", last.text if last else "")
    number = found[1] if found else "0"
    return f'{{"number": "INV-{number}", "total": {number}}}'


def show(done: int, of: int) -> None:
    if done % 10 == 0:
        print(f"{done} of {of}")


async def main() -> None:
    model = ScriptedModel(answer)
    entries = await fan_out(model, LETTERS, output=Invoice, limits=Limits(cost=1.0), progress=show)
    total = 0
    for entry in entries:
        if entry.output is not None:
            total += entry.output.total
    print(f"{len(entries)} invoices, {total} euros in all")
    result = await Harness(model, output=Invoice, store="memory").run(LETTERS[0])
    first: Invoice = result.require_output()
    print(f"the first: {first}")


if __name__ == "__main__":
    asyncio.run(main())
