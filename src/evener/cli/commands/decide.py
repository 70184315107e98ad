"""`evener approve` and `evener reject`: decide what waits in a thread, from any process. Asks no model and runs no tool.

The decision is written down beside the log; the run goes on with it when it is resumed, here or elsewhere.
"""

import asyncio
import shlex
import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal

import msgspec

from evener.cli.approvals import answer_of, described, is_decided, quoted, who
from evener.cli.commands import run as running
from evener.cli.names import log_of
from evener.cli.terminal import escaped, say
from evener.errors import ApprovalStale, UsageError
from evener.events import Verdict
from evener.harness import Harness
from evener.harness.approvals import Decision, keyed
from evener.model.seam import Answered, Asking
from evener.result import Approval, approvals_of
from evener.store.protocol import Store, state_of
from evener.transcript.ask import Ask, HostedTool, OutputSchema, ToolSpec
from evener.transcript.blocks import json_text
from evener.transcript.transcript import Transcript

__all__ = [
    "DecideOptions",
    "run",
]


OTHERS = "Only other calls were approved."


class DecideOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asked for. `run` says where the thread is and how it is resumed.

    `result` is what an interrupted call gave, where somebody knows that it took effect.
    """

    run: running.RunOptions
    verdict: Verdict
    why: str = ""
    edit: str = ""
    only: tuple[str, ...] = ()
    result: str | None = None
    show: bool = False
    resume: bool = False


def run(wish: DecideOptions) -> int:
    """Decide, or show what waits; then resume, or say how."""
    code = asyncio.run(_decided(_harness(wish), wish))
    if wish.show:
        return code
    if wish.resume:
        return running.run(wish.run, form="text")
    say(f"evener: Go on with: {_resume(wish)}")
    return code


def _resume(wish: DecideOptions) -> str:
    return shlex.join(["evener", "resume", *running.same(wish.run), wish.run.resume])


def _harness(wish: DecideOptions) -> Harness:
    """To decide, no model is needed, and no key."""
    return running.harness_of(wish.run, model=None if wish.run.harness else _Nobody())


async def _decided(harness: Harness, wish: DecideOptions) -> int:
    thread = await _log(harness, wish.run.resume)
    asked = keyed(approvals_of(await state_of(harness.store, thread), thread))
    waiting = {key: one for key, one in asked.items() if not await is_decided(harness.store, one)}
    if wish.show:
        return await _show(harness.store, thread, waiting, f" What waited was decided. {_over(wish)}" if asked else "")
    if asked and not waiting:
        raise ApprovalStale(f"What waited in thread {thread} was decided before. {_over(wish)}")
    if not waiting:
        raise ApprovalStale(f"Nothing waits to be decided in thread {thread}: it was decided before, or the run went on.")
    decisions = _decisions(wish, asked)
    await harness.decide(thread, decisions)
    for key, decision in decisions.items():
        _tell(key, decision, asked[key])
    return 0


def _over(wish: DecideOptions) -> str:
    return f"It takes effect when the run goes on: {_resume(wish)}"


def _tell(key: str, decision: Decision, about: Approval) -> None:
    """What was decided, and about what."""
    say(f"evener: {_done(decision, about)}: {key}")
    say("\n".join(described(about)))
    if decision.arguments is not None:
        say("\n".join(["with these arguments instead:", *quoted(json_text(decision.arguments, "The arguments"))]))


def _done(decision: Decision, about: Approval) -> str:
    match about.interrupt, decision:
        case "outcome", Decision(verdict="allow"):
            return "Allowed: it is run again"
        case "outcome", Decision(result=None):
            return "Rejected: it is not run again, and the model is told that nobody knows what became of it"
        case "outcome", _:
            return "Noted: it took effect, and the model is told what it gave"
        case _, Decision(verdict="allow", arguments=None):
            return "Allowed"
        case _, Decision(verdict="allow"):
            return "Allowed, with other arguments"
        case _:
            return "Rejected"


async def _log(harness: Harness, given: str) -> str:
    """The log that is meant: that on which the thread stands, or the branch of this id."""
    return await harness.store.head(await log_of(harness.store, given))


async def _show(store: Store, thread: str, waiting: Mapping[str, Approval], over: str) -> int:
    for key, one in waiting.items():
        rule = f" [{escaped(one.rule)}]" if one.rule else ""
        lines = "\n".join(described(one, await answer_of(store, one)))
        sys.stdout.write(f"{escaped(key)}{rule} {lines}\n")
    if not waiting:
        say(f"evener: Nothing waits to be decided in thread {thread}.{over}")
    return 0


def _decisions(wish: DecideOptions, waiting: Mapping[str, Approval]) -> dict[str, Decision]:
    """One for each that waits: the whole batch is decided at once. To approve `--only` some is to reject the others."""
    unknown = [key for key in wish.only if key not in waiting]
    if unknown:
        raise UsageError(f"Nothing of that name waits: {', '.join(unknown)}. What waits is: {', '.join(waiting)}.")
    chosen = set(wish.only or waiting)
    if wish.edit and len(chosen) != 1:
        raise UsageError(f"--edit changes one call, and {len(chosen)} wait. Say which with --only: {', '.join(waiting)}.")
    if wish.verdict == "reject":
        return _rejections(wish, waiting)
    edited = _edited(wish.edit) if wish.edit else None
    by = who()
    return {
        key: Decision("allow", wish.why, edited, one.digest, by)
        if key in chosen
        else Decision("reject", wish.why or OTHERS, digest=one.digest, by=by)
        for key, one in waiting.items()
    }


def _rejections(wish: DecideOptions, waiting: Mapping[str, Approval]) -> dict[str, Decision]:
    """A result is that of one interrupted call; of others that were interrupted nobody knows."""
    lost = [key for key, one in waiting.items() if one.interrupt == "outcome"]
    if not wish.why and len(lost) < len(waiting):
        raise UsageError('The model is told why. Give a reason, as in: evener reject THREAD --why "Ask the customer first."')
    named = [key for key in lost if key in (wish.only or lost)]
    if wish.result is not None and len(named) != 1:
        raise UsageError(
            f"--result is what one interrupted call gave, and {len(named)} of that kind are meant. "
            f"Interrupted calls that wait: {', '.join(lost) or 'none'}. Say which with --only."
        )
    by = who()
    return {
        key: Decision("reject", wish.why, digest=one.digest, by=by, result=wish.result if key in named else None)
        for key, one in waiting.items()
    }


def _edited(text: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except msgspec.ValidationError:
        why = "it is JSON, but no object"
    except (msgspec.DecodeError, RecursionError) as error:
        why = f"it is not JSON ({error})"
    raise UsageError(f"--edit takes the new arguments as one JSON object, as in '{{\"amount\": 3}}': {why}.")


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
