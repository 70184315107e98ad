"""`evener export --html`: a thread as one page that needs nothing else. All content is escaped text; there is no script."""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from html import escape
from pathlib import Path

from evener import events as ev
from evener.cli.terminal import clean
from evener.errors import UsageError
from evener.harness.branches import branches_of, root_of
from evener.store.protocol import Store
from evener.transcript.blocks import Block, ReasoningBlock, TextBlock, ToolCall
from evener.transcript.message import Message

__all__ = ["page_of", "write_page"]

PRIVATE = 0o600
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
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        raise UsageError(f"{path} exists already; nothing was written. Name another file.") from None
    except OSError as error:
        raise UsageError(f"Cannot create {path}: {error.strerror}. Name a file in a folder that you can write to.") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        return file.write(text)


async def page_of(store: Store, log: str) -> str:
    """Return the page of a thread: its tree, then each branch with what was said, called, paid and lost."""
    root = await root_of(store, log)
    branches = await branches_of(store, root)
    parts = [f"<h1>Thread {_text(root)}</h1>", "<ul>"]
    parts += [f'<li><a href="#{_text(one.log)}">{_text(one.log)}</a></li>' for one in branches]
    parts.append("</ul>")
    for one in branches:
        events = await store.read(one.log)
        parts.append(f'<h2 id="{_text(one.log)}">Branch {_text(one.log)}</h2><p><small>{_total(events)}</small></p>')
        parts += _told(events)
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}"><title>{_text(root)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(parts)}</body></html>\n'


def _total(events: Iterable[ev.Event]) -> str:
    answers = [event for event in events if isinstance(event, ev.Replied)]
    cost = sum((event.cost for event in answers), Decimal(0))
    tokens = sum(event.message.usage.input_total + event.message.usage.output_total for event in answers if event.message.usage)
    least = "" if all(event.exact for event in answers) else "at least "
    return f"{len(answers)} answers, {tokens:,} tokens, {least}${cost:f}"


def _told(events: Iterable[ev.Event]) -> Iterator[str]:
    for event in events:
        match event:
            case ev.Prompted(message=message) | ev.Steered(message=message):
                yield _message("user", message, event.at)
            case ev.Imported(messages=messages):
                yield from (_message(message.role, message, event.at) for message in messages)
            case ev.Replied():
                yield _message("assistant", event.message, event.at)
                yield from (f"<p><small>loss: {_text(str(loss))}</small></p>" for loss in event.losses)
            case ev.CallFinished(call=call, ok=ok, content=content):
                shown = "".join(map(_block, content))
                yield f'<article class="{"tool" if ok else "failed"}"><small>result of {_text(call)}</small>{shown}</article>'
            case ev.ApprovalDecided(key=key, verdict=verdict, by=by, why=why):
                yield f"<p><small>{_text(verdict)} {_text(key)} {_text(by)} {_text(why)}</small></p>"
            case ev.ModelFailed(error=error, message=said):
                yield f'<article class="failed"><small>{_text(error)}</small><pre>{_text(said)}</pre></article>'
            case ev.Finished(cause=cause, detail=detail):
                yield f"<p><small>{_text(cause)} {_text(detail)}</small></p>"
            case _:
                pass


def _message(role: str, message: Message, at: float) -> str:
    when = datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")
    blocks = "".join(map(_block, message.blocks))
    return f'<article class="{_text(role)}"><small>{_text(role)} · {when}</small>{blocks}</article>'


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
