"""`evener export --html`: a thread as one page that needs nothing else. All content is escaped text; there is no script."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from html import escape
from pathlib import Path

from evener import events as ev
from evener.cli.commands.stored.show import format_cost
from evener.cli.commands.stored.store import create_private
from evener.cli.glance import first_prompt
from evener.cli.terminal import clean
from evener.harness.branches import root_of
from evener.store.protocol import Store, Summary
from evener.transcript.blocks import Block, ReasoningBlock, TextBlock, ToolCall
from evener.transcript.message import Message

MOST = 200_000
"""Characters of one block that are shown."""
STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #888; --box: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1rem; border-top: 1px solid var(--line); padding-top: 1rem; }
article { margin: 1rem 0; padding: .5rem 1rem; border-left: 3px solid var(--line); }
article.user { border-color: #3b82f6; } article.assistant { border-color: #22c55e; } article.failed { border-color: #ef4444; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .3rem 0; background: var(--box); padding: .5rem; }
small, summary { color: var(--dim); } ul { padding-left: 1.2rem; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The browser loads nothing and runs nothing, whatever a conversation says."""


async def write_page(store: Store, log: str, path: Path) -> int:
    """Write the thread of a log as a new file that only its owner can read; return its size."""
    text = await page_of(store, log)
    with create_private(path) as file:
        file.write(text.encode())
    return len(text)


async def page_of(store: Store, log: str) -> str:
    """Return the page of a thread: its tree, then for each branch the messages, calls, costs and losses."""
    root = await root_of(store, log)
    logs = {one.log: one for one in await store.logs(thread=root)}
    own = {name: await store.read(name, after=one.parent_seq) for name, one in logs.items()}
    title = next((one.title for one in logs.values() if one.title), "") or first_prompt(own.get(root, []), 80) or root
    parts = [f"<h1>{_text(title)}</h1>", f"<p><small>thread {_text(root)}</small></p>", *_tree(root, logs, own)]
    for name, one in sorted(logs.items(), key=lambda item: (item[0] != root, item[1].began)):
        came = f' from <a href="#{_text(one.parent)}">{_text(one.parent[:8])}</a> after event {one.parent_seq}'
        parts.append(f'<h2 id="{_text(name)}">Branch {_text(name[:8])}{came if one.parent else ""}</h2>')
        parts.append(f"<p><small>{_total(own[name])}</small></p>")
        parts += _told(own[name])
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{_text(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(parts)}</body></html>\n'


def _tree(root: str, logs: Mapping[str, Summary], own: Mapping[str, Sequence[ev.Event]]) -> Iterator[str]:
    """Yield the branches, each below its parent. Not recursive: after many undos a tree is a deep chain."""
    below: dict[str, list[str]] = {}
    for name, one in sorted(logs.items(), key=lambda item: item[1].began):
        below.setdefault(one.parent if one.parent in logs else "", []).append(name)
    yield "<ul>"
    waiting = [(name, 0) for name in reversed(below.get("", [root]))]
    while waiting:
        name, depth = waiting.pop()
        head = " <b>head</b>" if logs[name].head else ""
        said = _text(first_prompt(own[name], 80))
        yield f'<li style="margin-left:{min(depth, 20)}rem"><a href="#{_text(name)}">{_text(name[:8])}</a> {said}{head}</li>'
        waiting += [(child, depth + 1) for child in reversed(below.get(name, []))]
    yield "</ul>"


def _total(events: Iterable[ev.Event]) -> str:
    answers = [event for event in events if isinstance(event, ev.Replied)]
    cost = sum((event.cost for event in answers), Decimal(0))
    tokens = sum(event.message.usage.input_total + event.message.usage.output_total for event in answers if event.message.usage)
    least = "" if all(event.exact for event in answers) else "at least "
    counted = f"{len(answers)} answer{'' if len(answers) == 1 else 's'}"
    return f"{counted}, {tokens:,} tokens, {least}${cost:f}"


def _told(events: Iterable[ev.Event]) -> Iterator[str]:
    names: dict[str, str] = {}
    asked = ""
    for event in events:
        match event:
            case ev.ModelCalled(model=model):
                asked = model
            case ev.Prompted(message=message) | ev.Steered(message=message):
                yield _message("user", message, event.at)
            case ev.Imported(messages=messages):
                yield from (_message(message.role, message, event.at) for message in messages)
            case ev.Replied():
                names |= {call.id: call.name for call in event.message.calls}
                yield _message(
                    "assistant", event.message, event.at, f" · {asked} · {format_cost(event.cost, exact=event.exact)}"
                )
                yield from (f"<p><small>loss: {_text(str(loss))}</small></p>" for loss in event.losses)
            case ev.CallFinished(call=call, ok=ok, content=content, outcome=outcome):
                shown = "".join(map(_block, content))
                name = _text(names.get(call, call))
                yield f'<article class="{"tool" if ok else "failed"}"><small>{name} ({_text(outcome)})</small>{shown}</article>'
            case ev.ApprovalDecided(key=key, verdict=verdict, by=by, why=why):
                word = "allowed" if verdict == "allow" else "rejected"
                who, reason = f" by {_text(by)}" if by else "", f": {_text(why)}" if why else ""
                yield f"<p><small>{word}{who}: {_text(names.get(key, key))}{reason}</small></p>"
            case ev.ModelFailed(error=error, message=said):
                yield f'<article class="failed"><small>{_text(error)}</small><pre>{_text(said)}</pre></article>'
            case ev.Finished(cause=cause, detail=detail):
                yield f"<p><small>{_text(cause)} {_text(detail)}</small></p>"


def _message(role: str, message: Message, at: float, more: str = "") -> str:
    when = datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M:%S")
    blocks = "".join(map(_block, message.blocks))
    return f'<article class="{_text(role)}"><small>{_text(role)} · {when}{_text(more)}</small>{blocks}</article>'


def _block(block: Block) -> str:
    match block:
        case TextBlock(text=text):
            return f"<pre>{_text(text)}</pre>"
        case ReasoningBlock(text=text):
            return f"<details><summary>reasoning</summary><pre>{_text(text)}</pre></details>"
        case ToolCall(name=name, raw=raw):
            return f"<pre>{_text(name)}({_text(raw)})</pre>"
        case _:
            return f"<p><small>[{_text(type(block).__name__)}]</small></p>"


def _text(text: str) -> str:
    """Return what a conversation says as text: no tag, no attribute, no control character."""
    lines = text[:MOST].replace("\r", "").split("\n")
    return escape("\n".join(clean(line) for line in lines), quote=True)
