"""Hostile texts in the viewer, one by one: each in every field of a thread that has every event, looked at on every screen.

The tests do the same with all texts of a kind at once, which is faster; here none can be hidden by another.
"""

import asyncio
import sys

from evener import MemoryStore
from tests.view.browser import CHROMIUM, looking
from tests.view.hostile import PAYLOADS, furnish_hostile
from tests.view.walk import SCREENS, find_harm, walk

__all__ = ["main"]

AT_A_TIME = 20
"""Threads in one store."""


def main() -> int:
    """Print what was found; 1 if anything ran, was loaded, or was hidden."""
    if not CHROMIUM:
        print("bench: there is no chromium here. `make browser` installs Debian's.", file=sys.stderr)
        return 1
    wrong = asyncio.run(_look())
    print("\n".join(wrong))
    print(f"{len(PAYLOADS)} texts in every field, on {len(SCREENS) + 2} screens each: {len(wrong)} problems")
    return 1 if wrong else 0


async def _look() -> list[str]:
    wrong: list[str] = []
    named = {f"h{place:03d}": text for place, text in enumerate(PAYLOADS)}
    for first in range(0, len(named), AT_A_TIME):
        chosen = dict(list(named.items())[first : first + AT_A_TIME])
        store = MemoryStore()
        await furnish_hostile(store, chosen)
        async with looking(store) as watched:
            for path, there in (("", "a.thread"), ("#/approvals", "form.decide")):
                page = await watched.open(path)
                await page.locator(there).nth(len(chosen) - 1).wait_for(state="attached")
                wrong += [f"{path} {first}: {one}" for one in await find_harm(page)]
            for log in chosen:
                wrong += await walk(watched.page, watched.url, log)
                wrong += [f"{log}: on the console: {said}" for said in watched.said]
                watched.said.clear()
        print(f"{first + len(chosen)} of {len(named)}", file=sys.stderr, flush=True)
    return wrong
