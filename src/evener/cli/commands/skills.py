"""`evener skills`: lists the skills that count here, and checks one strictly. Runs none."""

import os
from collections.abc import Sequence
from pathlib import Path

from evener.cli.terminal import flatten, say
from evener.providers.config import load_config
from evener.skills import find_skills, validate_skill

__all__ = ["show", "validate"]


def show() -> int:
    """Print name, description and folder of each skill, and what was left out."""
    project, home = load_config(environ=os.environ).project, os.environ.get("HOME", "")
    here = Path(project) if project else Path.cwd()
    found = find_skills(project=here, home=Path(home) if home else None, trusted=bool(project))
    for skill in sorted(found.skills.values(), key=lambda one: one.name):
        print(f"{flatten(skill.name)}  {flatten(skill.description, 100)}  {skill.folder}")
    for problem in found.problems:
        say(f"evener: {problem}")
    return 0


def validate(folders: Sequence[str]) -> int:
    """Print what is wrong with each folder; return 1 if anything is."""
    wrong = {folder: validate_skill(Path(folder).absolute()) for folder in folders}
    for folder, problems in wrong.items():
        for problem in problems:
            print(f"{folder}: {problem}")
    return int(any(wrong.values()))
