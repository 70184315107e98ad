"""The rules of single models, as tables keyed by a pattern on the model's name. The first match applies.

Rows come from the wire sheets (sections named per table) and the recordings. A name that no row knows (a deployment
alias, a newer model) gets a row that refuses nothing, so that no rule is applied by guess.
"""

import re

import msgspec

ANTHROPIC_EFFORTS = ("low", "medium", "high", "xhigh", "max")
OPENAI_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class ClaudeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One family of Claude models. `None`: not known, so the rule is not applied."""

    pattern: str
    thinking: frozenset[str] | None = None
    efforts: frozenset[str] | None = None
    disabled_up_to_high: bool = False
    forced_choice: bool = True
    mid_system: bool = True
    prefill: bool = True
    sampling: bool = True
    both_samplers: bool = True


_ADAPTIVE = frozenset(("adaptive",))
_SWITCHABLE = frozenset(("adaptive", "disabled"))
_BUDGET = frozenset(("enabled", "disabled"))

# anthropic-messages section 0 (prefill, sampling), 3 (mid-conversation system), 5 (forced choice), 7 (thinking, effort).
# `both_samplers`: models from Opus 4.1 on take temperature or top_p, in the provider's migration notes and error text.
# The effort set of 4.6 is the one a recorded 400 lists; xhigh is recorded as accepted on Opus 4.8.
CLAUDE = (
    ClaudeRow(pattern=r"(fable|mythos) 5\.\d+", thinking=_ADAPTIVE, forced_choice=False, prefill=False, sampling=False),
    ClaudeRow(pattern=r"mythos preview", forced_choice=False),
    ClaudeRow(pattern=r"opus 5\.5", thinking=_ADAPTIVE, forced_choice=False, prefill=False, sampling=False),
    ClaudeRow(
        pattern=r"sonnet 5\.5",
        thinking=frozenset(("adaptive", "between_tools")),
        forced_choice=False,
        prefill=False,
        sampling=False,
    ),
    ClaudeRow(pattern=r"(haiku 5\.5|opus 5\.0)", thinking=_SWITCHABLE, disabled_up_to_high=True, prefill=False, sampling=False),
    ClaudeRow(pattern=r"(sonnet 5\.0|opus 4\.8)", thinking=_SWITCHABLE, prefill=False, sampling=False),
    ClaudeRow(pattern=r"opus 4\.7", thinking=_SWITCHABLE, mid_system=False, prefill=False, sampling=False),
    ClaudeRow(
        pattern=r"(opus|sonnet) 4\.6",
        thinking=frozenset(("adaptive", "enabled", "disabled")),
        efforts=frozenset(("low", "medium", "high", "max")),
        mid_system=False,
        prefill=False,
        both_samplers=False,
    ),
    ClaudeRow(
        pattern=r"opus 4\.5",
        thinking=_BUDGET,
        efforts=frozenset(("low", "medium", "high")),
        mid_system=False,
        both_samplers=False,
    ),
    ClaudeRow(
        pattern=r"(opus 4\.1|(sonnet|haiku) 4\.5)",
        thinking=_BUDGET,
        efforts=frozenset(),
        mid_system=False,
        both_samplers=False,
    ),
    ClaudeRow(pattern=r"(opus|sonnet|haiku) (3\.\d|4\.[0-5])", thinking=_BUDGET, efforts=frozenset(), mid_system=False),
)
_ANY_CLAUDE = ClaudeRow(pattern="")

_NEW_NAME = re.compile(r"claude-([a-z]+)-(\d)(?:[-.](\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(\d)(?:[-.](\d))?-([a-z]+)")


def claude(model: str) -> ClaudeRow:
    """Return the row of a Claude model, with any prefix, date or platform suffix in its name."""
    key = _claude_key(model)
    return next((row for row in CLAUDE if re.fullmatch(row.pattern, key)), _ANY_CLAUDE)


def _claude_key(model: str) -> str:
    if "claude-mythos-preview" in model:
        return "mythos preview"
    if new := _NEW_NAME.search(model):
        return f"{new[1]} {new[2]}.{new[3] or 0}"
    if old := _OLD_NAME.search(model):
        return f"{old[3]} {old[1]}.{old[2] or 0}"
    return ""


class ReasoningRow(msgspec.Struct, frozen=True, kw_only=True):
    """One family of OpenAI models.

    `refused` are effort levels that get a 400; `default` is the effort used when none is sent (empty: not known, or the
    model never reasons, so sampling parameters are not judged). Without `encrypted`, it returns no encrypted reasoning.
    """

    pattern: str
    refused: frozenset[str] = frozenset()
    default: str = ""
    encrypted: bool = True


_DATED = r"(-\d{4}-\d{2}-\d{2})?"

# openai-responses section 6; section 0 for encrypted reasoning. Models that never reason refuse every effort (reported by
# many, in the API's own words). Chat and pro variants come before the mainline patterns, which match them, too.
REASONING = (
    ReasoningRow(pattern=r"(gpt-4|gpt-3\.5|chatgpt-4o).*", refused=frozenset(OPENAI_EFFORTS), encrypted=False),
    ReasoningRow(pattern=r"o\d.*", refused=frozenset(("none", "minimal", "xhigh", "max")), default="medium"),
    ReasoningRow(
        pattern=rf"gpt-5(-mini|-nano|-pro|-codex.*)?{_DATED}",
        refused=frozenset(("none", "xhigh", "max")),
        default="medium",
    ),
    ReasoningRow(
        pattern=r"gpt-5\.[123]-chat.*",
        refused=frozenset(OPENAI_EFFORTS) - {"medium"},
        default="medium",
    ),
    ReasoningRow(pattern=r"gpt-5\.([1-4]-pro|1-codex).*", refused=frozenset(("none",)), default="medium"),
    ReasoningRow(pattern=rf"gpt-5\.[1-4](-mini|-nano)?{_DATED}", default="none"),
    ReasoningRow(pattern=rf"gpt-5\.5{_DATED}", default="medium"),
    ReasoningRow(pattern=r"gpt-5\.6.*", refused=frozenset(("minimal",)), default="medium"),
    ReasoningRow(pattern=r"(gpt-6-astra|gpt-6\.1-sol).*", refused=frozenset(("none", "minimal")), default="medium"),
    ReasoningRow(pattern=r"gpt-6(\.\d)?-(sol|luna|terra).*", default="medium"),
)
_ANY_REASONING = ReasoningRow(pattern="")


def reasoning(model: str) -> ReasoningRow:
    """Return the effort row of an OpenAI model; Bedrock's prefix `openai.` is ignored."""
    name = model.removeprefix("openai.")
    return next((row for row in REASONING if re.fullmatch(row.pattern, name)), _ANY_REASONING)


class ServerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The server of a model on the Responses wire, and the rules that it enforces."""

    pattern: str
    known_fields_only: bool = False
    item_ids: bool = False
    reasoning_followed: bool = True
    adjacent_calls: bool = False


# openai-responses section 3 (item ids), 7 (reasoning) and 14 (clones). DeepSeek's reasoning ids are bare UUIDs, it takes
# a reasoning item before a message without id, and it refuses assistant messages between calls and outputs [recorded].
SERVERS = (
    ServerRow(pattern=r"(openai\.)?(gpt-(?!oss)|o\d|chatgpt-|codex-|computer-use).*", known_fields_only=True, item_ids=True),
    ServerRow(pattern=r".*deepseek.*", reasoning_followed=False, adjacent_calls=True),
)
_ANY_SERVER = ServerRow(pattern="")


def server(model: str) -> ServerRow:
    """Return the rules of the server that runs this model on the Responses wire."""
    return next((row for row in SERVERS if re.fullmatch(row.pattern, model)), _ANY_SERVER)


class ChatRow(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one family of OpenAI models on the Chat wire, in addition to its `ReasoningRow`."""

    pattern: str
    instructions: bool = True
    audio: bool = True
    search: bool = True
    stop: bool = True
    max_tokens: bool = True
    tools: bool = True
    effort_with_tools: bool = True


# openai-chat section 0 (tools with effort), 2 (max_tokens, stop, search, o1-mini's roles [recorded]), 3 (audio [recorded]).
# `o1-preview` refused instructions like o1-mini, by public reports.
CHAT = (
    ChatRow(pattern=r"o1-(mini|preview).*", instructions=False, audio=False, search=False, max_tokens=False),
    ChatRow(pattern=rf"(o3|o3-pro|o4-mini){_DATED}", audio=False, search=False, stop=False, max_tokens=False),
    ChatRow(pattern=rf"gpt-5(-mini|-nano)?{_DATED}", audio=False, search=False, stop=False, max_tokens=False),
    ChatRow(pattern=r".*(audio|realtime).*", search=False),
    ChatRow(pattern=r".*search.*", audio=False),
    ChatRow(pattern=r"gpt-5(\.\d)?-chat.*", audio=False, search=False),
    ChatRow(pattern=r"gpt-5\.[4-9].*", audio=False, search=False, max_tokens=False, effort_with_tools=False),
    ChatRow(pattern=r"(o\d|gpt-5).*", audio=False, search=False, max_tokens=False),
    ChatRow(pattern=r"(gpt-4|gpt-3\.5|chatgpt-4o).*", audio=False, search=False),
    ChatRow(pattern=r"(gpt-6-astra|gpt-6\.1-sol).*", tools=False, max_tokens=False),
    ChatRow(pattern=r"gpt-6.*", max_tokens=False, effort_with_tools=False),
)
_ANY_CHAT = ChatRow(pattern="")


def chat(model: str) -> ChatRow:
    """Return the Chat row of an OpenAI model; for other vendors' models and names, no rule is applied."""
    if not server(model).known_fields_only:
        return _ANY_CHAT
    name = model.removeprefix("openai.")
    return next((row for row in CHAT if re.fullmatch(row.pattern, name)), _ANY_CHAT)


class GeminiRow(msgspec.Struct, frozen=True, kw_only=True):
    """One family of Gemini models.

    `budget` is the allowed span of thinking tokens (`None`: not judged), `off` whether a budget of 0 is allowed, `levels`
    the allowed thinking levels (`None`: not judged, empty: the model takes no level). Without `mixing`, function tools
    exclude hosted tools and JSON output. `signed`, `media_results` and `result_ids` are about function calls and results.
    """

    pattern: str
    thinking: bool = True
    budget: tuple[int, int] | None = None
    off: bool = True
    levels: frozenset[str] | None = None
    mixing: bool = True
    signed: bool = False
    media_results: bool = True
    result_ids: bool = False
    ends_with_model: bool = True
    penalties: bool = True


_NO_LEVELS: frozenset[str] = frozenset()
_FOUR = frozenset(("MINIMAL", "LOW", "MEDIUM", "HIGH"))
_THREE = _FOUR - {"MINIMAL"}
_MINOR = r"(-preview(-\d\d-\d{2,4})?|-\d{3}|-latest)?"

# google-gemini section 2 (mixing), 3 (media in results, ids), 6 (thinking), 7 (signatures). The budgets, which the sheet
# calls unverified, are those of the provider's thinking guide. That 3.5 Flash-Lite, 3.6 and later refuse penalties and a
# request that ends with a model turn is in the provider's notes on these models.
GEMINI = (
    GeminiRow(pattern=r"gemini-2\.0-flash-thinking.*", mixing=False, media_results=False, levels=_NO_LEVELS),
    GeminiRow(pattern=r"gemini-(1\.\d|2\.0).*", thinking=False, mixing=False, media_results=False),
    GeminiRow(
        pattern=rf"gemini-2\.5-flash-lite{_MINOR}", budget=(512, 24_576), levels=_NO_LEVELS, mixing=False, media_results=False
    ),
    GeminiRow(pattern=rf"gemini-2\.5-flash{_MINOR}", budget=(1, 24_576), levels=_NO_LEVELS, mixing=False, media_results=False),
    GeminiRow(
        pattern=rf"gemini-2\.5-pro{_MINOR}",
        budget=(128, 32_768),
        off=False,
        levels=_NO_LEVELS,
        mixing=False,
        media_results=False,
    ),
    GeminiRow(pattern=r"gemini-2\.5-computer-use.*"),  # the provider's page on computer use
    GeminiRow(pattern=r"gemini-2\.5.*", mixing=False, media_results=False),
    GeminiRow(pattern=r"gemini-3.*-image.*"),
    GeminiRow(pattern=r"gemini-3(\.1)?-pro.*", levels=_THREE, signed=True),
    GeminiRow(pattern=r"gemini-(3\.6|3\.5-flash-lite).*", levels=_FOUR, signed=True, ends_with_model=False, penalties=False),
    GeminiRow(pattern=r"gemini-3\.7.*", levels=_THREE, signed=True, ends_with_model=False, penalties=False),
    GeminiRow(
        pattern=r"gemini-(3\.[89]|[4-9]).*",
        levels=_THREE,
        signed=True,
        result_ids=True,
        ends_with_model=False,
        penalties=False,
    ),
    GeminiRow(pattern=r"gemini-3.*", levels=_FOUR, signed=True),
)
_ANY_GEMINI = GeminiRow(pattern="")


def gemini(model: str) -> GeminiRow:
    """Return the row of a Gemini model, with any path before its name."""
    name = model.rpartition("/")[2]
    return next((row for row in GEMINI if re.fullmatch(row.pattern, name)), _ANY_GEMINI)
