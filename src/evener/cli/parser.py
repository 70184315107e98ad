"""Which commands there are and what words they take. Imports nothing but argparse: `--help` must be quick."""

import argparse
import re
from collections.abc import Sequence
from typing import Literal

from evener import __version__
from evener.cli.thread_parser import add_threads

__all__ = ["parse", "parser"]

WIRES = "anthropic_messages, openai_responses, openai_chat, gemini"
EFFORTS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
APPROVALS = ("ask", "auto", "deny")
CODES = (
    "exit codes: 0 done, 1 failed, 2 called wrongly, 3 a key is missing, 4 the provider said no, "
    "5 the bytes did not arrive, 130 interrupted"
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The words as options. Words that are too many are not repeated: one of them might be a key."""
    top = parser()
    options, rest = top.parse_known_args(argv)
    if rest and "words" in options and not any(word.startswith("-") for word in rest):
        options.words, rest = [*options.words, *rest], []  # words may stand after an option, too
    if rest:
        names = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z-]+(?:=|$)", word)]
        what = f"unknown: {' '.join(names)}" if names else "there are more words than the command takes"
        top.error(f"{what} (values are not repeated here, for one might be a key)")
    return options


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="evener", description="One typed conversation, any model.", epilog=CODES)
    top.add_argument("--version", action="version", version=f"evener {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _complete(commands.add_parser("complete", help="ask a model once"))
    _run(commands.add_parser("run", help="run a prompt with tools, to a stop"))
    _resume(commands.add_parser("resume", help="go on with a run that was stopped, failed or died"))
    _decide(commands.add_parser("approve", help="allow what a run waits for"), approves=True)
    _decide(commands.add_parser("reject", help="reject what a run waits for, with a reason"), approves=False)
    _chat(commands.add_parser("chat", help="talk with a model, on a terminal"))
    add_threads(commands)
    _models(commands.add_parser("models", help="whom can be asked, what they can, and which keys are there"))
    _keys(commands.add_parser("keys", help="store, list and remove keys"))
    _doctor(commands.add_parser("doctor", help="check this machine, and say how to mend it"))
    _translate(commands.add_parser("translate", help="move a request from one provider's wire to another's"))
    return top


def _complete(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Asks a model once and streams its answer. The first word is the model if it names one (provider:model or an alias) "
        "and --model does not; what comes on standard input stands before the prompt."
    )
    command.epilog = CODES
    command.add_argument(
        "words", nargs="*", metavar="[MODEL] PROMPT", help="the model, if it is not given otherwise, and the prompt"
    )
    command.add_argument("-m", "--model", default="", metavar="M", help="provider:model, or an alias; default: as configured")
    command.add_argument("-s", "--system", default="", metavar="TEXT", help="the system prompt")
    command.add_argument("--image", action="append", default=[], metavar="FILE", help="a picture to show; may be repeated")
    command.add_argument("--schema", default="", metavar="FILE|JSON", help="a JSON Schema that the answer must fit")
    command.add_argument("--effort", choices=EFFORTS, help="how hard to think")
    command.add_argument("--max-tokens", type=int, metavar="N", help="the most tokens that the answer may have")
    command.add_argument("--temperature", type=float, metavar="T", help="how freely to choose words")
    command.add_argument(
        "--json", action="store_true", help="print one JSON object: text, calls, usage, cost, timing, losses, stop"
    )
    command.add_argument("--raw", action="store_true", help="print the bytes of the provider's answer as they came")
    _refusal(command)
    command.add_argument("--timeout", type=float, metavar="S", help="the most seconds that the whole call may take")
    command.set_defaults(run=_run_complete)


def _run_complete(options: argparse.Namespace) -> int:
    from evener.cli.commands.complete import CompleteOptions, run

    wish = CompleteOptions(
        words=tuple(options.words),
        model=options.model,
        system=options.system,
        images=tuple(options.image),
        schema=options.schema,
        effort=options.effort,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        timeout=options.timeout,
        refuse_losses=options.refuse_losses,
    )
    return run(wish, form="raw" if options.raw else "json" if options.json else "text")


def _run(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Runs a prompt: the model answers, its tools run, until it is done. A word @FILE stands for that file's text; what "
        "comes on standard input stands before the prompt. Every step is kept, so a run that was stopped can be resumed."
    )
    command.epilog = CODES
    command.add_argument("words", nargs="*", metavar="PROMPT", help="what to do")
    command.add_argument("-m", "--model", default="", metavar="M", help="provider:model, or an alias; default: as configured")
    command.add_argument("-s", "--system", default="", metavar="TEXT", help="the system prompt")
    command.add_argument("--image", action="append", default=[], metavar="FILE", help="a picture to show; may be repeated")
    command.add_argument(
        "--tools",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a tool, a function, or a list; may be repeated",
    )
    command.add_argument(
        "--harness", default="", metavar="NAME", help="one of evener.toml, or module:attribute, instead of all these"
    )
    command.add_argument("--thread", default="", metavar="ID", help="go on with this conversation")
    command.add_argument("--resume", default="", metavar="ID", help="go on with a run that was stopped; takes no prompt")
    command.add_argument(
        "--store", default="", metavar="FILE", help='where steps are kept, or "memory"; default: the data folder'
    )
    command.add_argument("--schema", default="", metavar="FILE|JSON", help="a JSON Schema that the final answer must fit")
    _allowance(command)
    command.set_defaults(run=_run_run)


def _run_run(options: argparse.Namespace) -> int:
    from evener.cli.commands.run import RunOptions, run

    wish = RunOptions(
        words=tuple(options.words),
        model=options.model,
        harness=options.harness,
        system=options.system,
        images=tuple(options.image),
        tools=tuple(options.tools),
        thread=options.thread,
        resume=options.resume,
        store=options.store,
        max_cost=options.max_cost,
        max_turns=options.max_turns,
        max_seconds=options.max_seconds,
        schema=options.schema,
        approval=options.approval,
        refuse_losses=options.refuse_losses,
    )
    return run(wish, form=_form(options))


def _resume(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Goes on with a run that reached a limit, was stopped, failed, waits for approval, or whose process died. Model and "
        "system prompt are those of the log, unless others are given; a harness of evener.toml is found by its name in the log."
    )
    command.epilog = CODES
    command.add_argument("id", metavar="ID", help="the thread or branch: its id, or enough of how it begins")
    command.add_argument("-m", "--model", default="", metavar="M", help="another model, of any provider")
    command.add_argument("-s", "--system", default="", metavar="TEXT", help="another system prompt")
    command.add_argument("--tools", action="append", default=[], metavar="MODULE:NAME", help="as for run; may be repeated")
    command.add_argument("--harness", default="", metavar="NAME", help="one of evener.toml, or module:attribute")
    command.add_argument("--store", default="", metavar="FILE", help="where steps are kept; default: the data folder")
    command.add_argument("--schema", default="", metavar="FILE|JSON", help="as for run, if the run had one")
    command.add_argument("--force", action="store_true", help="take the thread from a process that holds it, dead or alive")
    _allowance(command)
    command.set_defaults(run=_run_resume)


def _run_resume(options: argparse.Namespace) -> int:
    from evener.cli.commands.resume import run
    from evener.cli.commands.run import RunOptions

    wish = RunOptions(
        model=options.model,
        harness=options.harness,
        system=options.system,
        tools=tuple(options.tools),
        resume=options.id,
        force=options.force,
        store=options.store,
        max_cost=options.max_cost,
        max_turns=options.max_turns,
        max_seconds=options.max_seconds,
        schema=options.schema,
        approval=options.approval,
        refuse_losses=options.refuse_losses,
    )
    return run(wish, form=_form(options))


def _allowance(command: argparse.ArgumentParser) -> None:
    """How long a run may go on, who decides in it, and how it is shown."""
    command.add_argument("--max-cost", default="", metavar="USD", help="stop when this much was spent")
    command.add_argument("--max-turns", type=int, metavar="N", help="stop after so many model requests")
    command.add_argument("--max-seconds", type=float, metavar="S", help="stop after so many seconds of work")
    command.add_argument(
        "--approval",
        choices=APPROVALS,
        default="ask",
        help="what needs approval: ask on the terminal, or stop where there is none (the default); allow all; reject all",
    )
    _refusal(command)
    command.add_argument("--json", action="store_true", help="print one JSON object at the end")
    command.add_argument("--stream-json", action="store_true", help="print each event as a line of JSON")


def _refusal(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--refuse-losses", type=_codes, default=(), metavar="CODES",
        help="send nothing that would lose these: codes, their beginnings or kinds, as in reasoning.dropped,setting",
    )  # fmt: skip


def _codes(text: str) -> tuple[str, ...]:
    return tuple(code for code in (part.strip() for part in text.split(",")) if code)


def _form(options: argparse.Namespace) -> Literal["text", "json", "stream-json"]:
    return "stream-json" if options.stream_json else "json" if options.json else "text"


def _decide(command: argparse.ArgumentParser, *, approves: bool) -> None:
    command.description = (
        f"{'Allows' if approves else 'Rejects'} everything that waits to be decided in a thread, once, from any process. "
        "Give the tools and the store that the run has. No model is asked, unless the run is resumed."
    )
    command.epilog = CODES
    command.add_argument(
        "thread", metavar="THREAD", help="the thread, as `evener run` named it, or enough of how its id begins"
    )
    if approves:
        command.add_argument("--edit", default="", metavar="JSON", help="run the call with these arguments instead")
    else:
        command.add_argument(
            "--result", metavar="TEXT", help="of an interrupted call: it took effect, and this is what it gave"
        )
    only = "allow these, and reject the others" if approves else "with --result: the call that gave it"
    command.add_argument("--only", nargs="+", action="extend", default=[], metavar="CALL", help=only)
    command.add_argument("--why", default="", metavar="TEXT", help="the reason; of a rejected call the model is told it")
    command.add_argument("--show", action="store_true", help="only print what waits, and decide nothing")
    command.add_argument("--resume", action="store_true", help="go on with the run at once")
    command.add_argument("--tools", action="append", default=[], metavar="MODULE:NAME", help="as for run; may be repeated")
    command.add_argument("--harness", default="", metavar="NAME", help="one of evener.toml, or module:attribute")
    command.add_argument("--store", default="", metavar="FILE", help="where steps are kept; default: the data folder")
    command.add_argument("-m", "--model", default="", metavar="M", help="with --resume: the model that goes on")
    command.add_argument("-s", "--system", default="", metavar="TEXT", help="with --resume: the system prompt")
    command.set_defaults(run=_run_approve if approves else _run_reject, edit="", result=None)


def _run_approve(options: argparse.Namespace) -> int:
    return _run_decide(options, approves=True)


def _run_reject(options: argparse.Namespace) -> int:
    return _run_decide(options, approves=False)


def _run_decide(options: argparse.Namespace, *, approves: bool) -> int:
    from evener.cli.commands import run as running
    from evener.cli.commands.decide import DecideOptions, run

    resumed = running.RunOptions(
        harness=options.harness,
        tools=tuple(options.tools),
        store=options.store,
        model=options.model,
        system=options.system,
        resume=options.thread,
    )
    wish = DecideOptions(
        run=resumed,
        verdict="allow" if approves else "reject",
        why=options.why,
        edit=options.edit,
        only=tuple(options.only),
        result=options.result,
        show=options.show,
        resume=options.resume,
    )
    return run(wish)


def _chat(command: argparse.ArgumentParser) -> None:
    command.description = (
        "A conversation on a terminal: the answer is shown as it comes, tools run and ask first, /help lists commands. Where "
        "there is no terminal, each line of standard input is a message."
    )
    command.epilog = CODES
    command.add_argument("-m", "--model", default="", metavar="M", help="provider:model, or an alias; default: as configured")
    command.add_argument("-s", "--system", default="", metavar="TEXT", help="the system prompt")
    command.add_argument(
        "--tools", action="append", default=[], metavar="MODULE:NAME", help="a tool, a function, or a list; may be repeated"
    )
    command.add_argument(
        "--harness", default="", metavar="NAME", help="one of evener.toml, or module:attribute, instead of all these"
    )
    command.add_argument(
        "--store", default="", metavar="FILE", help='where steps are kept, or "memory"; default: the data folder'
    )
    command.add_argument("-c", "--continue", dest="last", action="store_true", help="go on with the last conversation")
    command.add_argument("-r", "--resume", "--thread", dest="thread", default="", metavar="ID", help="go on with this one")
    command.add_argument("--max-cost", default="", metavar="USD", help="stop when the chat has cost this much")
    command.set_defaults(run=_run_chat)


def _run_chat(options: argparse.Namespace) -> int:
    from evener.cli.chat import ChatOptions, run

    wish = ChatOptions(
        model=options.model,
        system=options.system,
        tools=tuple(options.tools),
        harness=options.harness,
        store=options.store,
        thread=options.thread,
        last=options.last,
        max_cost=options.max_cost,
    )
    return run(wish)


def _models(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Lists the provider rows: wire, key, and what requests to them may hold. With --provider, one of them closely."
    )
    command.add_argument("--provider", default="", metavar="P", help="only this row, with its address and the models it knows")
    command.add_argument("--json", action="store_true", help="print a JSON list")
    command.set_defaults(run=_run_models)


def _run_models(options: argparse.Namespace) -> int:
    from evener.cli.commands.models import run

    return run(options.provider, as_json=options.json)


def _keys(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Keeps keys in a file that only you may read. A key is never shown, and never given on the command line."
    )
    commands = command.add_subparsers(title="commands", metavar="COMMAND", required=True)
    store = commands.add_parser("set", help="store a key: typed without being shown, or from standard input")
    store.add_argument("name", metavar="NAME", help="a provider, or the variable that a row names")
    store.set_defaults(run=_run_keys_set)
    shown = commands.add_parser("list", help="which keys are there, where, and for whom")
    shown.add_argument("--json", action="store_true", help="print a JSON list")
    shown.set_defaults(run=_run_keys_list)
    gone = commands.add_parser("remove", help="forget a stored key")
    gone.add_argument("name", metavar="NAME", help="a provider, or the variable that a row names")
    gone.set_defaults(run=_run_keys_remove)
    commands.add_parser("path", help="where the key file is").set_defaults(run=_run_keys_path)


def _run_keys_set(options: argparse.Namespace) -> int:
    from evener.cli.commands.keys import store

    return store(options.name)


def _run_keys_list(options: argparse.Namespace) -> int:
    from evener.cli.commands.keys import show

    return show(as_json=options.json)


def _run_keys_remove(options: argparse.Namespace) -> int:
    from evener.cli.commands.keys import remove

    return remove(options.name)


def _run_keys_path(options: argparse.Namespace) -> int:  # noqa: ARG001
    from evener.cli.commands.keys import path

    return path()


def _doctor(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Checks versions, config files, keys, the local model, and whether the providers with a key can be reached. "
        "Each problem comes with its fix. Sends no key anywhere."
    )
    command.epilog = "exit codes: 0 nothing that is configured is broken, 1 something is"
    command.add_argument("--offline", action="store_true", help="reach for nobody")
    command.add_argument("--json", action="store_true", help="print a JSON list of findings")
    command.set_defaults(run=_run_doctor)


def _run_doctor(options: argparse.Namespace) -> int:
    from evener.cli.commands.doctor import run

    return run(offline=options.offline, as_json=options.json)


def _translate(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Reads a request of one wire and prints it in another's shape; what was lost stands on stderr. "
        f"Wires: {WIRES}; the name of a provider row works, too."
    )
    command.add_argument("--from", dest="source", required=True, metavar="WIRE", help="the wire the request is in")
    command.add_argument("--to", dest="target", required=True, metavar="WIRE", help="the wire it shall be in")
    command.add_argument("--model", default="", metavar="M", help="the model to ask; without it the name is kept")
    command.add_argument("--rows", action="append", default=[], metavar="FILE", help="provider rows of your own (TOML)")
    command.add_argument("--json", action="store_true", help="print request and losses in one object")
    _refusal(command)
    command.add_argument("request", nargs="?", default="-", help="a file with the request; default: standard input")
    command.set_defaults(run=_run_translate)


def _run_translate(options: argparse.Namespace) -> int:
    from evener.cli.commands.translate import run

    return run(
        options.request, options.source, options.target, model=options.model, rows=options.rows, as_json=options.json,
        refuse_losses=options.refuse_losses,
    )  # fmt: skip
