"""Regenerates the parts of docs/protocol.md that describe the code. `--check` only reports whether the file is stale.

Three kinds of text in that document are generated:

    `path.py:12 Name`                                  the line where the name is defined; write `path.py:? Name`
    <!-- generated: part words --> ... <!-- end -->    the result of the function `PARTS[part]` for these words
    python blocks                                      are run; the part `printed` is the output of the block above it

Reads the source, and encodes values with the real codecs. Opens no connection, and changes no other file.
"""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import get_args

import msgspec
from msgspec.structs import replace
from states import transitions

from evener.providers import Provider, load_rows
from evener.transcript import (
    Ask,
    Block,
    CacheTtl,
    Choice,
    DocumentBlock,
    ImageBlock,
    Inline,
    Message,
    Origin,
    OutputSchema,
    Reasoning,
    Settings,
    TextBlock,
    ToolCall,
    ToolSpec,
    Transcript,
)
from evener.transcript.delta import Delta
from evener.wire import CODECS, Codec, Encoded, Quirks

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "protocol.md"
REFERENCE = re.compile(r"`(?P<path>[\w./]+\.py):(?:\d+|\?) (?P<name>(?:case )?[\w.]+)`")
PART = re.compile(r"(<!-- generated: (\w+)(.*?) -->\n).*?(<!-- end -->)", re.DOTALL)
BLOCK = re.compile(r"(<!-- not run: [^\n]*-->\n)?```python\n(.*?)```", re.DOTALL)


def main(arguments: Sequence[str]) -> int:
    path = Path(next((one for one in arguments if not one.startswith("-")), DOCUMENT))
    old = path.read_text(encoding="utf-8")
    new = fresh(old)
    if "--check" not in arguments:
        path.write_text(new, encoding="utf-8")
    elif old != new:
        print(f"{path.name} is stale. Run `make docs`.")
        return 1
    return 0


def fresh(text: str) -> str:
    """Return the document with all generated parts up to date."""
    parts = PART.sub(lambda hit: f"{hit[1]}{PARTS[hit[2]](text[: hit.start()], *hit[3].split())}{hit[4]}", text)
    return REFERENCE.sub(lambda hit: f"`{hit['path']}:{lines(hit['path'], hit['name'])[0]} {hit['name']}`", parts)


# Names in the source.


def at(path: str, name: str) -> str:
    """Return a reference; `fresh` fills in the line."""
    return f"`{path}:? {name}`"


def lines(path: str, name: str) -> tuple[int, int]:
    """Return the first and the last line of a definition."""
    found = defined(path)
    if name not in found:
        raise SystemExit(f"docs/protocol.md names {name!r} of {path}, which does not define it. Correct the document.")
    return found[name]


@cache
def defined(path: str) -> dict[str, tuple[int, int]]:
    """Return the lines of each name in a file: `f`, `Class.method`, `Class.field`, and `case Name` for a class looked for."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    found = {name: (node.lineno, node.end_lineno or node.lineno) for name, node in _definitions(tree.body)}
    cases = [node.pattern for node in ast.walk(tree) if isinstance(node, ast.match_case)]
    alone = [pattern for pattern in cases if isinstance(pattern, ast.MatchClass)]
    for pattern in (*alone, *(one for case in cases if isinstance(case, ast.MatchOr) for one in case.patterns)):
        if isinstance(pattern, ast.MatchClass):
            name = ast.unparse(pattern.cls).rpartition(".")[2]
            found.setdefault(f"case {name}", (pattern.lineno, pattern.end_lineno))
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is) and ast.unparse(node.left).startswith("type("):
            name = ast.unparse(node.comparators[0]).rpartition(".")[2]
            found.setdefault(f"case {name}", (node.lineno, node.lineno))
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                if isinstance(key, ast.Name):
                    found.setdefault(f"case {key.id}", (key.lineno, key.lineno))
    return found


def _definitions(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                yield prefix + name, node
                yield from _definitions(node.body, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield prefix + name, node
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield prefix + name, node


def home(module: str) -> str:
    """Return the file of a module, relative to the root of the repository."""
    path = Path("src", *module.split("."))
    return (path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py")).as_posix()


def folder(wire: str) -> str:
    return f"src/{CODECS[wire].encode.__module__.rpartition('.')[0].replace('.', '/')}/"


def source(_before: str, path: str, name: str) -> str:
    """Return a definition as it is in the source."""
    first, last = lines(path, name)
    text = "\n".join((ROOT / path).read_text(encoding="utf-8").splitlines()[first - 1 : last])
    return f"{at(path, name)}\n\n<!-- not run: an excerpt of the source -->\n```python\n{textwrap.dedent(text)}\n```\n"


def printed(before: str, language: str) -> str:
    """Return the output of the last Python block before this place. The blocks before it are run, too."""
    names: dict[str, object] = {"__name__": "__main__"}
    shown = StringIO()
    for left_out, code in BLOCK.findall(before):
        if not left_out:
            shown = StringIO()
            with redirect_stdout(shown):
                exec(code, names)
    return f"```{language}\n{shown.getvalue().rstrip()}\n```\n"


# What the codecs do.

TOOL = ToolSpec("weather", "The weather in a city.", '{"type":"object","properties":{"city":{"type":"string"}}}')
PIXEL = "iVBORw0KGgo="


def asked(wire: str, *blocks: Block, tools: tuple[ToolSpec, ...] = (TOOL,)) -> Ask:
    """Return an ask whose only message has these blocks."""
    talk = Transcript([Message("user", blocks or (TextBlock("Weather in Oslo?"),))])
    return Ask(talk, Origin(wire=wire, provider="row", model="model"), tools, settings=Settings(max_output_tokens=64_000))


def sent(ask: Ask, quirks: Quirks | None = None) -> Encoded:
    return CODECS[ask.target.wire].encode(ask, quirks or Quirks(), None)


def body(encoded: Encoded) -> dict[str, object]:
    return msgspec.json.decode(encoded.body, type=dict[str, object])


def json(value: object) -> str:
    return f"`{msgspec.json.encode(value).decode()}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(head), *(list(row) for row in rows)]
    cells.insert(1, ["---"] * len(cells[0]))
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in cells)


def landings(value: object, words: str, path: str = "", kinds: tuple[str, ...] = ()) -> Iterator[str]:
    """Yield the places of these words in a body, with the roles and types of the objects around them."""
    match value:
        case dict():
            kinds += tuple(f"`{key}: {value[key]}`" for key in ("role", "type") if isinstance(value.get(key), str))
            for key, inner in value.items():
                yield from landings(inner, words, f"{path}.{key}" if path else key, kinds)
        case list():
            for number, inner in enumerate(value):
                yield from landings(inner, words, f"{path}[{number}]", kinds)
        case str() if words in value:
            yield f"`{path}`" + (f", {', '.join(kinds)}" if kinds else "")


def roles(_before: str) -> str:
    """Return the table of roles: a conversation with every role, encoded for each wire."""
    said = Message("assistant", (TextBlock("I look it up."), ToolCall.of("call_1", "weather", {"city": "Bergen"})))
    came = (Message.tool_result("call_1", "4 degrees"), Message.system_text("Speak Dutch."))
    talk = Transcript([Message.user_text("Is it wet?"), said, *came], system="Be brief.")
    cases = (
        ("System", "`Transcript.system_blocks`", "Be brief."),
        ("System, in mid-conversation", "`Message`, role `system`, `TextBlock`", "Speak Dutch."),
        ("User", "`Message`, role `user`, `TextBlock`", "Is it wet?"),
        ("Assistant", "`Message`, role `assistant`, `TextBlock`", "I look it up."),
        ("Assistant's tool call", "`Message`, role `assistant`, `ToolCall`", "Bergen"),
        ("Tool Result", "`Message`, role `user`, `ToolResult`", "4 degrees"),
    )
    bodies = [body(sent(replace(asked(wire), transcript=talk))) for wire in CODECS]
    rows = ((role, inside, *(next(landings(one, words), "dropped") for one in bodies)) for role, inside, words in cases)
    return table(("Role", "Internal Representation", *(f"`{wire}`" for wire in CODECS)), rows)


CHOICES = {
    "auto": Choice("auto", stated=True),
    "required": Choice("required"),
    "none": Choice("none"),
    "specific": Choice("named", ("weather",)),
    "a subset": Choice("required", ("weather", "time")),
    "one call at a time": Choice("auto", parallel=False),
}


def choices(_before: str) -> str:
    """Return the table of tool choices, each encoded for each wire."""
    rows = []
    for name, choice in CHOICES.items():
        cells = [_choice(wire, choice) for wire in CODECS]
        rows.append((name, _tally([not cell.startswith("loss") for cell in cells]), *cells))
    return table(("Constraint", "Supported", *(f"Implementation: `{wire}`" for wire in CODECS)), rows)


def _tally(kept: Sequence[bool]) -> str:
    return "Yes" if all(kept) else f"{sum(kept)} of {len(kept)} wires" if any(kept) else "No"


def _choice(wire: str, choice: Choice) -> str:
    """Return the fields of the body that this choice adds or changes, or its loss."""
    tools = (TOOL, replace(TOOL, name="time"), replace(TOOL, name="date"))
    plain = body(sent(asked(wire, tools=tools)))
    encoded = sent(replace(asked(wire, tools=tools), choice=choice))
    if encoded.losses:
        return f"loss: {encoded.losses[0].why}"
    made = {key: value for key, value in body(encoded).items() if plain.get(key) != value}
    return ", ".join(f"`{key}`: {json(value)}" for key, value in made.items()) or "nothing sent: it is the default"


def events(_before: str) -> str:
    """Return the table of deltas: fields, meaning, the wires that make it, and the code that folds it."""
    rows = []
    for kind in get_args(Delta):
        name, meaning = kind.__name__, (inspect.getdoc(kind) or "").partition(".")[0]
        makers = [wire for wire in CODECS if _makes(folder(wire), name)]
        made = "all wires" if len(makers) == len(CODECS) else ", ".join(f"`{wire}`" for wire in makers) or "none"
        payload = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(kind))
        handler = at(home("evener.wire.stream"), f"case {name}")
        rows.append((at(home(kind.__module__), name), payload, meaning, made, handler))
    return table(("Event", "Payload", "Meaning", "Made by", "Handler Location"), rows)


def _makes(place: str, name: str) -> bool:
    """True if the code of a folder calls this class."""
    return any(re.search(rf"\b{name}\(", path.read_text(encoding="utf-8")) for path in (ROOT / place).rglob("*.py"))


# What the rows say.


def providers(_before: str) -> str:
    """Return a list of the providers by wire."""
    rows = load_rows().providers
    found = []
    for wire in CODECS:
        names = [f"`{row.name}`" for row in rows if row.wire == wire]
        found.append(f"- `{folder(wire)}` ({len(names)} providers): {', '.join(names)}\n")
    return "".join(found)


def features(_before: str) -> str:
    """Return the table of features: what each row of a provider keeps of an ask, found by encoding the ask."""
    heads = ("Provider", "Adapter", "Streaming", "Tool Choice", "Parallel Tools", *FEATURES, "Cache Marks", "Notes")
    rows = sorted(load_rows().providers, key=lambda row: list(CODECS).index(row.wire))
    return table(heads, (_features(row) for row in rows))


def _features(row: Provider) -> Iterator[str]:
    plain = asked(row.wire)
    yield f"`{row.name}`"
    yield f"`wire/{row.wire}/`"
    yield "Yes" if row.quirks.framing == "sse" or _is_read("framing") else f"No: `{row.quirks.framing}` is not cut yet"
    kept = [name for name in tuple(CHOICES)[:4] if not _lost(row, replace(plain, choice=CHOICES[name]))]
    yield "Full" if len(kept) == 4 else f"Partial: {', '.join(kept)}"
    yield "Yes, no switch" if _lost(row, replace(plain, choice=CHOICES["one call at a time"])) else "Yes"
    for ask in FEATURES.values():
        yield _lost(row, ask(row.wire)).capitalize() or "Yes"
    ttls = [ttl for ttl in get_args(CacheTtl) if ttl and not _lost(row, asked(row.wire, TextBlock("Wet?", cache=ttl)))]
    yield f"{row.quirks.cache_marks} ({', '.join(ttls)})" if ttls else "No"
    yield ", ".join(f"`{name}`" for name in msgspec.to_builtins(row.quirks) if name not in TRIED)


FEATURES: dict[str, Callable[[str], Ask]] = {
    "Tools": asked,
    "Images": lambda wire: asked(wire, TextBlock("What is it?"), ImageBlock(Inline(PIXEL), "image/png")),
    "Documents": lambda wire: asked(wire, TextBlock("What is it?"), DocumentBlock(Inline(PIXEL), "application/pdf")),
    "JSON Mode": lambda wire: replace(asked(wire, tools=()), output=OutputSchema()),
    "Output Schema": lambda wire: replace(asked(wire, tools=()), output=OutputSchema(TOOL.schema)),
    "Strict": lambda wire: asked(wire, tools=(replace(TOOL, schema=CLOSED, strict=True),)),
    "Effort": lambda wire: replace(asked(wire), reasoning=Reasoning("high")),
}
CLOSED = '{"type":"object","properties":{"city":{"type":"string"}},"required":["city"],"additionalProperties":false}'
TRIED = (
    *("path", "stream_path", "api_version", "framing", "forced_choice", "named_choice", "parallel_switch"),
    *("images", "documents", "output_schema", "strict", "effort", "cache_marks", "cache_ttls"),
)
"""Quirks that the column "Notes" leaves out, because other columns show their effect."""


def _lost(row: Provider, ask: Ask) -> str:
    """Return the kind of the first loss of the ask at this provider; empty if there is none."""
    losses = sent(ask, row.quirks).losses
    return losses[0].kind if losses else ""


def _is_read(quirk: str) -> bool:
    """True if any code reads this quirk."""
    return any(f"quirks.{quirk}" in path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))


def codecs(_before: str) -> str:
    """Return the list of each wire's functions, with their places."""
    return "".join(f"- {reference}: {what}\n" for codec in CODECS.values() for reference, what in _functions(codec))


def _functions(codec: Codec) -> Iterator[tuple[str, str]]:
    for function, what in (
        (codec.encode, "an ask as a request"),
        (codec.decode, "a whole answer as a reply"),
        (codec.decoder, "a streamed answer as deltas"),
        (codec.read_request, "a request as an ask"),
    ):
        yield at(home(function.__module__), function.__qualname__), f"`{codec.wire}`, {what}"


# What the loop does.


def states(_before: str) -> str:
    """Return the table of the state machine of a run, found by a search."""
    found = transitions().items()
    rows = ((f"`{start}`", ", ".join(f"`{name}`" for name in names), f"`{end}`") for (start, end), names in found)
    return table(("From", "Events", "To"), rows)


PARTS: dict[str, Callable[..., str]] = {
    part.__name__: part for part in (choices, codecs, events, features, printed, providers, roles, source, states)
}


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
