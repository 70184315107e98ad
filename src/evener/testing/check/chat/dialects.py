"""The rules of each server of Chat Completions: one record per dialect. Data, and its lookup.

The default record has OpenAI's rules without those that a recording of another server contradicts with a 200. No record has
a rule that a sheet calls unverified, or about a field that a server only ignores.
"""

import re
from collections.abc import Mapping

import msgspec

from evener.testing.check.models import server
from evener.testing.check.shape import fields, text

CALL_ROLES = frozenset(("assistant", "tool"))


class ChatDialect(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one server.

    `known_only` refuses unknown fields and part types, `typed` requires a `type` on tools, calls and choices,
    `filled_content` refuses an empty content array even beside tool calls and an empty list of calls, `filled_answers` an
    assistant message whose text is empty, `filled_tools` an empty tool list, `filled_text` an empty text in a list.
    `strict_schemas` checks strict schemas against OpenAI's subset. `call_id` is a pattern for every call id. `after_tool` and
    `last` are the roles that may be there (`None`: any). `refused` fields and `exclusive` pairs of them are errors.

    `efforts` lists, by model, the accepted reasoning efforts; the first match applies. `routed_reasoning` checks the object
    `reasoning` of a server that passes requests on to others. `thinks` and `always_thinks` are patterns of models that reason
    by default, or always. While a model reasons, `replays_reasoning` requires its reasoning on every tool turn, and without
    `forced_choice` no tool may be forced.
    """

    known_only: bool = False
    typed: bool = False
    filled_content: bool = False
    filled_answers: bool = False
    filled_tools: bool = False
    filled_text: bool = False
    strict_schemas: bool = False
    refused_parts: frozenset[str] = frozenset()
    call_id: str = ""
    max_call_id: int | None = None
    object_arguments: bool = False
    after_tool: frozenset[str] | None = None
    last: frozenset[str] | None = None
    choices: frozenset[str] = frozenset(("none", "auto", "required", "any"))
    refused: frozenset[str] = frozenset()
    exclusive: tuple[tuple[str, str], ...] = ()
    max_n: int = 128
    max_stops: int | None = 4
    max_stop_bytes: int | None = None
    max_tools: int | None = None
    efforts: tuple[tuple[str, frozenset[str]], ...] = ()
    refused_efforts: frozenset[str] = frozenset()
    routed_reasoning: bool = False
    thinks: str = "(?!)"
    always_thinks: str = "(?!)"
    replays_reasoning: bool = False
    forced_choice: bool = True


_THREE = frozenset(("none", "auto", "required"))
_LOW_TO_HIGH = frozenset(("low", "medium", "high"))

# Recorded: Mistral takes an empty content array beside tool calls, an empty list of calls and tools without `type`, Hugging
# Face a choice without `type` and an empty tool list, OpenRouter call ids of 50 characters and open objects in a strict
# schema. So the default record has none of these rules.
ANY = ChatDialect()

# Sections 2 to 5. An unknown field deep inside a message is a recorded 400; the 40 characters are from reports.
OPENAI = ChatDialect(
    known_only=True,
    typed=True,
    filled_content=True,
    filled_tools=True,
    strict_schemas=True,
    max_call_id=40,
    choices=_THREE,
    max_tools=128,
)

# Section 9, Moonshot. Unknown efforts are ignored, "none" is not.
_KIMI = ChatDialect(
    max_stops=5,
    max_stop_bytes=32,
    refused_efforts=frozenset(("none",)),
    thinks=r"kimi-(k2\.[5-9]|k[3-9]|.*thinking).*",
    always_thinks=r"kimi-(k2\.7-code|k[3-9]).*",
    replays_reasoning=True,
    forced_choice=False,
)

# Section 9, heading by heading. A server for which the sheet names no refusal gets the default record.
DIALECTS: Mapping[str, ChatDialect] = {
    "openai": OPENAI,
    # No file parts. Azure has fields of its own, so unknown ones pass.
    "azure": ChatDialect(
        typed=True,
        filled_content=True,
        filled_tools=True,
        strict_schemas=True,
        refused_parts=frozenset(("file",)),
        max_call_id=40,
        choices=_THREE,
        max_tools=128,
    ),
    # Passes lists on to several vendors. One of them refuses empty texts in lists.
    "openrouter": ChatDialect(routed_reasoning=True, filled_text=True),
    # Thinking is on unless disabled; `deepseek-chat` is the name for the mode without it. Reports add: an empty tool list
    # is refused, and a forced choice only while thinking.
    "deepseek": ChatDialect(
        filled_tools=True,
        choices=_THREE,
        thinks=r"(?!deepseek-chat).*",
        replays_reasoning=True,
        forced_choice=False,
    ),
    "kimi": _KIMI,
    "moonshot": _KIMI,
    # The provider's compatibility page says that these fields get a 400; the sheet calls penalties, `store` and
    # `metadata` unsupported too, but the SDK only says that they have no effect.
    "groq": ChatDialect(
        choices=_THREE,
        refused=frozenset(("logprobs", "logit_bias", "top_logprobs")),
        exclusive=(("reasoning_format", "include_reasoning"),),
        max_n=1,
        max_tools=128,
        efforts=(
            (r"qwen/qwen3\.8-27b.*", _LOW_TO_HIGH | {"none", "default"}),
            (r"qwen/qwen3-.*", frozenset(("none", "default"))),
            (r"openai/gpt-oss-.*", _LOW_TO_HIGH),
        ),
    ),
    # An assistant that is last must carry `prefix`; see the rule. Arguments may be objects by the SDK's types.
    "mistral": ChatDialect(
        filled_answers=True,
        call_id=r"[a-zA-Z0-9]{9}",
        object_arguments=True,
        after_tool=CALL_ROLES,
        last=frozenset(("user", "tool")),
        refused=frozenset(("max_completion_tokens",)),
        max_stops=None,
    ),
    "xai": ChatDialect(
        efforts=(
            (r"grok-4\.20.*", frozenset()),
            (r"grok-4\.3.*", _LOW_TO_HIGH | {"none"}),
            (r"grok-4\.5.*", _LOW_TO_HIGH),
        ),
    ),
    "cerebras": ChatDialect(
        refused=frozenset(("presence_penalty", "frequency_penalty", "logit_bias", "parallel_tool_calls", "service_tier")),
    ),
    "zai": ANY,
    "minimax": ANY,
    "ollama": ChatDialect(max_stops=None),
    "vllm": ChatDialect(max_stops=None),
    "llamacpp": ChatDialect(max_stops=None),
}


def dialect_of(name: str, model: str) -> ChatDialect:
    """Return the record of this name. Without a name, return OpenAI's for its own models, else the default."""
    if name:
        return DIALECTS.get(name, ANY)
    return OPENAI if server(model).known_fields_only else ANY


def is_thinking(body: Mapping[str, object], dialect: ChatDialect) -> bool:
    """True if the model reasons in this request, as far as the body and the dialect tell."""
    model, asked = text(body.get("model")), text(fields(body.get("thinking")).get("type"))
    if re.fullmatch(dialect.always_thinks, model):
        return True
    if asked or body.get("reasoning_effort") == "none":
        return asked == "enabled"
    return re.fullmatch(dialect.thinks, model) is not None
