"""How an endpoint or a model deviates from its wire. All defaults are here and nowhere else. Pure data, no provider names."""

from typing import Literal

import msgspec


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
    cut_told: bool = True  # an answer that was cut at the limit says so; else its token count tells
    stop_told: bool = True  # an answer says why it stopped; else it is complete after a chunk without choices
    usual_output: int = 0  # tokens: the limit where the caller gives none; 0 is none
    usual_temperature: float | None = None  # the same for the temperature
    usual_system: str = ""  # the system prompt of the command line, where the user gives none
    sampling: Literal["all", "none", "thinking_off"] = "all"
    both_samplers: bool = True  # a temperature and a top_p in one request
    output_schema: bool = True
    any_output: bool = False  # an output schema may be something else than an object
    json_mode: bool = True
    output_form: Literal["", "native", "tool", "prompted"] = ""  # how a structured answer is asked for; empty: as it can be

    # Tools.
    tools: bool = True
    most_tools: int = 0  # the most a request may offer; 0 is unknown
    tool_encoding: Literal["native", "json_schema", "xml", "react"] = "native"  # how tools reach the model
    worked_examples: bool = False  # beside calls in the text, show calls that were made: it makes none otherwise
    strict: bool = True
    forced_choice: bool = True
    forced_choice_thinking: bool = True  # also while thinking is on
    parallel_switch: bool = True
    hosted: bool = True  # the provider's own tools and blocks
    hosted_tools: tuple[str, ...] = ()  # which tools the provider runs, by their types on the wire
    own_tools: tuple[str, ...] = ()  # which tools of the client the model was trained on, by their types on the wire
    custom_tools: bool = True  # tools that take free text, and namespaces of tools, on the wires that have them
    name_length: int = 64
    id_length: int = 64
    unique_ids: bool = True  # call ids over the whole request; within a turn they always are
    calls_last: bool = False  # calls of a turn must be adjacent, at its end

    # Media.
    images: bool = True
    image_types: tuple[str, ...] = ()  # media types of images; empty for the wire's own
    image_bytes: int = 0  # the most that an image may have; 0 is unknown
    image_side: int = 0  # pixels of its longer side; 0 is unknown
    documents: bool = True
    uploads: bool = True  # media may lie in the provider's own store
    upload_beta: str = "files-api-2025-04-14"  # the beta feature that must be named beside them; empty where none must

    # Thinking.
    thinking_modes: tuple[str, ...] = ("adaptive", "enabled", "disabled", "between_tools")
    thinking_replay: Literal["all", "latest", "tools", "none"] = "all"  # "tools": only in turns that call some
    thinking_kept: Literal["sealed", "unsealed", "any"] = "sealed"  # which blocks the endpoint takes back
    effort: bool = True
    efforts: tuple[str, ...] = ()  # supported levels; empty is unknown, all are passed on
    default_effort: str = ""  # the level when a request names none; empty is unknown
    thinks_unasked: bool | None = None  # thinking is on when a request does not mention it; None is unknown
    disabled_effort: str = ""  # the highest level at which thinking can be off; empty is any
    show: bool = True
    prefix_bound: bool = False  # a seal is dead when anything before it has changed
    seal_scope: Literal["wire", "provider", "account", "model"] = "provider"  # who may read a seal back

    counts_reasoning: bool | None = None  # hidden reasoning counts in later prompts; None is as the wire does
    cuts_prompts: bool = False  # a prompt beyond the server's window is cut without a word

    # Caching.
    cache_marks: int = 4  # the most marks a request may carry; 0 where there are none
    cache_ttls: tuple[str, ...] = ()  # lifetimes, the shortest first; empty for the wire's own
    cache_provider: bool = True  # the provider can place marks itself
    cache_key: bool = True
    diagnosis: Literal["", "message", "response"] = ""  # what a request names to be told why the cache was missed

    # The provider shortens conversations itself.
    compaction: Literal["", "field", "route"] = ""  # asked for by a field of a request, or at an address of its own
    compaction_beta: str = "compact-2026-09-04"  # the beta feature that must be named beside it
    context_edits: Literal["", "edits", "threshold"] = ""  # what a request says for it to be done from then on
    edit_betas: tuple[str, ...] = ("context-management-2025-06-27", "compact-2026-01-12")

    # Server-side state.
    store: bool = True  # the endpoint knows `store`
    sealed: bool = True  # it can hand out encrypted reasoning
    item_ids: bool = True  # it takes back the ids of its own items
    reasoning_leads: bool = True  # reasoning goes back only before what was made with it
    item_types: bool = False  # a message of the assistant must say that it is one
    schema_field: Literal["text", "response_format"] = "text"  # where the shape of the answer stands
    call_status: bool = True  # it takes back the status of its own calls
    phase: bool = True  # it takes back the phase of its own messages
    conversation: bool = True  # it has conversation objects

    # Chat Completions: roles and turns.
    system_role: Literal["system", "developer", "user"] = "system"  # who speaks the system prompt
    merge_turns: bool = False  # consecutive user messages must be one
    tool_then_user: bool = True  # a user may speak right after a tool's result; else a filler stands between
    empty_content: Literal["null", "empty", "absent"] = "null"  # the content of a message that only calls tools
    text_parts: bool = True  # several texts may stand as a list where there are no media; else they are joined
    result_name: bool = False  # a tool's result must name the tool
    answer_fields: tuple[str, ...] = ()  # fields of an answer's message or call that must go back as they came

    # Chat Completions: the request.
    output_field: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    seed_field: str = "seed"  # empty where there is none
    stops: int = 4  # the most stop sequences; 0 where there are none
    stop_bytes: int = 0  # the most that a stop sequence may have; 0 is unknown
    top_k: bool = False
    stream_usage: bool = True  # token counts of a stream must be asked for
    cache_style: Literal["breakpoint", "control"] = "breakpoint"  # what a cache mark is: whose field is copied

    # Chat Completions: tools.
    required_word: Literal["required", "any"] = "required"
    named_choice: bool = True  # one tool can be forced by its name
    tool_subsets: bool = True  # a choice can be narrowed to some tools
    chat_id_length: int = 40  # of call ids, instead of id_length
    id_charset: Literal["any", "word", "nine"] = "any"  # "word": letters, digits, _ and -; "nine": nine letters or digits

    # Chat Completions: media.
    image_urls: bool = True  # images may lie behind a URL
    file_part: Literal["file", "document_url"] = "file"
    file_urls: bool = False  # files may lie behind a URL
    audio_formats: tuple[str, ...] = ("wav", "mp3")
    video: bool = False

    # Chat Completions: reasoning.
    reasoning_request: Literal["effort", "object", "thinking", "enable_thinking", "template"] = "effort"  # how it is set
    reasoning_display: Literal["", "exclude", "format"] = ""  # how its display is set; empty where it cannot be
    reasoning_field: Literal["", "reasoning_content", "reasoning", "reasoning_details", "chunks", "tags"] = ""  # to go back in
    reasoning_owed: bool = False  # a message with calls must have the field, be it empty
    think_tags: bool = False  # an answer may begin with its reasoning, between tags
    effort_with_tools: bool = True  # tools may be offered while an effort is set
    usage_path: tuple[str, ...] = ()  # where else in a chunk the token counts stand
    reasoning_apart: bool = False  # the output count leaves reasoning out; only the total has it

    # gemini: tools.
    json_schemas: bool = True  # schemas go out as JSON Schema; else in the older subset, under the older names
    hosted_beside: Literal["flag", "free", "no"] = "flag"  # hosted tools beside functions: if a flag is set, always, never
    output_beside: bool = True  # an output schema may stand beside functions
    result_parts: tuple[str, ...] = (  # media types that a function's response may hold; others follow it
        *("image/png", "image/jpeg", "image/webp"),
        *("application/pdf", "text/plain"),
    )
    media_names: bool = False  # media may have a display name

    # gemini: thinking.
    thinking_control: Literal["level", "budget", "none"] = "level"  # how it is set
    least_budget: int = 0  # tokens; above 0, thinking cannot be switched off
    most_budget: int = 24_576
    # Sent where the first call of a turn has no signature of this model, which demands one. Empty: none is demanded.
    call_signature: str = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="
