"""The system prompt of a harness, however it was given: a text, blocks, five parts, or a function. Rendered once a run.

A run keeps what it began with, also in another process: when it is resumed, only a change of the stable parts takes effect.
Never rendered between two requests of a run, where a change would throw away what a provider has cached of the conversation.
"""

from collections.abc import Callable, Iterable
from time import time

from msgspec.structs import replace

from evener.context.prompt import PromptContext, SystemPrompt, check_stable, check_unchanged, render
from evener.transcript.blocks import TextBlock
from evener.transcript.transcript import Transcript

__all__ = ["Given", "System"]

Whole = str | Iterable[TextBlock] | SystemPrompt | None
Given = Whole | Callable[[PromptContext], Whole]
Blocks = tuple[TextBlock, ...]
Rest = Callable[[], Blocks]


class System:
    """What the runs of one harness are told first. Shared by its threads; `deps` is handed to functions."""

    def __init__(self, given: Given, *, deps: object = None) -> None:
        function = given if callable(given) else None
        self._function: Callable[[PromptContext], Whole] | None = function
        self._whole: Blocks | SystemPrompt = () if callable(given) else _sound(given)
        self._deps = deps
        self._before: Blocks | None = None  # the stable parts, as they were the last time

    def begun(self, *, thread: str, run: str) -> Blocks:
        """What a run begins with."""
        stable, rest = self._rendered(thread, run)
        return stable + rest()

    def resumed(self, known: Blocks, *, thread: str, run: str) -> Blocks:
        """What a run goes on with that had these: the same, unless the stable parts are others now."""
        stable, rest = self._rendered(thread, run)
        count = len(stable)
        changes = self._function is not None or isinstance(self._whole, SystemPrompt)
        if changes and known[:count] == stable and not _up_to_mark(known[count:]):
            return known
        return stable + rest()

    def _rendered(self, thread: str, run: str) -> tuple[Blocks, Rest]:
        """The stable blocks, and what makes the others."""
        context = PromptContext(thread=thread, run=run, at=time(), deps=self._deps)
        whole = self._whole if self._function is None else _sound(self._function(context))
        if isinstance(whole, SystemPrompt):
            return self._stable(whole, context), lambda: render(SystemPrompt(context=whole.context), context)
        stable = whole if self._function is None else _up_to_mark(whole)
        return stable, lambda: whole[len(stable) :]

    def _stable(self, prompt: SystemPrompt, context: PromptContext) -> Blocks:
        """The stable parts, once they were found to be stable. A function may give another prompt each time."""
        before = self._before if self._function is None else None
        if before is None:
            check_stable(prompt, context)
        stable = render(replace(prompt, context=""), context)
        if before is not None:
            check_unchanged(before, stable)
        self._before = stable
        return stable


def _sound(whole: Whole) -> Blocks | SystemPrompt:
    return whole if isinstance(whole, SystemPrompt) else Transcript(system=whole).system_blocks


def _up_to_mark(blocks: Blocks) -> Blocks:
    last = max((number for number, block in enumerate(blocks, 1) if block.cache), default=0)
    return blocks[:last]
