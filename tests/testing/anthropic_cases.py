"""Anthropic Messages: for each rule, a small valid body and the edits that break it; and bodies that must pass."""

from typing import Any

from tests.testing.edits import GONE, Case, Json, edited

WIRE = "anthropic_messages"
NEWER = {"api_version": "2026-10-21"}


def block(kind: str, **fields: Any) -> Json:
    return {"type": kind, **fields}


def said(text: str) -> Json:
    return block("text", text=text)


def turn(role: str, *blocks: Json) -> Json:
    return {"role": role, "content": list(blocks)}


TOOL: Json = {
    "name": "lookup",
    "description": "Looks a word up.",
    "input_schema": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}
CALL = block("tool_use", id="toolu_1", name="lookup", input={"word": "oak"})
SECOND = block("tool_use", id="toolu_2", name="lookup", input={"word": "elm"})
RESULT = block("tool_result", tool_use_id="toolu_1", content="a tree")
THOUGHT = block("thinking", thinking="A tree, surely.", signature="sig-1")
SEARCH = block("server_tool_use", id="srvtoolu_1", name="web_search", input={"query": "oak"})
FOUND = block("web_search_tool_result", tool_use_id="srvtoolu_1", content=[])
CLOSED: Json = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}

PLAIN: Json = {"model": "claude-sonnet-4-5", "max_tokens": 4096, "messages": [turn("user", said("What is an oak?"))]}
LOOP: Json = {
    **PLAIN,
    "tools": [TOOL],
    "messages": [turn("user", said("Look it up.")), turn("assistant", CALL), turn("user", RESULT)],
}
BUDGET: Json = edited(
    LOOP,
    {"thinking": {"type": "enabled", "budget_tokens": 2048}, "messages.1": turn("assistant", THOUGHT, CALL)},
)
ADAPTIVE: Json = edited(
    LOOP,
    {"model": "claude-opus-5-5", "messages.1": turn("assistant", THOUGHT, CALL), "thinking": {"type": "adaptive"}},
)
DISABLED: Json = {**LOOP, "thinking": {"type": "disabled"}}
HOSTED: Json = {
    **PLAIN,
    "tools": [block("web_search_20250305", name="web_search")],
    "messages": [turn("user", said("Search.")), turn("assistant", SEARCH, FOUND, said("Found.")), turn("user", said("So?"))],
}
IMAGE: Json = edited(
    PLAIN,
    {"messages.0.content.1": block("image", source=block("base64", media_type="image/png", data="aGk="))},
)
PDF: Json = edited(
    PLAIN,
    {"messages.0.content.1": block("document", source=block("base64", media_type="application/pdf", data="aGk="))},
)
STATE = block("browser_state", tabs=[{"tab_id": "1", "title": "", "url": "https://example/", "active": True}])
BROWSER: Json = {
    **PLAIN,
    "model": "claude-opus-5",
    "tools": [block("browser_toolset_20260801", configs={"zoom": {"enabled": False}})],
    "messages": [
        turn("user", said("Look.")),
        turn("assistant", block("tool_use", id="toolu_1", name="screenshot", input={}, toolset_name="browser")),
        turn("user", block("tool_result", tool_use_id="toolu_1", toolset_name="browser", content=[said("Done."), STATE])),
    ],
}
DESKTOP: Json = {
    **PLAIN,
    "tools": [block("computer_20250124", name="computer", display_width_px=800, display_height_px=600)],
}
BETA: Json = {"betas": ["computer-use-2025-01-24"]}
SHOWN = "messages.2.content.0"
MIDWAY: Json = {
    **PLAIN,
    "model": "claude-opus-4-8",
    "messages": [
        turn("user", said("Hello.")),
        turn("system", said("Be brief.")),
        turn("assistant", said("Hi.")),
        turn("user", said("What is an oak?")),
    ],
}
STRICT: Json = {**PLAIN, "tools": [{**TOOL, "input_schema": CLOSED, "strict": True}]}
FORMAT: Json = {**PLAIN, "output_config": {"format": {"type": "json_schema", "schema": CLOSED}}}
MARKED: Json = {**PLAIN, "system": [{**said("Be brief."), "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}
MCP: Json = {
    **PLAIN,
    "mcp_servers": [{"type": "url", "url": "https://mcp.example/sse", "name": "docs"}],
    "tools": [block("mcp_toolset", mcp_server_name="docs")],
}
MARK = {"type": "ephemeral"}
CITED = "messages.0.content.1.citations"
PROPERTY = "tools.0.input_schema.properties.word"

SHAPE = [
    Case("json", PLAIN, raw=b'{"model": '),
    Case("json", PLAIN, raw='{"max_tokens": NaN}'),
    Case("json", PLAIN, raw=b"\xff\xfe{}"),
    Case("type", PLAIN, raw="[]"),
    Case("type", PLAIN, {"max_tokens": "many"}),
    Case("type", PLAIN, {"max_tokens": True}),
    Case("type", PLAIN, {"messages": "What is an oak?"}),
    Case("type", PLAIN, {"messages.0.content.0": "What is an oak?"}),
    Case("type", PLAIN, {"stop_sequences": [3]}),
    Case("type", PLAIN, {"temperature": "warm"}),
    Case("type", LOOP, {"messages.1.content.0.input": '{"word": "oak"}'}),
    Case("missing", PLAIN, {"max_tokens": GONE}),
    Case("missing", PLAIN, {"model": GONE}),
    Case("missing", PLAIN, {"messages.0.content": GONE}),
    Case("missing", LOOP, {"messages.1.content.0.input": GONE}),
    Case("enum", PLAIN, {"service_tier": "priority"}),
    Case("enum", MARKED, {"system.0.cache_control.ttl": "2h"}),
    Case("enum", HOSTED, {"messages.1.content.0.name": "lookup"}),
    Case("extra_field", PLAIN, {"response_format": {}}),
    Case("extra_field", PLAIN, {"messages.0.id": "msg_1"}),
    Case("extra_field", LOOP, {"messages.1.content.0.index": 0}),
    Case("extra_field", LOOP, {"tools.0.parameters": {}}),
    Case("role", PLAIN, {"messages.0.role": "tool"}),
    Case("messages.count", PLAIN, {"messages": []}),
    Case("content.empty", PLAIN, {"messages.0.content": []}),
    Case("content.empty", PLAIN, {"messages.0.content": ""}),
    Case("text.empty", PLAIN, {"messages.0.content.0.text": ""}),
    Case("text.empty", MARKED, {"system.0.text": ""}),
    Case("text.whitespace", PLAIN, {"messages.0.content.0.text": " \n"}),
    Case("block.type", PLAIN, {"messages.0.content.0.type": "input_text"}),
    Case("block.type", LOOP, {"messages.2.content.0.content": [CALL]}),
    Case("block.role", MARKED, {"system.1": block("image", source=block("url", url="https://example/a.png"))}),
    Case("block.role", LOOP, {"messages.0.content.0": CALL}),
    Case("block.role", BUDGET, {"messages.0.content.0": THOUGHT}),
    Case("block.role", LOOP, {"messages.1.content.0": RESULT}),
    Case("block.role", LOOP, {"messages.1.content.1": IMAGE["messages"][0]["content"][1]}),
    Case("block.role", LOOP, {"messages.1.content.1": PDF["messages"][0]["content"][1]}, NEWER),
    Case("source.type", IMAGE, {"messages.0.content.1.source": block("text", media_type="text/plain", data="hi")}),
    Case("source.type", IMAGE, {"messages.0.content.1.source": block("file", file_id="file_1")}, {"betas": ()}),
    Case("source.media_type", IMAGE, {"messages.0.content.1.source.media_type": "image/bmp"}),
    Case("source.media_type", PDF, {"messages.0.content.1.source.media_type": "text/csv"}),
    Case("source.base64", IMAGE, {"messages.0.content.1.source.data": "data:image/png;base64,aGk="}),
    Case("citations.user", PLAIN, {"messages.0.content.0.citations": [block("char_location")]}, NEWER),
    Case("stop_sequence", PLAIN, {"stop_sequences": ["END", "\n"]}),
]

TURNS = [
    Case("tool_use.id", LOOP, {"messages.1.content.0.id": "call:1", "messages.2.content.0.tool_use_id": "call:1"}),
    Case("tool_use.name", LOOP, {"messages.1.content.0.name": ""}),
    Case("tool_use.duplicate", LOOP, {"messages.1.content.1": CALL}),
    Case("tool_use.unanswered", LOOP, {"messages.1.content.1": SECOND}),
    Case("tool_use.unanswered", LOOP, {"messages.2": GONE}),
    Case("tool_use.unanswered", LOOP, {"messages.2": turn("user", said("Never mind."))}),
    Case("tool_result.orphan", LOOP, {"messages.2.content.1": block("tool_result", tool_use_id="toolu_9", content="x")}),
    Case("tool_result.orphan", LOOP, {"messages.1": turn("assistant", said("An oak is a tree."))}),
    Case("tool_result.duplicate", LOOP, {"messages.2.content.1": RESULT}),
    Case("tool_result.order", LOOP, {"messages.2": turn("user", said("Here:"), RESULT)}),
    Case("tool_result.order", LOOP, {"messages.2": turn("user", said("Here:")), "messages.3": turn("user", RESULT)}),
    Case("tool_result.empty", LOOP, {"messages.2.content.0.content": []}),
    Case("tool_result.error_empty", LOOP, {"messages.2.content.0.is_error": True, "messages.2.content.0.content": ""}),
    Case(
        "tool_result.error_media",
        LOOP,
        {
            "messages.2.content.0.is_error": True,
            "messages.2.content.0.content": [block("image", source=block("url", url="https://example/a.png"))],
        },
    ),
    Case("server_tool_use.id", HOSTED, {"messages.1.content.0.id": "call_1"}),
    Case("server_tool.orphan", HOSTED, {"messages.1.content.0": said("Searching.")}),
    Case("server_tool.unanswered", HOSTED, {"messages.1.content.1": said("Nothing came back.")}),
    Case("tool_reference.unknown", LOOP, {"messages.2.content.0.content": [block("tool_reference", tool_name="dig")]}),
    Case("system.placement", MIDWAY, {"messages.0": turn("system", said("Be brief."))}),
    Case("system.placement", MIDWAY, {"messages.2": turn("user", said("Are you there?"))}),
    Case("system.unsupported", MIDWAY, {"model": "claude-opus-4-7"}),
    Case("prefill", {**PLAIN, "model": "claude-sonnet-4-6"}, {"messages.1": turn("assistant", said("An oak is"))}),
    Case("prefill.whitespace", PLAIN, {"messages.1": turn("assistant", said("An oak is "))}),
    Case("prefill.whitespace", PLAIN, {"messages.1": {"role": "assistant", "content": "An oak is\n"}}),
    Case("thinking.signature", BUDGET, {"messages.1.content.0.signature": ""}),
    Case("thinking.signature", BUDGET, {"messages.1.content.0.signature": GONE}),
    Case("thinking.signature", BUDGET, {"messages.1.content.0": block("redacted_thinking", data="")}),
    Case("thinking.altered", BUDGET, {"messages.1.content.0.thinking": "A bush."}, {"issued": {"sig-1": "A tree, surely."}}),
    Case("thinking.altered", BUDGET, {"messages.1.content.0.signature": "sig-2"}, {"issued": {"sig-1": "A tree, surely."}}),
    Case("thinking.last", ADAPTIVE, {"messages.1.content.2": THOUGHT}),
    Case("thinking.first", BUDGET, {"messages.1": turn("assistant", said("Hm."), THOUGHT, CALL)}),
    Case("thinking.expected", BUDGET, {"messages.1": turn("assistant", CALL)}),
    Case("thinking.disabled", DISABLED, {"messages.1": turn("assistant", THOUGHT, CALL)}),
]

SETTINGS = [
    Case("thinking.type", BUDGET, {"thinking": {"type": "deep"}}),
    Case("thinking.model", ADAPTIVE, {"thinking": {"type": "disabled"}}),
    Case("thinking.model", {**PLAIN, "model": "claude-haiku-4-5"}, {"thinking": {"type": "adaptive"}}),
    Case("thinking.model", {**PLAIN, "model": "us.anthropic.claude-opus-4-7-v1:0"}, {"thinking": BUDGET["thinking"]}),
    Case(
        "thinking.model",
        {**PLAIN, "model": "claude-opus-5", "output_config": {"effort": "high"}, "thinking": {"type": "disabled"}},
        {"output_config.effort": "max"},
    ),
    Case("thinking.budget_min", BUDGET, {"thinking.budget_tokens": 1023}),
    Case("thinking.budget_max", BUDGET, {"thinking.budget_tokens": 4096}),
    Case("effort", {**PLAIN, "model": "claude-opus-4-6"}, {"output_config": {"effort": "xhigh"}}),
    Case("effort", {**PLAIN, "model": "claude-opus-5-5"}, {"output_config": {"effort": "minimal"}}),
    Case("effort", PLAIN, {"output_config": {"effort": "low"}}),
    Case("sampling.version", PLAIN, {"temperature": 1}, NEWER),
    Case("sampling.model", {**PLAIN, "model": "claude-fable-5"}, {"temperature": 0.5}),
    Case("sampling.thinking", BUDGET, {"temperature": 0.5}),
    Case("sampling.thinking", BUDGET, {"top_p": 0.5}),
    Case("sampling.pair", {**PLAIN, "model": "claude-sonnet-4-5", "temperature": 0.5}, {"top_p": 0.9}),
    Case("sampling.range", PLAIN, {"temperature": 1.5}),
    Case("max_tokens", PLAIN, {"max_tokens": -1}),
    Case("max_tokens", PLAIN, {"max_tokens": 0, "stream": True}),
    Case("format.citations", {**PDF, "output_config": FORMAT["output_config"]}, {CITED: {"enabled": True}}),
    Case("format.prefill", FORMAT, {"messages.1": turn("assistant", said("{"))}),
    Case("schema.keyword", FORMAT, {"output_config.format.schema.properties.word": {"type": "string", "minLength": 1}}),
    Case("schema.keyword", STRICT, {PROPERTY: {"oneOf": [{"type": "string"}, {"type": "null"}]}}),
    Case("schema.open_object", FORMAT, {"output_config.format.schema.additionalProperties": GONE}),
    Case("schema.open_object", STRICT, {PROPERTY: {"type": "object", "properties": {}}}),
    Case("schema.enum", STRICT, {PROPERTY: {"enum": [["a"], ["b"]]}}),
    Case("schema.format", STRICT, {PROPERTY: {"type": "string", "format": "regex"}}),
    Case("schema.min_items", STRICT, {PROPERTY: {"type": "array", "items": {"type": "string"}, "minItems": 2}}),
    Case(
        "schema.recursive",
        STRICT,
        {"tools.0.input_schema.$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}},
    ),
]

TOOLS = [
    Case("tool.type", HOSTED, {"tools.0.type": "web_search_19991231"}),
    Case("tool.name", LOOP, {"tools.0.name": "look up"}),
    Case("tool.name", LOOP, {"tools.0.name": "x" * 129}),
    Case("tool.fixed_name", HOSTED, {"tools.0.name": "search"}),
    Case("tool.duplicate", LOOP, {"tools.1": TOOL}),
    Case("tool.domains", HOSTED, {"tools.0.allowed_domains": ["a.example"], "tools.0.blocked_domains": ["b.example"]}),
    Case("tool.schema_type", LOOP, {"tools.0.input_schema.type": "array"}),
    Case("tool.schema_type", LOOP, {"tools.0.input_schema": {}}),
    Case("tool.schema_type", LOOP, {"tools.0.input_schema.type": ["object", "null"]}),
    Case("schema.malformed", LOOP, {PROPERTY: {"type": "array", "items": [{"type": "string"}]}}),
    Case("schema.malformed", LOOP, {PROPERTY: {"type": "number", "minimum": 1, "exclusiveMinimum": True}}),
    Case("schema.malformed", LOOP, {PROPERTY: {"type": "text"}}),
    Case("schema.malformed", LOOP, {PROPERTY: {"type": "string", "required": True}}),
    Case("schema.target", LOOP, {PROPERTY: {"$ref": "#/$defs/word"}}),
    Case("schema.target", LOOP, {PROPERTY: {"$ref": "https://example/word.json"}}),
    Case("tool.schema_union", LOOP, {"tools.0.input_schema.anyOf": [{"required": ["word"]}]}),
    Case("tool.schema_key", LOOP, {"tools.0.input_schema.properties.filter[id]": {"type": "string"}}),
    Case("mcp.no_toolset", MCP, {"mcp_servers.1": {"type": "url", "url": "https://mcp.example/b", "name": "more"}}),
    Case("mcp.no_toolset", MCP, {"tools": GONE}, {"betas": ["mcp-client-2025-11-20"]}),
    Case("mcp.no_server", MCP, {"tools.0.mcp_server_name": "other"}),
    Case("tool_choice.type", LOOP, {"tool_choice": {"type": "required"}}),
    Case("tool_choice.no_tools", PLAIN, {"tool_choice": {"type": "auto"}}),
    Case("tool_choice.unknown", LOOP, {"tool_choice": {"type": "tool", "name": "dig"}}),
    Case("tool_choice.forced_model", ADAPTIVE, {"tool_choice": {"type": "any"}}),
    Case("tool_choice.forced_thinking", BUDGET, {"tool_choice": {"type": "tool", "name": "lookup"}}),
]

CACHE = [
    Case("cache_control.too_many", MARKED, {f"system.{n}": {**said("More."), "cache_control": MARK} for n in range(1, 5)}),
    Case(
        "cache_control.too_many",
        MARKED,
        {"cache_control": MARK, **{f"system.{n}": {**said("More."), "cache_control": MARK} for n in range(1, 4)}},
    ),
    Case("cache_control.thinking", BUDGET, {"messages.1.content.0.cache_control": MARK}),
    Case("cache_control.empty_text", MARKED, {"system.0.text": ""}),
    Case("cache_control.deferred", LOOP, {"tools.0.defer_loading": True, "tools.0.cache_control": MARK}),
    Case(
        "cache_control.ttl_order",
        MARKED,
        {"tools": [{**TOOL, "cache_control": {"type": "ephemeral", "ttl": "5m"}}]},
    ),
]

COMPUTERS = [
    Case("toolset.config", BROWSER, {"tools.0.configs.dance": {"enabled": False}}),
    Case("type", BROWSER, {"tools.0.configs.zoom.enabled": "no"}),
    Case("extra_field", BROWSER, {"tools.0.name": "browser"}),
    Case("toolset.member", BROWSER, {"messages.1.content.0.name": "cursor_position"}),
    Case("toolset.member", BROWSER, {"messages.1.content.0.toolset_name": "desk", f"{SHOWN}.toolset_name": "desk"}),
    Case("toolset.result", BROWSER, {f"{SHOWN}.toolset_name": GONE}),
    Case("toolset.result", LOOP, {f"{SHOWN}.toolset_name": "computer"}),
    Case("browser_state.place", BROWSER, {f"{SHOWN}.content.2": STATE}),
    Case("browser_state.place", BROWSER, {f"{SHOWN}.is_error": True}),
    Case("browser_state.place", LOOP, {f"{SHOWN}.content": [STATE]}),
    Case("browser_state.active", BROWSER, {f"{SHOWN}.content.1.tabs.0.active": GONE}),
    Case("missing", BROWSER, {f"{SHOWN}.content.1.tabs.0.title": GONE}),
    Case("missing", DESKTOP, {"tools.0.display_width_px": GONE}, BETA),
    Case("computer.beta", DESKTOP, {"tools.0.type": "computer_20251124"}, BETA),
    Case("computer.model", DESKTOP, {"model": "claude-opus-5-5"}, BETA),
]
CASES = [*SHAPE, *TURNS, *SETTINGS, *TOOLS, *COMPUTERS, *CACHE]

# Each of these looks like a broken rule and is not one, mostly because a recording with a 200 says so.
ACCEPTED: dict[str, tuple[Json, Json]] = {
    "an assistant message comes first": (
        edited(PLAIN, {"messages": [turn("assistant", said("Hello!")), *PLAIN["messages"]]}),
        {},
    ),
    "consecutive user messages are merged": (edited(PLAIN, {"messages.1": turn("user", said("And an elm?"))}), {}),
    "parallel results in two user messages": (
        edited(
            LOOP,
            {
                "messages.1.content.1": SECOND,
                "messages.3": turn("user", block("tool_result", tool_use_id="toolu_2", content="a tree")),
            },
        ),
        {},
    ),
    "an id is used again in a later turn": (
        edited(LOOP, {"messages.3": LOOP["messages"][1], "messages.4": LOOP["messages"][2]}),
        {},
    ),
    "a tool that is no longer offered": (edited(LOOP, {"tools.0.name": "dig"}), {}),
    "whitespace beside real text": (edited(PLAIN, {"messages.0.content.1": said(" ")}), {}),
    "thinking with empty text": (edited(ADAPTIVE, {"messages.1.content.0.thinking": ""}), {}),
    "issued thinking unchanged": (ADAPTIVE, {"issued": {"sig-1": "A tree, surely."}}),
    "thinking not first outside budget mode": (
        edited(ADAPTIVE, {"messages.1": turn("assistant", SEARCH, FOUND, THOUGHT, CALL)}),
        {},
    ),
    "a closed turn without thinking in budget mode": (
        edited(BUDGET, {"messages": [turn("user", said("Hi.")), turn("assistant", said("Hello.")), turn("user", said("So?"))]}),
        {},
    ),
    "a paused hosted turn is continued": (
        edited(HOSTED, {"model": "claude-opus-5-5", "messages": [*HOSTED["messages"][:1], turn("assistant", SEARCH)]}),
        {},
    ),
    "a hosted call in flight beside a client call": (edited(LOOP, {"messages.1": turn("assistant", SEARCH, CALL)}), {}),
    "a prefill on an older model": (edited(PLAIN, {"messages.1": turn("assistant", said("An oak is"))}), {}),
    "forced choice with adaptive thinking": (
        edited(LOOP, {"model": "claude-opus-4-6", "thinking": {"type": "adaptive"}, "tool_choice": {"type": "any"}}),
        {},
    ),
    "a file source when the headers are not known": (
        edited(IMAGE, {"messages.0.content.1.source": block("file", file_id="f")}),
        {},
    ),
    "a file source with the beta header": (
        edited(IMAGE, {"messages.0.content.1.source": block("file", file_id="f")}),
        {"betas": ["files-api-2025-04-14"]},
    ),
    "MCP servers of the older beta": (edited(MCP, {"tools": GONE}), {}),
    "sampling on an older model and version": (edited(PLAIN, {"temperature": 0.2, "top_k": 40}), {"api_version": "2023-06-01"}),
    "null where a field is optional": (edited(HOSTED, {"tools.0.allowed_domains": None, "tools.0.blocked_domains": ["a"]}), {}),
    "Bedrock puts the version into the body": (edited(PLAIN, {"model": GONE, "anthropic_version": "bedrock-2023-05-31"}), {}),
    "an unknown model is not judged": (
        edited(PLAIN, {"model": "house-model", "output_config": {"effort": "xhigh"}, "thinking": {"type": "adaptive"}}),
        {},
    ),
    "a document in an assistant message under an unknown version": (
        edited(
            PDF,
            {
                "messages.1": turn("assistant", PDF["messages"][0]["content"][1], said("Read.")),
                "messages.2": PLAIN["messages"][0],
            },
        ),
        {},
    ),
    "a cache warm-up": (edited(PLAIN, {"max_tokens": 0}), {}),
    "interleaved thinking lets the budget pass the limit": (
        edited(BUDGET, {"thinking.budget_tokens": 8000}),
        {"betas": ["interleaved-thinking-2025-05-14"]},
    ),
}
BASES = [PLAIN, LOOP, BUDGET, ADAPTIVE, DISABLED, HOSTED, IMAGE, PDF, MIDWAY, STRICT, FORMAT, MARKED, MCP]
