"""What single models refuse, as tables keyed by a pattern on the model's name. First match wins; no match is lenient.

Rows come from the two wire sheets (sections named per table) and the recordings. A name that no row knows (a deployment
alias, a newer model) gets a row that refuses nothing, so a rule never guesses about a model.
"""

import re

import msgspec

ANTHROPIC_EFFORTS = ("low", "medium", "high", "xhigh", "max")
OPENAI_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


class ClaudeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One family of Claude models. `None` means "not known, do not judge"."""

    pattern: str
    thinking: frozenset[str] | None = None
    efforts: frozenset[str] | None = None
    disabled_up_to_high: bool = False
    forced_choice: bool = True
    mid_system: bool = True
    prefill: bool = True
    sampling: bool = True


_ADAPTIVE = frozenset(("adaptive",))
_SWITCHABLE = frozenset(("adaptive", "disabled"))
_BUDGET = frozenset(("enabled", "disabled"))

# anthropic-messages section 0 (prefill, sampling), 3 (mid-conversation system), 5 (forced choice), 7 (thinking, effort).
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
    ),
    ClaudeRow(pattern=r"opus 4\.5", thinking=_BUDGET, efforts=frozenset(("low", "medium", "high")), mid_system=False),
    ClaudeRow(pattern=r"(opus|sonnet|haiku) (3\.\d|4\.[0-5])", thinking=_BUDGET, efforts=frozenset(), mid_system=False),
)
_ANY_CLAUDE = ClaudeRow(pattern="")

_NEW_NAME = re.compile(r"claude-([a-z]+)-(\d)(?:[-.](\d{1,2}))?(?!\d)")
_OLD_NAME = re.compile(r"claude-(\d)(?:[-.](\d))?-([a-z]+)")


def claude(model: str) -> ClaudeRow:
    """The row of a Claude model, whatever prefix, date or platform suffix its name carries."""
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
    model never reasons, so sampling parameters are not judged); without `encrypted` its reasoning cannot be asked for.
    """

    pattern: str
    refused: frozenset[str] = frozenset()
    default: str = ""
    encrypted: bool = True


_DATED = r"(-\d{4}-\d{2}-\d{2})?"

# openai-responses section 6; section 0 for encrypted reasoning. Models that never reason refuse every effort (reported by
# many, in the API's own words). Chat and pro variants come before the mainline patterns that would swallow them.
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
    """The effort row of an OpenAI model; Bedrock's `openai.` prefix does not matter."""
    name = model.removeprefix("openai.")
    return next((row for row in REASONING if re.fullmatch(row.pattern, name)), _ANY_REASONING)


class ServerRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs a model behind the Responses wire, and how strictly that server reads a request."""

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
    """The strictness of the server that runs this model on the Responses wire."""
    return next((row for row in SERVERS if re.fullmatch(row.pattern, model)), _ANY_SERVER)
