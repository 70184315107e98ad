"""How an endpoint or a model deviates from its wire. All defaults stand here and nowhere else. Pure data, no names."""

from typing import Literal

import msgspec

__all__ = ["Quirks"]


class Quirks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One frozen record of deviations. The defaults describe the wire's own endpoint at its most permissive."""

    # The request line.
    path: str = ""  # instead of the wire's own; {model} is replaced
    stream_path: str = ""  # the same for streamed answers, where they differ
    model_in_body: bool = True
    api_version: str = ""  # header value, or body value when version_in_body
    version_in_body: bool = False
    betas_in_body: bool = False  # names of beta features go into the body, not into a header
    framing: Literal["sse", "eventstream"] = "sse"  # how a streamed answer is cut into events

    # Roles and turns.
    mid_system: bool = True  # system messages may stand between others
    first_user: bool = False  # a history must begin with the user
    prefill: bool = True  # a history may end with the assistant

    # Output.
    default_output: int = 4096  # tokens, where the wire demands a limit and the ask gives none
    max_output: int = 0  # tokens; 0 is unknown
    sampling: Literal["all", "none", "thinking_off"] = "all"
    output_schema: bool = True
    json_mode: bool = True

    # Tools.
    tools: bool = True
    strict: bool = True
    forced_choice: bool = True
    forced_choice_thinking: bool = True  # also while thinking is on
    parallel_switch: bool = True
    hosted: bool = True  # the provider's own tools and blocks
    name_length: int = 64
    id_length: int = 64
    unique_ids: bool = True  # call ids over the whole request; within a turn they always are
    calls_last: bool = False  # calls of a turn must be adjacent, at its end

    # Media.
    images: bool = True
    documents: bool = True

    # Thinking.
    thinking_modes: tuple[str, ...] = ("adaptive", "enabled", "disabled", "between_tools")
    thinking_replay: Literal["all", "latest", "none"] = "all"
    thinking_kept: Literal["sealed", "unsealed", "any"] = "sealed"  # which blocks the endpoint takes back
    effort: bool = True
    efforts: tuple[str, ...] = ()  # supported levels; empty is unknown, all are passed on
    default_effort: str = ""  # the level when a request names none; empty is unknown
    thinks_unasked: bool = False  # thinking is on when a request does not mention it
    disabled_effort: str = ""  # the highest level at which thinking can be off; empty is any
    show: bool = True
    prefix_bound: bool = False  # a seal is dead when anything before it has changed
    seal_scope: Literal["wire", "provider", "account", "model"] = "provider"  # who may read a seal back

    # Caching.
    cache_marks: int = 4  # the most marks a request may carry; 0 where there are none
    cache_ttls: tuple[str, ...] = ()  # lifetimes, the shortest first; empty for the wire's own
    cache_provider: bool = True  # the provider can place marks itself
    cache_key: bool = True

    # Server-side state.
    store: bool = True  # the endpoint knows `store`
    sealed: bool = True  # it can hand out encrypted reasoning
    item_ids: bool = True  # it takes back the ids of its own items
    call_status: bool = True  # it takes back the status of its own calls
    phase: bool = True  # it takes back the phase of its own messages
    conversation: bool = True  # it has conversation objects
