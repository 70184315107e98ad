"""The long campaign of odd requests: every field of every recorded request made odd in every way, and read.

Needs the recorded traffic (EVENER_CORPUS). Prints what it did and what went wrong; nothing should.
"""

__all__ = ["main"]

SHOWN = 20


def main() -> int:
    """Run the campaign; 1 when a request, or a field beside the odd one, could not be read, or one was lost in silence."""
    from evener.wire import CODECS
    from tests.corpus import CORPUS
    from tests.wire import request_swaps as swaps

    if CORPUS is None:
        print("no recorded traffic: set EVENER_CORPUS to its folder")
        return 2
    wrong = 0
    for wire in sorted(CODECS):
        tried, problems = 0, list[str]()
        for exchange in swaps.requests(wire):
            for swap in swaps.swaps(exchange):
                tried += 1
                if problem := swaps.problem(swap) or swaps.silence(swap):
                    problems.append(problem)
        print(f"{wire}: {tried} requests with an odd field, {len(problems)} problems", flush=True)
        for problem in problems[:SHOWN]:
            print(f"  {problem}")
        wrong += len(problems)
    return 1 if wrong else 0
