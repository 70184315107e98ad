"""What of a turn's reasoning goes back, and in which of this wire's spellings. Pure."""

import msgspec

from evener.transcript.blocks import ReasoningBlock
from evener.transcript.message import Message
from evener.wire.openai_chat.seals import FIELD, opened, why_foreign
from evener.wire.page import Page
from evener.wire.text import dumps, word

__all__ = ["CLOSING", "OPENING", "Thoughts"]

OPENING, CLOSING = "<think>", "</think>"


class Thoughts:
    """The reasoning of one assistant message while it is written.

    `fields` are those of the message, `lead` stands before its next text; a part is handed back to stand in its place.
    """

    def __init__(self, page: Page, message: Message) -> None:
        self.page = page
        self.message = message
        self.fields: dict[str, object] = {}
        self.lead = ""
        self._details: list[msgspec.Raw] = []

    def add(self, block: ReasoningBlock) -> dict[str, object] | None:
        """Take one block in; a content part when it goes as one."""
        foreign = why_foreign(block.seal, self.message.origin, self.page.ask, self.page.quirks)
        if foreign and block.text.strip() and self.page.ask.foreign_reasoning == "text":
            self.page.degrade("reasoning", f"sent as plain text: {foreign}", block)
            return {"type": "text", "text": block.text}
        why = foreign or self._why_not()
        if why:
            self.page.drop("reasoning", why, block)
            return None
        self.page.thought = True
        return self._written(block)

    def owe(self) -> None:
        """Where calls must come with reasoning, say that there was none."""
        field = self.page.quirks.reasoning_field
        if self.page.quirks.reasoning_owed and field in ("reasoning_content", "reasoning"):
            self.fields.setdefault(field, "")

    def _why_not(self) -> str:
        """Why the row wants nothing back of this message; empty when it does."""
        if self.page.quirks.thinking_replay == "tools" and not self.message.calls:
            return "this endpoint takes back reasoning only beside calls"
        return self.page.mute

    def _written(self, block: ReasoningBlock) -> dict[str, object] | None:
        own = opened(block.seal, self.page.ask, self.page.quirks).own
        field = word(own.pop(FIELD, None)) or self.page.quirks.reasoning_field
        match field:
            case "chunks":
                return {"type": "thinking", "thinking": [{"type": "text", "text": block.text}], **own}
            case "tags":
                self.lead += f"{OPENING}{block.text}{CLOSING}"
            case "reasoning_details" if "reasoning_details" in own:
                self._details += msgspec.json.decode(own["reasoning_details"], type=list[msgspec.Raw])
                self.fields["reasoning_details"] = msgspec.Raw(dumps(self._details))
            case _:
                field = "reasoning" if field == "reasoning_details" else field
                before = self.fields.get(field)
                self.fields[field] = f"{before}\n\n{block.text}" if before else block.text
        return None
