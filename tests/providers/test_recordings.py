"""Recorded traffic against the rows: what was answered with 200, a row may not forbid. The recording wins."""

import re
from collections.abc import Callable, Iterator

import pytest

from evener.providers import load_rows
from evener.wire.quirks import Quirks
from tests.corpus import Exchange, Json, exchanges, needs_corpus

ROWS = load_rows()
ANTHROPIC = "anthropic_messages"
RESPONSES = "openai_responses"

# Which row a recording belongs to; a gateway passes everything on to the maker.
PROVIDERS = {
    ANTHROPIC: {"anthropic": "anthropic", "gateway": "anthropic", "bedrock": "bedrock"},
    RESPONSES: {
        "openai": "openai",
        "gateway": "openai",
        "azure": "azure",
        "bedrock_mantle": "bedrock-mantle-openai",
        "deepseek": "deepseek-responses",
        "openrouter": "openrouter-responses",
    },
}
SAMPLING = ("temperature", "top_p", "top_k")


def target(exchange: Exchange) -> tuple[str, str]:
    """Provider and model; on some hosts the model stands in the path."""
    body = exchange.request or {}
    in_path = re.search(r"/model/([^/]+)/invoke", exchange.path)
    return PROVIDERS[exchange.wire][exchange.provider], in_path[1] if in_path else body["model"]


# Each gate yields what the record would keep from being sent.


def limit(body: Json, quirks: Quirks) -> Iterator[str]:
    wanted = body.get("max_tokens") or body.get("max_output_tokens") or 0
    if 0 < quirks.max_output < wanted:
        yield f"max_output {quirks.max_output}, sent {wanted}"


def tools(body: Json, quirks: Quirks) -> Iterator[str]:
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind in ("any", "tool", "required", "function") and not quirks.forced_choice:
        yield f"forced_choice, sent {kind}"
    thinks = (body.get("thinking") or {}).get("type") == "enabled"
    if kind in ("any", "tool") and thinks and not quirks.forced_choice_thinking:
        yield f"forced_choice_thinking, sent {kind}"
    if body.get("tools") and not quirks.tools:
        yield "tools"
    if any(tool.get("strict") for tool in body.get("tools") or []) and not quirks.strict:
        yield "strict"


def marks(body: Json, quirks: Quirks) -> Iterator[str]:
    text = repr(body)
    count = text.count("'cache_control': {") + text.count("'prompt_cache_breakpoint': {")
    if count > quirks.cache_marks:
        yield f"cache_marks {quirks.cache_marks}, sent {count}"


def anthropic_thinking(body: Json, quirks: Quirks) -> Iterator[str]:
    kind = (body.get("thinking") or {}).get("type")
    if kind and kind not in quirks.thinking_modes:
        yield f"thinking_modes, sent {kind}"
    config = body.get("output_config") or {}
    if level := config.get("effort"):
        yield from effort(level, quirks)
    if config.get("format") and not quirks.output_schema:
        yield "output_schema"
    if quirks.sampling == "none":
        yield from (f"sampling, sent {name}" for name in SAMPLING if body.get(name) is not None)


def effort(level: str, quirks: Quirks) -> Iterator[str]:
    if not quirks.effort or (quirks.efforts and level not in quirks.efforts):
        yield f"efforts, sent {level}"


def anthropic_turns(body: Json, quirks: Quirks) -> Iterator[str]:
    roles = [message["role"] for message in body["messages"]]
    if "system" in roles and not quirks.mid_system:
        yield "mid_system"
    last = body["messages"][-1]
    paused = isinstance(last["content"], list) and any(block["type"].endswith("_tool_result") for block in last["content"])
    if roles[-1] == "assistant" and not paused and not quirks.prefill:
        yield "prefill"
    sent = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]]
    if any(block["type"] in ("thinking", "redacted_thinking") for block in sent) and quirks.thinking_replay == "none":
        yield "thinking_replay"


def responses_reasoning(body: Json, quirks: Quirks) -> Iterator[str]:
    asked = (body.get("reasoning") or {}).get("effort")
    level = "off" if asked == "none" else asked
    if level:
        yield from effort(level, quirks)
    thinks = (level or quirks.default_effort) != "off"
    if quirks.sampling == "none" or (quirks.sampling == "thinking_off" and thinks):
        yield from (f"sampling, sent {name}" for name in SAMPLING if body.get(name) is not None)
    if (body.get("reasoning") or {}).get("summary") and not quirks.show:
        yield "show"


def responses_state(body: Json, quirks: Quirks) -> Iterator[str]:
    state = {
        "store": quirks.store,
        "previous_response_id": quirks.store,
        "conversation": quirks.conversation,
        "prompt_cache_key": quirks.cache_key,
    }
    yield from (f"{name} is off" for name, known in state.items() if body.get(name) is not None and not known)
    if "reasoning.encrypted_content" in (body.get("include") or []) and not quirks.sealed:
        yield "sealed"
    shape = (body.get("text") or {}).get("format", {}).get("type")
    if (shape == "json_schema" and not quirks.output_schema) or (shape == "json_object" and not quirks.json_mode):
        yield f"output, sent {shape}"


def responses_items(body: Json, quirks: Quirks) -> Iterator[str]:
    items = body["input"] if isinstance(body["input"], list) else []
    if any(item.get("phase") for item in items) and not quirks.phase:
        yield "phase"
    if any(item.get("id") for item in items) and not quirks.item_ids:
        yield "item_ids"
    if any(item.get("status") for item in items if item.get("type") == "function_call") and not quirks.call_status:
        yield "call_status"
    roles = [item.get("role") for item in items]
    if any(role in ("system", "developer") for role in roles[1:]) and not quirks.mid_system:
        yield "mid_system"


Gate = Callable[[Json, Quirks], Iterator[str]]
GATES: dict[str, tuple[Gate, ...]] = {
    ANTHROPIC: (limit, tools, marks, anthropic_thinking, anthropic_turns),
    RESPONSES: (limit, tools, marks, responses_reasoning, responses_state, responses_items),
}


def objections(wire: str, body: Json, quirks: Quirks) -> list[str]:
    return [hit for gate in GATES[wire] for hit in gate(body, quirks)]


def completions(wire: str) -> list[Exchange]:
    """Requests for a completion; counting and compacting have other bodies."""
    paths = ("/messages", "/responses", "/invoke")
    return [each for each in exchanges(wire) if each.request is not None and each.path.partition("?")[0].endswith(paths)]


@needs_corpus
@pytest.mark.parametrize("wire", PROVIDERS)
def test_no_row_forbids_what_was_answered(wire: str) -> None:
    answered = [each for each in completions(wire) if each.status == 200]
    assert answered
    wrong = {}
    for each in answered:
        provider, model = target(each)
        if hits := objections(wire, each.request or {}, ROWS.quirks(provider, model)):
            wrong[each.id] = (provider, model, hits)
    assert wrong == {}


@needs_corpus
@pytest.mark.parametrize("wire", PROVIDERS)
def test_every_recorded_model_has_a_row_that_speaks_of_it(wire: str) -> None:
    targets = {target(each) for each in completions(wire) if each.status == 200}
    silent = {pair for pair in targets if not any(row.covers(ROWS.provider(pair[0]), pair[1]) for row in ROWS.models)}
    assert silent == set()


@needs_corpus
def test_a_recorded_refusal_is_foreseen() -> None:
    refused = [
        each
        for each in completions(ANTHROPIC)
        if each.status == 400 and "does not support effort level" in (each.response or {})["error"]["message"]
    ]
    assert refused
    for each in refused:
        provider, model = target(each)
        assert objections(ANTHROPIC, each.request or {}, ROWS.quirks(provider, model)) == ["efforts, sent xhigh"]


TURN = {"role": "user", "content": "x"}
VIOLATIONS: list[tuple[str, Json, Quirks]] = [
    (ANTHROPIC, {"max_tokens": 9}, Quirks(max_output=8)),
    (ANTHROPIC, {"temperature": 1}, Quirks(sampling="none")),
    (ANTHROPIC, {"top_k": 1}, Quirks(sampling="none")),
    (ANTHROPIC, {"tool_choice": {"type": "any"}}, Quirks(forced_choice=False)),
    (ANTHROPIC, {"tool_choice": {"type": "tool"}}, Quirks(forced_choice=False)),
    (ANTHROPIC, {"tool_choice": {"type": "any"}, "thinking": {"type": "enabled"}}, Quirks(forced_choice_thinking=False)),
    (ANTHROPIC, {"thinking": {"type": "enabled"}}, Quirks(thinking_modes=("adaptive",))),
    (ANTHROPIC, {"thinking": {"type": "disabled"}}, Quirks(thinking_modes=("adaptive",))),
    (ANTHROPIC, {"output_config": {"effort": "max"}}, Quirks(efforts=("low",))),
    (ANTHROPIC, {"output_config": {"effort": "low"}}, Quirks(effort=False)),
    (ANTHROPIC, {"output_config": {"format": {}, "effort": "low"}}, Quirks(effort=False)),
    (ANTHROPIC, {"messages": [TURN, {"role": "system", "content": "x"}]}, Quirks(mid_system=False)),
    (ANTHROPIC, {"messages": [TURN, {"role": "assistant", "content": "x"}]}, Quirks(prefill=False)),
    (ANTHROPIC, {"tools": [{"strict": True}]}, Quirks(strict=False)),
    (ANTHROPIC, {"tools": [{"cache_control": {}}]}, Quirks(cache_marks=0)),
    (RESPONSES, {"max_output_tokens": 9}, Quirks(max_output=8)),
    (RESPONSES, {"tool_choice": "required"}, Quirks(forced_choice=False)),
    (RESPONSES, {"tool_choice": {"type": "function"}}, Quirks(forced_choice=False)),
    (RESPONSES, {"temperature": 1}, Quirks(sampling="none")),
    (RESPONSES, {"temperature": 1}, Quirks(sampling="thinking_off")),
    (RESPONSES, {"temperature": 1, "reasoning": {"effort": "low"}}, Quirks(sampling="thinking_off", default_effort="off")),
    (RESPONSES, {"reasoning": {"effort": "none"}}, Quirks(efforts=("low",))),
    (RESPONSES, {"reasoning": {"summary": "auto"}}, Quirks(show=False)),
    (RESPONSES, {"store": False}, Quirks(store=False)),
    (RESPONSES, {"previous_response_id": "r"}, Quirks(store=False)),
    (RESPONSES, {"conversation": "c"}, Quirks(conversation=False)),
    (RESPONSES, {"prompt_cache_key": "k"}, Quirks(cache_key=False)),
    (RESPONSES, {"include": ["reasoning.encrypted_content"]}, Quirks(sealed=False)),
    (RESPONSES, {"text": {"format": {"type": "json_schema"}}}, Quirks(output_schema=False)),
    (RESPONSES, {"input": [{"phase": "commentary"}]}, Quirks(phase=False)),
    (RESPONSES, {"input": [{"type": "reasoning", "id": "rs_1"}]}, Quirks(item_ids=False)),
    (RESPONSES, {"input": [{"type": "function_call", "status": "completed"}]}, Quirks(call_status=False)),
    (RESPONSES, {"input": [TURN, {"role": "system", "content": "x"}]}, Quirks(mid_system=False)),
]


@pytest.mark.parametrize(("wire", "part", "quirks"), VIOLATIONS, ids=lambda part: str(part)[:60])
def test_a_row_that_forbids_what_was_sent_is_caught(wire: str, part: Json, quirks: Quirks) -> None:
    body = {"messages": [TURN], "input": [TURN], **part}
    assert len(objections(wire, body, quirks)) == 1
    assert objections(wire, body, Quirks()) == []
