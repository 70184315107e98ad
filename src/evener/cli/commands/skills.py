"""`evener skills`: lists the skills that apply here, and checks one strictly. Runs no skill."""

from collections.abc import Sequence
from pathlib import Path

from evener.cli.outside import find_here
from evener.cli.terminal import flatten
from evener.skills import validate_skill


def show() -> int:
    """Print name, description and folder of each skill, and the skills that were left out."""
    for skill in sorted(find_here().values(), key=lambda one: one.name):
        print(f"{flatten(skill.name)}  {flatten(skill.description, 100)}  {skill.folder}")
    return 0


def validate(folders: Sequence[str]) -> int:
    """Print what is wrong with each folder; return 1 if anything is."""
    wrong = {folder: validate_skill(Path(folder).absolute()) for folder in folders}
    for folder, problems in wrong.items():
        for problem in problems:
            print(f"{folder}: {problem}")
    return int(any(wrong.values()))
