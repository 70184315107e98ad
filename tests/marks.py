"""Which tests open a socket, start a process or take long: `make quick` leaves these out.

A place is a folder, a file or a test, below `tests/`. A test that opens a socket or starts a process without being listed
fails, and says so; `tests/shape/test_marks.py` finds places that are gone.
"""

import sys
from collections.abc import Iterable

__all__ = ["MARKS", "WATCH", "marks_of"]

EVENTS = {
    "socket.bind": "socket",
    "socket.connect": "socket",
    "socket.getaddrinfo": "socket",
    "os.exec": "process",
    "os.fork": "process",
    "os.forkpty": "process",
    "os.posix_spawn": "process",
    "os.system": "process",
    "subprocess.Popen": "process",
}
"""Events of the interpreter (PEP 578) and the mark that a test needs in which they happen."""

MARKS: dict[str, tuple[str, ...]] = {
    "socket": (
        "acp/",
        "bench/",
        "cli/",
        "cluster/",
        "context/test_complaints.py",
        "context/test_guard.py",
        "context/test_provider_side.py",
        "context/test_wires.py",
        "driver/",
        "harness/",
        "laws/test_thousand_keys.py",
        "local/",
        "mcp/",
        "model/",
        "observe/test_exporting.py",
        "outputs/test_wires.py",
        "replay/",
        "requirements/",
        "shape/test_marks.py",
        "skills/test_use.py",
        "store/extras/",
        "store/test_folds.py",
        "store/test_lockout.py",
        "store/test_pooler.py",
        "store/test_postgres.py",
        "testing/",
        "toolset/",
        "transport/",
        "view/",
        "web/test_npm.py",
        "wire/test_hard_shapes.py",
    ),
    "process": (
        "acp/",
        "bench/",
        "cli/",
        "cluster/",
        "context/test_view.py",
        "docs/",
        "driver/",
        "harness/",
        "laws/test_thousand_keys.py",
        "local/",
        "mcp/",
        "model/",
        "observe/test_cost.py",
        "outputs/test_shape.py",
        "providers/test_keys.py",
        "providers/test_rows.py",
        "shape/test_docs.py",
        "shape/test_loading.py",
        "shape/test_marks.py",
        "shape/test_wheel.py",
        "skills/test_use.py",
        "store/",
        "test_leftovers.py",
        "testing/",
        "tools/test_context.py",
        "tools/test_spill.py",
        "toolset/",
        "transport/",
        "view/",
        "web/test_npm.py",
    ),
    "slow": (
        "encodings/test_laws.py",
        "laws/",
        "shape/",
        "wire/test_client_requests.py::test_whatever_field_of_a_recorded_request_is_odd_the_rest_is_read",
        "wire/test_hops.py",
        "wire/test_recorded.py::test_line_ends_of_any_kind_cut_at_every_byte_give_the_same_deltas",
    ),
}
"""The layers that do I/O are listed as folders, whole: `make quick` is about the pure ones."""


def marks_of(node: str) -> list[str]:
    """Return the marks of a test, given its id from the root of the tree."""
    file, _, test = node.removeprefix("tests/").partition("::")
    name = test.partition("[")[0]
    folders = [file[: place + 1] for place, letter in enumerate(file) if letter == "/"]
    own = {*folders, file, f"{file}::{name}"}
    return [mark for mark, places in MARKS.items() if not own.isdisjoint(places)]


class Watch:
    """Notes what this process opens and starts. It cannot be undone: the interpreter keeps such a hook to its end."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        sys.addaudithook(self._note)

    def _note(self, event: str, _: object) -> None:
        if event in EVENTS:
            self.seen.add(EVENTS[event])

    def unmarked(self, marks: Iterable[str]) -> str:
        """Return what to say about a test that did more since the last time than its marks tell, if it did."""
        more, self.seen = sorted(self.seen.difference(marks)), set()
        return f"It needs the mark {' and '.join(more)}: list it in tests/marks.py." if more else ""


WATCH = Watch()
"""The one of this process."""
