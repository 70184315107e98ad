"""Writes a file that only its owner can read."""

import os
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o600


def write_private(path: Path, content: bytes) -> None:
    """Write a new file beside the old one, with mode 600 from the start, then rename it over the old one.

    The content is on the disk before the old one is gone: a reader finds one or the other, also after a loss of power.
    """
    made = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(made, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(made)
        raise
