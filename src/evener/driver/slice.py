"""The time for which a run may keep its slot: a worker with other runs, or one that must stop, takes the slot back between
two steps.

Nothing is interrupted: the present step ends, its outcome is on disk, and any process can continue from there.
"""

from time import monotonic, time


class RunSlice:
    """One stay of a run in a slot. `longest_wait`: a run that must wait longer, in seconds, leaves the slot meanwhile.

    After the stay, `rested` says whether the run has more to do, and `until` when: seconds since 1970, 0 for now.
    """

    def __init__(self, seconds: float = float("inf"), *, longest_wait: float = float("inf")) -> None:
        self._end = monotonic() + seconds
        self._longest_wait = longest_wait
        self._told = False
        self._moved = False
        self.rested = False
        self.until = 0.0

    def end(self) -> None:
        """Ask for the slot: the run leaves it before its next step."""
        self._told = True

    def rests(self, wait: float) -> bool:
        """True if the run leaves the slot now, where `wait` is the time until its next step.

        A stay in the slot has at least one step.
        """
        over = self._moved and monotonic() >= self._end
        self._moved = True
        if not (self._told or over or wait > self._longest_wait):
            return False
        self.rested, self.until = True, time() + wait if wait else 0.0
        return True
