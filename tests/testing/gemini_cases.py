"""Gemini generateContent: for each rule, a small valid body and the edits that break it; and bodies that must pass."""

from typing import Any

from tests.testing.edits import GONE, Case, Json, edited

WIRE = "gemini"


def content(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": list(parts)}


def text(said: str) -> Json:
    return {"text": said}


def call(word: str, **fields: Any) -> Json:
    return {"functionCall": {"id": f"id-{word}", "name": "lookup", "args": {"word": word}}, **fields}


def result(word: str) -> Json:
    return {"functionResponse": {"id": f"id-{word}", "name": "lookup", "response": {"output": "a tree"}}}


SIGNED = {"thoughtSignature": "c2ln"}
WORDS: Json = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
DECLARATION: Json = {"name": "lookup", "description": "Looks a word up.", "parametersJsonSchema": WORDS}
OWN: Json = {"name": "lookup", "parameters": WORDS}
TOOLS: list[Json] = [{"functionDeclarations": [DECLARATION]}]

PLAIN: Json = {"contents": [content("user", text("What is an oak?"))]}
LOOP: Json = {
    "tools": TOOLS,
    "contents": [
        content("user", text("Look it up.")),
        content("model", call("oak", **SIGNED)),
        content("user", result("oak")),
    ],
}
PAIR: Json = {
    "tools": TOOLS,
    "contents": [
        content("user", text("Look them up.")),
        content("model", call("oak", **SIGNED), call("elm")),
        content("user", result("oak"), result("elm")),
    ],
}
TWO: Json = edited(
    PAIR,
    {
        "tools.0.functionDeclarations.1": {"name": "dig"},
        "contents.1.parts.1.functionCall.name": "dig",
        "contents.2.parts.1.functionResponse.name": "dig",
    },
)
STEPS: Json = {
    **LOOP,
    "contents": [*LOOP["contents"], content("model", call("elm", **SIGNED)), content("user", result("elm"))],
}
MEDIA: Json = {
    "contents": [
        content(
            "user",
            text("What are these?"),
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
            {"fileData": {"fileUri": "https://example/a.pdf", "mimeType": "application/pdf"}},
        )
    ]
}
UNSAFE: Json = {"x": 1, "y": 2, "safety_decision": {"decision": "require_confirmation", "explanation": "It pays."}}
COMPUTER: list[Json] = [{"computerUse": {"environment": "ENVIRONMENT_BROWSER", "excludedPredefinedFunctions": ["search"]}}]
SHOWN: list[Json] = [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]
SEEN: Json = edited(LOOP, {"contents.2.parts.0.functionResponse.parts": SHOWN})
TALK: Json = {
    "systemInstruction": {"parts": [text("Be brief.")]},
    "contents": [*PLAIN["contents"], content("model", text("A tree.")), content("user", text("And an elm?"))],
}
CONFIGURED: Json = {
    **PLAIN,
    "tools": [{"functionDeclarations": [OWN]}],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["lookup"]}},
    "generationConfig": {"temperature": 0.5, "maxOutputTokens": 100, "thinkingConfig": {"thinkingBudget": 1024}},
    "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
}
FORMAT: Json = {**PLAIN, "generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": WORDS}}
JSON_MODE: Json = {**PLAIN, "generationConfig": {"responseMimeType": "application/json"}}
SNAKE: Json = {
    "contents": [
        {"parts": {"text": "Look it up."}},
        {"role": "model", "parts": [{"function_call": {"name": "lookup", "args": {}}, "thought_signature": "c2ln"}]},
        {"role": "function", "parts": [{"function_response": {"name": "lookup", "response": {}}}]},
    ],
    "system_instruction": {"parts": {"text": "Be brief."}},
    "tools": {"function_declarations": [{"name": "lookup", "parameters_json_schema": WORDS}]},
    "tool_config": {"function_calling_config": {"mode": "any", "allowed_function_names": ["lookup"]}},
    "generation_config": {"max_output_tokens": "100", "top_k": 40.0, "thinking_config": {"thinking_level": "low"}},
}
HOSTED: Json = {**PLAIN, "tools": [{"googleSearch": {}}]}

ON_2_0, ON_2_5, ON_PRO = {"model": "gemini-2.0-flash"}, {"model": "gemini-2.5-flash"}, {"model": "gemini-2.5-pro"}
ON_3, ON_3_PRO, ON_3_6 = {"model": "gemini-3-flash-preview"}, {"model": "gemini-3-pro-preview"}, {"model": "gemini-3.6-flash"}
ON_3_8, ON_LITE = {"model": "models/gemini-3.8-flash"}, {"model": "gemini-2.5-flash-lite"}
OWN_SCHEMA = "tools.0.functionDeclarations.0.parameters"
JSON_SCHEMA = "tools.0.functionDeclarations.0.parametersJsonSchema"
WORD = f"{OWN_SCHEMA}.properties.word"
CALLING = "toolConfig.functionCallingConfig"
THINKING = "generationConfig.thinkingConfig"
RESULT = "contents.2.parts.0.functionResponse"

SHAPE = [
    Case("json", PLAIN, raw="{contents: []}"),
    Case("type", PLAIN, raw="[]"),
    Case("type", PLAIN, {"contents": "What is an oak?"}),
    Case("type", PLAIN, {"contents.0": "What is an oak?"}),
    Case("type", PLAIN, {"contents.0.parts": "What is an oak?"}),
    Case("type", PLAIN, {"contents.0.parts.0": "What is an oak?"}),
    Case("type", PLAIN, {"contents.0.parts.0.text": 3}),
    Case("type", TALK, {"systemInstruction": "Be brief."}),
    Case("type", LOOP, {"contents.1.parts.0.functionCall.args": '{"word": "oak"}'}),
    Case("type", LOOP, {f"{RESULT}.response": "a tree"}),
    Case("type", LOOP, {f"{RESULT}.response": ["a tree"]}),
    Case("type", LOOP, {"tools.0": "lookup"}),
    Case("type", CONFIGURED, {"generationConfig.maxOutputTokens": "many"}),
    Case("type", CONFIGURED, {"generationConfig.maxOutputTokens": 1.5}),
    Case("type", CONFIGURED, {"generationConfig.temperature": True}),
    Case("type", CONFIGURED, {f"{CALLING}.allowedFunctionNames": [3]}),
    Case("type", CONFIGURED, {f"{CALLING}.mode": True}),
    Case("missing", MEDIA, {"contents.0.parts.1.inlineData.mimeType": GONE}),
    Case("missing", MEDIA, {"contents.0.parts.1.inlineData.data": ""}),
    Case("missing", MEDIA, {"contents.0.parts.2.fileData.fileUri": GONE}),
    Case("missing", LOOP, {"contents.1.parts.0.functionCall.name": GONE}),
    Case("missing", LOOP, {f"{RESULT}.name": GONE}),
    Case("missing", LOOP, {"tools.0.functionDeclarations.0.name": GONE}),
    Case("missing", SEEN, {f"{RESULT}.parts.0.inlineData.mimeType": None}),
    Case("enum", CONFIGURED, {f"{CALLING}.mode": "REQUIRED"}),
    Case("enum", PLAIN, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "EXTREME"}}}),
    Case("base64", MEDIA, {"contents.0.parts.1.inlineData.data": "data:image/png;base64,aGk="}),
    Case("base64", LOOP, {"contents.1.parts.0.thoughtSignature": "not base64!"}),
    Case("extra_field", PLAIN, {"messages": []}),
    Case("extra_field", PLAIN, {"temperature": 0.5}),
    Case("extra_field", PLAIN, {"contents.0.content": "What is an oak?"}),
    Case("extra_field", PLAIN, {"contents.0.parts.0.type": "text"}),
    Case("extra_field", LOOP, {"contents.1.parts.0.functionCall.arguments": {}}),
    Case("extra_field", LOOP, {"tools.0.functionDeclarations.0.strict": True}),
    Case("extra_field", CONFIGURED, {"generationConfig.reasoningEffort": "low"}),
    Case("extra_field", CONFIGURED, {"generationConfig.max_Output_Tokens": 3}),
    Case("extra_field", CONFIGURED, {"safetySettings.0.level": "low"}),
    Case("field.platform", PLAIN, {"store": False}, {"dialect": "vertex"}),
    Case("field.platform", PLAIN, {"generationConfig": {"audioTimestamp": True}}, {"dialect": "developer"}),
]

CONTENTS = [
    Case("contents.empty", PLAIN, {"contents": []}),
    Case("contents.empty", PLAIN, {"contents": GONE}),
    Case("content.role", PLAIN, {"contents.0.role": "system"}),
    Case("content.role", TALK, {"contents.1.role": "assistant"}),
    Case("parts.empty", PLAIN, {"contents.0.parts": []}),
    Case("parts.empty", TALK, {"contents.1.parts": GONE}),
    Case("parts.empty", TALK, {"systemInstruction.parts": []}),
    Case("part.empty", PLAIN, {"contents.0.parts.0": {}}),
    Case("part.empty", PLAIN, {"contents.0.parts.0.text": None}),
    Case("part.empty", TALK, {"contents.1.parts.1": SIGNED}),
    Case("part.oneof", MEDIA, {"contents.0.parts.1.text": "An oak."}),
    Case("part.oneof", LOOP, {"contents.1.parts.0.text": ""}),
    Case("media.type", MEDIA, {"contents.0.parts.1.inlineData.mimeType": "image/svg+xml"}),
    Case("media.type", MEDIA, {"contents.0.parts.1.inlineData.mimeType": "application/msword"}),
    Case("function_response.parts", LOOP, {f"{RESULT}.parts": SHOWN}, ON_2_5),
    Case("function_response.media", SEEN, {f"{RESULT}.parts.0.inlineData.mimeType": "audio/wav"}),
    Case("contents.first", TALK, {"contents.0": GONE}),
    Case("contents.last", TALK, {"contents.2": GONE}, ON_3_6),
    Case("function_call.unanswered", LOOP, {"contents.2": GONE}),
    Case("function_call.unanswered", LOOP, {"contents.2": content("user", text("Go on."))}),
    Case("function_call.unanswered", STEPS, {"contents.2": content("user", text("Go on."))}),
    Case("function_response.orphan", PLAIN, {"contents.1": content("user", result("oak"))}),
    Case("function_response.orphan", LOOP, {"contents.1": content("model", text("Hm."))}),
    Case("function_response.orphan", LOOP, {"contents.3": content("user", result("oak"))}),
    Case("function_response.orphan", LOOP, {"contents.0": content("user", result("oak"))}),
    Case("function_response.count", PAIR, {"contents.2.parts.1": GONE}),
    Case("function_response.count", LOOP, {"contents.2.parts.1": result("elm")}),
    Case(
        "function_response.count",
        PAIR,
        {"contents.2": content("user", result("oak")), "contents.3": content("user", result("elm"))},
    ),
    Case("function_response.name", LOOP, {f"{RESULT}.name": "dig"}),
    Case(
        "function_response.order",
        TWO,
        {"contents.2.parts.0": TWO["contents"][2]["parts"][1], "contents.2.parts.1": TWO["contents"][2]["parts"][0]},
    ),
    Case("function_response.order", PAIR, {"contents.2": content("user", result("elm"), result("oak"))}),
    Case("function_response.id", LOOP, {f"{RESULT}.id": "id-elm"}),
    Case("function_response.id", LOOP, {f"{RESULT}.id": GONE}, ON_3_8),
    Case(
        "function_response.unacknowledged",
        edited(LOOP, {f"{RESULT}.response.safety_acknowledgement": "true", "contents.1.parts.0.functionCall.args": UNSAFE}),
        {f"{RESULT}.response.safety_acknowledgement": GONE},
    ),
    Case("enum", edited(PLAIN, {"tools": COMPUTER}), {"tools.0.computerUse.environment": "ENVIRONMENT_MOON"}),
    Case("thought_signature", LOOP, {"contents.1.parts.0.thoughtSignature": GONE}, ON_3),
    Case("thought_signature", PAIR, {"contents.1": content("model", call("oak"), call("elm", **SIGNED))}, ON_3_PRO),
    Case("thought_signature", STEPS, {"contents.1.parts.0.thoughtSignature": ""}, ON_3),
    Case("thought_signature", STEPS, {"contents.3.parts.0.thoughtSignature": GONE}, ON_3),
]

TOOLING = [
    Case("tool.empty", LOOP, {"tools.1": {}}),
    Case("tool.empty", PLAIN, {"tools": [{"functionDeclarations": []}]}),
    Case("tool.name", LOOP, {"tools.0.functionDeclarations.0.name": "look up"}),
    Case("tool.name", LOOP, {"tools.0.functionDeclarations.0.name": "1lookup"}),
    Case("tool.name", LOOP, {"tools.0.functionDeclarations.0.name": "x" * 129}),
    Case("tool.duplicate", LOOP, {"tools.0.functionDeclarations.1": DECLARATION}),
    Case("tool.duplicate", LOOP, {"tools.1": TOOLS[0]}),
    Case("tool.schema_exclusive", LOOP, {"tools.0.functionDeclarations.0.parameters": WORDS}),
    Case("tool.schema_type", LOOP, {"tools.0.functionDeclarations.0.parametersJsonSchema.type": "array"}),
    Case("tool.schema_type", LOOP, {JSON_SCHEMA: {"anyOf": [WORDS]}}),
    Case("schema.boolean", LOOP, {f"{JSON_SCHEMA}.properties.word": True}),
    Case("schema.malformed", LOOP, {f"{JSON_SCHEMA}.properties.word": {"type": "array", "items": [{}]}}),
    Case("tool.schema_type", CONFIGURED, {OWN_SCHEMA: {}}),
    Case("tool.schema_type", CONFIGURED, {OWN_SCHEMA: {"type": "STRING"}}),
    Case("schema.keyword", CONFIGURED, {f"{OWN_SCHEMA}.$schema": "https://json-schema.org/draft/2020-12/schema"}),
    Case("schema.keyword", CONFIGURED, {WORD: {"const": "oak"}}),
    Case("schema.keyword", CONFIGURED, {WORD: {"type": "array", "items": {"oneOf": [{"type": "string"}]}}}),
    Case("schema.keyword", CONFIGURED, {WORD: {"anyOf": [{"type": "number", "exclusiveMinimum": 0}]}}),
    Case("schema.type", CONFIGURED, {WORD: {"type": ["string", "null"]}}),
    Case("schema.type", CONFIGURED, {WORD: {"type": "text"}}),
    Case("schema.type", CONFIGURED, {WORD: {"type": "object", "additionalProperties": {"type": "text"}}}),
    Case("schema.enum", CONFIGURED, {WORD: {"type": "string", "enum": [1, 2]}}),
    Case("schema.enum", CONFIGURED, {WORD: {"type": "integer", "enum": ["1", "2"]}}),
    Case("schema.items", CONFIGURED, {WORD: {"type": "ARRAY"}}),
    Case("schema.required", CONFIGURED, {f"{OWN_SCHEMA}.required": ["word", "tree"]}),
    Case("type", CONFIGURED, {f"{OWN_SCHEMA}.properties.word": "string"}),
    Case("type", CONFIGURED, {WORD: {"type": "string", "nullable": "yes"}}),
    Case("schema.ref_siblings", LOOP, {f"{JSON_SCHEMA}.properties.word": {"$ref": "#/$defs/w", "type": "string"}}),
    Case("tools.mixed", HOSTED, {"tools.1": TOOLS[0]}, ON_2_5),
    Case("tools.json", LOOP, {"generationConfig": {"responseMimeType": "application/json"}}, ON_2_0),
    Case("tools.json", FORMAT, {"tools": [{"googleSearch": {}}]}, ON_PRO),
    Case("tools.circulation", HOSTED, {"tools.1": TOOLS[0]}, {**ON_3, "dialect": "developer"}),
    Case("tool_config.mode", CONFIGURED, {f"{CALLING}.mode": "AUTO"}),
    Case("tool_config.mode", CONFIGURED, {f"{CALLING}.mode": GONE}),
    Case("tool_config.unknown", CONFIGURED, {f"{CALLING}.allowedFunctionNames.1": "dig"}),
    Case("tool_config.unknown", CONFIGURED, {"tools": GONE}),
    Case("cached_content", TALK, {"cachedContent": "cachedContents/1"}),
    Case("cached_content", LOOP, {"cachedContent": "cachedContents/1"}),
]

CONFIG = [
    Case("range", CONFIGURED, {"generationConfig.temperature": 2.5}),
    Case("range", CONFIGURED, {"generationConfig.temperature": -1}),
    Case("range", CONFIGURED, {"generationConfig.topP": 1.5}),
    Case("range", CONFIGURED, {"generationConfig.maxOutputTokens": 0}),
    Case("range", CONFIGURED, {"generationConfig.candidateCount": 9}),
    Case("range", CONFIGURED, {"generationConfig.presencePenalty": 10**5000}),
    Case("range", CONFIGURED, {"generationConfig.logprobs": 21}),
    Case("stop.count", CONFIGURED, {"generationConfig.stopSequences": list("abcdef")}),
    Case("penalty.model", PLAIN, {"generationConfig": {"frequencyPenalty": 0.5}}, ON_3_6),
    Case("format.mime", FORMAT, {"generationConfig.responseMimeType": GONE}),
    Case("format.mime", FORMAT, {"generationConfig.responseMimeType": "text/plain"}),
    Case("format.exclusive", FORMAT, {"generationConfig.responseSchema": WORDS}),
    Case("schema.keyword", JSON_MODE, {"generationConfig.responseSchema": {"$ref": "#/$defs/w"}}),
    Case("thinking.exclusive", CONFIGURED, {f"{THINKING}.thinkingLevel": "LOW"}),
    Case("thinking.model", PLAIN, {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}}, ON_2_0),
    Case("thinking.level", PLAIN, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}}, ON_2_5),
    Case("thinking.level", PLAIN, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "MINIMAL"}}}, ON_3_PRO),
    Case("thinking.level", PLAIN, {"generationConfig": {"thinkingConfig": {"thinkingLevel": "minimal"}}}, ON_3_8),
    Case("thinking.budget", CONFIGURED, {f"{THINKING}.thinkingBudget": 0}, ON_PRO),
    Case("thinking.budget", CONFIGURED, {f"{THINKING}.thinkingBudget": 24_577}, ON_2_5),
    Case("thinking.budget", CONFIGURED, {f"{THINKING}.thinkingBudget": 100}, ON_LITE),
]

CASES = [*SHAPE, *CONTENTS, *TOOLING, *CONFIG]

# Each of these looks like a broken rule and is not one, mostly because a recording with a 200 says so.
ACCEPTED: dict[str, tuple[Json, Json]] = {
    "snake case, a lone object for a list, an enum in lower case, a number as a string": (SNAKE, {}),
    "an empty text": (edited(PLAIN, {"contents.0.parts.0.text": ""}), {}),
    "a content without role": (edited(PLAIN, {"contents.0.role": GONE}), {}),
    "results under the role of the vendor's examples": (edited(LOOP, {"contents.2.role": "tool"}), {}),
    "video metadata in a part of its own": (
        edited(MEDIA, {"contents.0.parts.3": {"videoMetadata": {"startOffset": "2s"}}}),
        {},
    ),
    "calls of one turn in two contents": (
        {
            **LOOP,
            "contents": [
                LOOP["contents"][0],
                content("model", call("oak", **SIGNED)),
                content("model", call("elm", **SIGNED)),
                content("user", result("oak"), result("elm")),
            ],
        },
        ON_3,
    ),
    "text and media after the results": (
        edited(LOOP, {"contents.2.parts.1": text("The file:"), "contents.2.parts.2": MEDIA["contents"][0]["parts"][1]}),
        ON_3,
    ),
    "the user speaks after the results": (edited(LOOP, {"contents.3": content("user", text("Go on."))}), ON_3),
    "a hosted call and its result among the model's parts": (
        edited(
            TALK,
            {
                "contents.1.parts.1": {"toolCall": {"id": "1", "tool_type": "GOOGLE_SEARCH_WEB", "args": {}}},
                "contents.1.parts.2": {"toolResponse": {"id": "1", "toolType": "GOOGLE_SEARCH_WEB", "response": {}}},
                "contents.1.parts.3": {"executableCode": {"language": "PYTHON", "code": "1"}},
                "contents.1.parts.4": {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            },
        ),
        ON_3,
    ),
    "no signature before Gemini 3": (edited(LOOP, {"contents.1.parts.0.thoughtSignature": GONE}), ON_2_5),
    "no signature where the model is not known": (edited(LOOP, {"contents.1.parts.0.thoughtSignature": GONE}), {}),
    "no signature on a call of an older turn": (
        edited(STEPS, {"contents.1.parts.0.thoughtSignature": GONE, "contents.2.parts.1": text("Go on.")}),
        ON_3,
    ),
    "the documented stand-in for a signature": (
        edited(LOOP, {"contents.1.parts.0.thoughtSignature": "skip_thought_signature_validator"}),
        ON_3,
    ),
    "calls and results without ids": (
        edited(LOOP, {"contents.1.parts.0.functionCall.id": GONE, f"{RESULT}.id": GONE}),
        ON_3_8,
    ),
    "a result without id on an older model": (edited(LOOP, {f"{RESULT}.id": GONE}), ON_3),
    "a model turn at the end of an older model's request": (edited(TALK, {"contents": TALK["contents"][:2]}), ON_3),
    "media inside a result": (SEEN, ON_3),
    "a cache, and the answer to a call in it": (
        {"cachedContent": "cachedContents/1", "contents": [content("user", result("oak"))]},
        {},
    ),
    "a calling config without declarations": (
        {**PLAIN, "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": []}}},
        ON_2_0,
    ),
    "hosted tools beside functions on Vertex": ({**HOSTED, "tools": [*HOSTED["tools"], *TOOLS]}, {**ON_3, "dialect": "vertex"}),
    "hosted tools beside functions with the flag": (
        {**HOSTED, "tools": [*HOSTED["tools"], *TOOLS], "toolConfig": {"includeServerSideToolInvocations": True}},
        {**ON_3, "dialect": "developer"},
    ),
    "functions and JSON from Gemini 3 on": ({**FORMAT, "tools": TOOLS}, ON_3),
    "a function without parameters": (edited(LOOP, {"tools.0.functionDeclarations.0.parametersJsonSchema": GONE}), {}),
    "JSON Schema that Google does not support": (
        edited(LOOP, {f"{JSON_SCHEMA}.properties.word": {"const": "oak", "type": ["string"]}}),
        {},
    ),
    "a list of types in JSON Schema": (edited(LOOP, {f"{JSON_SCHEMA}.properties.word": {"type": ["string", "null"]}}), {}),
    "a described reference at the root": (
        edited(FORMAT, {"generationConfig.responseJsonSchema": {"$ref": "#/$defs/w", "$defs": {"w": WORDS}, "title": "Word"}}),
        {},
    ),
    "a property named like a keyword": (
        edited(
            CONFIGURED, {OWN_SCHEMA: {"type": "OBJECT", "properties": {"const": {"type": "STRING"}}, "required": ["const"]}}
        ),
        {},
    ),
    "a temperature of zero": (edited(CONFIGURED, {"generationConfig.temperature": 0.0}), {}),
    "thinking switched off, or left to the model": (edited(CONFIGURED, {f"{THINKING}.thinkingBudget": 0}), ON_2_5),
    "an automatic budget": (edited(CONFIGURED, {f"{THINKING}.thinkingBudget": -1}), ON_PRO),
    "a budget on a model with levels": (CONFIGURED, ON_3),
    "null where a field is optional": (edited(CONFIGURED, {"cachedContent": None, "generationConfig.topK": None}), {}),
    "labels and a guard": (
        {**PLAIN, "labels": {"team": "a"}, "modelArmorConfig": {"promptTemplateName": "x"}},
        {"dialect": "vertex"},
    ),
    "the model named in the body": ({**PLAIN, "model": "models/gemini-3-flash-preview"}, {}),
}
BASES = [PLAIN, LOOP, PAIR, TWO, STEPS, MEDIA, SEEN, TALK, CONFIGURED, FORMAT, JSON_MODE, SNAKE, HOSTED]
