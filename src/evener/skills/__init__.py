"""Agent Skills: folders with a SKILL.md that tell a model how to do something. Only enabled skills are found, shown or read."""

from evener.skills.agents_md import read_agents_md
from evener.skills.catalogue import list_skills, skill_read_tool, skill_text
from evener.skills.runner import skill_run_tool
from evener.skills.skill import Skill, SkillSet, find_skills, read_skill
from evener.skills.validate import validate_skill

__all__ = [
    "Skill",
    "SkillSet",
    "find_skills",
    "list_skills",
    "read_agents_md",
    "read_skill",
    "skill_read_tool",
    "skill_run_tool",
    "skill_text",
    "validate_skill",
]
