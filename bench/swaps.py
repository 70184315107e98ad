"""Every recorded answer with each field that does not carry it of every other type, and every recorded stream cut short.

Needs the recorded traffic (EVENER_CORPUS). Text, calls and the reason to stop must survive each swap; nothing of a stream may
count that its end mark closes before it says why it stopped.
"""

from collections import Counter

__all__ = ["main"]

SHOWN = 40


def main() -> int:
    """Run all of it; 1 when anything was lost or counted."""
    from evener.wire import CODECS
    from tests.corpus import CORPUS
    from tests.wire import swaps

    if CORPUS is None:
        print("no recorded traffic: set EVENER_CORPUS to its folder")
        return 2
    lost: list[str] = []
    for wire in CODECS:
        tally: Counter[str] = Counter()
        for recording in swaps.recordings(wire):
            sort = "streamed" if recording.streamed else "whole"
            for problem in swaps.problems(recording):
                tally[f"{sort} swaps"] += 1
                lost += [problem] if problem else []
            for cut in swaps.cuts(recording) if recording.streamed else ():
                tally["cuts"] += 1
                lost += filter(None, [swaps.counted(recording, cut)])
        print(f"{wire}: " + ", ".join(f"{count:,} {what}" for what, count in sorted(tally.items())), flush=True)
    print(f"{len(lost)} problems")
    for problem in lost[:SHOWN]:
        print(f"  {problem}")
    return 1 if lost else 0
