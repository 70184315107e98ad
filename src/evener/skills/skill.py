"""Skills on disk: finds them in project and user folders, and reads them leniently. Runs nothing.

A project's skills may have come with a clone, and they instruct the model. So they are used only if the user trusts the
folder.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from evener.errors import UsageError

FOLDERS = (".agents/skills", ".claude/skills")
MOST_FOLDERS, DEEPEST = 2_000, 4
MOST_FILE = 1 << 20
MOST_NAME, MOST_DESCRIPTION = 64, 1_024
FENCED = re.compile(r"\ufeff?---[ \t]*\n(.*?\n)---[ \t]*(?:\n|\Z)", re.DOTALL)
OLD_BREAKS = re.compile("[\x85\u2028\u2029]")


class Skill(msgspec.Struct, frozen=True):
    """One skill: when to use it, and the folder with its instructions. `hidden`: it is not listed for the model."""

    name: str
    description: str
    folder: str
    hidden: bool = False

    @property
    def body(self) -> str:
        """The instructions, read anew each time."""
        return front_matter(Path(self.folder))[1]

    @property
    def files(self) -> tuple[str, ...]:
        """The other files of the skill, relative to its folder."""
        return tuple(sorted(str(path.relative_to(self.folder)) for path in _walk_files(Path(self.folder))))[:200]


class SkillSet(msgspec.Struct, frozen=True):
    """The skills in use, by name, and sentences about those that are not."""

    skills: Mapping[str, Skill]
    problems: tuple[str, ...] = ()


def find_skills(*, project: Path | None, home: Path | None, trusted: bool) -> SkillSet:
    """Return the skills of a project, if the user trusts it, and of the user. The project's come first."""
    found: dict[str, Skill] = {}
    problems: list[str] = []
    for base, counts in ((None if project == home else project, trusted), (home, True)):
        if base is None:
            continue
        for folder in (folder for name in FOLDERS for folder in _skill_folders(base / name)):
            if not counts:
                problems.append(f"The skill in {folder} was left out: the project is not trusted.")
                continue
            try:
                skill = read_skill(folder)
            except UsageError as error:
                problems.append(str(error))
                continue
            if skill.name in found:
                problems.append(f"The skill {skill.name!r} in {folder} is hidden by the one in {found[skill.name].folder}.")
            else:
                found[skill.name] = skill
    return SkillSet(found, tuple(problems))


def read_skill(folder: Path) -> Skill:
    """Return the skill of a folder. Refused only without a description: other mistakes are for `validate_skill`."""
    fields, _ = front_matter(folder, lenient=True)
    description = fields.get("description")
    if not isinstance(description, str) or not description.strip():
        raise UsageError(f"The skill in {folder} was left out: it has no description.")
    name = fields.get("name")
    hides = fields.get("disable-model-invocation")
    hidden = isinstance(hides, str) and hides.strip().lower() == "true"
    own = " ".join(name.split())[:MOST_NAME] if isinstance(name, str) and name.strip() else folder.name
    return Skill(own, " ".join(description.split())[:MOST_DESCRIPTION], str(folder), hidden)


def skill_file(folder: Path) -> Path | None:
    """Return the file with the instructions, if there is one."""
    return next((folder / name for name in ("SKILL.md", "skill.md") if (folder / name).is_file()), None)


def front_matter(folder: Path, *, lenient: bool = True) -> tuple[Mapping[str, object], str]:
    """Return the fields and the body of a skill. Lenient: lines `key: value` count where the whole is not YAML."""
    file = skill_file(folder)
    if file is None:
        raise UsageError(f"There is no SKILL.md in {folder}.")
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(MOST_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}.") from None
    if len(text) > MOST_FILE:
        raise UsageError(f"{file} is larger than {MOST_FILE:,} characters.")
    fenced = FENCED.match(text) if lenient else None
    head, body = (OLD_BREAKS.sub(" ", fenced[1]), text[fenced.end() :]) if fenced else split_text(text, file)
    fields = _parse_yaml(head)
    if not isinstance(fields, dict):
        if not lenient:
            raise UsageError(f"The fields of {file} are not a YAML mapping.")
        fields = _parse_lines(head)
    return fields, body.strip()


def split_text(text: str, file: Path) -> tuple[str, str]:
    """Return the fields and the body, unread. Characters that end a line in YAML 1.1 only are spaces, as in YAML 1.2."""
    parts = text.split("---", 2)
    if not text.startswith("---") or len(parts) < 3:
        raise UsageError(f"{file} must begin with fields in YAML between two lines of ---.")
    return OLD_BREAKS.sub(" ", parts[1]), parts[2]


def _parse_yaml(text: str) -> object:
    try:
        import yaml
    except ImportError:
        raise UsageError("Skills need the package `pyyaml`. Install it: pip install 'evener[skills]'.") from None
    try:
        return yaml.load(text, Loader=yaml.BaseLoader)  # texts, lists and mappings only; no objects
    except (yaml.YAMLError, RecursionError):
        return None


def _parse_lines(text: str) -> dict[str, object]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line and line[:1].strip())
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def _skill_folders(root: Path) -> Iterator[Path]:
    """Give the folders with a SKILL.md below a root, in order, not too deep and not too many."""
    for seen, (folder, below, files) in enumerate(os.walk(root)):
        depth = len(Path(folder).relative_to(root).parts)
        below[:] = sorted(name for name in below if not name.startswith(".")) if depth < DEEPEST else []
        if seen > MOST_FOLDERS:
            return
        if depth and {"SKILL.md", "skill.md"} & set(files):
            below[:] = []
            yield Path(folder)


def _walk_files(folder: Path) -> Iterator[Path]:
    for number, path in enumerate(folder.rglob("*")):
        if number > MOST_FOLDERS:
            return
        if path.is_file() and path.name.lower() != "skill.md":
            yield path
