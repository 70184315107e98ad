"""`evener show`: one thread as a readable transcript, or as JSON. Only looks; nothing is paged."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import assert_never

import msgspec

from evener import events as ev
from evener.cli.glance import WORDS, condition_of, flat
from evener.cli.names import chosen, number_of
from evener.cli.stores import inside
from evener.cli.terminal import clean, print_json
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

__all__ = [
    "LogUsage",
    "ShowOptions",
    "branch_of",
    "log_lines",
    "money",
    "run",
    "used_by",
]


LEAD = "  "


class LogUsage(msgspec.Struct, frozen=True):
    """What the runs of a log used together, and what was lost on the way to models."""

    spent: Spent = Spent()
    losses: tuple[Loss, ...] = ()


def used_by(events: Iterable[ev.Event]) -> LogUsage:
    """What the log's own state says of each of its runs, added up; each loss once."""
    state, runs, losses = RunState(), list[Spent](), dict[Loss, None]()
    for event in events:
        match event:
            case ev.Prompted():
                runs.append(state.spent)
            case ev.Replied(losses=found):
                losses |= dict.fromkeys(found)
        state = apply(state, event)
    runs.append(state.spent)
    total = Spent(
        sum(run.requests for run in runs),
        sum(run.tool_calls for run in runs),
        sum((run.usage for run in runs), Usage()),
        sum((run.cost for run in runs), Decimal(0)),
        all(run.exact for run in runs),
        sum(run.seconds for run in runs),
    )
    return LogUsage(total, tuple(losses))


def money(cost: Decimal, *, exact: bool) -> str:
    """In US dollars; a lower bound is marked as one."""
    amount = f"{cost:.2f}" if cost >= 1 or not cost else f"{cost:.4f}"
    return f"{'' if exact else '>='}${amount}"


def log_lines(events: Sequence[ev.Event], *, first: int = 1) -> Iterator[str]:
    """The events as lines, each with its number. Those that say nothing to people have none."""
    names: dict[str, str] = {}
    asked = ""
    for number, event in enumerate(events, first):
        match event:
            case ev.ModelCalled(model=model):
                asked = model
            case ev.Replied(message=message):
                names |= {call.id: call.name for call in message.calls}
        found = list(_lines(event, names, asked))
        if found:
            yield f"[{number}] {_moment(event.at)} {found[0]}"
            yield from found[1:]
            yield ""


def _lines(event: ev.Event, names: dict[str, str], asked: str) -> Iterator[str]:
    """What an event says; the first line is its heading."""
    match event:
        case ev.Prompted() | ev.Steered() | ev.Imported():
            return _said(event)
        case ev.ModelCalled() | ev.Replied() | ev.ModelFailed():
            return _answered(event, asked)
        case ev.CallStarted() | ev.CallFinished() | ev.CallPaused():
            return _called(event, names)
        case ev.ApprovalAsked() | ev.ApprovalDecided():
            return _decided(event, names)
        case ev.Opened() | ev.Configured() | ev.MediaFetched():
            return _equipped(event)
        case ev.Continued() | ev.Resumed() | ev.Cancelled() | ev.Finished():
            return _moved(event)
        case _:
            assert_never(event)


def _refused(why: str) -> str:
    return f" (kept from the model by a hook: {why})" if why else ""


def _said(event: ev.Prompted | ev.Steered | ev.Imported) -> Iterator[str]:
    match event:
        case ev.Prompted(message=message, refused=refused):
            yield f"user{_refused(refused)}"
            yield from _message(message)
        case ev.Steered(message=message, refused=refused):
            yield f"user, while the model was busy{_refused(refused)}"
            yield from _message(message)
        case ev.Imported(messages=messages):
            yield f"{len(messages)} messages from elsewhere"
            for message in messages:
                yield f"{LEAD}{message.role}:"
                yield from _indented(_message(message))


def _answered(event: ev.ModelCalled | ev.Replied | ev.ModelFailed, asked: str) -> Iterator[str]:
    match event:
        case ev.ModelCalled(notices=notices):
            if notices:
                yield "told the model"
                yield from _indented(line for _, text in notices for line in clean(text).split("\n"))
        case ev.Replied():
            yield f"{flat(asked) or 'model'} ({_figures(event)})"
            yield from _message(event.message)
            yield from (f"{LEAD}loss: {flat(str(loss))}" for loss in event.losses)
            yield from (f"{LEAD}problem: {flat(problem)}" for problem in event.problems)
        case ev.ModelFailed():
            yield f"{flat(asked) or 'model'} did not answer: {flat(event.error)}"
            yield from _text(event.message)


def _called(event: ev.CallStarted | ev.CallFinished | ev.CallPaused, names: dict[str, str]) -> Iterator[str]:
    name = flat(names.get(event.call, event.call))
    match event:
        case ev.CallFinished():
            yield f"{name} {event.outcome}{'' if event.ok else ', not ok'} in {event.seconds:.1f} s"
            yield from _indented(line for part in event.content for line in _content(part))
        case ev.CallPaused(thread=thread):
            yield f"{name} waits for a decision in thread {flat(thread)}"
        case ev.CallStarted(verifying=True):
            yield f"{name} is asked whether it took effect"
        case ev.CallStarted():
            return  # the answer before it has the call, and its result comes


def _decided(event: ev.ApprovalAsked | ev.ApprovalDecided, names: dict[str, str]) -> Iterator[str]:
    match event:
        case ev.ApprovalAsked(questions=questions):
            yield "waits for a decision"
            for one in questions:
                yield f"{LEAD}{flat(names.get(one.key, one.key))} ({flat(one.key)}){f': {flat(one.why)}' if one.why else ''}"
        case ev.ApprovalDecided():
            by = f" by {flat(event.by)}" if event.by else ""
            yield f"{'allowed' if event.verdict == 'allow' else 'rejected'}{by}: {flat(names.get(event.key, event.key))}"
            yield from _text(event.why)
            yield from _indented(f"with {flat(event.arguments)}" for _ in range(bool(event.arguments)))


def _equipped(event: ev.Opened | ev.Configured | ev.MediaFetched) -> Iterator[str]:
    match event:
        case ev.Opened(parent=""):
            return
        case ev.Opened():
            yield f"a branch begins here: it leaves {flat(event.parent)} after event {event.parent_seq}"
        case ev.Configured():
            tools = ", ".join(flat(tool.name) for tool in event.tools)
            yield f"model {flat(event.model)}{f', tools {tools}' if tools else ''}"
            for block in event.system:
                yield from (f"{LEAD}system: {line}" for line in clean(block.text).split("\n"))
        case ev.MediaFetched():
            yield f"fetched {flat(event.source, 100)} ({flat(event.media_type)}, {event.size:,} bytes)"


def _moved(event: ev.Continued | ev.Resumed | ev.Cancelled | ev.Finished) -> Iterator[str]:
    match event:
        case ev.Continued():
            yield "the run goes on"
        case ev.Resumed():
            yield "another process took the run over"
        case ev.Cancelled(why=why):
            yield f"stop asked for{f': {flat(why)}' if why else ''}"
        case ev.Finished(cause=cause, detail=detail):
            yield f"end: {cause}{f' ({flat(detail)})' if detail else ''}"


# What messages hold.


def _message(message: Message) -> Iterator[str]:
    return _indented(line for block in message.blocks for line in _block(block))


def _block(block: Block) -> Iterator[str]:
    match block:
        case ReasoningBlock(text=text):
            yield from (f"(thinks) {line}" for line in clean(text).split("\n") if text)
        case ToolCall():
            yield f"-> {flat(block.name)} {flat(block.raw)}"
        case ToolResult():
            yield f"<- {flat(block.call_id)}{' (not ok)' if block.is_error else ''}"
            yield from _indented(line for part in block.content for line in _content(part))
        case _:
            yield from _content(block)


def _content(block: ResultContent) -> Iterator[str]:
    match block:
        case TextBlock(text=text):
            yield from clean(text).split("\n")
        case ImageBlock() | DocumentBlock():
            what = "picture" if isinstance(block, ImageBlock) else "document"
            where = f"{len(block.source.data) * 3 // 4:,} bytes" if isinstance(block.source, Inline) else "from elsewhere"
            yield f"[{what}, {flat(block.media_type) or 'of any kind'}, {where}]"
        case HostedBlock():
            yield flat(block.line)
        case _:
            assert_never(block)


def _text(text: str) -> Iterator[str]:
    return _indented(line for line in clean(text).split("\n") if text)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"{LEAD}{line}".rstrip() for line in lines)


def _figures(event: ev.Replied) -> str:
    usage = event.message.usage or Usage()
    cached = f", {usage.cache_read:,} cached" if usage.cache_read else ""
    cost = money(event.cost, exact=event.exact)
    return f"{usage.input_total:,} tokens in{cached}, {usage.output_total:,} out, {cost}, {event.seconds:.1f} s"


def _moment(at: float) -> str:
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return "at no time"


class ShowOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for."""

    id: str
    store: str = ""
    at: str = ""
    branch: str = ""
    json: bool = False


def run(wish: ShowOptions) -> int:
    """Print the thread."""
    return inside(wish.store, lambda store: _shown(store, wish))


async def _shown(store: Store, wish: ShowOptions) -> int:
    log = await branch_of(store, wish.id, wish.branch)
    events = await store.read(log.log)
    if wish.at:
        events = events[: number_of(wish.at, events, log.log)]
    if wish.json:
        print_json(_document(log, events))
        return 0
    for line in _head(log, events):
        print(line)
    print()
    for line in log_lines(events):
        print(line)
    for line in _foot(used_by(events)):
        print(line)
    return 0


async def branch_of(store: Store, id: str, branch: str = "") -> Summary:
    """The log that is meant: the head of a thread, a branch by its own id, or the branch that is named beside the thread."""
    logs = await store.logs()
    log = chosen(id, logs)
    if branch:
        thread = next(one.thread for one in logs if one.log == log)
        log = chosen(branch, [one for one in logs if one.thread == thread])
    else:
        log = await store.head(log)
    return next(one for one in logs if one.log == log)


def _head(log: Summary, events: Sequence[ev.Event]) -> list[str]:
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
    return [f"{name.ljust(8)} {' '.join(clean(text).split())}" for name, text in lines if text]


def _foot(used: LogUsage) -> list[str]:
    spent, usage = used.spent, used.spent.usage
    lines = [
        f"requests {spent.requests:,}, tool calls {spent.tool_calls:,}",
        f"tokens   {usage.input_total:,} in ({usage.cache_read:,} cached), {usage.output_total:,} out",
        f"cost     {money(spent.cost, exact=spent.exact)}",
    ]
    return [*lines, *(f"loss     {' '.join(clean(str(loss)).split())}" for loss in used.losses)]


def _document(log: Summary, events: Sequence[ev.Event]) -> dict[str, object]:
    used = used_by(events)
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
