"""Earlier calls and results in an encoding's text form. Pure and incremental: a message is rewritten once, then kept.

Each message becomes one message, so the rewritten history grows like the history, and the codec can keep its bytes. Images
and documents in a result come after its text. A message with nothing to rewrite stays the same object.
"""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

import msgspec
from msgspec.structs import replace

from evener.encodings.json import ANSWER, ARGUMENTS, CALLS, TOOL, VALUE
from evener.encodings.own_tools import find_pictured, rewrite_message
from evener.encodings.prepared import Past, TextStyle
from evener.transcript.blocks import Block, HostedBlock, ReasoningBlock, ResultContent, TextBlock, ToolCall, ToolResult
from evener.transcript.loss import Loss, loss_in
from evener.transcript.message import Message
from evener.transcript.repair import NO_RESULT
from evener.transcript.transcript import Transcript
from evener.wire.prefix import ERROR, as_object, dumps

Waiting = dict[str, str]


def rewrite_history(prior: Past | None, style: TextStyle, transcript: Transcript) -> Past:
    """Return the history in this style.

    It is rewritten from `prior` on if that fits, else from the start, with the same result.
    """
    fits = prior is not None and prior.style == style and transcript.extends(prior.node)
    start = prior if prior is not None and fits else Past(style, None, Transcript())
    if start.node is transcript.head:
        return start
    waiting: Waiting = dict(start.waiting)
    losses: list[Loss] = []
    since = transcript.since(start.node)
    if style.own:
        pictured = find_pictured(since)
        fresh = [rewrite_message(message, style, waiting, pictured, losses) for message in since]
    else:
        fresh = [made for message in since for made in _rewrite(message, style, waiting, losses)]
    kept = (*start.losses, *losses) if losses else start.losses
    return Past(style, transcript.head, start.transcript.extend(fresh), tuple(waiting.items()), kept)


def _rewrite(message: Message, style: TextStyle, waiting: Waiting, losses: list[Loss]) -> Iterable[Message]:
    """Yield the message in its text form, after error results for calls that have no result."""
    if message.role == "assistant":
        if waiting:
            yield _answer_waiting(message, style, waiting, losses)
        waiting.update((call.id, call.name) for call in message.calls)
        yield _with_blocks(message, _write_assistant(message, style, losses))
    else:
        yield _with_blocks(message, _write_results(message, style, waiting, losses))


def _with_blocks(message: Message, blocks: Sequence[Block]) -> Message:
    return message if tuple(blocks) == message.blocks else replace(message, blocks=tuple(blocks))


def _answer_waiting(message: Message, style: TextStyle, waiting: Waiting, losses: list[Loss]) -> Message:
    texts = [result_text(style, name, NO_RESULT, is_error=True) for name in waiting.values()]
    for id in waiting:
        losses.append(loss_in("added", "tool_result", f"call {id!r} had none; one was added that says so", message))
    waiting.clear()
    return Message("user", (TextBlock("\n".join(texts)),), id=f"{message.id}/results", created_at=message.created_at)


# What the assistant said.


def _write_assistant(message: Message, style: TextStyle, losses: list[Loss]) -> list[Block]:
    calls = [block for block in message.blocks if isinstance(block, ToolCall)]
    blocks = _label_thoughts(message, style) if style.encoding == "react" else list(message.blocks)
    if not calls:
        return _write_answer(message, blocks, style, losses) if style.offered else blocks
    runs = [(kind, list(run)) for kind, run in groupby(blocks, type)]
    made: list[Block] = []
    for number, (kind, run) in enumerate(runs):
        if kind is not ToolCall:
            made += run
            continue
        together = [block for block in run if isinstance(block, ToolCall)]
        before = made[-1] if made else None
        lead = "\n" if isinstance(before, TextBlock) and not before.text.endswith("\n") else ""
        trail = "\n" if runs[number + 1 :] and runs[number + 1][0] is TextBlock else ""
        made.append(TextBlock(lead + call_text(style, together) + trail, cache=together[-1].cache))
    for call in calls:
        if call.seal:
            losses.append(loss_in("dropped", "tool_call.fields", "the call is sent as text", message, call, at="seal"))
    return made


def _label_thoughts(message: Message, style: TextStyle) -> list[Block]:
    """Add the label for thoughts to reasoning without a seal that the target model has made."""
    origin = message.origin
    own = origin is None or (origin.wire, origin.provider, origin.model) == (
        *(style.target.wire, style.target.provider),
        style.target.model,
    )
    if not own and style.foreign == "drop":
        return list(message.blocks)
    return [
        TextBlock(f"Thought: {block.text.strip()}\n")
        if isinstance(block, ReasoningBlock) and block.seal is None and block.text.strip()
        else block
        for block in message.blocks
    ]


def _write_answer(message: Message, blocks: list[Block], style: TextStyle, losses: list[Loss]) -> list[Block]:
    """Write a final answer in the form in which the model is asked to answer."""
    if style.encoding == "xml" or not message.text.strip():
        return blocks
    if style.encoding == "react":
        return _label_answer(message, blocks, losses)
    if style.final != "text":
        return blocks if style.final == "object" else [_envelop_value(block, style) for block in blocks]
    texts = [block for block in blocks if isinstance(block, TextBlock)]
    _report(message, texts, losses)
    whole = "".join(block.text for block in texts)
    answer = TextBlock(_dump_envelope({ANSWER: whole}, style), cache=texts[-1].cache)
    return [*(block for block in blocks if not isinstance(block, TextBlock)), answer]


def _envelop_value(block: Block, style: TextStyle) -> Block:
    """Wrap a JSON answer that is not an object into its envelope again."""
    if not isinstance(block, TextBlock) or as_object(f'{{"x":{block.text}}}') is None:
        return block
    return TextBlock(_dump_envelope({ANSWER: msgspec.Raw(block.text.strip().encode())}, style), cache=block.cache)


def _label_answer(message: Message, blocks: list[Block], losses: list[Loss]) -> list[Block]:
    for place, block in enumerate(message.blocks):
        if isinstance(block, TextBlock) and block.text.strip():
            _report(message, [block], losses)
            said = TextBlock(f"Final Answer: {block.text}", cache=block.cache)
            return [*blocks[:place], said, *blocks[place + 1 :]]
    return blocks


def _report(message: Message, texts: Sequence[TextBlock], losses: list[Loss]) -> None:
    why = "the text is sent in the form of the encoding"
    losses += (loss_in("dropped", "text.fields", why, message, block, at="seal") for block in texts if block.seal)
    losses += (loss_in("dropped", "text.citations", why, message, block, at="citations") for block in texts if block.citations)


def call_text(style: TextStyle, calls: Sequence[ToolCall]) -> str:
    """Return calls as the model would write them."""
    match style.encoding:
        case "xml":
            return "\n".join(f'<tool_call name="{escape(call.name)}">{call.raw}</tool_call>' for call in calls)
        case "react":
            return "\n".join(f"Action: {call.name}\nAction Input: {call.raw}" for call in calls)
        case _:
            told = [{TOOL: call.name, ARGUMENTS: as_object(call.raw) or call.raw} for call in calls]
            return _dump_envelope({CALLS: told} if len(told) > 1 or style.listed else dict(told[0]), style)


def _dump_envelope(value: dict[str, object], style: TextStyle) -> str:
    return dumps({VALUE: value} if style.wrapped else value).decode()


# What came back.


def _write_results(message: Message, style: TextStyle, waiting: Waiting, losses: list[Loss]) -> list[Block]:
    made: list[Block] = []
    for block in message.blocks:
        if isinstance(block, ToolResult):
            trail = "" if block is message.blocks[-1] else "\n"
            made += _write_result(block, waiting.pop(block.call_id, ""), style, message, losses, trail=trail)
        else:
            made.append(block)
    return made


def _write_result(
    result: ToolResult, name: str, style: TextStyle, message: Message, losses: list[Loss], *, trail: str
) -> list[Block]:
    texts: list[str] = []
    media: list[ResultContent] = []
    for block in result.content:
        if isinstance(block, TextBlock):
            texts.append(block.text)
            _report(message, [block], losses)
        elif isinstance(block, HostedBlock):
            texts.append(block.line)
            losses.append(
                loss_in("degraded", "hosted", "the result is sent as text; a line of it replaces the block", message, block)
            )
        else:
            media.append(block)
    text = "\n".join(texts) or ("(see below)" if media else "(nothing)")
    made: list[Block] = [TextBlock(result_text(style, name, text, is_error=result.is_error) + trail), *media]
    if result.seal:
        losses.append(loss_in("dropped", "tool_result.fields", "the result is sent as text", message, result, at="seal"))
    cache = result.cache or next((block.cache for block in reversed(result.content) if block.cache), "")
    return [*made[:-1], replace(made[-1], cache=cache)] if cache else made


def result_text(style: TextStyle, name: str, text: str, *, is_error: bool) -> str:
    """Return a tool's result as the model reads it."""
    match style.encoding:
        case "xml":
            tag = f' name="{escape(name)}"' if name else ""
            error = ' error="true"' if is_error else ""
            return f"<tool_result{tag}{error}>{text.replace('</tool_result', '&lt;/tool_result')}</tool_result>"
        case "react":
            return f"Observation: {ERROR if is_error else ''}{text}"
        case _:
            return f"{'Error' if is_error else 'Result'}{f' of {name}' if name else ''}: {text}"
