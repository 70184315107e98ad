"""Which commands there are and what words they take. Imports nothing but argparse: `--help` must be quick."""

import argparse

from evener import __version__

__all__ = ["parser"]

WIRES = "anthropic_messages, openai_responses, openai_chat, gemini"


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="evener", description="One typed conversation, any model.")
    top.add_argument("--version", action="version", version=f"evener {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _translate(commands.add_parser("translate", help="move a request from one provider's wire to another's"))
    return top


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
    command.add_argument("request", nargs="?", default="-", help="a file with the request; default: standard input")
    command.set_defaults(run=_run_translate)


def _run_translate(options: argparse.Namespace) -> int:
    from evener.cli.translate import run

    return run(options.request, options.source, options.target, model=options.model, rows=options.rows, as_json=options.json)
