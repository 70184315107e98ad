"""The commands on threads and their store, and what words they take. Imports nothing but argparse: `--help` must be quick."""

import argparse

__all__ = ["add_threads"]

ID = "its id, or enough of how it begins"


def add_threads(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """All of them, in the order of `--help`."""
    _threads(commands.add_parser("threads", help="list what was said, or search in it"))
    _show(commands.add_parser("show", help="print a thread as a readable transcript"))
    _tree(commands.add_parser("tree", help="draw the branches of a thread"))
    _fork(commands.add_parser("fork", help="make another branch of a thread"))
    _title(commands.add_parser("title", help="give a thread a title"))
    _tag(commands.add_parser("tag", help="file a thread under words"))
    _verify(commands.add_parser("verify", help="check that everything is as it was written"))
    _replay(commands.add_parser("replay", help="play a thread again, offline, and compare"))
    _export(commands.add_parser("export", help="write a thread as lines of JSON"))
    _import(commands.add_parser("import", help="take in a thread that was exported"))
    _rm(commands.add_parser("rm", help="erase threads"))
    _retain(commands.add_parser("retain", help="erase what is older than you want to keep"))
    _backup(commands.add_parser("backup", help="copy the store while it is used"))


def _store(command: argparse.ArgumentParser) -> None:
    command.add_argument("--store", default="", metavar="FILE", help="where threads are kept; default: the data folder")


def _threads(command: argparse.ArgumentParser) -> None:
    command.description = "Lists the threads of the store, the one that changed last first."
    command.add_argument("--search", default="", metavar="TEXT", help="only those where all these words occur")
    command.add_argument("--tag", default="", metavar="T", help="only those filed under this word")
    command.add_argument("--limit", type=_count, default=20, metavar="N", help="the most to list; 0 is no limit; default: 20")
    command.add_argument("--all", action="store_true", help="also the threads of agents inside other runs")
    command.add_argument("--json", action="store_true", help="print a JSON list")
    _store(command)
    command.set_defaults(run=_run_threads)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def _run_threads(options: argparse.Namespace) -> int:
    from evener.cli.commands.threads import ListOptions, run

    wish = ListOptions(
        store=options.store,
        search=options.search,
        tag=options.tag,
        limit=options.limit,
        all=options.all,
        json=options.json,
    )
    return run(wish)


def _show(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Prints who said what, what tools did, what was lost and what it cost. Text is cleaned; nothing is paged."
    )
    command.add_argument("id", metavar="ID", help=ID)
    command.add_argument("--at", default="", metavar="N", help="only up to this event, or to the message of this id")
    command.add_argument("--branch", default="", metavar="LOG", help="this branch; default: the one that the thread stands on")
    command.add_argument("--json", action="store_true", help="print one JSON object with every event")
    _store(command)
    command.set_defaults(run=_run_show)


def _run_show(options: argparse.Namespace) -> int:
    from evener.cli.commands.show import ShowOptions, run

    return run(ShowOptions(id=options.id, store=options.store, at=options.at, branch=options.branch, json=options.json))


def _tree(command: argparse.ArgumentParser) -> None:
    command.description = "Draws the branches of a thread, each under the one it leaves, with the first thing said on it."
    command.add_argument("id", metavar="ID", help=ID)
    command.add_argument("--json", action="store_true", help="print a JSON list")
    _store(command)
    command.set_defaults(run=_run_tree)


def _run_tree(options: argparse.Namespace) -> int:
    from evener.cli.commands.threads import show_tree

    return show_tree(options.id, store=options.store, as_json=options.json)


def _fork(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Makes another branch and prints its id. Nothing is copied, nothing is changed, and the thread stands where it stood."
    )
    command.add_argument("id", metavar="ID", help=ID)
    command.add_argument("--at", default="", metavar="N", help="after this event, or the message of this id; default: the end")
    _store(command)
    command.set_defaults(run=_run_fork)


def _run_fork(options: argparse.Namespace) -> int:
    from evener.cli.commands.threads import fork

    return fork(options.id, at=options.at, store=options.store)


def _title(command: argparse.ArgumentParser) -> None:
    command.description = "Gives a thread a title. An empty one takes it away."
    command.add_argument("id", metavar="ID", help=ID)
    command.add_argument("text", metavar="TEXT", help="the title")
    _store(command)
    command.set_defaults(run=_run_title)


def _run_title(options: argparse.Namespace) -> int:
    from evener.cli.commands.threads import title

    return title(options.id, options.text, store=options.store)


def _tag(command: argparse.ArgumentParser) -> None:
    command.description = "Files a thread under words, and prints those it has then."
    command.add_argument("id", metavar="ID", help=ID)
    command.add_argument("words", nargs="*", metavar="TAG", help="a word to add")
    command.add_argument("--remove", nargs="+", action="extend", default=[], metavar="TAG", help="words to take away")
    _store(command)
    command.set_defaults(run=_run_tag)


def _run_tag(options: argparse.Namespace) -> int:
    from evener.cli.commands.threads import tag

    return tag(options.id, options.words, remove=options.remove, store=options.store)


def _verify(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Checks every event against the chain of hashes, in one thread or in the whole store. Changes nothing."
    )
    command.epilog = "exit codes: 0 everything is as it was written, 1 something is damaged, 2 called wrongly"
    command.add_argument("id", nargs="?", default="", metavar="ID", help=f"{ID}; default: the whole store")
    command.add_argument("--json", action="store_true", help="print a JSON list of findings")
    _store(command)
    command.set_defaults(run=_run_verify)


def _run_verify(options: argparse.Namespace) -> int:
    from evener.cli.commands.store import verify

    return verify(options.id, store=options.store, as_json=options.json)


def _replay(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Plays the recorded replies and results through the same code, offline: nobody is asked and no tool runs. "
        "The same events must come out."
    )
    command.epilog = "exit codes: 0 the same events, 1 others, 2 called wrongly"
    command.add_argument("id", metavar="ID", help=ID)
    command.add_argument("--harness", default="", metavar="NAME", help="with the tools and limits of this harness")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    _store(command)
    command.set_defaults(run=_run_replay)


def _run_replay(options: argparse.Namespace) -> int:
    from evener.cli.commands.replay import run

    return run(options.id, store=options.store, harness=options.harness, as_json=options.json)


def _export(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Writes a thread with all its branches as lines of JSON. It holds everything that was said: keep it private."
    )
    command.add_argument("id", metavar="ID", help=ID)
    command.add_argument(
        "-o", "--output", default="-", metavar="FILE", help="a new file, for you alone; default: standard output"
    )
    _store(command)
    command.set_defaults(run=_run_export)


def _run_export(options: argparse.Namespace) -> int:
    from evener.cli.commands.store import export

    return export(options.id, output=options.output, store=options.store)


def _import(command: argparse.ArgumentParser) -> None:
    command.description = "Takes in what `evener export` wrote, checks it as a whole, and prints the id of the thread."
    command.add_argument("file", metavar="FILE", help="the lines; - is standard input")
    _store(command)
    command.set_defaults(run=_run_import)


def _run_import(options: argparse.Namespace) -> int:
    from evener.cli.commands.store import take_in

    return take_in(options.file, store=options.store)


def _rm(command: argparse.ArgumentParser) -> None:
    command.description = (
        "Erases what threads say, for good, after a question. The id of a branch stands for that branch only. Numbers, times "
        "and hashes of the events stay, so that the rest can be verified."
    )
    command.add_argument("ids", nargs="+", metavar="ID", help=ID)
    command.add_argument("--yes", action="store_true", help="do not ask")
    _store(command)
    command.set_defaults(run=_run_rm)


def _run_rm(options: argparse.Namespace) -> int:
    from evener.cli.commands.store import remove

    return remove(options.ids, store=options.store, yes=options.yes)


def _retain(command: argparse.ArgumentParser) -> None:
    command.description = "Erases every thread that nothing was added to for so long, after a question."
    command.add_argument("--older-than", required=True, metavar="TIME", help="as in 90d, 12w, 24h")
    command.add_argument("--dry-run", action="store_true", help="only say what would be erased")
    command.add_argument("--force", action="store_true", help="also what waits for a decision or cannot be read")
    command.add_argument("--yes", action="store_true", help="do not ask")
    _store(command)
    command.set_defaults(run=_run_retain)


def _run_retain(options: argparse.Namespace) -> int:
    from evener.cli.commands.store import retain

    return retain(options.older_than, store=options.store, dry=options.dry_run, yes=options.yes, force=options.force)


def _backup(command: argparse.ArgumentParser) -> None:
    command.description = "Copies the whole store into a new file, consistent while others write."
    command.add_argument("file", metavar="FILE", help="the copy; it must not be there yet")
    _store(command)
    command.set_defaults(run=_run_backup)


def _run_backup(options: argparse.Namespace) -> int:
    from evener.cli.commands.store import backup

    return backup(options.file, store=options.store)
