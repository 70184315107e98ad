"""Everything that can go wrong in a model call, as one table: what the server does, and how the call must end.

`GENERAL` holds for any wire and is played whole on one; `OWN` has what only one wire can do wrong.
"""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from evener import errors as e
from evener.testing import Empty, Html, Raw, Redirect, Status, Text, Turn, faults, turn
from evener.testing.servers.answer import HttpAnswer, Sever, Voice
from evener.transport.exchange import Caps, Deadlines, Retries

OK = "recovers"
CUT = "cut short"  # found out by HTTP or by the wire, whichever sees more bytes at once
NEVER = "not asked like this"
End = type[e.EvenerError] | str
"""An error's exact type, or one of the words above."""

SAID = "All of the answer, and nothing but the answer."
PATIENT = Deadlines(connect=120, idle=120, total=120)
NO_LINK = Deadlines(connect=0.3, idle=120, total=120)
IDLE = Deadlines(connect=120, idle=1.0, total=120)
BRIEF = Deadlines(connect=120, idle=120, total=0.4)
QUICK = Retries(attempts=3, base=0.01, most=0.5)
USUAL = Caps()
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DATED = {"date": "Thu, 01 Jan 2026 00:00:00 GMT"}
BIG = 40_000_000


@dataclass(frozen=True)
class Fault:
    """One row. `script` is what the server does until the call has ended, `place` a server that is none of the fakes.

    `tries`: requests that were sent in all. `told`: attributes of the error. `says`: words in it. `seconds`: the least that
    it takes, because something is waited for. `slow`: it takes a deadline or a wait to find out. `deadlines` are short only
    where one is to pass.
    """

    name: str
    script: tuple[Any, ...] = ()
    streamed: End = OK
    whole: End = ""
    tries: int = 1
    told: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""
    seconds: float = 0.0
    deadlines: Deadlines = PATIENT
    retries: Retries = QUICK
    caps: Caps = USUAL
    place: str = ""
    slow: bool = False

    def at_pace(self, pace: float) -> "Fault":
        """Return the row with its short deadlines this many times as long."""
        connect, idle, total = (
            min(seconds * pace, 120) for seconds in (self.deadlines.connect, self.deadlines.idle, self.deadlines.total)
        )
        return dataclasses.replace(self, deadlines=Deadlines(connect=connect, idle=idle, total=total))

    def end(self, mode: str) -> End:
        """How it must end; a whole answer ends as a streamed one unless it says otherwise."""
        return self.whole if mode == "whole" and self.whole else self.streamed


class NoHead(faults.Silent, frozen=True):
    """The connection is reset before anything was answered."""

    def spoil(self, answer: HttpAnswer, _voice: Voice) -> HttpAnswer:
        return replace(answer, before=(Sever("reset"),))


def said(*spoilt: faults.Fault, text: str = SAID) -> Turn:
    """The answer, with these faults on its way."""
    return turn(Text(text, pieces=6), faults=spoilt)


def again(entry: Any, times: int = 3) -> tuple[Any, ...]:
    """The same for every try."""
    return (entry,) * times


def sent_as(content_type: str, body: bytes = b"") -> Raw:
    return Raw(body, content_type=content_type)


NOWHERE_TO_CONNECT = (
    Fault("connection refused", (), e.ConnectFailed, place="refused", tries=3, says="nothing listens there"),
    Fault("never a connection", (), e.TimedOut, place="blackhole", tries=3, says="connect", deadlines=NO_LINK, slow=True),
    Fault("certificate of an unknown authority", (), e.ConnectFailed, place="untrusted", tries=3, says="not trusted"),
    Fault("not HTTP at all", (), e.WireError, place="ssh", says="is not HTTP"),
)
BEFORE_THE_HEAD = (
    Fault("slow head", (said(faults.Slow(head=0.15)),), OK, seconds=0.15),
    Fault("no head at all", again(said(faults.Silent())), e.TimedOut, tries=3, says="idle", deadlines=IDLE, slow=True),
    Fault("no head until the end", (said(faults.Silent()),), e.TimedOut, says="total", deadlines=BRIEF, slow=True),
    Fault("reset before the head, once", (said(NoHead()), said()), OK, tries=2),
    Fault("reset before the head, always", again(said(NoHead()), 4), e.TruncatedStream, tries=4),
    Fault("connection closed after the answer", (said(faults.HangUp()), said()), OK),
    Fault("connection closed as announced", (said(faults.HangUp("said")), said()), OK),
)
IN_THE_STREAM = (
    Fault("stall before the first event", (said(faults.Stall(0)),), e.TimedOut, says="idle", deadlines=IDLE, slow=True),
    Fault("stall in the middle", (said(faults.Stall(3)),), e.TimedOut, says="idle", deadlines=IDLE, slow=True),
    Fault("slow drip", (said(faults.Slow(between=0.3)),), e.TimedOut, says="total", deadlines=BRIEF, slow=True),
    Fault("clean end in the middle", (said(faults.Cut(3)),), e.TruncatedStream, e.WireError),
    Fault("clean end after the head", (said(faults.Cut(0)),), e.TruncatedStream, e.WireError),
    Fault("reset in the middle", (said(faults.Reset(3)),), e.TruncatedStream),
    Fault("reset after the head", (said(faults.Reset(0)),), e.TruncatedStream),
    Fault("cut within a chunk", (said(faults.Torn(3)),), e.TruncatedStream),
    Fault("no terminal mark", (said(faults.Unfinished()),), e.TruncatedStream, e.WireError),
    Fault("an event that is no JSON", (said(faults.Malformed("json")),), e.WireError),
    Fault("lines that are no event", (said(faults.Malformed("sse")),), OK, e.WireError),
    Fault("an event that is no text", (said(faults.Malformed("utf8")),), e.WireError),
    Fault("an event of zeros", (said(faults.Malformed("nul")),), e.WireError),
    Fault("an unknown event", (said(faults.UnknownEvent(), faults.UnknownEvent(4)),), OK),
    Fault("signs of life for ever", (said(faults.Endless()),), e.TimedOut, says="total", deadlines=BRIEF, slow=True),
    Fault("comments for ever", (said(faults.Endless(kind="comment")),), e.TimedOut, says="total", deadlines=BRIEF, slow=True),
    Fault("signs of life, then the end", (said(faults.Endless(times=5)),), e.TruncatedStream, e.WireError),
    Fault("more after the terminal mark", (said(faults.ExtraBytes(b"and so on")),), OK, e.WireError),
    Fault("an event after the terminal mark", (said(faults.ExtraBytes()),), OK),
    Fault("the terminal mark twice", (said(faults.Twice()),), OK, e.WireError),
    Fault("one byte at a time", (said(faults.Bytewise()),), OK),
    Fault("other line ends", (said(faults.Crlf()),), OK),
    Fault("a byte order mark", (said(faults.Bom()),), OK, e.WireError),
    Fault("a huge event", (said(faults.Huge(BIG)),), e.WireError, says="larger than"),
    Fault("a large event", (said(faults.Huge(1_000_000)),), OK),
    Fault("more than the cap", (said(faults.Huge(5000)),), NEVER, e.WireError, says="Caps(body", caps=Caps(body=5000)),
)
THE_BODY = (
    Fault("compressed", (said(faults.Gzip()),), OK),
    Fault("compressed and cut off", (said(faults.Gzip(lost=60)),), e.TruncatedStream),
    Fault("compressed in single bytes", (said(faults.Gzip(), faults.Bytewise(7)),), OK),
    Fault("a bomb", (said(faults.Huge(BIG), faults.Gzip()),), e.WireError, says="larger than"),
    Fault("longer than its length", (said(faults.WrongLength(-1000), faults.HangUp("said")),), CUT),
    Fault("shorter than its length", (said(faults.Cut(3), faults.WrongLength(64)),), e.TruncatedStream),
    Fault("a web page", (Html(),), e.WireError, says="a web page"),
    Fault("a web page as plain text", (sent_as("text/plain", b"\n<html></html>"),), e.WireError),
    Fault("nothing", (Empty(),), e.TruncatedStream, e.WireError),
    Fault("nothing of no type", (sent_as(""),), e.TruncatedStream, e.WireError),
    Fault("JSON of something else", (sent_as("application/json", b'{"hello": "world"}'),), e.WireError),
    Fault("a text instead of events", (sent_as("text/event-stream", b"Hello, world!"),), e.TruncatedStream),
    Fault("a redirect", (Redirect(),), e.InvalidRequest, told={"status": 307}, says="redirects are not followed"),
    Fault("a redirect for good", (Redirect(code=308),), e.InvalidRequest, told={"status": 308}),
)
NOT_TRIED_AGAIN = (
    Fault("400", (Status(400),), e.InvalidRequest, told={"status": 400, "retryable": False}),
    Fault("401", (Status(401),), e.AuthFailed, told={"status": 401}),
    Fault("402", (Status(402),), e.QuotaExceeded, told={"status": 402}),
    Fault("403", (Status(403),), e.PermissionDenied, told={"status": 403}),
    Fault("404", (Status(404),), e.InvalidRequest, told={"status": 404}),
    Fault("404 of a model", (Status(404, "model: nobody"),), e.ModelNotFound, told={"status": 404}),
    Fault("413", (Status(413),), e.InvalidRequest, told={"status": 413}),
    Fault("422", (Status(422),), e.InvalidRequest, told={"status": 422}),
    Fault("key repeated in an error", (Status(401, "The key {key} is not valid."),), e.AuthFailed, says="[secret]"),
    Fault("key repeated in what is no text", (sent_as("application/json", b'{"type": "{key} \xff"}'),), e.WireError),
    Fault("key repeated in a page", (Status(400, "<b>{key}</b>"),), e.InvalidRequest, says="[secret]"),
    Fault("key at the end of what is quoted", (Raw(b"=" * 470 + b"{key}", 400),), e.InvalidRequest, says="[secret]"),
    Fault("key where no JSON is", (sent_as("application/json", b"=" * 29 + b"{key}"),), e.WireError, says="[secret]"),
    Fault("500 not to be tried again", (Status(500, headers={"x-should-retry": "false"}),), e.ServerError),
)
TRIED_AGAIN = (
    Fault("408", again(Status(408)), e.ServerError, tries=3, told={"status": 408}),
    Fault("409", again(Status(409)), e.ServerError, tries=3, told={"status": 409}),
    Fault("429", again(Status(429)), e.RateLimited, tries=3, told={"status": 429, "retry_after": None}),
    Fault("500", again(Status(500)), e.ServerError, tries=3, told={"status": 500}),
    Fault("502 as a page", again(Status(502)), e.ServerError, tries=3, told={"status": 502}, says="Bad Gateway"),
    Fault("503", again(Status(503)), e.ServerError, tries=3, told={"status": 503, "retryable": True}),
    Fault("504", again(Status(504)), e.ServerError, tries=3, told={"status": 504}),
    Fault("529", again(Status(529)), e.Overloaded, tries=3, told={"status": 529}),
    Fault("503 once", (Status(503), said()), OK, tries=2),
    Fault("529 and 500", (Status(529), Status(500), said()), OK, tries=3),
    Fault("429 with seconds", (Status(429, retry_after=0.2), said()), OK, tries=2, seconds=0.2),
    Fault("429 for milliseconds", (Status(429, headers={"retry-after-ms": "150"}), said()), OK, tries=2, seconds=0.15),
    Fault("429 until now", (Status(429, retry_after=NOW, headers=DATED), said()), OK, tries=2),
    Fault(
        "429 until a date",
        (Status(429, retry_after=NOW + timedelta(seconds=1), headers=DATED), said()),
        OK,
        tries=2,
        seconds=1.0,
        retries=Retries(3, 0.01, 1.5),
        slow=True,
    ),
    Fault("429 for a day", (Status(429, retry_after=86_400),), e.RateLimited, told={"retry_after": 86_400.0}),
    Fault(
        "429 until tomorrow",
        (Status(429, retry_after=NOW + timedelta(days=1), headers=DATED),),
        e.RateLimited,
        told={"retry_after": 86_400.0},
    ),
    Fault("503 beyond the end", (Status(503, retry_after=130),), e.ServerError, retries=Retries(3, 0.01, 200)),
)
GENERAL = (*NOWHERE_TO_CONNECT, *BEFORE_THE_HEAD, *IN_THE_STREAM, *THE_BODY, *NOT_TRIED_AGAIN, *TRIED_AGAIN)


def event(value: object, name: str = "") -> bytes:
    return (f"event: {name}\n" if name else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def failing(status: int, body: object) -> Raw:
    return Raw(json.dumps(body).encode(), status)


def daily(quota: str) -> Raw:
    """A Gemini 429 over this quota."""
    violations = [{"quotaMetric": "requests", "quotaId": quota}]
    detail = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}
    return failing(429, {"error": {"code": 429, "message": "Quota!", "status": "RESOURCE_EXHAUSTED", "details": [detail]}})


def openai_error(status: int, message: str, code: str, kind: str = "invalid_request_error") -> Raw:
    return failing(status, {"error": {"message": message, "type": kind, "param": None, "code": code}})


TOO_LONG_OPENAI = openai_error(
    400,
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    "context_length_exceeded",
)
SPENT_OPENAI = openai_error(429, "You exceeded your current quota.", "insufficient_quota", "insufficient_quota")
FAILED_RESPONSE = {"id": "r", "status": "failed", "output": [], "error": {"code": "server_error", "message": "It broke."}}
FULL_RESPONSE = {**FAILED_RESPONSE, "error": {"code": "context_length_exceeded", "message": "It exceeds the context window."}}
ALONE = event({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": SAID}}]})
BLOCKED = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}}
KEY_INVALID = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
CHUNK = {"candidates": [{"content": {"role": "model", "parts": [{"text": SAID}]}, "index": 0}]}
LAST = {"candidates": [{"finishReason": "STOP", "index": 0}]}

OWN: dict[str, tuple[Fault, ...]] = {
    "anthropic_messages": (
        Fault("overloaded in the stream", (said(faults.ErrorEvent()),), e.Overloaded, told={"status": 0, "retryable": True}),
        Fault("broken in the stream", (said(faults.ErrorEvent(status=500)),), e.ServerError),
        Fault("limited in the stream", (said(faults.ErrorEvent(0, 429)),), e.RateLimited),
        Fault("overloaded at the very start", (said(faults.ErrorEvent(0)),), e.Overloaded),
        Fault(
            "prompt too long",
            (Status(400, "prompt is too long: 210000 tokens > 200000 maximum"),),
            e.ContextTooLong,
            told={"used": 210_000, "limit": 200_000},
        ),
        Fault("spent", (Status(400, "Your credit balance is too low to access the API."),), e.QuotaExceeded),
        Fault("the last event but no end", (said(faults.Unfinished(frames=2)),), e.TruncatedStream, e.WireError),
        Fault("an error event with a key", (said(faults.ErrorEvent(message="Not {key}!")),), e.Overloaded, says="[secret]"),
    ),
    "openai_responses": (
        Fault("an error event", (said(faults.ErrorEvent(status=500)),), e.ServerError, told={"code": "server_error"}),
        Fault("limited in the stream", (said(faults.ErrorEvent(status=429)),), e.RateLimited),
        Fault(
            "a failed response",
            (said(faults.Insert(event({"type": "response.failed", "response": FAILED_RESPONSE}))),),
            e.ServerError,
            NEVER,
            says="It broke.",
        ),
        Fault("a failed whole response", (failing(200, FAILED_RESPONSE),), e.ServerError, says="It broke."),
        Fault(
            "a context that is full, in the stream",
            (said(faults.Insert(event({"type": "response.failed", "response": FULL_RESPONSE}))),),
            e.ContextTooLong,
            NEVER,
        ),
        Fault("no completion", (said(faults.Unfinished()),), e.TruncatedStream, e.WireError),
        Fault("a stray end of Chat", (said(faults.Insert(b"data: [DONE]\n\n")),), OK, NEVER),
        Fault("prompt too long", (TOO_LONG_OPENAI,), e.ContextTooLong, told={"limit": 128_000}),
        Fault("spent", (SPENT_OPENAI,), e.QuotaExceeded, told={"status": 429, "retryable": False}),
        Fault(
            "a state that is gone",
            (openai_error(400, "Previous response with id 'r' not found.", "previous_response_not_found"),),
            e.StateExpired,
        ),
    ),
    "openai_chat": (
        Fault("an error in a chunk", (said(faults.ErrorEvent(status=500)),), e.ServerError, told={"status": 0}),
        Fault("limited in the stream", (said(faults.ErrorEvent(status=429)),), e.RateLimited),
        Fault("no [DONE] after the finish", (said(faults.Unfinished(frames=1)),), OK, NEVER),
        Fault("[DONE] without a finish", (sent_as("text/event-stream", ALONE + b"data: [DONE]\n\n"),), e.TruncatedStream),
        Fault("half an answer and no more", (sent_as("text/event-stream", ALONE),), e.TruncatedStream),
        Fault("neither finish nor [DONE]", (said(faults.Unfinished()),), e.TruncatedStream, e.WireError),
        Fault("prompt too long", (TOO_LONG_OPENAI,), e.ContextTooLong, told={"limit": 128_000, "retryable": False}),
        Fault("spent", (SPENT_OPENAI,), e.QuotaExceeded, told={"code": "insufficient_quota"}),
        Fault("no such model", (openai_error(404, "The model `x` does not exist.", "model_not_found"),), e.ModelNotFound),
        Fault("an error that is a text", (failing(500, {"error": "boom"}),) * 3, e.ServerError, tries=3, says="boom"),
        Fault("an error of a validator", (failing(422, {"detail": [{"loc": ["body"], "msg": "no"}]}),), e.InvalidRequest),
        Fault("a 200 that is an error", (failing(200, {"error": {"message": "boom", "code": 500}}),), e.ServerError),
    ),
    "gemini": (
        Fault("an error in the stream", (said(faults.ErrorEvent()),), e.Overloaded, told={"code": "UNAVAILABLE"}),
        Fault("limited in the stream", (said(faults.ErrorEvent(status=429)),), e.RateLimited),
        Fault("no reason to finish", (sent_as("text/event-stream", event(CHUNK)),), e.TruncatedStream),
        Fault("cut after the reason to finish", (said(faults.Gzip(lost=5)),), e.TruncatedStream),
        Fault("a list instead of events", (sent_as("application/json", json.dumps([CHUNK, LAST]).encode()),), OK),
        Fault("a list that does not finish", (sent_as("application/json", json.dumps([CHUNK]).encode()),), e.TruncatedStream),
        Fault("limited for a delay", (Status(429, retry_after=0.2), said()), OK, tries=2, seconds=0.2),
        Fault("limited for a minute", (daily("GenerateRequestsPerMinute"),) * 3, e.RateLimited, tries=3),
        Fault("spent for the day", (daily("GenerateRequestsPerDay"),), e.QuotaExceeded, told={"status": 429}),
        Fault(
            "a wrong key is a 400 here",
            (failing(400, {"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT", "details": [KEY_INVALID]}}),),
            e.AuthFailed,
        ),
        Fault("unavailable", again(Status(503)), e.Overloaded, tries=3),
        Fault(
            "prompt too long",
            (Status(400, "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576)."),),
            e.ContextTooLong,
            told={"used": 1_048_577, "limit": 1_048_576},
        ),
    ),
}
