"""AGENTS.md: instructions of a project for agents. Included on request, and only from a project that the user trusts."""

from pathlib import Path

from evener.errors import UsageError

NAME = "AGENTS.md"
MOST = 64 * 1024


def read_agents_md(start: Path, *, root: Path, trusted: bool) -> str:
    """Return the texts of each AGENTS.md from `root` down to `start`, the nearest last; empty if there is none.

    `root` is the project's folder. Without trust nothing is read: the file may have come with a clone.
    """
    here, top = start.resolve(), root.resolve()
    if here != top and top not in here.parents:
        raise UsageError(f"{start} is not inside the project {root}.")
    if not trusted:
        return ""
    folders = [here, *here.parents]
    folders = folders[: folders.index(top) + 1]
    texts = (_read(folder / NAME) for folder in reversed(folders))
    return "\n\n".join(text for text in texts if text)


def _read(file: Path) -> str:
    try:
        if not file.is_file():
            return ""  # a pipe or a terminal would be waited for
        with open(file, encoding="utf-8", errors="replace") as opened:
            text = opened.read(MOST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    cut = "\n[The rest was left out: the file is too long.]" if len(text) > MOST else ""
    return f"<agents_md file={str(file)!r}>\n{text[:MOST].strip()}{cut}\n</agents_md>" if text.strip() else ""
