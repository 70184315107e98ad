"""Runs a script of a skill: the program that its extension names, in the sandbox of the shell tools. Nothing else is run.

The script may read its skill's folder, and read and write the working folder. There is no network.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from evener.skills.skill import Skill
from evener.tools.context import ToolContext
from evener.tools.result import Envelope, ModelRetry, ToolOutput, report_failure
from evener.tools.tool import Tool
from evener.toolset.fence import Fence
from evener.toolset.labels import label
from evener.toolset.shell.command import RunningCommand
from evener.toolset.shell.sandbox import Sandbox, SandboxRefused, find_program
from evener.toolset.shell.tools import report_end

RUNNERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        ".py": ("python3",),
        ".sh": ("bash", "sh"),
        ".bash": ("bash",),
        ".js": ("node",),
        ".mjs": ("node",),
        ".rb": ("ruby",),
        ".pl": ("perl",),
    }
)
"""The programs for each extension; the first that is installed is used."""
MOST_SECONDS = 600
LOOK = 0.05


class _ScriptCall(msgspec.Struct, frozen=True):
    """What the model gives."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    seconds: float = 120


def skill_run_tool(
    skills: Iterable[Skill], *, root: str | os.PathLike[str] = ".", fence: Fence | None = None, approval: bool = True
) -> Tool:
    """Return the tool that runs scripts of these skills in the folder `root`. It asks before each call, unless told not to."""
    known = {one.name: one for one in skills if not one.hidden}
    place = Sandbox(root=os.path.realpath(os.fspath(root)), fence=fence or Fence())

    def skill_run(arguments: dict[str, object], context: ToolContext[object]) -> ToolOutput | Envelope:
        asked = msgspec.convert(arguments, _ScriptCall)
        skill = known[asked.name]
        sandbox = msgspec.structs.replace(place, readable=(os.path.realpath(skill.folder),))
        argv = [*_program(asked.script), str(_find(skill, asked.script)), *asked.arguments]
        if any("\0" in word for word in argv):
            raise ModelRetry("There is a NUL byte in the arguments. Leave it out.")
        try:
            running = RunningCommand(sandbox, argv, seconds=asked.seconds)
        except SandboxRefused as error:
            return report_failure(f"The script was not started. {error}")
        while not running.wait(LOOK):
            if context.cancelled.is_set():
                running.stop()
        return report_end(running, asked.seconds)

    made = Tool.of(
        "skill_run",
        _schema(sorted(known)),
        function=skill_run,
        description=(
            "Run a script of a skill in the working folder: files of that folder and of the skill only, no network. Read the "
            "skill first: it says what its scripts do. Output and exit code are returned."
        ),
        effect="write",
        sequential=True,
        approval=approval,
        timeout=MOST_SECONDS + 30.0,
    )
    return label(made, "private", source="skill")


def _schema(names: list[str]) -> dict[str, object]:
    words = {"type": "array", "items": {"type": "string"}}
    seconds = {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_SECONDS, "description": "when to give up"}
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": names, "description": "the skill"},
            "script": {"type": "string", "description": "its path in the skill's folder, as in scripts/fill.py"},
            "arguments": {**words, "description": "the arguments of the script"},
            "seconds": seconds,
        },
        "required": ["name", "script"],
    }


def _find(skill: Skill, script: str) -> Path:
    """Return the path of a script. What is not a file inside the skill's folder, links followed, is refused."""
    folder = Path(skill.folder).resolve()
    try:
        path = (folder / script).resolve()
        found = folder in path.parents and path.is_file()
    except (OSError, RuntimeError, ValueError):  # a name that is too long, links in a circle, a NUL byte
        found = False
    if not found:
        known = ", ".join(one for one in skill.files if Path(one).suffix in RUNNERS) or "none"
        raise ModelRetry(f"The skill {skill.name!r} has no script {script[:200]!r}. Its scripts are: {known}.")
    return path


def _program(script: str) -> list[str]:
    names = RUNNERS.get(Path(script).suffix.lower())
    if names is None:
        raise ModelRetry(f"{script[:200]!r} cannot be run. The extensions that can are {', '.join(RUNNERS)}.")
    if names == ("python3",):
        return [sys.executable]
    found = next((program for program in map(find_program, names) if program), "")
    if not found:
        raise ModelRetry(f"{script[:200]!r} needs {' or '.join(names)}, which is not installed here.")
    return [found]
