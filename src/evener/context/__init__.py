"""The input of a model: the system prompt in its parts, the scratchpad, and the part of the conversation that requests
contain. Pure.
"""

from evener.context.gate import ContextRules
from evener.context.prompt import Part, PromptContext, SystemPrompt, Template, check_stable, check_unchanged, render
from evener.context.scratchpad import Bounds, Change, Scratchpad, Section, Visibility

__all__ = [
    "Bounds",
    "Change",
    "ContextRules",
    "Part",
    "PromptContext",
    "Scratchpad",
    "Section",
    "SystemPrompt",
    "Template",
    "Visibility",
    "check_stable",
    "check_unchanged",
    "render",
]
