"""`evener approve` and `evener reject`: decide what waits in a thread, from any process. Asks no model and runs no tool.

The decision is written down beside the log; the run goes on with it when it is resumed, here or elsewhere.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal
from getpass import getuser

import msgspec

from evener.cli import run as running
from evener.cli.asking import described
from evener.cli.terminal import clean, say
from evener.errors import ApprovalStale, UsageError
from evener.events import Verdict
from evener.harness import Harness
from evener.harness.approvals import Decision, keyed
from evener.loop.state import fold
from evener.model.seam import Answered, Asking
from evener.result import Approval, approvals_of
from evener.transcript.ask import Ask, HostedTool, OutputSchema, ToolSpec
from evener.transcript.transcript import Transcript

__all__ = ["Wish", "run"]

OTHERS = "Only other calls were approved."


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. `run` says where the thread is and how it is resumed."""

    run: running.Wish
    verdict: Verdict
    why: str = ""
    edit: str = ""
    only: tuple[str, ...] = ()
    show: bool = False
    resume: bool = False


def run(wish: Wish) -> int:
    """Decide, or show what waits; then resume, or say how."""
    if wish.verdict == "reject" and not wish.why and not wish.show:
        raise UsageError('The model is told why. Give a reason, as in: evener reject THREAD --why "Ask the customer first."')
    code = asyncio.run(_decided(_harness(wish), wish))
    if wish.show:
        return code
    if wish.resume:
        return running.run(wish.run, form="text")
    say(f"evener: Go on with: {shlex.join(['evener', 'run', *running.same(wish.run), '--resume', wish.run.resume])}")
    return code


def _harness(wish: Wish) -> Harness:
    """To decide, no model is needed, and no key."""
    return running.harness_of(wish.run, model=None if wish.run.harness else _Nobody())


async def _decided(harness: Harness, wish: Wish) -> int:
    thread = wish.run.resume
    waiting = keyed(approvals_of(fold(await harness.store.read(thread)), thread))
    if wish.show:
        return _show(thread, waiting)
    if not waiting:
        raise ApprovalStale(f"Nothing waits to be decided in thread {thread}: it was decided before, or the run went on.")
    decisions = _decisions(wish, waiting)
    await harness.decide(thread, decisions)
    for key, decision in decisions.items():
        done = "Allowed" if decision.verdict == "allow" else "Rejected"
        say(f"evener: {done}, with other arguments: {key}" if decision.arguments is not None else f"evener: {done}: {key}")
        say(described(waiting[key]))
    return 0


def _show(thread: str, waiting: Mapping[str, Approval]) -> int:
    for key, one in waiting.items():
        rule = f" [{clean(one.rule)}]" if one.rule else ""
        sys.stdout.write(f"{clean(key)}{rule} {described(one)}\n")
    if not waiting:
        say(f"evener: Nothing waits to be decided in thread {thread}.")
    return 0


def _decisions(wish: Wish, waiting: Mapping[str, Approval]) -> dict[str, Decision]:
    """One for each that waits. With `--only`, those that are not named are rejected: the whole batch is decided at once."""
    unknown = [key for key in wish.only if key not in waiting]
    if unknown:
        raise UsageError(f"Nothing of that name waits: {', '.join(unknown)}. What waits is: {', '.join(waiting)}.")
    chosen = set(wish.only or waiting)
    if wish.edit and len(chosen) != 1:
        raise UsageError(f"--edit changes one call, and {len(chosen)} wait. Say which with --only: {', '.join(waiting)}.")
    edited = _edited(wish.edit) if wish.edit else None
    by = _who()
    return {
        key: Decision(wish.verdict, wish.why, edited, one.digest, by)
        if key in chosen
        else Decision("reject", wish.why or OTHERS, digest=one.digest, by=by)
        for key, one in waiting.items()
    }


def _edited(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"--edit takes the new arguments as one JSON object: {error}. Mend it.") from None


def _who() -> str:
    """Who is logged in, for the record."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):
        return ""


class _Nobody:
    """Stands where a harness has its model, for a harness that decides and never asks."""

    name = "nobody"
    fetches = False

    def ask(
        self, transcript: Transcript, tools: Iterable[ToolSpec | HostedTool] = (), *, output: OutputSchema | None = None
    ) -> Ask:
        del transcript, tools, output
        raise UsageError("There is no model here: this harness only decides.")

    def most_cost(self, ask: Ask) -> Decimal:
        del ask
        return Decimal(0)

    def capped(self, ask: Ask, money: Decimal) -> Ask | None:
        del money
        return ask

    def stream(self, ask: Ask, *, after: Answered | None = None) -> Asking:
        del ask, after
        raise UsageError("There is no model here: this harness only decides.")
