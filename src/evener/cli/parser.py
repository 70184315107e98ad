"""All commands as one table: the texts, the arguments, and the function that runs each, which is loaded when it is called.

Imports nothing but argparse: `--help` must be quick.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

from evener import __version__

TYPE_CHECKING = False  # as in `evener`
if TYPE_CHECKING:
    from typing import Any

COLUMNS = 80
"""The width of what is no terminal."""
CODES = (
    "exit codes: 0 done, 1 failed, 2 wrong usage, 3 a key is missing, 4 the provider refused, "
    "5 network error or timeout, 130 interrupted"
)


class Argument:
    """One argument: its names, and what `argparse` is told about it."""

    def __init__(self, names: tuple[str, ...], settings: "Mapping[str, Any]") -> None:
        self.names, self.settings = names, settings


class Command:
    """One row. The first sentence of `text` is the help in the list of commands; all of it is the description.

    `run` is `module:function`, below `evener.cli`; the function takes the arguments by their names. `options` names a struct
    of that module that is made from them, and which the function takes instead. `fixed` are arguments that the user does not
    give. A command with `commands` has no function. One that is `stored` takes --store, which is opened for it: its function is
    asynchronous, and takes the store first.
    """

    def __init__(
        self,
        name: str,
        run: str,
        text: str,
        *arguments: Argument,
        options: str = "",
        epilog: str = CODES,
        commands: Sequence["Command"] = (),
        stored: bool = False,
        **fixed: str,
    ) -> None:
        self.name, self.run, self.text, self.stored = name, run, text, stored
        self.arguments = (*arguments, STORE) if stored else arguments
        self.options, self.epilog, self.commands, self.fixed = options, epilog, commands, fixed

    @property
    def help(self) -> str:
        first = self.text.partition(". ")[0].removesuffix(".")
        return first[0].lower() + first[1:]


def _argument(spec: str, help: str, **settings: "Any") -> Argument:
    """Return an argument written as in a manual: `-m --model M`, `--json`, `--tools NAME ...`, or `id ID` for a word.

    An option without a value is a flag, `...` makes it repeatable, and a value is a text that is empty by default.
    """
    words = spec.split()
    names = tuple(word for word in words if word.startswith("-")) or (words[0],)
    metavar = " ".join(words[len(names) :])
    implied: dict[str, Any] = {"help": help}
    if not metavar:
        implied |= {"action": "store_true"}
    elif metavar.endswith(" ..."):
        implied |= {"action": "append", "default": [], "metavar": metavar.removesuffix(" ..."), "help": f"{help}; repeatable"}
    else:
        implied |= {"metavar": metavar} | ({"default": ""} if spec.startswith("-") and "type" not in settings else {})
    return Argument(names, implied | settings)


def _choice(name: str, help: str, choices: Sequence[str], default: str | None = None) -> Argument:
    return Argument((name,), {"help": help, "choices": choices, "default": default})


def _form(form: str, help: str) -> Argument:
    return _argument(f"--{form}", help, dest="form", action="store_const", const=form, default="text")


def _parse_codes(text: str) -> tuple[str, ...]:
    return tuple(code for code in (part.strip() for part in text.split(",")) if code)


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 upward")
    return int(text)


def _parse_port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: a number from 0 to 65535")
    return int(text)


# Arguments that several commands take.

SEVERAL: "Mapping[str, Any]" = {"nargs": "+", "action": "extend", "default": []}
ID = _argument("id ID", "the thread or branch: its id, or the first characters of it")
STORE = _argument("--store FILE", "a store file, or postgresql://...; default: the file in the data folder")
STORE_OR_MEMORY = _argument("--store FILE", 'a store file, postgresql://..., or "memory"; default: a file in the data folder')
MODEL = _argument("-m --model M", "provider:model, or an alias; default: `model` of the config file")
SYSTEM = _argument("-s --system TEXT", "the system prompt")
IMAGES = _argument("--image FILE ...", "attach a PNG, JPEG, GIF or WebP file", dest="images")
TOOLS = _argument("--tools NAMES ...", "tool sets, as in files,search; or module:name of a tool, a function, or a list of them")
MCP = _argument("--mcp NAME ...", "an MCP server of evener.toml, or a JSON file with mcpServers")
SKILLS = _argument("--skills", "offer Agent Skills, of your home folder and of a project that you trust")
AGENTS_MD = _argument("--agents-md", "put the AGENTS.md of a project that you trust into the system prompt")
SAME_TOOLS = _argument("--tools NAMES ...", "the tools of the run, as for `evener run`")
HARNESS = _argument(
    "--harness NAME", "a harness of evener.toml, or module:attribute; it brings its own tools, prompt and store"
)
SAME_HARNESS = _argument("--harness NAME", "the harness of the run: a name in evener.toml, or module:attribute")
AGENT = (MODEL, SYSTEM, TOOLS, MCP, SKILLS, AGENTS_MD, HARNESS, STORE_OR_MEMORY)
SAME_AGENT = (SAME_TOOLS, MCP, SKILLS, SAME_HARNESS, STORE)
JSON_LIST = _argument("--json", "print a JSON list", dest="as_json")
JSON_OBJECT = _argument("--json", "print one JSON object", dest="as_json")
YES = _argument("--yes", "do not ask for confirmation")
REFUSE_LOSSES = _argument(
    "--refuse-losses CODES",
    "fail if the request loses one of these: loss codes, prefixes or kinds, as in reasoning.dropped,setting",
    type=_parse_codes,
    default=(),
)
VERBOSE = _argument("--verbose", "also print losses that do not change what the model is told")
LIMITS_AND_OUTPUT = (
    _argument("--max-cost USD", "stop when this much was spent"),
    _argument("--max-turns N", "stop after N model requests", type=int),
    _argument("--max-seconds S", "stop after S seconds of work", type=float),
    _choice(
        "--approval",
        "if a call needs approval: ask on the terminal (default; without a terminal the run stops), allow it, or reject it",
        ("ask", "auto", "deny"),
        default="ask",
    ),
    REFUSE_LOSSES,
    VERBOSE,
    _form("json", "print one JSON object at the end"),
    _form("stream-json", "print each event as a line of JSON"),
)


def _decide(name: str, verdict: str, text: str, *own: Argument) -> Command:
    return Command(
        name,
        "commands.decide:run",
        f"{text} This decides everything that waits in the thread, once, and works from any process. Give the tools and the "
        "store of the run. No model is called, unless --resume is given.",
        _argument("thread THREAD", "the thread: the id that `evener run` printed, or the first characters of it"),
        *own,
        _argument("--why TEXT", "the reason; the model is told why a call was rejected"),
        _argument("--show", "only print what waits; decide nothing"),
        _argument("--resume", "resume the run at once"),
        *SAME_AGENT,
        _argument("-m --model M", "with --resume: the model that continues the run"),
        _argument("-s --system TEXT", "with --resume: the system prompt"),
        options="DecideOptions",
        verdict=verdict,
    )


COMMANDS = (
    Command(
        "complete",
        "commands.complete:run",
        "Ask a model once. The answer is streamed. The first word is the model if it names one (provider:model or an alias) "
        "and --model is not given. Text on standard input is put before the prompt.",
        _argument(
            "words [MODEL] PROMPT", "the prompt, after the model if neither --model nor the config file names it", nargs="*"
        ),
        MODEL,
        SYSTEM,
        IMAGES,
        _argument("--schema FILE|JSON", "a JSON Schema that the answer must match"),
        _choice("--effort", "the reasoning effort", ("off", "minimal", "low", "medium", "high", "xhigh", "max")),
        _argument("--max-tokens N", "the output token limit", type=int),
        _argument("--temperature T", "the sampling temperature", type=float),
        _form("json", "print one JSON object: text, calls, usage, cost, timing, losses, stop"),
        _form("raw", "print the bytes of the provider's response unchanged"),
        REFUSE_LOSSES,
        VERBOSE,
        _argument("--timeout S", "the deadline for the whole call, in seconds", type=float),
        options="CompleteOptions",
    ),
    Command(
        "run",
        "commands.run:run",
        "Run a prompt with tools until it is done. A word @FILE stands for the text of that file. Text on standard input is "
        "put before the prompt. Every step is stored, so a stopped run can be resumed.",
        _argument("words PROMPT", "what to do", nargs="*"),
        MODEL,
        SYSTEM,
        IMAGES,
        TOOLS,
        MCP,
        SKILLS,
        AGENTS_MD,
        HARNESS,
        _argument("--thread ID", "continue this thread"),
        _argument("--resume ID", "resume a stopped run; takes no prompt"),
        STORE_OR_MEMORY,
        _argument("--schema FILE|JSON", "a JSON Schema that the final answer must match"),
        *LIMITS_AND_OUTPUT,
        options="RunOptions",
    ),
    Command(
        "resume",
        "commands.resume:run",
        "Resume a run that stopped, failed or crashed. This includes runs that reached a limit or wait for approval. The model "
        "and the system prompt come from the log, unless you give others. A harness of evener.toml is found by its name in the "
        "log.",
        _argument("resume ID", "the thread or branch: its id, or the first characters of it"),
        _argument("-m --model M", "another model, of any provider"),
        _argument("-s --system TEXT", "another system prompt"),
        *SAME_AGENT,
        _argument("--schema FILE|JSON", "the JSON Schema of the answer, if the run had one"),
        _argument("--force", "take the thread over from the process that holds it, even if that process is alive"),
        *LIMITS_AND_OUTPUT,
        options="RunOptions",
    ),
    _decide(
        "approve",
        "allow",
        "Allow what a run waits for.",
        _argument("--edit JSON", "run the call with these arguments instead"),
        _argument("--answer TEXT ...", "the answer to a question, in the order of the questions", dest="answers"),
        _argument("--only CALL", "allow these calls, and reject the others", **SEVERAL),
    ),
    _decide(
        "reject",
        "reject",
        "Reject what a run waits for, with a reason.",
        _argument("--result TEXT", "for an interrupted call: it took effect, and this is its result", default=None),
        _argument("--only CALL", "with --result: the call that the result belongs to", **SEVERAL),
    ),
    Command(
        "chat",
        "chat:run",
        "Chat with a model on a terminal. Answers are shown as they arrive. Calls that need approval are shown, and wait for "
        "your decision. /help lists the commands. Without a terminal, each line of standard input is one message.",
        *AGENT,
        _argument("-c --continue", "continue the most recent conversation", dest="last"),
        _argument("-r --resume --thread ID", "continue this conversation", dest="thread"),
        _argument("--max-cost USD", "stop when the whole chat has cost this much"),
        VERBOSE,
        options="ChatOptions",
    ),
    Command(
        "mcp",
        "commands.serve:serve_mcp",
        "Serve tools and an agent over MCP. The tools are those of the harness; one more tool gives the agent a task. Without "
        "--http, the command communicates over standard input and output. Calls that need approval are refused, unless "
        "--approve is given. `evener mcp login NAME` logs in to a remote server, with OAuth in the browser, and stores the "
        "tokens in the key file; `evener mcp logout NAME` revokes and removes them.",
        _argument("action ACTION", "login or logout", nargs="?", default="", choices=("", "login", "logout")),
        _argument("server NAME", "with login and logout: the server, as in --mcp", nargs="?", default=""),
        *AGENT,
        _argument("--http PORT", "serve at http://127.0.0.1:PORT/mcp; 0: at a free port", type=_parse_port, default=None),
        _argument("--approve", "allow calls that need approval; use it only if you trust the calling program"),
        _argument(
            "--port N",
            "with login: the local port for the redirect of the browser; default: 33418",
            type=_parse_port,
            default=0,
        ),
        _argument("--no-browser", "with login: only print the address"),
        options="ServeOptions",
    ),
    Command(
        "acp",
        "commands.serve:serve_editor",
        "Serve an agent to an editor, over the Agent Client Protocol. The editor starts this command, and communicates over "
        "standard input and output. Calls that need approval become requests for permission.",
        *AGENT,
        options="ServeOptions",
    ),
    Command(
        "serve",
        "commands.serve:serve_pages",
        "Serve an agent to web pages, on this machine only. /api/chat speaks the UI message stream of the Vercel AI SDK, and "
        "/ag-ui speaks AG-UI. Calls that need approval are decided on the page. Ctrl-C ends it.",
        MODEL,
        SYSTEM,
        TOOLS,
        MCP,
        HARNESS,
        STORE_OR_MEMORY,
        _argument("--port N", "the port; default: a free one", type=_parse_port, default=0),
        _argument("--origin URL ...", "allow pages that this server serves, as in http://localhost:3000", dest="origins"),
        _argument("--token NAME", "refuse requests without the bearer token in this environment variable"),
        options="ServeOptions",
    ),
    Command(
        "skills",
        "",
        "List and check Agent Skills. They are folders with a SKILL.md in .agents/skills or .claude/skills, of a project that "
        "you trust, or in your home folder.",
        commands=(
            Command("list", "commands.skills:show", "List the skills that apply here, and those that were left out."),
            Command(
                "validate",
                "commands.skills:validate",
                "Check skills strictly against the specification.",
                _argument("folders FOLDER", "the folder of a skill", nargs="+"),
                epilog="exit codes: 0 valid, 1 a skill has a problem, 2 wrong usage",
            ),
        ),
    ),
    Command(
        "threads",
        "commands.stored.threads:run",
        "List or search the threads of the store. The most recently changed comes first.",
        _argument("--search TEXT", "only threads that contain all these words"),
        _argument("--tag T", "only threads with this tag"),
        _argument("--limit N", "the maximum number of threads; 0: no limit; default: 20", type=_parse_count, default=20),
        _argument("--all", "include the threads of subagents", dest="subagents"),
        JSON_LIST,
        STORE,
        options="ListOptions",
    ),
    Command(
        "show",
        "commands.stored.show:run",
        "Print a thread as a transcript. It shows messages, tool calls and their results, decisions, losses and cost. Control "
        "characters are removed.",
        ID,
        _argument("--at N", "stop after this event number, or after the message with this id"),
        _argument("--branch LOG", "another branch; default: the head of the thread"),
        _argument("--json", "print one JSON object with every event", dest="as_json"),
        stored=True,
    ),
    Command(
        "context",
        "commands.stored.context:run",
        "Show how full the context window of a model is. It prints tokens by kind of content, as a table and as a picture.",
        ID,
        _argument("-m --model M", "another model; default: the one that was asked last"),
        _argument("--undo", "first undo the newest eviction or compaction"),
        _argument("--json", "print one JSON object", dest="as_json"),
        stored=True,
    ),
    Command(
        "tree",
        "commands.stored.threads:show_tree",
        "Draw the branches of a thread. Each is below its parent, with its first prompt.",
        ID,
        JSON_LIST,
        stored=True,
    ),
    Command(
        "fork",
        "commands.stored.threads:fork",
        "Create a branch of a thread. Its id is printed. Nothing is copied or changed, and the head of the thread stays.",
        ID,
        _argument("--at N", "fork after this event number or message id; default: the end"),
        _argument("--label TEXT", "what the branch is for; `evener tree` shows it"),
        STORE,
    ),
    Command(
        "title",
        "commands.stored.threads:title",
        "Set the title of a thread. An empty title removes it.",
        ID,
        _argument("text TEXT", "the title"),
        stored=True,
    ),
    Command(
        "tag",
        "commands.stored.threads:tag",
        "Add or remove tags of a thread. The resulting tags are printed.",
        ID,
        _argument("tags TAG", "a tag to add", nargs="*"),
        _argument("--remove TAG", "tags to remove", **SEVERAL),
        stored=True,
    ),
    Command(
        "verify",
        "commands.stored.store:verify",
        "Check the store for damage. Every event of one thread, or of the whole store, is checked against the hash chain. "
        "Nothing is changed.",
        _argument("id ID", "the thread or branch; default: the whole store", nargs="?", default=""),
        _argument("--json", "print a JSON list of findings", dest="as_json"),
        stored=True,
        epilog="exit codes: 0 no damage, 1 damage found, 2 wrong usage",
    ),
    Command(
        "replay",
        "commands.stored.replay:run",
        "Replay a thread offline and compare. The recorded replies and results go through the same code again and should give "
        "the same events. No model is called and no tool runs.",
        ID,
        _argument("--harness NAME", "use the tools and limits of this harness"),
        JSON_OBJECT,
        stored=True,
        epilog="exit codes: 0 same events, 1 different events, 2 wrong usage",
    ),
    Command(
        "view",
        "commands.view:run",
        "Show the store in the browser. The page is served on this machine only, and its address contains a secret "
        "token. It lists threads, shows conversations, branches, requests and cost, and lets you decide about calls that wait.",
        _argument("id ID", "the thread or branch to open; default: the list", nargs="?", default=""),
        _argument("--port N", "the port; default: a free one", type=_parse_port, default=0),
        _argument("--no-browser", "only print the address"),
        _argument("-m --model M", "let the page resume runs with this model"),
        SAME_TOOLS,
        SAME_HARNESS,
        STORE,
        options="ViewOptions",
    ),
    Command(
        "trace",
        "commands.stored.trace:run",
        "Print the spans of a thread, or send them to a collector. They are computed from the log, so past runs "
        "have them, too. Spans of subagents are included; the text of the conversation only with --content.",
        ID,
        _argument("--otlp URL", "send the spans to this collector, by OTLP over HTTP"),
        _argument("--content", "include the text of the conversation, redacted"),
        _argument("--header NAME=VALUE ...", "with --otlp: a header for the collector", dest="headers"),
        stored=True,
    ),
    Command(
        "export",
        "commands.stored.store:export",
        "Write a thread with all its branches as JSON Lines. The output holds the whole conversation: keep it private.",
        ID,
        _argument("-o --output FILE", "a new file that only you can read; default: standard output", default="-"),
        _argument("--html", "write one page for a browser instead, with calls, costs and losses"),
        stored=True,
    ),
    Command(
        "import",
        "commands.stored.store:import_thread",
        "Read an exported thread into the store. The whole file is checked first. The id of the thread is printed.",
        _argument("file FILE", "the exported file; -: standard input"),
        STORE,
    ),
    Command(
        "copy",
        "commands.stored.store:copy",
        "Copy threads from one store to another, for example from a file to a database. Each copy is verified.",
        _argument("ids ID", "a thread: its id, or the first characters of it; default: all threads", nargs="*"),
        _argument("--from STORE", "the store to copy from: a file, or postgresql://...", dest="source", required=True),
        _argument("--to STORE", "the store to copy to", dest="target", required=True),
    ),
    Command(
        "worker",
        "commands.worker:run",
        "Perform the runs that other processes submit to a harness on a PostgreSQL store. After SIGTERM each run finishes its "
        "current step, and other workers continue it.",
        _argument("--harness NAME", "a harness of evener.toml, or module:attribute", required=True),
        _argument(
            "--engine NAME",
            "which engine distributes the runs: postgres (default) or temporal",
            choices=("postgres", "temporal"),
            default="postgres",
        ),
        _argument("--slots N", "how many runs at a time; default: 8", type=int, default=8),
        _argument(
            "--silence SECONDS",
            "reassign the runs of a worker that is silent for this long; default: 10",
            type=float,
            default=10.0,
        ),
        _argument("--temporal ADDRESS", "the Temporal server; default: from TEMPORAL_ADDRESS or temporal.toml", default=""),
        _argument("--until-idle", "exit when no run is due (engine postgres)"),
    ),
    Command(
        "schedule",
        "commands.schedule:run",
        "Submit a prompt repeatedly, at fixed times. Workers of the harness perform it, each time in a new thread. Without a "
        "prompt, list the schedules.",
        _argument("prompt PROMPT", "what to submit", nargs="?", default=""),
        _argument("--harness NAME", "a harness of evener.toml, or module:attribute", required=True),
        _argument("--name NAME", "the name of the schedule; the ids of its threads begin with it", default=""),
        _argument("--every SECONDS", "the interval, in seconds", type=float, default=0.0),
        _argument("--cron FIELDS", "five fields as in '0 9 * * 1-5', in UTC", default=""),
        _argument("--remove NAME", "remove the schedule with this name", default=""),
        JSON_LIST,
    ),
    Command(
        "rm",
        "commands.stored.store:remove",
        "Erase threads for good. You are asked for confirmation. The id of a branch erases that branch only. The numbers, "
        "times and hashes of the events stay, so that the rest of the store can still be verified.",
        _argument("ids ID", "a thread or branch: its id, or the first characters of it", nargs="+"),
        YES,
        stored=True,
    ),
    Command(
        "retain",
        "commands.stored.store:retain",
        "Erase old threads. A thread is old if it has no new event for the given time. You are asked for confirmation.",
        _argument("--older-than TIME", "the age, as in 90d, 12w, 24h", required=True),
        _argument("--dry-run", "only print what would be erased"),
        _argument("--force", "also erase threads that wait for a decision or cannot be read"),
        YES,
        stored=True,
    ),
    Command(
        "backup",
        "commands.stored.store:backup",
        "Copy the whole store while other processes write. The copy of a store file is from one moment. In the copy of a "
        "PostgreSQL database each thread is consistent, but the threads are not from the same moment.",
        _argument("file FILE", "the copy; it must not exist yet"),
        stored=True,
    ),
    Command(
        "models",
        "commands.models:run",
        "List models, or providers with their capabilities and keys. Models of providers without a key are listed only "
        "if you give a word.",
        _argument("words WORD", "only models whose name contains all these words", nargs="*"),
        _argument("--providers", "list the providers instead"),
        _argument("--provider P", "only this provider, with its address and its known models"),
        JSON_LIST,
    ),
    Command(
        "tools",
        "commands.tools:run",
        "List the built-in tool sets and their tools. With names, describe these sets in full.",
        _argument("names SET", "a tool set", nargs="*"),
        JSON_LIST,
    ),
    Command(
        "keys",
        "",
        "Store, list and remove keys. They are kept in a file that only you can read. A key is never printed, and never given "
        "on the command line.",
        commands=(
            Command(
                "set",
                "commands.keys:store",
                "Store a key. It is typed without echo, or read from standard input.",
                _argument("name NAME", "a provider, or an environment variable that a provider row names"),
            ),
            Command(
                "list",
                "commands.keys:show",
                "List the keys, where they are, and which providers use them. Only fingerprints of keys are printed.",
                JSON_LIST,
            ),
            Command(
                "remove",
                "commands.keys:remove",
                "Remove a key from the key file.",
                _argument("name NAME", "a provider, or an environment variable that a provider row names"),
            ),
            Command("path", "commands.keys:path", "Print the path of the key file."),
        ),
    ),
    Command(
        "doctor",
        "commands.doctor:run",
        "Check this installation and suggest fixes. It looks at versions, config files, keys and the local model, and connects "
        "to the providers with a key. No key is sent. With a THREAD, check that conversation instead: print what each wire "
        "would repair or lose. Then nothing is sent.",
        _argument("thread THREAD", "a thread or branch: its id, or the first characters of it", nargs="?", default=""),
        STORE,
        _argument("--offline", "do not use the network"),
        _argument("--json", "print a JSON list of findings", dest="as_json"),
        epilog="exit codes: 0 no problem found, 1 something that is configured is broken",
    ),
    Command(
        "probe",
        "reports.probe:run",
        "Find out what an endpoint can do. Sends at most six small requests, and prints a row for your config file.",
        _argument("model MODEL", "provider:model"),
        _argument("--base-url URL", "the address, if it is not that of the provider"),
        _argument("--json", "print a JSON list of what was tried", dest="as_json"),
    ),
    Command(
        "completion",
        "reports.completion:run",
        'Print a script that makes a shell complete commands and options. For bash: eval "$(evener completion bash)"',
        _argument("shell SHELL", "bash, zsh or fish", choices=("bash", "zsh", "fish")),
    ),
    Command(
        "translate",
        "commands.translate:run",
        "Translate a request from one wire to another. Losses are printed on stderr. Wires: anthropic_messages, "
        "openai_responses, openai_chat, gemini; the name of a provider works, too.",
        _argument("--from WIRE", "the wire of the request", dest="source", required=True),
        _argument("--to WIRE", "the wire to translate to", dest="target", required=True),
        _argument("--model M", "the model name for the translated request; default: unchanged"),
        _argument("--rows FILE ...", "a TOML file with your own provider rows"),
        _argument("--json", "print the request and the losses as one object", dest="as_json"),
        REFUSE_LOSSES,
        _argument("request FILE", "a file with the request; default: standard input", nargs="?", default="-"),
    ),
)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the words as options. Extra words are not printed in an error: one of them might be a key."""
    top = parser(sys.argv[1:] if argv is None else argv)
    options, rest = top.parse_known_args(argv)
    if rest and "words" in options and not any(word.startswith("-") for word in rest):
        options.words, rest = [*options.words, *rest], []  # words may follow an option, too
    if rest:
        names = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z-]+(?:=|$)", word)]
        what = f"unknown options: {' '.join(names)}" if names else "too many words"
        top.error(f"{what} (values are not shown, because one might be a key)")
    return options


def run(options: argparse.Namespace) -> int:
    """Load the function of the command and call it; return the exit code."""
    given = dict(vars(options))
    command: Command = given.pop("command")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    module, _, name = command.run.partition(":")
    loaded = import_module(f"evener.cli.{module}")
    function = getattr(loaded, name)
    if command.stored:
        from evener.cli.stores import with_store

        return with_store(str(values.pop("store")), lambda store: function(store, **values))
    code: int = function(getattr(loaded, command.options)(**values)) if command.options else function(**values)
    return code


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; if words are given, only for the commands that they name."""
    about = "One typed conversation, any model."
    top = argparse.ArgumentParser(prog="evener", description=about, epilog=CODES, formatter_class=_Formatter)
    top.add_argument("--version", action="version", version=f"evener {__version__}")
    _add(top, COMMANDS, words)
    return top


def _add(above: argparse.ArgumentParser, commands: Sequence[Command], words: Sequence[str] | None) -> None:
    group = above.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_CommandParser)
    for command in commands:
        group.add_parser(command.name, help=command.help, row=command, words=words)


class _CommandParser(argparse.ArgumentParser):
    """The parser of one command. It stays empty unless the words name the command, so that `--help` is quick."""

    def __init__(self, prog: str, row: Command, words: Sequence[str] | None) -> None:
        if words is not None and row.name not in words:
            return
        super().__init__(prog=prog, description=row.text, epilog=row.epilog, formatter_class=_Formatter)
        for argument in row.arguments:
            self.add_argument(*argument.names, **argument.settings)
        self.set_defaults(**row.fixed, command=row)
        if row.commands:
            _add(self, row.commands, words)


class _Formatter(argparse.HelpFormatter):
    """Finds the width of the terminal as `shutil` does, without loading it: that loads compression."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_find_width() - 2)


def _find_width() -> int:
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or COLUMNS  # type: ignore[union-attr] # as below
    except (AttributeError, ValueError, OSError):  # there is no such stream, it is closed, or it is no terminal
        return COLUMNS
