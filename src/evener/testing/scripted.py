"""A model that answers from a script: for testing what stands above a model. Opens no connection."""

from collections.abc import Iterable, Sequence

from evener.errors import UsageError
from evener.transcript.ask import ToolSpec
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript


class ScriptedCompleter:
    """Gives the replies of its script, one per call, and keeps what it was asked in `asked`."""

    def __init__(self, replies: Iterable[Reply], *, name: str = "scripted") -> None:
        self.name = name
        self.asked: list[tuple[Transcript, tuple[ToolSpec, ...]]] = []
        self._replies = list(replies)

    async def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        """Return the next reply of the script."""
        number = len(self.asked)
        self.asked.append((transcript, tuple(tools)))
        if number >= len(self._replies):
            raise UsageError(
                f"The script of {self.name!r} has {len(self._replies)} replies and was asked for one more. "
                "Add a reply, or find out why the loop went on."
            )
        return self._replies[number]
