"""The codecs do not repeat each other: of the lines in their folders, under 3 % stand again in another folder.

A clone is a run of six or more lines that two folders share to the letter, blank lines, comments and imports aside.
`python -m tests.shape.test_clones` prints the figure and the places.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tests.shape.tree import ROOT

WIRE = ROOT / "src" / "evener" / "wire"
RUN = 6
MOST = 0.03
IMPORT = re.compile(r"^(from|import) |^\)$|^ {4}\w+,$")

Line = tuple[str, int, str]
"""File, number, text."""


def lines(file: str, text: str) -> list[Line]:
    """The lines that count."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare and not bare.startswith("#") and not IMPORT.match(line):
            found.append((file, number, bare))
    return found


def folders() -> dict[str, list[list[Line]]]:
    """The lines of each file, by folder."""
    found: dict[str, list[list[Line]]] = defaultdict(list)
    for path in sorted(WIRE.glob("*/*.py")):
        found[path.parent.name].append(lines(f"{path.parent.name}/{path.name}", path.read_text(encoding="utf-8")))
    return found


def windows(files: Sequence[Sequence[Line]]) -> Iterator[tuple[tuple[str, ...], Sequence[Line]]]:
    for file in files:
        for start in range(len(file) - RUN + 1):
            run = file[start : start + RUN]
            yield tuple(text for _, _, text in run), run


def cloned(found: Mapping[str, Sequence[Sequence[Line]]]) -> set[tuple[str, int]]:
    """File and number of each line that lies in a run which another folder has, too."""
    homes: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for folder, files in found.items():
        for key, _ in windows(files):
            homes[key].add(folder)
    return {
        (file, number)
        for files in found.values()
        for key, run in windows(files)
        if len(homes[key]) > 1
        for file, number, _ in run
    }


def share(found: Mapping[str, Sequence[Sequence[Line]]]) -> float:
    whole = sum(len(file) for files in found.values() for file in files)
    return len(cloned(found)) / whole if whole else 0.0


def test_the_codecs_hardly_repeat_each_other() -> None:
    found = folders()
    assert share(found) < MOST, sorted(cloned(found))


def test_a_codec_made_by_copying_is_caught() -> None:
    text = "\n".join(f"step_{number}()" for number in range(20))
    assert share({"a": [lines("a/x.py", text)], "b": [lines("b/x.py", text)]}) == 1.0


if __name__ == "__main__":
    print(f"{share(folders()):.2%} of the lines of the four codecs stand again in another one")
    for file, number in sorted(cloned(folders())):
        print(f"  {file}:{number}")
