"""Runs as JSON for programs: the result, and each event of a stream. Pure."""

import msgspec

from evener import streaming as st
from evener.result import RunResult

__all__ = ["event_document", "result_document"]


def result_document(result: RunResult) -> dict[str, object]:
    """What a run came to."""
    return {
        "text": result.text,
        "output": result.output,
        "stop": result.stop,
        "detail": result.detail,
        "usage": msgspec.structs.asdict(result.usage),
        "cost": {"amount": str(result.cost), "exact": result.exact},
        "seconds": result.seconds,
        "thread": result.thread,
        "run": result.run,
        "pending": [{"id": call.id, "name": call.name, "arguments": call.raw} for call in result.pending],
        "records": [
            {
                "id": record.call.id,
                "name": record.call.name,
                "arguments": record.call.raw,
                "ok": record.ok,
                "outcome": record.result.outcome if record.result else "not run",
                "content": msgspec.to_builtins(record.result.content) if record.result else [],
                "seconds": record.result.seconds if record.result else 0.0,
            }
            for record in result.records
        ],
        "requests": [msgspec.to_builtins(request) for request in result.requests],
        "losses": [msgspec.structs.asdict(loss) for loss in result.losses],
    }


def event_document(event: st.StreamEvent) -> dict[str, object]:
    """One event, tagged by `type`."""
    match event:
        case st.RunFinished(result=result):
            fields: dict[str, object] = {"result": result_document(result)}
        case st.RunFailed(error=error):
            fields = {"error": type(error).__name__, "message": str(error)}
        case _:
            fields = msgspec.to_builtins(event)
            fields.pop("place")
    kind = fields.pop("type", type(event).__struct_config__.tag)
    return {"type": kind, "sequence": event.sequence, **msgspec.to_builtins(event.place), **fields}
