"""The skills for a model: a list in the system prompt, within a budget, and one tool that reads them."""

from collections.abc import Iterable

from evener.errors import UsageError
from evener.skills.skill import Skill
from evener.tools.result import Envelope, ToolOutput, report_failure
from evener.tools.tool import Tool

SHARE = 0.02
"""How much of the model's window the list may take."""
CHARACTERS = 4
"""How many characters a token has, at least in English: an estimate."""
SHORTEST = 40
HEAD = "Skills are instructions for special tasks. When a task fits one, read it with skill_read before you begin.\n"


def list_skills(skills: Iterable[Skill], *, window: int = 128_000) -> str:
    """Return the list for the system prompt, in at most 2 % of a window of so many tokens. Descriptions are shortened first."""
    shown = sorted((one for one in skills if not one.hidden), key=lambda one: one.name)
    if not shown:
        return ""
    room = int(window * SHARE * CHARACTERS) - len(HEAD)
    fixed = sum(len(one.name) + 5 for one in shown)
    each = max(SHORTEST, (room - fixed) // len(shown))
    lines: list[str] = []
    for one in shown:
        text = one.description if len(one.description) <= each else one.description[: each - 3] + "..."
        line = f"- {one.name}: {text}\n"
        if room < len(line):
            break
        room -= len(line)
        lines.append(line)
    return HEAD + "".join(lines)


def skill_text(skill: Skill) -> str:
    """Return the instructions as a model sees them, with the names of the skill's other files. Raises UsageError."""
    listed = "".join(f"\n- {name}" for name in skill.files)
    more = f"\n\nIts other files, in {skill.folder}:{listed}" if listed else ""
    return f'<skill_content name="{skill.name}">\n{skill.body}{more}\n</skill_content>'


def skill_read_tool(skills: Iterable[Skill]) -> Tool:
    """Return the tool that gives a model the instructions of a skill. It knows the names: no other can be asked for.

    What was read stays in a long conversation, whatever else is taken out of it.
    """
    known = {one.name: one for one in skills if not one.hidden}

    def skill_read(arguments: dict[str, str]) -> ToolOutput | Envelope:
        skill = known[arguments["name"]]
        try:
            return ToolOutput(skill_text(skill), {"skill": skill.name}, keep=True)
        except (UsageError, OSError) as error:
            return report_failure(f"The skill {skill.name!r} cannot be read: {error}")

    names = sorted(known)
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": names, "description": "the skill"}},
        "required": ["name"],
    }
    return Tool.of(
        "skill_read",
        schema,
        function=skill_read,
        description="Read the instructions of a skill.",
        effect="read",
        output_limit=200_000,
    )
