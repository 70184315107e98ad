"""The interface between a loop and a model: a name and one call. Models implement it; loops use nothing else of them."""

from collections.abc import Sequence
from typing import Protocol

from evener.transcript.ask import ToolSpec
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript


class Completer(Protocol):
    """Answers a conversation. Token counts and reasoning fields of the reply are filled if known, and zero otherwise."""

    @property
    def name(self) -> str:
        """Which model this is, for people and logs."""
        ...

    async def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        """Return one answer to this conversation, with these tools on offer."""
        ...
