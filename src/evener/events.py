"""Events in past tense: what happened in one log, in order. They are the only state; everything else is computed from them.
Pure.

An event is written before the step that it announces (`ModelCalled`, `CallStarted`) or after the step that it reports. `at` is
the time in seconds since 1970, set by the process that appends the event. An event never contains a credential or a provider's
raw answer.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from math import inf
from typing import TYPE_CHECKING, Literal, final

import msgspec
from msgspec.structs import force_setattr

from evener.errors import BadDocument, BadValue, StoreError
from evener.transcript.ask import HostedTool, ModelSettings, ToolSpec
from evener.transcript.blocks import ResultContent, TextBlock
from evener.transcript.loss import Loss
from evener.transcript.message import Message
from evener.transcript.reply import Stop, Usage

__all__ = [
    "VERSION",
    "Amount",
    "ApprovalAsked",
    "ApprovalDecided",
    "CallFinished",
    "CallPaused",
    "CallStarted",
    "Cancelled",
    "Compacted",
    "CompactionFailed",
    "Configured",
    "ContextCut",
    "ContextRestored",
    "Continued",
    "CutCause",
    "CutKind",
    "Effect",
    "Event",
    "Evicted",
    "Finished",
    "Held",
    "Imported",
    "InnerQuestion",
    "Interrupt",
    "LimitHit",
    "LimitName",
    "Limits",
    "MediaFetched",
    "ModelCalled",
    "ModelFailed",
    "Nested",
    "Opened",
    "Outcome",
    "Pinned",
    "Prompted",
    "Question",
    "Replied",
    "Resumed",
    "Rival",
    "RunSetup",
    "Spilled",
    "Steered",
    "StopCause",
    "ToolFacts",
    "Verdict",
    "decode_event",
    "encode_event",
    "encode_events",
]

VERSION = 1
"""Of the events' form. Older forms are read for ever; a newer one is refused with a clear error."""

Effect = Literal["read", "idempotent", "write"]
"""What running a tool twice does: nothing, nothing with the same key, or harm."""

Outcome = Literal["done", "failed", "unknown"]
"""How a call ended. `unknown`: it was started, and it is not known whether it took effect."""

Interrupt = Literal["tool", "output", "step", "limit", "outcome"]
"""What a decision is about: a call, the final answer, another request to the model, going on beyond a limit, or what became
of a call that was interrupted."""

Verdict = Literal["allow", "reject"]

Rival = Literal["", "holder", "copy"]
"""Who else may still act on what was under way: no other, an earlier holder whose death was not seen, or the log that this one
was copied from, in another store."""

StopCause = Literal[
    "done",  # the model gave its final answer
    "approval",  # it waits for a decision; resume it afterwards
    "refusal",  # the model or a filter declined
    "length",  # the answer was cut at the output limit
    "limit",  # a limit of the run was reached; it can be resumed
    "repeated",  # the same call came over and over; it can be resumed
    "tool_retries",  # a tool's retry budget is spent
    "output_retries",  # the structured answer stayed wrong
    "provider_error",  # the model could not be asked
    "cancelled",  # a user stopped the run; it can be resumed
    "unexpected",  # an answer that fits nowhere
]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The allowance of one run; None means no limit. A run that stopped at a limit can be resumed with a fresh allowance.

    `seconds` is working time: waiting for a decision, or for a process to restart, does not count. `retries`: how often one
    model is called again after an answer failed or broke off. `corrections`: how often an invalid answer is sent back for
    correction. `warn_at`: the share of a limit after which the model is warned, once. `repeats` and `repeats_stop`: how often
    in a row the same call is answered before the model is warned, and before the run stops.
    """

    requests: int | None = 50
    tool_calls: int | None = 200
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: Decimal | None = None  # US dollars; a number or a text is taken, too
    seconds: float | None = None
    retries: int = 2
    corrections: int = 2
    warn_at: float = 0.8
    repeats: int = 3
    repeats_stop: int = 6

    if TYPE_CHECKING:  # `cost` takes more than it holds

        def __init__(
            self,
            *,
            requests: int | None = 50,
            tool_calls: int | None = 200,
            input_tokens: int | None = None,
            output_tokens: int | None = None,
            cost: Decimal | float | str | None = None,
            seconds: float | None = None,
            retries: int = 2,
            corrections: int = 2,
            warn_at: float = 0.8,
            repeats: int = 3,
            repeats_stop: int = 6,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.cost is not None and not isinstance(self.cost, Decimal):
            force_setattr(self, "cost", _money(self.cost))
        for name in ("requests", "tool_calls", "input_tokens", "output_tokens", "cost", "seconds"):
            value = self.__getattribute__(name)
            if value is not None:
                _check_kind(name, value)
                if not _is_amount(value):
                    raise BadValue(f"Limits.{name} must be more than 0, or None for no limit; it is {value}.")
        for name in ("retries", "corrections", "repeats", "repeats_stop", "warn_at"):
            _check_kind(name, self.__getattribute__(name))
        if min(self.retries, self.corrections) < 0 or not 0 < self.warn_at <= 1 or not 0 < self.repeats <= self.repeats_stop:
            raise BadValue(
                "Limits: retries and corrections must be 0 or more, warn_at above 0 and at most 1, and repeats from 1 to "
                "repeats_stop."
            )


def _money(value: object) -> Decimal:
    """Return a number or a text as US dollars: 0.5 as it is written, not as a binary fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadValue(f'Limits.cost must be US dollars, as in 0.5, "0.50" or Decimal("0.50"); not {type(value).__name__}.')
    try:
        return Decimal(str(value))
    except InvalidOperation:
        raise BadValue(f'Limits.cost must be US dollars, as in 0.5, "0.50" or Decimal("0.50"); not {value!r:.40}.') from None


def _check_kind(name: str, value: object) -> None:
    """Refuse a value that is no number, and a fraction for a limit that counts things."""
    whole = name not in ("cost", "seconds", "warn_at")
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float | Decimal):
        raise BadValue(f"Limits.{name} must be {'a whole number' if whole else 'a number'}; it is {value!r:.40}.")


def _is_amount(value: int | float | Decimal) -> bool:
    if isinstance(value, Decimal) and value.is_nan():
        return False  # it cannot even be compared
    return 0 < value < inf


LimitName = Literal["requests", "tool_calls", "input_tokens", "output_tokens", "cost", "seconds"]
Amount = int | float | Decimal


class LimitHit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The limit that was reached, in numbers: its value, and how much was used or reserved.

    `wanted` is what the next step needed: the upper bound of a request's cost, or a number of calls. `around`: it is the limit
    of an outer run.
    """

    which: LimitName
    limit: Amount
    used: Amount
    wanted: Amount = 0
    around: bool = False


class ToolFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The facts of a tool that the plan needs. `approval`: each call needs approval. `timeout` is in seconds.

    `hidden`: requests declare the tool only after a result has revealed it.
    """

    effect: Effect = "write"
    sequential: bool = False
    retries: int = 2
    verifies: bool = False
    approval: bool = False
    timeout: float | None = None
    hidden: bool = False


class RunSetup(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The setup on which the decisions of a run depend, beside its log. Every value is written, so a later default changes no
    old run.

    `fallbacks` are the models to call when the configured one cannot answer. `fetches` says for each model, the configured one
    first, whether it gets media behind a URL as bytes. `decide_within` is in seconds; 0 means no deadline.
    """

    limits: Limits
    tools: dict[str, ToolFacts]
    fallbacks: tuple[str, ...]
    fetches: tuple[bool, ...]
    interrupts: tuple[Interrupt, ...]
    decide_within: float
    shortens: bool = False  # a conversation that is too long is shortened and sent again
    routed: bool = False  # a router of the user's chooses the models of requests


class Fact(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The fields that all events share."""

    at: float


class Opened(Fact, frozen=True, tag="opened"):
    """A log began: its first event. A fork names its parent log, the last event that both share, and that event's hash."""

    thread: str
    harness: str = ""
    parent: str = ""
    parent_seq: int = 0
    parent_hash: str = ""
    label: str = ""  # what people call the branch


class Configured(Fact, frozen=True, tag="configured"):
    """The configuration of the runs from here on. Written only when it differs from the last one."""

    model: str
    system: tuple[TextBlock, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    setup: RunSetup | None = None  # None in older logs
    hosted: tuple[HostedTool, ...] = ()  # tools that the provider runs


class Imported(Fact, frozen=True, tag="imported"):
    """Messages that were not made by a run of this log: an imported conversation, or examples."""

    messages: tuple[Message, ...]


class Prompted(Fact, frozen=True, tag="prompted"):
    """The user sent a prompt, and a run began. `refused`: a hook cancelled the prompt, so no model ever sees it.

    `settings` apply to this run only. `metadata` is the JSON text of the caller's own object; Evener never reads it.
    """

    run: str
    message: Message
    refused: str = ""  # why; empty when it passed
    trace: str = ""  # the `traceparent` of the span that the run is part of: the caller's, or that of the call around it
    settings: ModelSettings | None = None
    metadata: str = ""


class Continued(Fact, frozen=True, tag="continued"):
    """A run that had stopped continues, with fresh limits."""

    run: str


class Nested(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The usage of the runs inside a call. `acted`: they started calls that change something."""

    requests: int = 0
    tool_calls: int = 0
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    acted: bool = False


class Steered(Fact, frozen=True, tag="steered"):
    """The user sent a message to a busy run. The model gets it with the next request; `at_once` aborts the present request."""

    message: Message
    at_once: bool = False
    refused: str = ""  # why a hook did not let it pass: then it changes nothing


class Held(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The part of the conversation that a provider stores: up to the answer with this id, or in the conversation object with
    this id.

    `trail` is the fingerprint of the messages in it; empty if not all of them are known.
    """

    mode: Literal["chain", "conversation"]
    id: str
    trail: str = ""


@final
class ModelCalled(Fact, frozen=True, tag="model_called"):
    """A request is about to be sent. It contains everything that waited for the model: results, steering, notices.

    `id` names the message with the results and notices, if there are any. `rests` is what the provider stores and does not get
    again; None if the request contains the whole conversation. `most` is the upper bound of the call's cost in US dollars, if
    the cost is limited; it is charged if the real cost stays unknown.
    """

    model: str
    id: str = ""
    notices: tuple[tuple[str, str], ...] = ()  # key and text; a key is used once a run
    rests: Held | None = None
    most: Decimal = Decimal(0)


@final
class Replied(Fact, frozen=True, tag="replied"):
    """The model answered, and the provider's end marker has arrived."""

    message: Message
    stop: Stop
    cost: Decimal = Decimal(0)
    exact: bool = True  # False: the cost is a lower bound or, where money is limited, the most that it may have been
    losses: tuple[Loss, ...] = ()
    seconds: float = 0.0
    first: float = 0.0  # seconds to the first piece of the answer
    tries: int = 1
    reply: str = ""  # the provider's id of the answer
    problems: tuple[str, ...] = ()  # what was wrong with the form of the answer, to be told to the model
    output: str = ""  # the JSON text of a structured answer that was accepted: the run has its end
    ended: str = ""  # why there is no structured answer, and none can be mended: the run has its end, and no call is run
    held: Held | None = None  # what the provider holds from here on, this answer included
    request: str = ""  # the SHA-256 of the request's body, as it was sent; empty in older logs
    raw_blob: str = ""  # the name of the blob with the answer as it came, without secrets; empty unless that was asked for


class ModelFailed(Fact, frozen=True, tag="model_failed"):
    """No answer, or an incomplete one: the turn does not count."""

    error: str  # the class
    message: str
    retryable: bool = False
    elsewhere: bool = False  # another model may do better
    retry_after: float = 0.0
    shown: bool = False  # pieces of it had been shown: they are retracted
    stale: Literal["", "lost", "refused"] = ""  # the provider lacks what the request rests on, or keeps nothing at all
    untaken: bool = False  # the provider refused the request: nothing of it is part of what it holds
    cost: Decimal = Decimal(0)  # the most that it may have cost, where money is limited and the provider had begun
    exact: bool = True  # False: the provider had begun, and what that cost is not known
    status: int = 0  # of the provider's HTTP answer, if the request was refused with one; 0 in older logs
    request: str = ""  # the SHA-256 of the request's body, if one was sent; empty in older logs
    crowded: bool = False  # the conversation does not fit, and nothing more can be taken out of it: nothing was sent
    model: str = ""  # the model that was not asked because of that


CutKind = Literal["screenshot", "result", "reasoning"]
CutCause = Literal["gate", "overflow", "user"]
"""Why a conversation was shortened: the gate, the provider's word that it is too long, or the user's wish."""


class ContextCut(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One block that requests leave out or shorten from here on. The message in the log does not change.

    `block` is its position in the message as requests contained it before, `part` the position within a tool's result. `blob`
    names the blob with the whole text of a result, `characters` its length; `keep` is how many characters of its beginning
    remain.
    """

    message: str
    block: int
    kind: CutKind
    part: int = -1
    blob: str = ""
    characters: int = 0
    keep: int = 0


class Evicted(Fact, frozen=True, tag="evicted"):
    """Requests leave out blocks from here on. `tokens` is the estimate before, `saved` the estimate of what is left out.

    `broken` is the number of tokens after the first cut: their entry in the provider's prompt cache is lost. `fresh` is the
    part of `saved` in messages that no reported token count includes yet. `head` is the last message at that time.
    """

    id: str
    cuts: tuple[ContextCut, ...]
    cause: CutCause
    tokens: int = 0
    saved: int = 0
    broken: int = 0
    fresh: int = 0
    head: str = ""


class Compacted(Fact, frozen=True, tag="compacted"):
    """In requests from here on, a summary replaces the messages up to `until`. Those in `kept` stay before it, verbatim.

    `leads`: they stay after it, because its provider requires so. `model` wrote it, with this usage; `focus` is what the user
    asked it to keep above all.
    """

    id: str
    summary: Message
    until: str
    kept: tuple[str, ...] = ()
    cause: CutCause = "gate"
    tokens: int = 0
    saved: int = 0
    head: str = ""
    model: str = ""
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    focus: str = ""
    leads: bool = False


class CompactionFailed(Fact, frozen=True, tag="compaction_failed"):
    """No summary was made. Nothing changed except the cost of the attempt. `detail` gives the reason."""

    detail: str
    cause: CutCause = "gate"
    model: str = ""
    usage: Usage = Usage()
    cost: Decimal = Decimal(0)
    exact: bool = True
    head: str = ""


class ContextRestored(Fact, frozen=True, tag="context_restored"):
    """The newest eviction or compaction was undone: `id` names it. Empty: all were undone, and requests contain everything
    again.

    The `cause` is the user, or a model that cannot read the sealed summary of another provider.
    """

    id: str
    cause: CutCause = "user"


class Pinned(Fact, frozen=True, tag="pinned"):
    """A message was pinned: requests contain it unchanged. `off`: it was unpinned."""

    message: str
    off: bool = False


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One question to decide. `key` is the id of a call, or a word for other questions. `digest` identifies exactly what is
    asked.
    """

    key: str
    digest: str
    why: str = ""
    rule: str = ""
    limit: LimitHit | None = None  # the limit beyond which the run would go


class ApprovalAsked(Fact, frozen=True, tag="approval_asked"):
    """The run waits until all of these questions are decided. `expires` is a time; 0 means never."""

    id: str
    interrupt: Interrupt
    questions: tuple[Question, ...]
    expires: float = 0.0


class ApprovalDecided(Fact, frozen=True, tag="approval_decided"):
    """One question was decided. `arguments` is the JSON text of edited arguments; `digest` is then that of the edited call.

    For an interrupted call: `allow` runs it, `reject` does not; `result` is its result, if a user knows that it took effect.
    """

    id: str
    key: str
    verdict: Verdict
    why: str = ""
    arguments: str = ""
    digest: str = ""
    by: str = ""
    result: str | None = None


@final
class CallStarted(Fact, frozen=True, tag="call_started"):
    """A tool is about to run. This event is on disk before a tool that changes something gets its arguments."""

    call: str
    tool: str
    key: str  # the idempotency key: the same for every start of this call
    digest: str = ""  # of tool, arguments and schema
    verifying: bool = False  # not the tool, but the question whether it took effect
    rule: str = ""  # of the policy, if one allowed it


class InnerQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A question of a run inside a call: the thread in which it is decided, and its subject."""

    thread: str
    approval: str
    interrupt: Interrupt
    question: Question
    tool: str = ""
    arguments: str = ""
    expires: float = 0.0


class Spilled(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A text that was too large to show whole: the name of the blob that contains it, and its length."""

    id: str
    characters: int


@final
class CallFinished(Fact, frozen=True, tag="call_finished"):
    """A call has its result, also if it failed. `retry`: the model may correct the call and try again.

    `metadata` is the tool's own; Evener never reads it. `keep`: the message with this result is never left out of requests, as
    if it were pinned. `reveals` names hidden tools that requests declare from now on. Older logs have `rule`, `by_hook` and
    `spilled` in results of calls that were never started; they are read from there.
    """

    call: str
    ok: bool
    content: tuple[ResultContent, ...] = ()
    outcome: Outcome = "done"
    retry: bool = False
    metadata: str = "{}"
    seconds: float = 0.0
    nested: Nested | None = None  # what runs inside it used
    rule: str = ""  # of the policy, if one refused it
    by_hook: bool = False  # a hook cancelled it
    spilled: Spilled | None = None
    denied: bool = False  # the policy denied it
    why: str = ""  # the reason that the policy or the hook gave
    keep: bool = False
    reveals: tuple[str, ...] = ()


class Resumed(Fact, frozen=True, tag="resumed"):
    """Another lease holder took over the log: everything in flight is interrupted.

    `nested` is the usage of the runs inside interrupted calls so far, from their own logs: call and usage. If there is a
    `rival`, the earlier holder may still be alive, so no interrupted `write` is started again. `results` are those that the
    branch which started a call has by now.
    """

    epoch: int
    nested: tuple[tuple[str, Nested], ...] = ()
    rival: Rival = ""
    results: tuple[CallFinished, ...] = ()


@final
class CallPaused(Fact, frozen=True, tag="call_paused"):
    """A run inside this call waits for decisions. The call continues when the run is resumed."""

    call: str
    thread: str
    inner: tuple[InnerQuestion, ...] = ()
    nested: Nested | None = None  # what runs inside it used so far


class MediaFetched(Fact, frozen=True, tag="media_fetched"):
    """Media behind a URL, or in the store, are available to the next requests: `digest` names their bytes."""

    source: str
    digest: str
    media_type: str = ""
    size: int = 0


class Cancelled(Fact, frozen=True, tag="cancelled"):
    """A user stopped the run."""

    why: str = ""


class Finished(Fact, frozen=True, tag="finished"):
    """The run stopped, for this cause. `detail` is a sentence; `limit` is the limit that was reached, in numbers."""

    run: str
    cause: StopCause
    detail: str = ""
    limit: LimitHit | None = None


Event = (
    Opened
    | Configured
    | Imported
    | Prompted
    | Continued
    | Resumed
    | Steered
    | ModelCalled
    | Replied
    | ModelFailed
    | ApprovalAsked
    | ApprovalDecided
    | CallStarted
    | CallFinished
    | CallPaused
    | MediaFetched
    | Cancelled
    | Finished
    | Evicted
    | Compacted
    | CompactionFailed
    | ContextRestored
    | Pinned
)

_encoder = msgspec.json.Encoder(decimal_format="string")
_decoder = msgspec.json.Decoder(Event)


def encode_event(event: Event) -> bytes:
    """Return one event as JSON."""
    return _encoder.encode(event)


def decode_event(data: bytes, version: int = VERSION) -> Event:
    """Return the event that `encode_event` wrote. An event of a newer version is refused before it is parsed."""
    if version > VERSION:
        raise StoreError(
            f"An event has version {version}; this Evener reads versions up to {VERSION}. Update Evener to open this thread."
        )
    try:
        event: Event = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadDocument(f"A stored event cannot be read: {error}. The log is damaged from this event on.") from None
    return event


def encode_events(events: Sequence[Event]) -> list[bytes]:
    """Encode each event as JSON."""
    return [_encoder.encode(event) for event in events]
