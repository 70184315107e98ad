"""OpenAI Responses: for each rule, a small valid body and the edits that break it; and bodies that must pass."""

from typing import Any

from tests.testing.edits import GONE, Case, Json, edited

WIRE = "openai_responses"


def item(kind: str, **fields: Any) -> Json:
    return {"type": kind, **fields}


def said(role: str, content: Any) -> Json:
    return {"role": role, "content": content}


TOOL: Json = item(
    "function",
    name="lookup",
    description="Looks a word up.",
    parameters={
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
    strict=True,
)
LOOSE: Json = {**TOOL, "strict": False}
CALL = item("function_call", id="fc_1", call_id="call_1", name="lookup", arguments='{"word": "oak"}')
SECOND = item("function_call", id="fc_2", call_id="call_2", name="lookup", arguments='{"word": "elm"}')
OUTPUT = item("function_call_output", call_id="call_1", output="a tree")
SECOND_OUTPUT = item("function_call_output", call_id="call_2", output="a tree")
THOUGHT = item("reasoning", id="rs_1", summary=[], encrypted_content="sealed-1")
ANSWER = item(
    "message", id="msg_1", role="assistant", status="completed", content=[item("output_text", text="Hi.", annotations=[])]
)

PLAIN: Json = {"model": "gpt-5.4", "input": [said("user", "What is an oak?")]}
LOOP: Json = {**PLAIN, "tools": [TOOL], "input": [said("user", "Look it up."), THOUGHT, CALL, OUTPUT]}
TALK: Json = {**PLAIN, "input": [said("user", "Hello."), THOUGHT, ANSWER, said("user", "What is an oak?")]}
PARTS: Json = {
    **PLAIN,
    "input": [
        said(
            "user",
            [
                item("input_text", text="What are these?"),
                item("input_image", image_url="https://example/a.png", detail="auto"),
                item("input_file", file_data="data:application/pdf;base64,aGk=", filename="a.pdf"),
            ],
        )
    ],
}
FORMAT: Json = {
    **PLAIN,
    "text": {"format": item("json_schema", name="word", schema=TOOL["parameters"], strict=True)},
}
JSON_MODE: Json = {**PLAIN, "input": [said("user", "Answer in JSON.")], "text": {"format": item("json_object")}}
DEFERRED: Json = {**PLAIN, "tools": [{**TOOL, "defer_loading": True}, item("tool_search")]}
DEEPSEEK: Json = {
    "model": "deepseek-v4-flash",
    "input": [said("assistant", "Two words."), CALL, SECOND, OUTPUT, SECOND_OUTPUT, said("user", "Go on.")],
}
CLICK = item("click", button="left", x=1, y=2)
CHECK: Json = {"id": "sc_1", "code": "malicious_instructions"}
COMPUTER: Json = {
    **PLAIN,
    "tools": [item("computer")],
    "input": [
        said("user", "Look."),
        item("computer_call", id="cu_1", call_id="call_1", status="completed", pending_safety_checks=[CHECK], actions=[CLICK]),
        item(
            "computer_call_output",
            call_id="call_1",
            output=item("computer_screenshot", image_url="data:image/png;base64,aGk="),
            acknowledged_safety_checks=[CHECK],
        ),
    ],
}
ADDED: Json = {**PLAIN, "input": [item("additional_tools", role="developer", tools=[TOOL]), *PLAIN["input"]]}
FILE = "input.0.content.2"
WORD = "tools.0.parameters.properties.word"

SHAPE = [
    Case("json", PLAIN, raw="{'model': 'gpt-5.4'}"),
    Case("type", PLAIN, {"input": 3}),
    Case("type", PLAIN, {"input.0": "What is an oak?"}),
    Case("type", PLAIN, {"model": 5}),
    Case("type", PARTS, {"input.0.content.0": "What are these?"}),
    Case("type", LOOP, {"tools.0": "lookup"}),
    Case("type", LOOP, {"input.2.arguments": {"word": "oak"}}),
    Case("type", FORMAT, {"text.format.schema": "word"}),
    Case("missing", PLAIN, {"model": GONE}),
    Case("missing", LOOP, {"input.2.name": GONE}),
    Case("missing", LOOP, {"input.1.summary": GONE}),
    Case("missing", LOOP, {"tools.0": {"type": "function", "function": TOOL}}),
    Case("enum", PLAIN, {"truncation": "on"}),
    Case("enum", PLAIN, {"input.0.role": "tool"}),
    Case("enum", PLAIN, {"reasoning": {"effort": "extreme"}}),
    Case("enum", TALK, {"input.2.phase": "draft"}),
    Case("extra_field", PLAIN, {"max_tokens": 100}),
    Case("extra_field", PLAIN, {"input.0.name": "ann"}),
    Case("extra_field", LOOP, {"input.1.status": "completed"}),
    Case("extra_field", LOOP, {"tools.0.function": {}}),
    Case("input.empty", PLAIN, {"input": []}),
    Case("input.empty", PLAIN, {"input": GONE, "instructions": "Say hello."}),
    Case("state.exclusive", PLAIN, {"previous_response_id": "resp_1", "conversation": "conv_1"}),
    Case("include", PLAIN, {"include": ["reasoning.content"]}),
    Case("include.encrypted", {**PLAIN, "model": "gpt-4o"}, {"include": ["reasoning.encrypted_content"]}),
    Case("metadata", PLAIN, {"metadata": {f"key{n}": "x" for n in range(17)}}),
    Case("metadata", PLAIN, {"metadata": {"k" * 65: "x"}}),
    Case("metadata", PLAIN, {"metadata": {"key": "x" * 513}}),
    Case("metadata", PLAIN, {"metadata": {"key": 3}}),
    Case("range", PLAIN, {"max_output_tokens": 15}),
    Case("range", PLAIN, {"temperature": -1}),
    Case("range", PLAIN, {"top_p": 1.5}),
    Case("effort", {**PLAIN, "model": "gpt-5.6-sol"}, {"reasoning": {"effort": "minimal"}}),
    Case("effort", {**PLAIN, "model": "gpt-6.1-sol"}, {"reasoning": {"effort": "none"}}),
    Case("effort", {**PLAIN, "model": "o3-mini"}, {"reasoning": {"effort": "minimal"}}),
    Case("effort", {**PLAIN, "model": "gpt-5-mini-2025-08-07"}, {"reasoning": {"effort": "none"}}),
    Case("effort", {**PLAIN, "model": "gpt-4.1-mini"}, {"reasoning": {"effort": "low"}}),
    Case("range", PLAIN, {"max_output_tokens": -(10**5000)}),
    Case("sampling.reasoning", {**PLAIN, "model": "gpt-5"}, {"temperature": 0.5}),
    Case("sampling.reasoning", {**PLAIN, "reasoning": {"effort": "low"}}, {"top_p": 0.5}),
    Case("sampling.reasoning", {**PLAIN, "model": "openai.gpt-5.6-luna"}, {"top_logprobs": 3}),
]

ITEMS = [
    Case("item.type", PLAIN, {"input.0": item("tool_result", call_id="call_1", output="a tree")}),
    Case("item.trigger", PLAIN, {"input.1": item("compaction_trigger"), "input.2": said("user", "Go on.")}),
    Case("content.type", TALK, {"input.2.content.0.type": "input_text"}),
    Case("content.type", PARTS, {"input.0.content.0.type": "text"}),
    Case("content.type", PARTS, {"input.0.content.0": item("input_audio", input_audio={})}),
    Case("content.type", LOOP, {"input.3.output": [item("output_text", text="a tree")]}),
    Case("content.source", PARTS, {"input.0.content.1.image_url": GONE}),
    Case("content.source", PARTS, {f"{FILE}.file_data": GONE}),
    Case("file.data_url", PARTS, {f"{FILE}.file_data": "aGk="}),
    Case("file.media", PARTS, {f"{FILE}.file_data": "data:audio/mpeg;base64,aGk="}),
    Case("file.media", PARTS, {FILE: item("input_file", file_url="https://example/talk.mp3?x=1")}),
    Case("id.prefix", LOOP, {"input.2.id": "call_1"}),
    Case("id.prefix", LOOP, {"input.1.id": "item_1"}),
    Case("id.prefix", TALK, {"input.2.id": "019f629b-43ee"}),
    Case("id.length", LOOP, {"input.2.id": "fc_" + "x" * 62}),
    Case("id.charset", LOOP, {"input.2.id": "fc_1|call_1"}),
    Case("id.duplicate", TALK, {"input.4": THOUGHT, "input.5": {**ANSWER, "id": "msg_2"}}),
    Case("call_id.length", LOOP, {"input.2.call_id": "", "input.3.call_id": ""}),
    Case("call_id.length", LOOP, {"input.2.call_id": "c" * 65, "input.3.call_id": "c" * 65}),
    Case("call_id.duplicate", LOOP, {"input.4": {**CALL, "id": "fc_2"}, "input.5": OUTPUT}),
    Case("call_id.duplicate", LOOP, {"input.4": OUTPUT}),
    Case("call.unanswered", LOOP, {"input.3": GONE}),
    Case("call.unanswered", LOOP, {"input.3": SECOND}),
    Case("output.orphan", PLAIN, {"input.1": OUTPUT}),
    Case("output.orphan", LOOP, {"input.4": item("custom_tool_call_output", call_id="call_1", output="x")}),
    Case(
        "call.interleaved",
        DEEPSEEK,
        {"input.2": said("assistant", "And the other."), "input.3": SECOND, "input.4": OUTPUT, "input.5": SECOND_OUTPUT},
    ),
    Case("function_call.name", LOOP, {"input.2.name": "look.up"}),
    Case("function_call.arguments", LOOP, {"input.2.arguments": '{"word": '}),
    Case("reasoning.following", LOOP, {"input": [said("user", "Look it up."), THOUGHT]}),
    Case("reasoning.following", TALK, {"input.2": said("user", "Go on.")}),
    Case("reasoning.following", TALK, {"input.2": said("assistant", "Rewritten.")}),
    Case("reasoning.required", LOOP, {"input.1": GONE}, {"bound": {"fc_1": "rs_1"}}),
    Case("image.media", PARTS, {"input.0.content.1.image_url": "data:image/heic;base64,aGk="}),
    Case("cache_key.length", PLAIN, {"prompt_cache_key": "k" * 65}),
    Case("reasoning.altered", LOOP, {"input.1.encrypted_content": "sealed-2"}, {"issued": {"sealed-1": ""}}),
]

TOOLS = [
    Case("tool.type", LOOP, {"tools.0.type": "web_browser"}),
    Case("tool.name", LOOP, {"tools.0.name": "look up"}),
    Case("tool.name", ADDED, {"input.0.tools.0.name": ""}),
    Case("tool.duplicate", LOOP, {"tools.1": TOOL}),
    Case("tool.deferred", DEFERRED, {"tools.1": GONE}),
    Case("tool.schema_type", {**PLAIN, "tools": [LOOSE]}, {"tools.0.parameters": {"type": "array"}}),
    Case("tool.schema_type", {**PLAIN, "tools": [LOOSE]}, {"tools.0.parameters": {}}),
    Case("tool.schema_union", {**PLAIN, "tools": [LOOSE]}, {"tools.0.parameters.not": {"required": ["word"]}}),
    Case("schema.properties", {**PLAIN, "tools": [LOOSE]}, {"tools.0.parameters": {"type": "object"}}),
    Case("schema.no_items", {**PLAIN, "tools": [LOOSE]}, {WORD: {"type": "array"}}),
    Case("schema.no_items", {**PLAIN, "tools": [LOOSE]}, {WORD: {"type": ["array", "null"], "prefixItems": [{}]}}),
    Case("schema.root", LOOP, {"tools.0.parameters": {"anyOf": [TOOL["parameters"]]}}),
    Case("schema.keyword", LOOP, {WORD: {"type": "string", "oneOf": [{"const": "oak"}]}}),
    Case("schema.keyword", FORMAT, {"text.format.schema.properties.word": {"allOf": [{"type": "string"}]}}),
    Case("schema.open_object", LOOP, {"tools.0.parameters.additionalProperties": GONE}),
    Case("schema.not_required", LOOP, {"tools.0.parameters.required": []}),
    Case("schema.ref_siblings", LOOP, {WORD: {"$ref": "#/$defs/w", "description": "a word"}}),
    Case("tool_choice.type", LOOP, {"tool_choice": "any"}),
    Case("tool_choice.type", LOOP, {"tool_choice": {"type": "tool", "name": "lookup"}}),
    Case("tool_choice.no_tools", PLAIN, {"tool_choice": "required"}),
    Case("tool_choice.unknown", LOOP, {"tool_choice": {"type": "function", "name": "dig"}}),
    Case(
        "tool_choice.unknown",
        LOOP,
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "dig"}]}},
    ),
    Case("format.type", FORMAT, {"text.format.type": "json"}),
    Case("format.name", FORMAT, {"text.format.name": "my word"}),
    Case("format.json_word", JSON_MODE, {"input.0.content": "Answer as an object.", "instructions": "Use JSON."}),
]

COMPUTERS = [
    Case("missing", COMPUTER, {"input.1.id": GONE}),
    Case("missing", COMPUTER, {"tools.0.type": "computer_use_preview"}),
    Case("extra_field", COMPUTER, {"tools.0.display_width": 800}),
    Case("computer.action", COMPUTER, {"input.1.actions": GONE}),
    Case("computer.action", COMPUTER, {"input.1.actions.0.type": "dance"}),
    Case("missing", COMPUTER, {"input.1.actions.0.button": GONE}),
    Case("computer.screenshot", COMPUTER, {"input.2.output.image_url": GONE}),
    Case("enum", COMPUTER, {"input.2.output.type": "input_image"}),
    Case("computer.unacknowledged", COMPUTER, {"input.2.acknowledged_safety_checks": GONE}),
    Case("call.unanswered", COMPUTER, {"input.2": GONE}),
    Case("output.orphan", COMPUTER, {"input.1": GONE}),
]
CASES = [*SHAPE, *ITEMS, *TOOLS, *COMPUTERS]

# Each of these looks like a broken rule and is not one, mostly because a recording with a 200 says so.
ACCEPTED: dict[str, tuple[Json, Json]] = {
    "input is one string": ({"model": "gpt-5.4", "input": "Hello."}, {}),
    "an empty user message": (edited(PLAIN, {"input.0.content": ""}), {}),
    "history on the server and no new input": (edited(PLAIN, {"input": [], "previous_response_id": "resp_1"}), {}),
    "an output whose call lies on the server": ({**PLAIN, "input": [OUTPUT], "conversation": "conv_1"}, {}),
    "an output beside a reference to its call": ({**PLAIN, "input": [item("item_reference", id="fc_1"), OUTPUT]}, {}),
    "a client tool search answered by a function output": (
        {
            **DEFERRED,
            "input": [
                said("user", "Find it."),
                item("tool_search_call", call_id="call_1", execution="client", arguments={}, status="completed"),
                OUTPUT,
            ],
        },
        {},
    ),
    "calls without item ids": (edited(LOOP, {"input": [LOOP["input"][0], edited(CALL, {"id": GONE}), OUTPUT]}), {}),
    "assistant history in the easy form": (edited(TALK, {"input": [said("assistant", "Hi."), *PLAIN["input"]]}), {}),
    "interleaved messages where calls need not be adjacent": (
        {**PLAIN, "tools": [TOOL], "input": [CALL, said("assistant", "And the other."), SECOND, SECOND_OUTPUT, OUTPUT]},
        {},
    ),
    "several reasoning items in a row": (edited(LOOP, {"input": [THOUGHT, {**THOUGHT, "id": "rs_2"}, CALL, OUTPUT]}), {}),
    "issued reasoning unchanged": (LOOP, {"issued": {"sealed-1": "whatever it said"}}),
    "DeepSeek's own reasoning before a message without id": (
        edited(DEEPSEEK, {"input": [{**THOUGHT, "id": "84cf77a0", "encrypted_content": None}, said("assistant", "Hi.")]}),
        {},
    ),
    "an unknown field on a clone": (edited(DEEPSEEK, {"seed": 7}), {}),
    "a schema outside the subset without strict": (
        edited(PLAIN, {"tools": [edited(LOOSE, {"parameters.properties.word": {"oneOf": [{}]}})]}),
        {},
    ),
    "sampling where the model does not reason by default": (edited(PLAIN, {"temperature": 0.5}), {}),
    "sampling at effort none": (
        edited(PLAIN, {"model": "gpt-5.6-sol", "temperature": 0.5, "reasoning": {"effort": "none"}}),
        {},
    ),
    "the default temperature on a reasoning model": (edited(PLAIN, {"model": "gpt-5", "temperature": 1}), {}),
    "sampling on a model that never reasons": (edited(PLAIN, {"model": "gpt-4o", "temperature": 0.2, "top_p": 0.9}), {}),
    "choosing a tool that an item added": (edited(ADDED, {"tool_choice": {"type": "function", "name": "lookup"}}), {}),
    "null where a field is optional": (edited(LOOP, {"previous_response_id": None, "tools.0.description": None}), {}),
    "an image and a file in a tool output": (
        edited(LOOP, {"input.3.output": [item("input_image", file_id="file_1"), item("input_file", file_id="file_2")]}),
        {},
    ),
}
BASES = [PLAIN, LOOP, TALK, PARTS, FORMAT, JSON_MODE, DEFERRED, DEEPSEEK, ADDED]
