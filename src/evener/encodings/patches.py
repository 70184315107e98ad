"""Patches of one file as edits of whole lines, and back. Pure; nothing is matched here.

A patch has parts that begin with `@@`, perhaps followed by a line that occurs somewhere before the part; then come lines
that begin with a space (kept), `-` (removed) or `+` (added).
"""

from collections.abc import Sequence


def read_patch(diff: str) -> list[dict[str, object]]:
    """Return the edits of a patch. Each replaces whole lines, after a given line if the patch names one."""
    edits: list[dict[str, object]] = []
    after, old, new = "", "", ""
    for line in (*diff.removesuffix("\n").split("\n"), "@@"):
        if line.startswith("@@"):
            if old or new:
                edits.append({"old": old, "new": new, "lines": True, **({"after": after} if after else {})})
            after, old, new = line.removeprefix("@@").strip().removesuffix("@@").strip(), "", ""
        elif line.startswith("+"):
            new += f"{line[1:]}\n"
        elif line.startswith("-"):
            old += f"{line[1:]}\n"
        elif not line.startswith(("*** ", "\\ ")):  # marks such as the end of the file
            old += f"{line[1:]}\n"
            new += f"{line[1:]}\n"
    return edits


def write_patch(edits: Sequence[object]) -> str | None:
    """Return edits as a patch; None if an edit does not replace whole lines."""
    parts: list[str] = []
    for edit in edits:
        match edit:
            case {"old": str(old), "new": str(new), "lines": True, **more} if not more.keys() - {"after"}:
                parts.append(f"@@ {more['after']}" if more.get("after") else "@@")
                parts += _write_lines(old.split("\n")[:-1], new.split("\n")[:-1])
            case _:
                return None
    return "\n".join(parts)


def _write_lines(old: Sequence[str], new: Sequence[str]) -> list[str]:
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    kept = [f" {line}" for line in old[:head]]
    taken = [f"-{line}" for line in old[head : len(old) - tail]]
    put = [f"+{line}" for line in new[head : len(new) - tail]]
    return [*kept, *taken, *put, *(f" {line}" for line in old[len(old) - tail :])]
