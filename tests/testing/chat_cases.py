"""Chat Completions: for each rule, a small valid body and the edits that break it; and bodies that must pass."""

from typing import Any

from tests.testing.edits import GONE, Case, Json, edited

WIRE = "openai_chat"


def part(kind: str, **fields: Any) -> Json:
    return {"type": kind, **fields}


def said(role: str, content: Any, **fields: Any) -> Json:
    return {"role": role, "content": content, **fields}


def call(name: str, **fields: Any) -> Json:
    return part("function", id=name, function={"name": "lookup", "arguments": '{"word": "oak"}'}, **fields)


def answer(name: str) -> Json:
    return said("tool", "a tree", tool_call_id=name)


TOOL: Json = part(
    "function",
    function={
        "name": "lookup",
        "description": "Looks a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
            "additionalProperties": False,
        },
        "strict": True,
    },
)
LOOSE: Json = edited(TOOL, {"function.strict": GONE})
CHOICE: Json = part("function", function={"name": "lookup"})
USER = said("user", "What is an oak?")
IMAGE = part("image_url", image_url={"url": "data:image/png;base64,aGk=", "detail": "low"})
FILE = part("file", file={"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"})
AUDIO = part("input_audio", input_audio={"data": "aGk=", "format": "wav"})

PLAIN: Json = {"model": "gpt-4o", "messages": [USER]}
LOOP: Json = {
    "model": "gpt-4o",
    "tools": [TOOL],
    "messages": [USER, {"role": "assistant", "content": None, "tool_calls": [call("call_1")]}, answer("call_1")],
}
PAIR: Json = {
    "model": "gpt-4o",
    "tools": [TOOL],
    "messages": [
        USER,
        {"role": "assistant", "tool_calls": [call("call_1"), call("call_2")]},
        answer("call_2"),
        answer("call_1"),
        USER,
    ],
}
PARTS: Json = {**PLAIN, "messages": [said("user", [part("text", text="What are these?"), IMAGE, FILE])]}
HEARD: Json = {"model": "gpt-4o-audio-preview", "messages": [said("user", [AUDIO])]}
TALK: Json = {**PLAIN, "messages": [said("system", "Be brief."), USER, said("assistant", "A tree."), USER]}
STREAM: Json = {**PLAIN, "stream": True, "stream_options": {"include_usage": True}}
FORMAT: Json = {
    **PLAIN,
    "response_format": part(
        "json_schema", json_schema={"name": "word", "schema": TOOL["function"]["parameters"], "strict": True}
    ),
}
JSON_MODE: Json = {**PLAIN, "messages": [said("user", "Answer in JSON.")], "response_format": part("json_object")}
CLONE: Json = {**LOOP, "model": "house-model"}
THINKER: Json = {**PLAIN, "model": "gpt-5-mini"}
ALLOWED: Json = {
    **LOOP,
    "tool_choice": part("allowed_tools", allowed_tools={"mode": "auto", "tools": [CHOICE]}),
}

MISTRAL: Json = {
    "model": "mistral-large-latest",
    "tools": [LOOSE],
    "messages": [
        USER,
        said("assistant", "", tool_calls=[call("a1B2c3D4e")]),
        answer("a1B2c3D4e"),
        said("assistant", "OK"),
        USER,
    ],
}
DEEPSEEK: Json = {
    "model": "deepseek-v4-pro",
    "tools": [LOOSE],
    "messages": [USER, said("assistant", None, reasoning_content="", tool_calls=[call("call_1")]), answer("call_1")],
}
KIMI: Json = {**DEEPSEEK, "model": "kimi-k2.6"}
GROQ: Json = {**PLAIN, "model": "openai/gpt-oss-120b"}
GROK: Json = {**PLAIN, "model": "grok-4.5"}
ROUTED: Json = {**PLAIN, "model": "vendor/name", "reasoning": {"effort": "high"}}

BY_MISTRAL, BY_DEEPSEEK, BY_KIMI = {"dialect": "mistral"}, {"dialect": "deepseek"}, {"dialect": "kimi"}
BY_GROQ, BY_XAI, BY_ROUTER = {"dialect": "groq"}, {"dialect": "xai"}, {"dialect": "openrouter"}
CALL = "messages.1.tool_calls.0"
WORD = "tools.0.function.parameters.properties.word"

SHAPE = [
    Case("json", PLAIN, raw="{'model': 'gpt-4o'}"),
    Case("type", PLAIN, raw="[]"),
    Case("type", PLAIN, {"messages": "What is an oak?"}),
    Case("type", PLAIN, {"messages.0": "What is an oak?"}),
    Case("type", PLAIN, {"messages.0.content": None}),
    Case("type", PLAIN, {"stop": [1]}),
    Case("type", PARTS, {"messages.0.content.0": "What are these?"}),
    Case("type", PARTS, {"messages.0.content.1.image_url": "https://example/a.png"}),
    Case("type", LOOP, {f"{CALL}.function.arguments": {"word": "oak"}}),
    Case("type", LOOP, {CALL: "call_1"}),
    Case("type", LOOP, {"tools.0": "lookup"}),
    Case("type", LOOP, {"messages.2.content": {"text": "a tree"}}),
    Case("type", CLONE, {f"{CALL}.function.arguments": {"word": "oak"}}),
    Case("type", FORMAT, {"response_format.json_schema": "word"}),
    Case("missing", PLAIN, {"model": GONE}),
    Case("missing", PLAIN, {"messages": GONE}),
    Case("missing", LOOP, {f"{CALL}.id": GONE}),
    Case("missing", LOOP, {f"{CALL}.type": GONE}),
    Case("missing", LOOP, {f"{CALL}.function.arguments": GONE}),
    Case("missing", LOOP, {"messages.2.tool_call_id": GONE}),
    Case("missing", LOOP, {"messages.2.content": GONE}),
    Case("missing", LOOP, {"tools.0.type": GONE}),
    Case("missing", LOOP, {"tools.0.function.name": GONE}),
    Case("missing", PARTS, {"messages.0.content.1.image_url.url": GONE}),
    Case("missing", HEARD, {"messages.0.content.0.input_audio.format": GONE}),
    Case("missing", FORMAT, {"response_format.json_schema.name": GONE}),
    Case("missing", CLONE, {"messages.2.tool_call_id": GONE}),
    Case("enum", PLAIN, {"verbosity": "loud"}),
    Case("enum", PARTS, {"messages.0.content.1.image_url.detail": "tiny"}),
    Case("enum", ALLOWED, {"tool_choice.allowed_tools.mode": "any"}),
    Case("extra_field", PLAIN, {"max_output_tokens": 100}),
    Case("extra_field", PLAIN, {"thinking": {"type": "enabled"}}),
    Case("extra_field", TALK, {"messages.2.reasoning_content": "hm"}),
    Case("extra_field", PARTS, {"messages.0.content.2.file.data": "aGk="}),
    Case("extra_field", PARTS, {"messages.0.content.0.cache_control": {"type": "ephemeral"}}),
    Case("extra_field", STREAM, {"stream_options.usage": True}),
    Case("extra_field", {**CLONE, "model": "gpt-4o"}, {"tools.0.cache_control": {}}),
]

MESSAGES = [
    Case("messages.empty", PLAIN, {"messages": []}),
    Case("message.role", PLAIN, {"messages.0.role": "human"}),
    Case("message.role", PLAIN, {"messages.0.role": GONE}),
    Case("message.role", CLONE, {"messages.0.role": "model"}),
    Case("role.model", {**PLAIN, "model": "o1-mini"}, {"messages": [said("developer", "Be brief."), USER]}),
    Case("content.empty", PLAIN, {"messages.0.content": []}),
    Case("content.empty", LOOP, {"messages.1.content": []}),
    Case("content.empty", CLONE, {"messages.2.content": []}),
    Case("content.type", PARTS, {"messages.0.content.0.type": "input_text"}),
    Case("content.type", PARTS, {"messages.0.role": "system"}),
    Case("content.type", LOOP, {"messages.2.content": [IMAGE]}),
    Case("content.type", TALK, {"messages.2.content": [IMAGE]}),
    Case("content.type", {**PLAIN, "model": "house-name"}, {"messages.0.content": [FILE]}, {"dialect": "azure"}),
    Case("image.url", PARTS, {"messages.0.content.1.image_url.url": "a.png"}),
    Case("image.url", PARTS, {"messages.0.content.1.image_url.url": "data:application/pdf;base64,aGk="}),
    Case("image.url", PARTS, {"messages.0.content.1.image_url.url": "data:image/svg+xml;base64,aGk="}),
    Case(
        "text.empty",
        {**PLAIN, "messages": [said("user", [part("text", text="Hi.")])]},
        {"messages.0.content.0.text": ""},
        BY_ROUTER,
    ),
    Case("file.source", PARTS, {"messages.0.content.2.file": {"filename": "a.pdf"}}),
    Case("file.source", {**PARTS, "model": "house-model"}, {"messages.0.content.2.file": {}}),
    Case("file.data_url", PARTS, {"messages.0.content.2.file.file_data": "aGk="}),
    Case("file.data_url", PARTS, {"messages.0.content.2.file.file_data": "https://example/a.pdf"}),
    Case("audio.format", HEARD, {"messages.0.content.0.input_audio.format": "ogg"}),
    Case("audio.model", HEARD, {"model": "gpt-5-mini"}),
    Case("assistant.empty", TALK, {"messages.2.content": None}),
    Case("assistant.empty", TALK, {"messages.2.content": GONE}),
    Case("assistant.empty", {**TALK, "model": "house-model"}, {"messages.2": {"role": "assistant", "tool_calls": []}}),
    Case("assistant.empty", MISTRAL, {"messages.3.content": ""}, BY_MISTRAL),
    Case("tool_calls.empty", TALK, {"messages.2.tool_calls": []}),
    Case("tool_call.type", LOOP, {f"{CALL}.type": "web_search"}),
    Case("tool_call.name", LOOP, {f"{CALL}.function.name": "look.up"}),
    Case("tool_call.name", CLONE, {f"{CALL}.function.name": "x" * 65}),
    Case("tool_call.arguments", LOOP, {f"{CALL}.function.arguments": '{"word": '}),
    Case("tool_call.arguments", CLONE, {f"{CALL}.function.arguments": ""}),
    Case("tool_call.id_length", LOOP, {f"{CALL}.id": "c" * 41, "messages.2.tool_call_id": "c" * 41}),
    Case("tool_call.id_format", MISTRAL, {f"{CALL}.id": "call_0001", "messages.2.tool_call_id": "call_0001"}, BY_MISTRAL),
    Case("tool_call.id_format", MISTRAL, {f"{CALL}.id": "a1B2c3", "messages.2.tool_call_id": "a1B2c3"}, BY_MISTRAL),
]

TURNS = [
    Case("tool_call.unanswered", LOOP, {"messages.2": GONE}),
    Case("tool_call.unanswered", LOOP, {"messages.2": USER}),
    Case("tool_call.unanswered", PAIR, {"messages.3": GONE}),
    Case("tool_call.unanswered", PAIR, {"messages.3": USER, "messages.4": answer("call_1")}),
    Case("tool_call.unanswered", CLONE, {"messages.2.tool_call_id": "call_2"}),
    Case("tool.orphan", PLAIN, {"messages.1": answer("call_1")}),
    Case("tool.orphan", LOOP, {"messages.2.tool_call_id": "call_2"}),
    Case("tool.orphan", PAIR, {"messages.3": said("system", "Go on."), "messages.4": answer("call_1")}),
    Case("tool.duplicate", LOOP, {"messages.3": answer("call_1")}),
    Case("order.after_tool", MISTRAL, {"messages.3": GONE}, BY_MISTRAL),
    Case("order.last", MISTRAL, {"messages.4": GONE}, BY_MISTRAL),
    Case("reasoning.missing", DEEPSEEK, {"messages.1.reasoning_content": GONE}, BY_DEEPSEEK),
    Case("reasoning.missing", DEEPSEEK, {"messages.1.reasoning_content": None}, BY_DEEPSEEK),
    Case("reasoning.missing", KIMI, {"messages.1.reasoning_content": GONE}, BY_KIMI),
    Case("reasoning.missing", KIMI, {"messages.1.reasoning_content": GONE}, {"dialect": "moonshot"}),
    Case("reasoning.missing", {**KIMI, "model": "kimi-k3"}, {"messages.1.reasoning_content": GONE}, BY_KIMI),
]

TOOLS = [
    Case("tools.empty", PLAIN, {"tools": []}),
    Case("tools.empty", {**PLAIN, "model": "deepseek-chat"}, {"tools": []}, BY_DEEPSEEK),
    Case("tools.count", GROQ, {"tools": [edited(LOOSE, {"function.name": f"t{n}"}) for n in range(129)]}, BY_GROQ),
    Case("tools.count", LOOP, {"tools": [edited(LOOSE, {"function.name": f"t{n}"}) for n in range(129)]}),
    Case("tools.model", {**PLAIN, "model": "gpt-6-astra"}, {"tools": [TOOL]}),
    Case("tools.parallel", PLAIN, {"parallel_tool_calls": False}),
    Case("tool.type", LOOP, {"tools.0": part("web_search")}),
    Case("tool.type", CLONE, {"tools.0.type": 3}),
    Case("tool.name", LOOP, {"tools.0.function.name": "look up"}),
    Case("tool.name", CLONE, {"tools.0.function.name": ""}),
    Case("tool.duplicate", LOOP, {"tools.1": TOOL}),
    Case("tool.schema_type", CLONE, {"tools.0": edited(LOOSE, {"function.parameters": {"type": "array"}})}),
    Case("tool.schema_type", CLONE, {"tools.0": edited(LOOSE, {"function.parameters": {}})}),
    Case("tool.schema_union", CLONE, {"tools.0.function.parameters.oneOf": [{"required": ["word"]}]}),
    Case("schema.properties", {**LOOP, "tools": [LOOSE]}, {"tools.0.function.parameters": {"type": "object"}}),
    Case("schema.no_items", {**LOOP, "tools": [LOOSE]}, {WORD: {"type": "array"}}),
    Case("schema.root", LOOP, {"tools.0.function.parameters": {"anyOf": [TOOL["function"]["parameters"]]}}),
    Case("schema.keyword", LOOP, {WORD: {"type": "string", "oneOf": [{"const": "oak"}]}}),
    Case("schema.open_object", LOOP, {"tools.0.function.parameters.additionalProperties": GONE}),
    Case("schema.open_object", FORMAT, {"response_format.json_schema.schema.additionalProperties": True}),
    Case("schema.not_required", LOOP, {"tools.0.function.parameters.required": []}),
    Case("schema.ref_siblings", LOOP, {WORD: {"$ref": "#/$defs/w", "description": "a word"}}),
    Case("tool_choice.type", LOOP, {"tool_choice": "any"}),
    Case("tool_choice.type", LOOP, {"tool_choice": {"function": {"name": "lookup"}}}),
    Case("tool_choice.type", CLONE, {"tool_choice": "always"}),
    Case("tool_choice.type", CLONE, {"tool_choice": {"type": "tool", "name": "lookup"}}),
    Case("tool_choice.no_tools", PLAIN, {"tool_choice": "auto"}),
    Case("tool_choice.no_tools", PLAIN, {"tool_choice": CHOICE}),
    Case("tool_choice.unknown", LOOP, {"tool_choice": part("function", function={"name": "dig"})}),
    Case("tool_choice.unknown", ALLOWED, {"tool_choice.allowed_tools.tools.0.function.name": "dig"}),
    Case("tool_choice.thinking", DEEPSEEK, {"tool_choice": "required"}, BY_DEEPSEEK),
    Case("tool_choice.thinking", KIMI, {"tool_choice": CHOICE}, BY_KIMI),
    Case("format.type", FORMAT, {"response_format.type": "json"}),
    Case("format.name", FORMAT, {"response_format.json_schema.name": "my word"}),
    Case("format.json_word", JSON_MODE, {"messages.0.content": "Answer as an object."}),
]

SETTINGS = [
    Case("range", PLAIN, {"temperature": 2.1}),
    Case("range", PLAIN, {"top_p": -0.1}),
    Case("range", PLAIN, {"presence_penalty": 3}),
    Case("range", PLAIN, {"n": 0}),
    Case("range", PLAIN, {"n": 129}),
    Case("range", PLAIN, {"max_tokens": 0}),
    Case("range", PLAIN, {"max_completion_tokens": -(10**5000)}),
    Case("range", PLAIN, {"logprobs": True, "top_logprobs": 21}),
    Case("range", GROQ, {"n": 2}, BY_GROQ),
    Case("field.refused", GROQ, {"logprobs": True}, BY_GROQ),
    Case("field.refused", {**PLAIN, "model": "llama"}, {"service_tier": "auto"}, {"dialect": "cerebras"}),
    Case("field.refused", MISTRAL, {"max_completion_tokens": 100}, BY_MISTRAL),
    Case("field.exclusive", PLAIN, {"max_tokens": 100, "max_completion_tokens": 100}),
    Case("field.exclusive", GROQ, {"reasoning_format": "parsed", "include_reasoning": True}, BY_GROQ),
    Case("max_tokens.model", THINKER, {"max_tokens": 100}),
    Case("web_search.model", PLAIN, {"web_search_options": {}}),
    Case("logprobs", PLAIN, {"top_logprobs": 3}),
    Case("stream_options", STREAM, {"stream": False}),
    Case("stream_options", {**STREAM, "model": "house-model"}, {"stream": GONE}),
    Case("stop.count", PLAIN, {"stop": list("abcde")}),
    Case("stop.count", KIMI, {"stop": list("abcdef")}, BY_KIMI),
    Case("stop.empty", PLAIN, {"stop": ["END", ""]}),
    Case("cache_key.length", PLAIN, {"prompt_cache_key": "k" * 65}),
    Case("stop.length", KIMI, {"stop": "\u00e9" * 17}, BY_KIMI),
    Case("stop.model", THINKER, {"stop": "END"}),
    Case("effort", PLAIN, {"reasoning_effort": "low"}),
    Case("effort", THINKER, {"reasoning_effort": "none"}),
    Case("effort", {**PLAIN, "model": "o3-mini"}, {"reasoning_effort": "minimal"}),
    Case("effort", {**PLAIN, "model": "gpt-5.2"}, {"reasoning_effort": "extreme"}),
    Case("effort", GROQ, {"reasoning_effort": "none"}, BY_GROQ),
    Case("effort", GROK, {"reasoning_effort": "none"}, BY_XAI),
    Case("effort", {**GROK, "model": "grok-4.20"}, {"reasoning_effort": "low"}, BY_XAI),
    Case("effort", KIMI, {"reasoning_effort": "none"}, BY_KIMI),
    Case("effort.tools", {**LOOP, "model": "gpt-5.4"}, {"reasoning_effort": "low"}),
    Case("sampling.reasoning", THINKER, {"temperature": 0.5}),
    Case("sampling.reasoning", THINKER, {"logit_bias": {"50256": -100}}),
    Case("sampling.reasoning", {**PLAIN, "model": "gpt-5.4", "reasoning_effort": "low"}, {"top_p": 0.5}),
    Case("thinking.model", {**KIMI, "model": "kimi-k2.7-code"}, {"thinking": {"type": "disabled"}}, BY_KIMI),
    Case("reasoning.exclusive", ROUTED, {"reasoning.max_tokens": 100}, BY_ROUTER),
    Case("reasoning.effort", ROUTED, {"reasoning.effort": "extreme"}, BY_ROUTER),
    Case("reasoning.disagree", ROUTED, {"reasoning_effort": "low"}, BY_ROUTER),
    Case("metadata", PLAIN, {"metadata": {"k": 3}}),
    Case("metadata", PLAIN, {"metadata": {f"k{n}": "v" for n in range(17)}}),
]

CASES = [*SHAPE, *MESSAGES, *TURNS, *TOOLS, *SETTINGS]

# Each of these looks like a broken rule and is not one, mostly because a recording with a 200 says so.
ACCEPTED: dict[str, tuple[Json, Json]] = {
    "an empty user message": (edited(PLAIN, {"messages.0.content": ""}), {}),
    "an empty text beside tool calls": (edited(LOOP, {"messages.1.content": ""}), {}),
    "answers in another order than their calls": (PAIR, {}),
    "a user message directly after a tool message": (edited(LOOP, {"messages.3": USER}), {}),
    "instructions in mid conversation": (edited(TALK, {"messages.1": said("developer", "Now rhyme.")}), {}),
    "a request of instructions only": (edited(PLAIN, {"messages": [said("system", "Say hello.")]}), {}),
    "a refusal sent back": (edited(TALK, {"messages.2": {"role": "assistant", "content": None, "refusal": "No."}}), {}),
    "an answer sent back whole": (edited(TALK, {"messages.2.annotations": [], "messages.2.refusal": None}), {}),
    "a custom tool, its call and its choice": (
        {
            **LOOP,
            "tools": [part("custom", custom={"name": "shell"})],
            "tool_choice": part("custom", custom={"name": "shell"}),
            "messages": [
                USER,
                {"role": "assistant", "tool_calls": [part("custom", id="c", custom={"name": "shell", "input": "ls"})]},
                answer("c"),
            ],
        },
        {},
    ),
    "the deprecated functions": (
        {
            **PLAIN,
            "functions": [{"name": "lookup"}],
            "messages": [
                USER,
                {"role": "assistant", "content": None, "function_call": {"name": "lookup", "arguments": "{}"}},
                said("function", "a tree", name="lookup"),
            ],
        },
        {},
    ),
    "null where a field is optional": (edited(LOOP, {"tool_choice": None, "tools.0.function.description": None}), {}),
    "the last effort of a mainline model": (edited(PLAIN, {"model": "gpt-5.4", "reasoning_effort": "xhigh"}), {}),
    "tools at effort none": (edited(LOOP, {"model": "gpt-5.4", "reasoning_effort": "none"}), {}),
    "sampling where the model does not reason by default": (edited(PLAIN, {"model": "gpt-5.2", "temperature": 0.2}), {}),
    "default sampling on a reasoning model": (edited(THINKER, {"temperature": 1, "presence_penalty": 0}), {}),
    "web search on a search model": (edited(PLAIN, {"model": "gpt-4o-search-preview", "web_search_options": {}}), {}),
    "an unknown field on a clone": (edited(CLONE, {"top_k": 7, "messages.1.reasoning": "hm"}), {}),
    "an empty content array beside calls on a clone": (edited(CLONE, {"messages.1.content": []}), {}),
    "an empty list of calls on a clone": (edited(TALK, {"model": "house-model", "messages.2.tool_calls": []}), {}),
    "an empty tool list on a clone": (edited(PLAIN, {"model": "house-model", "tools": []}), {}),
    "tools and a choice without type on a clone": (
        edited(CLONE, {"tools.0.type": GONE, "tool_choice": {"function": {"name": "lookup"}}}),
        {},
    ),
    "a hosted tool on a clone": (edited(CLONE, {"tools.0": part("vendor:web_search", parameters={})}), {}),
    "a part of its own on a clone": (
        edited(CLONE, {"messages.0.content": [part("video_url", video_url={"url": "https://example/a.mp4"})]}),
        {},
    ),
    "a file by URL through a router": (
        edited(PARTS, {"model": "vendor/name", "messages.0.content.2.file.file_data": "https://example/a.pdf"}),
        BY_ROUTER,
    ),
    "a long call id on a clone": (edited(CLONE, {f"{CALL}.id": "c" * 50, "messages.2.tool_call_id": "c" * 50}), {}),
    "an open object in a strict schema on a clone": (
        edited(CLONE, {"tools.0.function.parameters.additionalProperties": GONE}),
        {},
    ),
    "a choice of any on a clone": (edited(CLONE, {"tool_choice": "any"}), {}),
    "arguments as an object on Mistral": (edited(MISTRAL, {f"{CALL}.function.arguments": {"word": "oak"}}), BY_MISTRAL),
    "a prefix as the last message on Mistral": (
        edited(MISTRAL, {"messages.4": said("assistant", "Oak", prefix=True)}),
        BY_MISTRAL,
    ),
    "a tool message as the last one on Mistral": (edited(MISTRAL, {"messages": MISTRAL["messages"][:3]}), BY_MISTRAL),
    "no reasoning where thinking is off": (
        edited(DEEPSEEK, {"thinking": {"type": "disabled"}, "messages.1.reasoning_content": GONE, "tool_choice": "required"}),
        BY_DEEPSEEK,
    ),
    "no reasoning on the model that does not think": (
        edited(DEEPSEEK, {"model": "deepseek-chat", "messages.1.reasoning_content": GONE}),
        BY_DEEPSEEK,
    ),
    "no reasoning on an older Kimi": (
        edited(KIMI, {"model": "kimi-k2-0905-preview", "messages.1.reasoning_content": GONE, "tool_choice": "required"}),
        BY_KIMI,
    ),
    "five stops on Kimi": (edited(KIMI, {"stop": list("abcde")}), BY_KIMI),
    "an effort that only Groq has": (edited(PLAIN, {"model": "qwen/qwen3-32b", "reasoning_effort": "default"}), BY_GROQ),
    "the model in the address": (edited(PLAIN, {"model": GONE}), {"dialect": "azure", "model": "gpt-4o"}),
}
BASES = [PLAIN, LOOP, PAIR, PARTS, HEARD, TALK, STREAM, FORMAT, JSON_MODE, CLONE, ALLOWED, MISTRAL, DEEPSEEK, ROUTED]
