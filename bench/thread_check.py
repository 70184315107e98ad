"""Whether a request holds all that the conversation holds: whatever is missing must have a loss of its own."""

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from evener import events as ev
from evener.loop.state import RunState, apply
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    Remote,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.loss import Loss
from evener.transcript.transcript import Transcript

__all__ = ["Asked", "Said", "asked", "kept", "lost_in_silence", "started_twice"]


class Said:
    """Every string of a request, and of what the provider held already."""

    def __init__(self, *values: object) -> None:
        found = [text for value in values for text in strings(value)]
        self._whole = frozenset(found)
        self._joined = "\0".join(found)

    def __contains__(self, text: object) -> bool:
        return isinstance(text, str) and (text in self._whole or text in self._joined)


def strings(value: object) -> Iterator[str]:
    """Every string in a JSON value, names of fields as well; a string that is JSON itself, both ways."""
    match value:
        case str():
            yield value
            if value[:1] in "{[":
                yield from strings(_parsed(value))
        case dict():
            for key, one in value.items():
                yield str(key)
                yield from strings(one)
        case list():
            for one in value:
                yield from strings(one)


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


class Asked(msgspec.Struct, frozen=True):
    """An answer, the conversation that was asked about, and all that was lost of it on the way to the provider.

    What the provider held already was lost when it was sent, and was told with that answer.
    """

    reply: ev.Replied
    transcript: Transcript
    losses: tuple[Loss, ...]


def asked(events: Iterable[ev.Event]) -> Iterator[Asked]:
    """Each answer of a log."""
    state = RunState()
    before: tuple[Loss, ...] = ()
    held: dict[str, tuple[Loss, ...]] = {}
    for event in events:
        match event:
            case ev.ModelCalled(rests=rests):
                before = held.get(rests.id, ()) if rests else ()
            case ev.Replied():
                losses = (*before, *event.losses)
                yield Asked(event, state.transcript, losses)
                if event.held is not None:
                    held[event.held.id] = losses
        state = apply(state, event)


def lost_in_silence(transcript: Transcript, said: Said, losses: Sequence[Loss]) -> list[str]:
    """Blocks that are neither in the request nor covered by a loss of their own."""
    covered = Counter(loss.message.removesuffix("/results") for loss in losses)
    found = []
    for message in transcript:
        gone = [block for block in message.blocks if not is_there(block, said)]
        if len(gone) > covered[message.id]:
            found.append(f"{message.role} message {message.id}: {gone!r}"[:400])
    found += [f"system: {block.text!r}" for block in transcript.system_blocks if block.text not in said]
    return found


def kept(transcript: Transcript, said: Said) -> Counter[str]:
    """How many blocks of each kind the request holds."""
    blocks = [block for message in transcript for block in message.blocks]
    inner = [part for block in blocks if isinstance(block, ToolResult) for part in block.content]
    return Counter(str(block.__struct_config__.tag) for block in (*blocks, *inner) if is_there(block, said))


def is_there(block: Block, said: Said) -> bool:
    """Whether the request holds this."""
    match block:
        case TextBlock(text):
            return not text.strip() or text.strip() in said
        case ReasoningBlock(seal=seal):
            return seal is not None and all(one in said for one in strings(json.loads(seal.data)))
        case ToolCall(name=name, raw=raw):
            return name in said and all(one in said for one in strings(_parsed(raw)))
        case ToolResult(content=content):
            return all(is_there(one, said) for one in content)
        case HostedBlock(raw=raw):
            return all(one in said for one in strings(json.loads(raw)))
        case ImageBlock(source=Inline(content)) | DocumentBlock(source=Inline(content)):
            return content in said or b64decode(content).decode(errors="replace")[:60] in said
        case ImageBlock(source=Remote(url)) | DocumentBlock(source=Remote(url)):
            return url in said
        case _:
            return False


def started_twice(events: Sequence[ev.Event], tool: str) -> list[str]:
    """The keys of calls of this tool that were started more than once on one path."""
    starts = Counter(event.key for event in events if isinstance(event, ev.CallStarted) and event.tool == tool)
    return [key for key, count in starts.items() if count > 1]
