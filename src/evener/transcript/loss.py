"""What a translation changed, dropped or repaired: one table of topics, and losses made from it. Pure; nothing is lost in
silence.

A loss has a `code`, `<topic>.<kind>`: `reasoning.dropped`, `setting.temperature.dropped`. `TOPICS` is the whole list of
topics, and says which kinds each of them has; a code that is not in it cannot be made here.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from evener.errors import UsageError
from evener.transcript.blocks import Block, ToolResult
from evener.transcript.message import Message

LossKind = Literal[
    "dropped",  # it is not in the request at all
    "degraded",  # something lesser stands in its place
    "renamed",  # the same thing under another name
    "repaired",  # the history was not legal and was mended
    "added",  # something the caller did not write had to be written
]


class Loss(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """One difference between the caller's conversation and what the provider gets.

    `what` names the thing (`reasoning`, `tool_result`, `setting temperature`); `why` is a sentence; `message` is the id of
    the message in which it happened, empty for the request itself. `code` is for programs and does not change:
    `<topic>.<kind>`. `path` is the place in the ask: `settings/temperature`, `tools/<name>/schema/properties/x/default`,
    `messages/<id>/blocks/2`; a `/` within a step is written `~1` and a `~` is `~0`, as in a JSON Pointer. Losses in logs of
    earlier versions have neither code nor path.
    """

    kind: LossKind
    what: str
    why: str
    message: str = ""
    code: str = ""
    path: str = ""

    def __str__(self) -> str:
        where = f" in message {self.message}" if self.message else ""
        return f"{self.kind} {self.what}{where}: {self.why}"


class Topic(msgspec.Struct, frozen=True):
    """A subject of losses. In `what` and `path`, `{}` stands for the name of the thing."""

    what: str
    path: str  # empty: its place is within a message
    kinds: tuple[LossKind, ...]
    about: str


class Owner(msgspec.Struct, frozen=True):
    """The owner of a schema: a tool, by its name, or the output."""

    topic: Literal["tool", "output"] = "output"
    name: str = ""

    def __str__(self) -> str:
        return f"tool {self.name}" if self.topic == "tool" else "the answer"


OUTPUT = Owner()

TOPICS: dict[str, Topic] = {
    # The request.
    "model": Topic("model", "target/model", ("degraded",), "the model name belongs to another provider"),
    "setting.max_output_tokens": Topic(
        "setting max_output_tokens", "settings/max_output_tokens", ("dropped", "degraded"), "the limit of the answer"
    ),
    "setting.temperature": Topic("setting temperature", "settings/temperature", ("dropped", "degraded"), "temperature"),
    "setting.top_p": Topic("setting top_p", "settings/top_p", ("dropped", "degraded"), "nucleus sampling"),
    "setting.top_k": Topic("setting top_k", "settings/top_k", ("dropped", "degraded"), "sampling of the top k"),
    "setting.stop": Topic("setting stop", "settings/stop", ("dropped",), "stop sequences, all or some"),
    "setting.seed": Topic("setting seed", "settings/seed", ("dropped",), "the seed"),
    "reasoning.mode": Topic("reasoning {}", "reasoning/mode", ("dropped", "degraded"), "the reasoning switch"),
    "reasoning.effort": Topic("reasoning effort", "reasoning/effort", ("dropped", "degraded"), "the reasoning effort"),
    "reasoning.budget": Topic("reasoning budget", "reasoning/budget", ("dropped", "degraded"), "the reasoning token budget"),
    "reasoning.show": Topic("reasoning display", "reasoning/show", ("dropped", "degraded"), "whether reasoning is shown"),
    "state.mode": Topic("state mode {}", "state/mode", ("degraded",), "where the conversation is stored"),
    "state.store": Topic("store", "state/store", ("dropped",), "whether the provider stores the answer"),
    "state.sealed": Topic("sealed reasoning", "state/sealed", ("dropped",), "the request for encrypted reasoning"),
    "cache.key": Topic("cache key", "cache/key", ("dropped", "renamed"), "the key that routes equal prefixes to one cache"),
    "cache.mark": Topic("cache marks", "cache", ("dropped", "degraded"), "cache marks, their number or lifetime"),
    "output.schema": Topic("output schema", "output/schema", ("dropped", "degraded"), "the shape of the answer"),
    "output.strict": Topic("strict on the answer", "output/strict", ("dropped",), "enforcement of the answer's schema"),
    "output.name": Topic("output name", "output/name", ("renamed",), "the name of the answer's shape"),
    "output.description": Topic("output description", "output/description", ("dropped",), "what the answer's shape is for"),
    "extra": Topic("field {}", "extra/{}", ("dropped",), "a field of the body that only another wire or provider knows"),
    "extra.header": Topic("header {}", "extra/headers/{}", ("dropped",), "a header for another wire or provider"),
    # Tools.
    "tool": Topic("tools", "tools", ("dropped", "degraded"), "all tools"),
    "tool.free": Topic("free text of tool {}", "tools/{}/free", ("degraded",), "a tool that takes free text is a function"),
    "tool.grammar": Topic("grammar of tool {}", "tools/{}/free/grammar", ("degraded",), "a grammar is only described"),
    "tool.namespace": Topic("namespace of tool {}", "tools/{}/namespace", ("degraded",), "a tool outside of its namespace"),
    "tool.inline": Topic("tools that are added later", "tools", ("degraded",), "tools are offered from the beginning"),
    "tool.hosted": Topic("hosted tool {}", "tools/{}", ("dropped",), "a tool that only its own provider runs"),
    "tool.name": Topic("tool {}", "tools/{}/name", ("renamed",), "the name of a tool"),
    "tool.description": Topic("description of tool {}", "tools/{}/description", ("dropped", "degraded"), "its description"),
    "tool.schema": Topic(
        "schema of tool {}", "tools/{}/schema", ("dropped", "degraded"), "a part of the schema of its arguments"
    ),
    "tool.strict": Topic("strict on tool {}", "tools/{}/strict", ("dropped", "degraded"), "enforcement of the schema"),
    "tool.fields": Topic("fields of tool {}", "tools/{}/extra", ("dropped",), "fields that only another provider knows"),
    "tool_choice": Topic("tool choice", "choice", ("dropped", "degraded"), "which tools may or must be called"),
    "tool_choice.parallel": Topic("parallel switch", "choice/parallel", ("dropped", "degraded"), "parallel calls"),
    # The conversation.
    "conversation": Topic("conversation", "messages", ("degraded",), "its losses are unknown before it is sent"),
    "system": Topic(
        "system prompt", "system", ("degraded", "added"), "the system prompt, sent as a user message or with an added sentence"
    ),
    "system.part": Topic("system part", "system", ("dropped",), "an empty part of the system prompt"),
    "system.fields": Topic("fields of the system prompt", "system", ("dropped",), "fields that only another provider knows"),
    "system.citations": Topic("citations", "system", ("dropped",), "citations of the system prompt"),
    "message": Topic("{} message", "messages", ("repaired", "added"), "a message that was merged, removed or added"),
    "message.id": Topic("message id", "", ("renamed",), "a message id that is used twice"),
    "message.role": Topic(
        "system message", "", ("degraded",), "a system message inside the conversation becomes a user message"
    ),
    "message.order": Topic("order of a turn", "", ("degraded",), "calls are moved to the end of their turn"),
    "text": Topic("text", "", ("dropped", "repaired", "degraded"), "an empty text with a seal; or the end of a text"),
    "text.citations": Topic("citations", "", ("dropped",), "the citations of a text"),
    "text.fields": Topic("fields of text", "", ("dropped",), "fields that only their provider can read"),
    "image": Topic("image", "", ("dropped", "degraded", "repaired"), "an image"),
    "image.detail": Topic("image detail", "", ("dropped", "degraded"), "the resolution for the model"),
    "image.fields": Topic("fields of image", "", ("dropped",), "fields that only their provider can read"),
    "document": Topic("document", "", ("dropped", "degraded", "repaired"), "a document"),
    "document.name": Topic("document name", "", ("dropped", "degraded"), "its name"),
    "document.fields": Topic("fields of document", "", ("dropped",), "fields that only their provider can read"),
    "hosted": Topic(
        "hosted block", "", ("dropped", "degraded", "repaired"), "the work of a provider's own tool; a line of text replaces it"
    ),
    "reasoning": Topic("reasoning", "", ("dropped", "degraded", "repaired"), "the thinking of an earlier turn"),
    "reasoning.signature": Topic("thought signature", "", ("dropped", "added"), "the signature of a thought"),
    "tool_call": Topic("tool_call", "", ("dropped", "degraded", "repaired"), "a call"),
    "tool_call.id": Topic("tool_call id", "", ("renamed",), "the id of a call"),
    "tool_call.name": Topic("tool_call name", "", ("renamed",), "the name in a call"),
    "tool_call.arguments": Topic("tool_call arguments", "", ("degraded",), "arguments that are not a JSON object"),
    "tool_call.fields": Topic("seal of tool_call", "", ("dropped",), "fields that only their provider can read"),
    "tool_result": Topic("tool_result", "", ("dropped", "degraded", "repaired", "added"), "a result; `added`: a call had none"),
    "tool_result.text": Topic("tool_result text", "", ("added",), "a word in a result that must not be empty"),
    "tool_result.error": Topic("tool_result error flag", "", ("degraded",), "the text says that it is an error"),
    "tool_result.media": Topic("media in a tool_result", "", ("degraded",), "an image or document is moved behind the results"),
    "tool_result.fields": Topic("fields of tool_result", "", ("dropped",), "fields that only their provider can read"),
}
"""What can be lost, in the order of the ask. A topic that is there stays, with its name: programs refuse by it."""

CODES: frozenset[str] = frozenset(f"{name}.{kind}" for name, topic in TOPICS.items() for kind in topic.kinds)
KINDS: frozenset[str] = frozenset(kind for topic in TOPICS.values() for kind in topic.kinds)


def loss_of(kind: LossKind, topic: str, why: str, *, name: str = "", at: str = "") -> Loss:
    """Return a loss of the request. `name` is the tool or field that it is about, `at` the place within the topic's own."""
    found = TOPICS[topic]
    path = found.path.replace("{}", escape_step(name))
    return Loss(kind, found.what.replace("{}", name).strip(), why, "", f"{topic}.{kind}", f"{path}/{at}" if at else path)


def loss_in(
    kind: LossKind, topic: str, why: str, message: Message, block: Block | None = None, *, name: str = "", at: str = ""
) -> Loss:
    """Return a loss in a message; `block` is the one that it is about, if it is about one, `at` the place within it."""
    what = TOPICS[topic].what.replace("{}", name).strip()
    path = path_of(message, block)
    return Loss(kind, what, why, message.id, f"{topic}.{kind}", f"{path}/{at}" if at else path)


def path_of(message: Message, block: Block | None = None) -> str:
    """Return the path of a message, or of a block in it: counted from 0, those within a result by `content`."""
    path = f"messages/{escape_step(message.id)}"
    if block is None:
        return path
    for number, one in enumerate(message.blocks):
        if one is block:
            return f"{path}/blocks/{number}"
        if type(one) is ToolResult:
            for place, inner in enumerate(one.content):
                if inner is block:
                    return f"{path}/blocks/{number}/content/{place}"
    return path


def escape_step(step: str) -> str:
    """Return a step of a path, as a JSON Pointer writes it."""
    return step.replace("~", "~0").replace("/", "~1")


class LossRefused(UsageError):
    """The request would have a loss that the caller refuses. Nothing was sent. `losses` are those that were refused."""

    def __init__(self, losses: tuple[Loss, ...]) -> None:
        told = "; ".join(f"{loss} [{loss.code}]" for loss in losses[:3])
        more = f" (and {len(losses) - 3} more)" if len(losses) > 3 else ""
        super().__init__(
            f"The request was not sent, because it would lose what `refuse_losses` names: {told}{more}. "
            "Ask for something that this model takes, use another model, or allow the loss."
        )
        self.losses = losses


def refused_codes(names: Iterable[str]) -> frozenset[str]:
    """Return the names of losses to refuse, checked: each is a code, the beginning of codes up to a dot, or a kind."""
    if isinstance(names, str):
        raise UsageError(f"`refuse_losses` takes several codes, and {names!r} is one text. Write {{{names!r}}}.")
    if not isinstance(names, Iterable):
        raise UsageError(f"`refuse_losses` takes a set of codes, such as {{'reasoning'}}; not {type(names).__name__}.")
    found = frozenset(names)
    for name in sorted(found, key=repr):
        if not isinstance(name, str) or not (name in KINDS or any(_is_within(code, name) for code in CODES)):
            raise UsageError(
                f"There is no loss {name!r} to refuse. Give a code such as 'reasoning.dropped', the beginning of codes such as "
                "'reasoning', or a kind such as 'dropped'; docs/losses.md lists them."
            )
    return found


def refuse(losses: Iterable[Loss], names: frozenset[str]) -> None:
    """Raise LossRefused if one of the losses is among those to refuse."""
    found = tuple(loss for loss in losses if loss.kind in names or any(_is_within(loss.code, name) for name in names))
    if found:
        raise LossRefused(found)


def _is_within(code: str, name: str) -> bool:
    return code == name or code.startswith(f"{name}.")
