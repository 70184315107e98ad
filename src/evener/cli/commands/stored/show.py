"""`evener show`: prints a thread as a readable transcript, or as JSON. Changes nothing."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import assert_never

import msgspec

from evener import events as ev
from evener.cli.glance import WORDS, condition_of
from evener.cli.names import find_event, match_id
from evener.cli.terminal import Style, clean, count, flatten, paint, print_json, print_lines
from evener.loop.state import RunState, Spent, apply, fold
from evener.store.protocol import Store, Summary
from evener.transcript.blocks import (
    Block,
    DocumentBlock,
    HostedBlock,
    ImageBlock,
    Inline,
    ReasoningBlock,
    ResultContent,
    TextBlock,
    ToolCall,
    ToolResult,
)
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Usage

LEAD = "  "


class LogUsage(msgspec.Struct, frozen=True):
    """What the runs of a log used together, and the losses of their requests."""

    spent: Spent = Spent()
    losses: tuple[Loss, ...] = ()


def sum_usage(events: Iterable[ev.Event]) -> LogUsage:
    """Add up what the state of the log says of each of its runs; each loss is listed once."""
    state, runs, losses = RunState(), list[Spent](), dict[Loss, None]()
    for event in events:
        match event:
            case ev.Prompted():
                runs.append(state.spent)
            case ev.Replied(losses=found):
                losses |= dict.fromkeys(found)
        state = apply(state, event)
    return LogUsage(sum_spent((*runs, state.spent)), tuple(losses))


def sum_spent(runs: Collection[Spent]) -> Spent:
    """Return what these runs used together."""
    return Spent(
        sum(run.requests for run in runs),
        sum(run.tool_calls for run in runs),
        sum((run.usage for run in runs), Usage()),
        sum((run.cost for run in runs), Decimal(0)),
        all(run.exact for run in runs),
        sum(run.seconds for run in runs),
    )


def format_cost(cost: Decimal, *, exact: bool) -> str:
    """Return the cost in US dollars; a lower bound begins with `>=`."""
    amount = f"{cost:.2f}" if cost >= 1 or not cost else f"{cost:.4f}"
    return f"{'' if exact else '>='}${amount}"


def format_log(events: Sequence[ev.Event]) -> Iterator[str]:
    """Yield the events as lines, each with its number. Events without anything to read are left out."""
    names: dict[str, str] = {}
    asked = ""
    for number, event in enumerate(events, 1):
        match event:
            case ev.ModelCalled(model=model):
                asked = model
            case ev.Replied(message=message):
                names |= {call.id: call.name for call in message.calls}
        found = list(_format(event, names, asked))
        if found:
            yield f"[{number}] {_moment(event.at)} {found[0]}"
            yield from found[1:]
            yield ""


def _format(event: ev.Event, names: dict[str, str], asked: str) -> Iterator[str]:
    """Yield the lines of an event; the first one is its heading."""
    match event:
        case ev.Prompted() | ev.Steered() | ev.Imported():
            return _format_input(event)
        case ev.ModelCalled() | ev.Replied() | ev.ModelFailed():
            return _format_reply(event, asked)
        case ev.CallStarted() | ev.CallFinished() | ev.CallPaused():
            return _format_call(event, names)
        case ev.ApprovalAsked() | ev.ApprovalDecided():
            return _format_decision(event, names)
        case ev.Opened() | ev.Configured() | ev.MediaFetched():
            return _format_setup(event)
        case ev.Continued() | ev.Resumed() | ev.Cancelled() | ev.Finished():
            return _format_course(event)
        case ev.Evicted() | ev.Compacted() | ev.CompactionFailed() | ev.ContextRestored() | ev.Pinned():
            return _format_context(event)
        case _:
            assert_never(event)


def _format_refusal(why: str) -> str:
    return f" (withheld from the model by a hook: {why})" if why else ""


def _format_input(event: ev.Prompted | ev.Steered | ev.Imported) -> Iterator[str]:
    match event:
        case ev.Prompted(message=message, refused=refused, metadata=metadata):
            yield f"user{_format_refusal(refused)}"
            yield from _message(message)
            yield from _indent([f"metadata: {flatten(metadata)}"] if metadata else ())
        case ev.Steered(message=message, refused=refused):
            yield f"user, while the model was busy{_format_refusal(refused)}"
            yield from _message(message)
        case ev.Imported(messages=messages):
            yield f"imported {count(len(messages), 'message')}"
            for message in messages:
                yield f"{LEAD}{message.role}:"
                yield from _indent(_message(message))


def _format_reply(event: ev.ModelCalled | ev.Replied | ev.ModelFailed, asked: str) -> Iterator[str]:
    match event:
        case ev.ModelCalled(notices=notices):
            if notices:
                yield "notice to the model"
                yield from _indent(line for _, text in notices for line in clean(text).split("\n"))
        case ev.Replied():
            yield f"{flatten(asked) or 'model'} ({_figures(event)})"
            yield from _message(event.message)
            yield from (f"{LEAD}loss: {flatten(str(loss))}" for loss in event.losses)
            yield from (f"{LEAD}problem: {flatten(problem)}" for problem in event.problems)
        case ev.ModelFailed():
            yield f"{flatten(asked) or 'model'} did not answer: {flatten(event.error)}"
            yield from _text(event.message)


def _format_call(event: ev.CallStarted | ev.CallFinished | ev.CallPaused, names: dict[str, str]) -> Iterator[str]:
    name = flatten(names.get(event.call, event.call))
    match event:
        case ev.CallFinished():
            yield f"{name} {event.outcome}{'' if event.ok else ', not ok'} in {event.seconds:.1f} s"
            yield from _indent(line for part in event.content for line in _content(part))
        case ev.CallPaused(thread=thread):
            yield f"{name} waits for a decision in thread {flatten(thread)}"
        case ev.CallStarted(verifying=True):
            yield f"checking whether {name} took effect"
        case ev.CallStarted():
            return  # the reply before it shows the call, and the result follows


def _format_decision(event: ev.ApprovalAsked | ev.ApprovalDecided, names: dict[str, str]) -> Iterator[str]:
    match event:
        case ev.ApprovalAsked(questions=questions):
            yield "waits for a decision"
            for one in questions:
                why = f": {flatten(one.why)}" if one.why else ""
                yield f"{LEAD}{flatten(names.get(one.key, one.key))} ({flatten(one.key)}){why}"
        case ev.ApprovalDecided():
            by = f" by {flatten(event.by)}" if event.by else ""
            yield f"{'allowed' if event.verdict == 'allow' else 'rejected'}{by}: {flatten(names.get(event.key, event.key))}"
            yield from _text(event.why)
            yield from _indent(f"with {flatten(event.arguments)}" for _ in range(bool(event.arguments)))


def _format_setup(event: ev.Opened | ev.Configured | ev.MediaFetched) -> Iterator[str]:
    match event:
        case ev.Opened(parent=""):
            return
        case ev.Opened():
            yield f"branch of {flatten(event.parent)} after event {event.parent_seq}"
        case ev.Configured():
            names = [*(tool.name for tool in event.tools), *(tool.name for tool in event.hosted)]
            tools = ", ".join(map(flatten, names))
            yield f"model {flatten(event.model)}{f', tools {tools}' if tools else ''}"
            for block in event.system:
                yield from (f"{LEAD}system: {line}" for line in clean(block.text).split("\n"))
        case ev.MediaFetched():
            yield f"fetched {flatten(event.source, 100)} ({flatten(event.media_type)}, {event.size:,} bytes)"


def _format_course(event: ev.Continued | ev.Resumed | ev.Cancelled | ev.Finished) -> Iterator[str]:
    match event:
        case ev.Continued():
            yield "the run continues"
        case ev.Resumed():
            yield "another process took over the run"
        case ev.Cancelled(why=why):
            yield f"cancelled{f': {flatten(why)}' if why else ''}"
        case ev.Finished(cause=cause, detail=detail):
            yield f"end: {cause}{f' ({flatten(detail)})' if detail else ''}"


def _format_context(
    event: ev.Evicted | ev.Compacted | ev.CompactionFailed | ev.ContextRestored | ev.Pinned,
) -> Iterator[str]:
    match event:
        case ev.Evicted():
            counted = Counter(cut.kind for cut in event.cuts)
            what = ", ".join(count(number, kind) for kind, number in counted.items())
            yield f"context: {what} left out of requests ({event.cause}), about {event.saved:,} of {event.tokens:,} tokens"
        case ev.Compacted():
            yield f"context: compacted by {event.model} ({event.cause}), about {event.saved:,} of {event.tokens:,} tokens"
            yield from _message(event.summary)
        case ev.CompactionFailed(detail=detail):
            yield f"context: not compacted: {flatten(detail)}"
        case ev.ContextRestored(id=id):
            yield f"context: {id} undone"
        case ev.Pinned(message=message, off=off):
            yield f"context: message {message} {'unpinned' if off else 'pinned'}"


# Messages.


def _message(message: Message) -> Iterator[str]:
    return _indent(line for block in message.blocks for line in _block(block))


def _block(block: Block) -> Iterator[str]:
    match block:
        case ReasoningBlock(text=text):
            yield from (f"(thinking) {line}" for line in clean(text).split("\n") if text)
        case ToolCall():
            yield f"-> {flatten(block.name)} {flatten(block.raw)}"
        case ToolResult():
            yield f"<- {flatten(block.call_id)}{' (not ok)' if block.is_error else ''}"
            yield from _indent(line for part in block.content for line in _content(part))
        case _:
            yield from _content(block)


def _content(block: ResultContent) -> Iterator[str]:
    match block:
        case TextBlock(text=text):
            yield from clean(text).split("\n")
        case ImageBlock() | DocumentBlock():
            what = "image" if isinstance(block, ImageBlock) else "document"
            where = f"{len(block.source.data) * 3 // 4:,} bytes" if isinstance(block.source, Inline) else "by reference"
            yield f"[{what}, {flatten(block.media_type) or 'unknown type'}, {where}]"
        case HostedBlock():
            yield flatten(block.line)
        case _:
            assert_never(block)


def _text(text: str) -> Iterator[str]:
    return _indent(line for line in clean(text).split("\n") if text)


def _indent(lines: Iterable[str]) -> Iterator[str]:
    return (f"{LEAD}{line}".rstrip() for line in lines)


def _figures(event: ev.Replied) -> str:
    usage = event.message.usage or Usage()
    cached = f", {usage.cache_read:,} cached" if usage.cache_read else ""
    cost = format_cost(event.cost, exact=event.exact)
    return f"{usage.input_total:,} tokens in{cached}, {usage.output_total:,} out, {cost}, {event.seconds:.1f} s"


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return "no valid time"


async def run(store: Store, id: str, *, at: str, branch: str, as_json: bool) -> int:
    """Print the thread."""
    log = await find_branch(store, id, branch)
    events = await store.read(log.log)
    if at:
        events = events[: find_event(at, events, log.log)]
    if as_json:
        print_json(_document(log, events))
        return 0
    print_lines((*_format_head(log, events), "", *map(_colour, format_log(events)), *_format_foot(sum_usage(events))))
    return 0


HEADING = re.compile(r"(\[\d+\]) (\S+ \S+) (.*)")
LOUD: Sequence[tuple[str, Style]] = (
    ("user", "bold"), ("waits for a decision", "yellow"), ("allowed", "green"), ("rejected", "red"), ("notice", "yellow"),
)  # fmt: skip


def _colour(line: str) -> str:
    """Return a heading in colour; other lines as they are. What users, models and tools said is indented, so it is none."""
    found = HEADING.match(line)
    if not found:
        return line
    failed = " did not answer: " in found[3] or ", not ok in " in found[3]
    style: Style = "red" if failed else next((style for word, style in LOUD if found[3].startswith(word)), "cyan")
    return f"{paint(f'{found[1]} {found[2]}', 'dim')} {paint(found[3], style)}"


async def find_branch(store: Store, id: str, branch: str = "") -> Summary:
    """Return the log that is named: the head of a thread, a branch by its own id, or `branch` of the thread."""
    logs = await store.logs()
    log = match_id(id, logs)
    if branch:
        thread = next(one.thread for one in logs if one.log == log)
        log = match_id(branch, [one for one in logs if one.thread == thread])
    else:
        log = await store.head(log)
    return next(one for one in logs if one.log == log)


def _format_head(log: Summary, events: Sequence[ev.Event]) -> list[str]:
    state = fold(events)
    branch = f" (branch {log.log}, after event {log.parent_seq} of {log.parent})" if log.parent else ""
    lines = [
        ("thread", f"{log.thread}{branch}"),
        ("title", log.title),
        ("tags", " ".join(log.tags)),
        ("harness", log.harness),
        ("state", WORDS[condition_of(state, held=log.held)]),
        ("events", str(len(events)) if len(events) == log.events else f"{len(events)} of {log.events}"),
    ]
    return [f"{name.ljust(8)} {flatten(text)}" for name, text in lines if text]


def _format_foot(used: LogUsage) -> list[str]:
    spent, usage = used.spent, used.spent.usage
    lines = [
        f"requests {spent.requests:,}, tool calls {spent.tool_calls:,}",
        f"tokens   {usage.input_total:,} in ({usage.cache_read:,} cached), {usage.output_total:,} out",
        f"cost     {format_cost(spent.cost, exact=spent.exact)}",
    ]
    return [*lines, *(f"loss     {flatten(str(loss))}" for loss in used.losses)]


def _document(log: Summary, events: Sequence[ev.Event]) -> dict[str, object]:
    used = sum_usage(events)
    spent = used.spent
    state = fold(events)
    return {
        **msgspec.to_builtins(log),
        "state": condition_of(state, held=log.held),
        "model": state.model,
        "used": {
            "requests": spent.requests,
            "tool_calls": spent.tool_calls,
            "usage": msgspec.structs.asdict(spent.usage),
            "cost": {"amount": str(spent.cost), "exact": spent.exact},
            "seconds": spent.seconds,
        },
        "losses": [msgspec.structs.asdict(loss) for loss in used.losses],
        "log_events": [{"number": number, **msgspec.to_builtins(event)} for number, event in enumerate(events, 1)],
    }
