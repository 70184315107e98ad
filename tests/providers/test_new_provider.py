"""A compatible provider is one row: no code, and its dialect is spoken in both directions."""

import json
from pathlib import Path

from evener.providers.rows import load_rows
from evener.testing import check_request
from evener.transcript import Ask, Message, Reasoning, ToolCall, ToolSpec, Transcript
from evener.translate import origin
from evener.wire import CODECS, assemble

ROW = """
[providers.newcomer]
wire = "openai_chat"
base_url = "https://api.newcomer.example/v1"
key_env = ["NEWCOMER_API_KEY"]

[providers.newcomer.quirks]
system_role = "system"
output_field = "max_tokens"
id_charset = "nine"
required_word = "any"
reasoning_field = "reasoning_content"
thinking_replay = "tools"
"""

STREAM = (
    b'data: {"id":"c1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"hm"}}]}\n\n'
    b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"seen"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n'
)


def test_one_row_adds_a_provider_with_a_dialect_of_its_own(tmp_path: Path) -> None:
    """S0.53, S1.15."""
    (tmp_path / "rows.toml").write_text(ROW, encoding="utf-8")
    rows = load_rows(tmp_path / "rows.toml")
    provider, quirks = rows.provider("newcomer"), rows.quirks("newcomer", "m")
    codec = CODECS[provider.wire]

    decoder = codec.decoder(quirks)
    reply = assemble([*decoder.feed(STREAM), *decoder.close()])
    assert (reply.text, reply.reasoning_text, reply.output_tokens) == ("seen", "hm", 2)

    talk = Transcript(
        [
            Message.user_text("Look."),
            Message.assistant_tool_call(ToolCall.of("toolu_from_elsewhere", "look", {})),
            Message.tool_result("toolu_from_elsewhere", "a tree"),
        ],
        system="Be brief.",
    )
    ask = Ask(talk, origin(provider, "m"), (ToolSpec("look"),), reasoning=Reasoning(mode="default"))
    body = json.loads(codec.encode(ask, quirks, None).body)
    assert body["messages"][0]["role"] == "system"
    sent = body["messages"][2]["tool_calls"][0]["id"]
    assert len(sent) == 9
    assert body["messages"][3]["tool_call_id"] == sent
    assert check_request("openai_chat", body) == []
