"""The parts that both protocols share: the requests of a page, and the form of results and approvals on it. Pure."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from evener.errors import ApprovalStale, UsageError
from evener.events import CallFinished
from evener.harness.approvals import Decision, keyed
from evener.result import Approval
from evener.transcript.blocks import Block, DocumentBlock, ImageBlock, Inline, Remote, TextBlock, ToolCall

Frame = dict[str, object]
THREAD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}")
DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)


class PageAnswer(msgspec.Struct, frozen=True):
    """The user's decision about one approval. `arguments` replace the model's."""

    approved: bool
    why: str = ""
    arguments: dict[str, object] | None = None


class PageRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a page for a thread: a prompt to answer, or decisions about approvals.

    `again` first undoes the last prompt. `run` is the page's name for the run; `shown` are the messages that it has.
    `unused` names the fields that this harness does not use.
    """

    thread: str
    prompt: tuple[Block, ...] = ()
    answers: Mapping[str, PageAnswer] = {}
    again: bool = False
    run: str = ""
    shown: tuple[Frame, ...] = ()
    unused: tuple[str, ...] = ()


def write_event(frame: Frame) -> bytes:
    """Return a frame as a server-sent event. JSON escapes line breaks, so it is one line."""
    return b"data: " + msgspec.json.encode(frame) + b"\n\n"


def field(of: object, name: str) -> str:
    """Return a text field of a JSON object; empty if there is none."""
    found = of.get(name) if isinstance(of, dict) else None
    return found if isinstance(found, str) else ""


def check_thread_id(id: str) -> str:
    """Return the thread id that a page chose. Raises UsageError if it is not allowed."""
    if not THREAD.fullmatch(id):
        raise UsageError("The id of a thread must be 1 to 128 letters, digits or _ . : - and must not begin with . or :")
    return id


def media_block(url: str, media_type: str, name: str = "") -> Block:
    """Return the block for a file of the page: its bytes in a data URL, or an address that the provider fetches."""
    inline = DATA_URL.fullmatch(url)
    if inline is None and not url.startswith(("https://", "http://")):
        raise UsageError("A file must be a data URL in base64, or an http address.")
    source = Inline(inline[2]) if inline else Remote(url)
    kind = media_type or (inline[1] if inline else "") or ""
    return ImageBlock(source, kind) if kind.startswith("image/") else DocumentBlock(source, kind, name)


def arguments_of(call: ToolCall) -> object:
    """Return the arguments as JSON values; as text if they are not valid JSON."""
    try:
        return msgspec.json.decode(call.raw or "{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return call.raw


def output_of(result: CallFinished) -> str:
    """Return the result of a call as the text that the model gets."""
    return "\n".join(one.text if isinstance(one, TextBlock) else f"[{one.kind}]" for one in result.content)


def answer_id(approval: Approval) -> str:
    """Return the id of one question of an approval. A second question about the same call has another id."""
    return f"{approval.id}:{approval.key}"


def decide_by_answers(approvals: Iterable[Approval], answers: Mapping[str, PageAnswer], *, by: str) -> dict[str, Decision]:
    """Return the decisions for the approvals that wait. Other answers are ignored: those approvals are already decided.

    Raises ApprovalStale if approvals wait and no answer belongs to one of them.
    """
    made: dict[str, Decision] = {}
    waiting = keyed(approvals)
    for key, one in waiting.items():
        answer = answers.get(answer_id(one))
        if answer is not None:
            verdict = "allow" if answer.approved else "reject"
            given = answer.arguments if answer.approved else None
            made[key] = Decision(verdict, why=answer.why, arguments=given, digest=one.digest, by=by)  # type: ignore[arg-type]
    if waiting and not made:
        raise ApprovalStale(
            f"The answered question no longer waits: it is already decided. Still waiting: {', '.join(waiting)}."
        )
    return made
