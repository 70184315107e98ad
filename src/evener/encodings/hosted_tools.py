"""Tools that a provider runs, declared in neutral terms: the declaration on each wire, and further fields of the request.
Pure.

None of them has credentials: there is no field for one. If a row has no such tool, nothing is sent.
"""

from collections.abc import Callable, Mapping

import msgspec

from evener.errors import BadValue, UsageError
from evener.transcript.ask import Ask, Extra, HostedTool, ToolSpec
from evener.wire.prefix import dumps
from evener.wire.quirks import Quirks


class HostedOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of all kinds: sites to search, stores of files, and of a remote server its name, address and tools."""

    domains: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    server: str = ""
    url: str = ""
    tools: tuple[str, ...] = ()


Declared = tuple[Mapping[str, object], Mapping[str, object], str]
"""The entry in the list of tools, further fields of the body, and a beta feature to name."""
Declare = Callable[[HostedOptions], Declared]


def _plain(entry: Mapping[str, object]) -> Declare:
    return lambda _: (entry, {}, "")


def _only(options: HostedOptions, name: str) -> dict[str, object]:
    return {name: list(options.domains)} if options.domains else {}


def _connector(options: HostedOptions) -> Declared:
    allowed = {name: {"enabled": True} for name in options.tools}
    entry = {"type": "mcp_toolset", "mcp_server_name": options.server, "default_config": {"enabled": False}, "configs": allowed}
    server = {"type": "url", "url": options.url, "name": options.server}
    return entry, {"mcp_servers": [server]}, "mcp-client-2025-11-20"


def _remote(options: HostedOptions) -> Declared:
    place = {"server_label": options.server, "server_url": options.url}
    return {"type": "mcp", **place, "allowed_tools": list(options.tools), "require_approval": "never"}, {}, ""


def _declare_search(options: HostedOptions) -> Declared:
    return {"type": "web_search", **({"filters": _only(options, "allowed_domains")} if options.domains else {})}, {}, ""


CODE = {"type": "code_execution_20250825", "name": "code_execution"}
DECLARATIONS: Mapping[tuple[str, str], Mapping[str, Declare]] = {
    ("web_search", "anthropic_messages"): {
        "web_search_20250305": lambda given: (
            {"type": "web_search_20250305", "name": "web_search", **_only(given, "allowed_domains")}, {}, "",
        ),
    },
    ("web_search", "openai_responses"): {"web_search": _declare_search},
    ("web_search", "gemini"): {"google_search": _plain({"googleSearch": {}})},
    ("code_execution", "anthropic_messages"): {"code_execution_20250825": lambda _: (CODE, {}, "code-execution-2025-08-25")},
    ("code_execution", "openai_responses"): {
        "code_interpreter": _plain({"type": "code_interpreter", "container": {"type": "auto"}})
    },
    ("code_execution", "gemini"): {"code_execution": _plain({"codeExecution": {}})},
    ("file_search", "openai_responses"): {
        "file_search": lambda given: ({"type": "file_search", "vector_store_ids": list(given.stores)}, {}, "")
    },
    ("file_search", "gemini"): {
        "file_search": lambda given: ({"fileSearch": {"fileSearchStoreNames": list(given.stores)}}, {}, "")
    },
    ("image_generation", "openai_responses"): {"image_generation": _plain({"type": "image_generation"})},
    ("remote_mcp", "anthropic_messages"): {"mcp_toolset": _connector},
    ("remote_mcp", "openai_responses"): {"mcp": _remote},
}  # fmt: skip
"""By kind and wire: the types by which a row says that it has the tool, and how it is declared."""
KINDS = tuple(dict.fromkeys(kind for kind, _ in DECLARATIONS))
WITHOUT_SITES = ("gemini",)
"""Wires whose search cannot be limited to some sites."""


def read_options(tool: HostedTool) -> HostedOptions:
    """Return the options of a neutral hosted tool. Raises BadValue for an unknown kind."""
    if tool.name not in KINDS:
        raise BadValue(f"There is no hosted tool {tool.name!r}. The kinds are {', '.join(KINDS)}.")
    try:
        return msgspec.json.decode(tool.raw, type=HostedOptions)
    except msgspec.ValidationError as error:
        raise BadValue(f"The options of the hosted tool {tool.name!r} cannot be used: {error}.") from None


def find_declaration(tool: HostedTool, wire: str, quirks: Quirks) -> Declare | None:
    """Return the function that declares a hosted tool on this row; None if the row has no such tool."""
    known = DECLARATIONS.get((tool.name, wire), {}) if quirks.hosted else {}
    return next((declare for type, declare in known.items() if type in quirks.hosted_tools), None)


def check_hosted(tool: HostedTool, wire: str, quirks: Quirks, *, model: str) -> None:
    """Refuse a hosted tool that a model does not have."""
    options = read_options(tool)
    if find_declaration(tool, wire, quirks) is None:
        has = [kind for kind in KINDS if find_declaration(HostedTool("", "{}", kind), wire, quirks)]
        others = f"It has {', '.join(has)}." if has else "It has no hosted tools."
        raise UsageError(
            f"{model} has no hosted tool {tool.name!r}: nothing was sent. {others} Leave it out, choose another model, or give "
            "the harness a tool that runs here."
        )
    if options.domains and wire in WITHOUT_SITES:
        raise UsageError(f"{model} cannot limit {tool.name!r} to some domains: nothing was sent. Leave out the domains.")


def declare_hosted_tools(ask: Ask, quirks: Quirks) -> tuple[tuple[ToolSpec | HostedTool, ...], tuple[Extra, ...]]:
    """Return the tools of an ask with the declarations of the wire in place of neutral ones, and the fields that they need."""
    neutral = [tool for tool in ask.tools if isinstance(tool, HostedTool) and not tool.wire]
    if not neutral:
        return ask.tools, ()
    wire, made, body, betas = ask.target.wire, dict[HostedTool, HostedTool](), dict[str, list[object]](), list[str]()
    for tool in neutral:
        check_hosted(tool, wire, quirks, model=f"{ask.target.provider}:{ask.target.model}")
        declare = find_declaration(tool, wire, quirks)
        assert declare is not None
        entry, more, beta = declare(read_options(tool))
        made[tool] = HostedTool(wire, dumps(entry).decode(), tool.name)
        for name, value in more.items():
            body.setdefault(name, []).extend(value if isinstance(value, list) else [value])
        betas += [beta] if beta and beta not in betas else []
    tools = tuple(made.get(tool, tool) if isinstance(tool, HostedTool) else tool for tool in ask.tools)
    headers = (("anthropic-beta", ",".join(betas)),) if betas else ()
    extra = (Extra(wire, dumps(body).decode(), headers),) if body or headers else ()
    return tools, extra
