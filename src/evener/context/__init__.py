"""What a model is told beside the conversation: the system prompt in its parts, and the scratchpad. Pure."""

from evener.context.prompt import Part, PromptContext, SystemPrompt, Template, check_stable, check_unchanged, render
from evener.context.scratchpad import Bounds, Change, Scratchpad, Section, Visibility

__all__ = [
    "Bounds",
    "Change",
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
