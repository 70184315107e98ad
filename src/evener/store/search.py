"""What a search finds and where: words in texts of users, models and tools. Pure."""

import json
import re
from collections.abc import Iterable, Sequence

import msgspec

from evener.errors import BadValue
from evener.events import CallFinished, Event, Imported, Prompted, Replied, Steered, decode_event
from evener.store.protocol import Found, Summary
from evener.transcript.blocks import Block, TextBlock, ToolResult
from evener.transcript.message import Message

SPOKEN = ("prompted", "steered", "imported", "replied", "call_finished")
"""The kinds of events that hold words."""

PIECE = re.compile(r'"([^"]*)"|(\S+)')
MOST_LETTERS = 1_000
AROUND = 60


class Query(msgspec.Struct, frozen=True):
    """Words and phrases that must all occur, in lower case: as they are, and as they look within JSON."""

    words: tuple[str, ...]
    escaped: tuple[str, ...]

    def may_match(self, payload: bytes) -> bool:
        """True if the event of that payload may match. False is certain."""
        text = payload.decode(errors="replace").lower()
        return all(word in text for word in self.escaped)

    def excerpt(self, text: str) -> str:
        """Return some of the text around the first word; empty when not all words are in it."""
        lower = text.lower()
        if not all(word in lower for word in self.words):
            return ""
        whole = text if len(lower) == len(text) else lower  # a few letters have a longer lower case
        start = lower.index(self.words[0])
        end = start + len(self.words[0])
        before, after = max(0, start - AROUND), min(len(whole), end + AROUND)
        cut = " ".join(whole[before:after].split())
        return f"{'...' if before else ''}{cut}{'...' if after < len(whole) else ''}"


def parse(text: str) -> Query:
    """Return the query of a text: each word, and whatever stands in double quotes as one phrase."""
    words = tuple(phrase or word for phrase, word in PIECE.findall(text.lower()) if phrase.strip() or word)
    if not words or len(text) > MOST_LETTERS:
        raise BadValue(f"A search needs at least one word, and has {MOST_LETTERS} letters at most. Give the words to look for.")
    return Query(words, tuple(json.dumps(word, ensure_ascii=False)[1:-1].lower() for word in words))


def found_in(query: Query, logs: Iterable[tuple[Summary, Sequence[bytes]]]) -> list[Found]:
    """Search logs, each with the lines of its own events: titles and tags first, then events, the newest first."""
    named, said = [], []
    for summary, lines in logs:
        if summary.head and (excerpt := query.excerpt(" ".join([summary.title, *summary.tags]))):
            named.append(Found(summary, 0, excerpt))
        for seq, line in zip(range(summary.events, 0, -1), reversed(lines), strict=False):
            if query.may_match(line) and (excerpt := query.excerpt(said_in(decode_event(line)))):
                said.append(Found(summary, seq, excerpt))
    return named + said


def said_in(event: Event) -> str:
    """Return the words of an event: prompts, answers and results."""
    match event:
        case Prompted(message=message) | Steered(message=message) | Replied(message=message):
            return _words(message)
        case Imported(messages=messages):
            return "\n".join(map(_words, messages))
        case CallFinished(content=content):
            return "\n".join(block.text for block in content if isinstance(block, TextBlock))
    return ""


def _words(message: Message) -> str:
    return "\n".join(filter(None, map(_list_said, message.blocks)))


def _list_said(block: Block) -> str:
    match block:
        case TextBlock(text=text):
            return text
        case ToolResult():
            return block.text
    return ""
