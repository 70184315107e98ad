"""`evener approve` and `evener reject`: decide what waits in a thread, from any process. Calls no model and runs no tool.

The decision is stored beside the log. It takes effect when the run is resumed, here or in another process.
"""

import asyncio
import shlex
import sys
from collections.abc import Mapping, Sequence

from evener.cli.approvals import ASK_USER, describe, parse_arguments, quote, read_answer, user_name
from evener.cli.commands import run as running
from evener.cli.names import find_log
from evener.cli.terminal import escape, say
from evener.errors import ApprovalStale, UsageError
from evener.events import Verdict
from evener.harness import Harness
from evener.harness.approvals import Decision, keyed
from evener.harness.remote import is_said
from evener.result import Approval, approvals_of
from evener.store.protocol import Store, state_of
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import json_text
from evener.transcript.reply import Reply
from evener.transcript.transcript import Transcript

OTHERS = "Only other calls were approved."
EXAMPLE = 'evener reject THREAD --why "Ask the customer first."'


class DecideOptions(running.AgentOptions, frozen=True, kw_only=True):
    """The options of both commands. `result` is the result of an interrupted call that took effect."""

    thread: str
    verdict: Verdict
    why: str = ""
    edit: str = ""
    answers: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    result: str | None = None
    show: bool = False
    resume: bool = False

    @property
    def resume_command(self) -> str:
        return shlex.join(["evener", "resume", *running.same_words(self), self.thread])


def run(options: DecideOptions) -> int:
    """Decide, or show the approvals; then resume the run, or print the command that does."""
    harness = running.make_harness(options, model=None if options.harness else _NoModel())
    asyncio.run(_decide(harness, options))
    if options.show:
        return 0
    if options.resume:
        agent = {name: getattr(options, name) for name in running.AgentOptions.__struct_fields__}
        return running.run(running.RunOptions(resume=options.thread, **agent))
    say(f"evener: Resume with: {options.resume_command}")
    return 0


async def _decide(harness: Harness, options: DecideOptions) -> None:
    thread = await harness.store.head(await find_log(harness.store, options.thread))
    asked = keyed(approvals_of(await state_of(harness.store, thread), thread))
    waiting = {key: one for key, one in asked.items() if not await is_said(harness.store, one)}
    effect = f"It takes effect when the run is resumed: {options.resume_command}"
    if options.show:
        await _show(harness.store, thread, waiting, f" A decision was made already. {effect}" if asked else "")
        return
    if asked and not waiting:
        raise ApprovalStale(f"Thread {thread} was decided already. {effect}")
    if not waiting:
        raise ApprovalStale(
            f"Nothing waits for a decision in thread {thread}: it was decided already, or the run continued or ended."
        )
    decisions = _make_decisions(options, asked)
    await harness.decide(thread, decisions)
    for key, decision in decisions.items():
        _report(key, decision, asked[key])


def _report(key: str, decision: Decision, about: Approval) -> None:
    """Print what was decided, and about what."""
    say(f"evener: {_summarize(decision, about)}: {key}")
    say("\n".join(describe(about)))
    if decision.arguments is not None:
        say("\n".join(["with these arguments instead:", *quote(json_text(decision.arguments, "The arguments"))]))


def _summarize(decision: Decision, about: Approval) -> str:
    match about.interrupt, decision:
        case "outcome", Decision(verdict="allow"):
            return "Allowed: it runs again"
        case "outcome", Decision(result=None):
            return "Rejected: it does not run again, and the model is told that its outcome is unknown"
        case "outcome", _:
            return "Recorded: it took effect, and the model is told its result"
        case _, Decision(verdict="allow", arguments=None):
            return "Allowed"
        case _, Decision(verdict="allow"):
            return "Allowed, with other arguments"
        case _:
            return "Rejected"


async def _show(store: Store, thread: str, waiting: Mapping[str, Approval], decided: str) -> None:
    for key, one in waiting.items():
        rule = f" [{escape(one.rule)}]" if one.rule else ""
        lines = "\n".join(describe(one, await read_answer(store, one)))
        sys.stdout.write(f"{escape(key)}{rule} {lines}\n")
    if not waiting:
        say(f"evener: Nothing waits for a decision in thread {thread}.{decided}")


def _make_decisions(options: DecideOptions, waiting: Mapping[str, Approval]) -> dict[str, Decision]:
    """Return one decision for each approval: all are decided at once. To approve `--only` some is to reject the others."""
    unknown = [key for key in options.only if key not in waiting]
    if unknown:
        raise UsageError(f"Nothing with this id waits: {', '.join(unknown)}. These wait: {', '.join(waiting)}.")
    chosen = set(options.only or waiting)
    if options.edit and len(chosen) != 1:
        raise UsageError(f"--edit changes one call, and {len(chosen)} wait. Choose one with --only: {', '.join(waiting)}.")
    if options.verdict == "reject":
        return _make_rejections(options, waiting)
    arguments = _parse_edit(options.edit) if options.edit else None
    answered = _answer(options.answers, {key: one for key, one in waiting.items() if key in chosen}) if options.answers else {}
    by = user_name()
    return {
        key: Decision("allow", options.why, answered.get(key, arguments), one.digest, by)
        if key in chosen
        else Decision("reject", options.why or OTHERS, digest=one.digest, by=by)
        for key, one in waiting.items()
    }


def _make_rejections(options: DecideOptions, waiting: Mapping[str, Approval]) -> dict[str, Decision]:
    """Return the rejections. `--result` belongs to one interrupted call; the outcome of others is unknown."""
    interrupted = [key for key, one in waiting.items() if one.interrupt == "outcome"]
    if not options.why and len(interrupted) < len(waiting):
        raise UsageError(f"The model is told why. Give a reason, as in: {EXAMPLE}")
    named = [key for key in interrupted if key in (options.only or interrupted)]
    if options.result is not None and len(named) != 1:
        raise UsageError(
            f"--result is the result of one interrupted call, and {len(named)} are chosen. "
            f"Interrupted calls that wait: {', '.join(interrupted) or 'none'}. Choose one with --only."
        )
    by = user_name()
    return {
        key: Decision("reject", options.why, digest=one.digest, by=by, result=options.result if key in named else None)
        for key, one in waiting.items()
    }


def _answer(answers: Sequence[str], chosen: Mapping[str, Approval]) -> dict[str, dict[str, object]]:
    """Return the arguments of each question with its answer."""
    asked = {key: one.call for key, one in chosen.items() if one.call is not None and one.call.name == ASK_USER}
    if len(asked) != len(answers):
        raise UsageError(f"--answer was given {len(answers)} times, and {len(asked)} questions wait. Give one answer for each.")
    return {
        key: {**_parse_edit(call.raw), "answer": answer} for (key, call), answer in zip(asked.items(), answers, strict=True)
    }


def _parse_edit(text: str) -> dict[str, object]:
    arguments = parse_arguments(text)
    if isinstance(arguments, str):
        raise UsageError(f"--edit must be one JSON object, as in '{{\"amount\": 3}}', but {arguments}. Correct it.")
    return arguments


class _NoModel:
    """Takes the place of the model in a harness that only decides."""

    name = "none"

    def complete(self, transcript: Transcript, tools: Sequence[ToolSpec] = ()) -> Reply:
        del transcript, tools
        raise UsageError("There is no model: this harness only decides.")
