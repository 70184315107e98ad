"""`evener translate`: reads a request of one wire, prints it as a request of another, and the losses on stderr."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from evener.cli.terminal import print_json, say
from evener.errors import UsageError
from evener.providers.rows import load_rows
from evener.translate import translate

MAX_BYTES = 64 * 1024 * 1024


def run(
    request: str, source: str, target: str, *, model: str, rows: Sequence[str], as_json: bool, refuse_losses: Sequence[str] = ()
) -> int:
    """Translate one request and print it."""
    encoded = translate(
        _read_body(request), source=source, target=target, model=model, rows=load_rows(*rows), refuse_losses=refuse_losses
    )
    body = msgspec.Raw(encoded.body)
    if as_json:
        print_json({"request": body, "path": encoded.path, "losses": encoded.losses})
    else:
        print_json(body)
        for loss in encoded.losses:
            say(str(loss))
    return 0


def _read_body(request: str) -> bytes:
    if request == "-":
        data = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        try:
            with Path(request).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(f"Cannot read {request}: {error.strerror}. Give a file, or - for stdin.") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"The request is larger than {MAX_BYTES} bytes. Providers accept less; check the file.")
    return data
