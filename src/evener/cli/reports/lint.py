"""`evener doctor THREAD`: what each wire would drop or repair in a stored conversation. Sends nothing, and needs no key."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from evener.cli.names import find_log
from evener.cli.stores import with_store
from evener.cli.terminal import clean, count, print_json
from evener.errors import EvenerError
from evener.harness.preview import open_offline
from evener.model.stream import prepare_request
from evener.store.protocol import state_of
from evener.transcript.ask import ToolSpec
from evener.transcript.loss import Loss
from evener.transcript.transcript import Transcript

if TYPE_CHECKING:
    from evener.cli.stores import KeptStore

WIRES = {
    "anthropic_messages": "anthropic:claude-sonnet-4-5",
    "openai_responses": "openai:gpt-5",
    "openai_chat": "openai-chat:gpt-4.1",
    "gemini": "google:gemini-3-pro-preview",
}
"""A usual model of each wire."""
SHOWN = 5


class WireReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of a conversation on one wire. `refused` says why it could not be sent at all."""

    wire: str
    model: str
    repaired: tuple[Loss, ...] = ()
    lost: tuple[Loss, ...] = ()
    refused: str = ""


def run(thread: str, *, store: str, as_json: bool) -> int:
    """Lint one thread and print the reports; return 1 if a wire would refuse it."""
    return with_store(store, lambda opened: _run(opened, thread, as_json=as_json))


async def _run(store: "KeptStore", thread: str, *, as_json: bool) -> int:
    state = await state_of(store, await find_log(store, thread))
    reports = [lint(wire, state.transcript, state.config.tools if state.config else ()) for wire in WIRES]
    if as_json:
        print_json(reports)
    else:
        for report in reports:
            _print(report)
    return int(any(report.refused for report in reports))


def lint(wire: str, transcript: Transcript, tools: Sequence[ToolSpec]) -> WireReport:
    """Return the repairs and losses that the conversation would have with a typical model of this wire."""
    name = WIRES[wire]
    model = open_offline(name)
    try:
        losses = prepare_request(model.ask(transcript, tools), model.endpoint).losses
    except EvenerError as error:
        return WireReport(wire, name, refused=str(error))
    mended = tuple(loss for loss in losses if loss.kind == "repaired")
    return WireReport(wire, name, mended, tuple(loss for loss in losses if loss.kind != "repaired"))


def _print(report: WireReport) -> None:
    if report.refused:
        print(clean(f"{report.wire}: cannot be sent: {report.refused}"))
        return
    print(f"{report.wire}: {count(len(report.repaired), 'repair')}, {count(len(report.lost), 'difference')}")
    told = (*report.repaired, *report.lost)
    for loss in told[:SHOWN]:
        print(clean(f"  {loss}"))
    if len(told) > SHOWN:
        print(f"  and {len(told) - SHOWN} more; --json shows all")
