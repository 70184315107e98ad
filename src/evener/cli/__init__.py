"""The command line: parses words, calls one function, prints. Heavy parts load only when a command needs them.

Exit codes: 0 done; 1 the command failed; 2 it was called wrongly; 3 a key is missing; 4 the provider said no; 5 the bytes
did not arrive; 130 interrupted; 141 whoever read the output has gone.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]

FAILED, USAGE, NO_KEY, PROVIDER, TRANSPORT, INTERRUPTED, PIPE = 1, 2, 3, 4, 5, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()  # now, while a reader that has gone is still ours to notice
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_output()
        return PIPE
    except OSError as error:
        _forget_output()
        what = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error.strerror or error
        print(f"evener: {what}", file=sys.stderr)
        return FAILED
    return code


def _run(argv: Sequence[str] | None) -> int:
    from evener.cli.parser import parse
    from evener.errors import EvenerError

    _be_tolerant()
    options = parse(argv)
    try:
        return int(options.run(options))
    except EvenerError as error:
        from evener.cli.terminal import say

        say(f"evener: {error}")
        return _code(error)


def _code(error: Exception) -> int:
    from evener.errors import ProviderError, TransportError, UsageError
    from evener.providers.keys import MissingKey

    codes = ((MissingKey, NO_KEY), (UsageError, USAGE), (ProviderError, PROVIDER), (TransportError, TRANSPORT))
    return next((code for kind, code in codes if isinstance(error, kind)), FAILED)


def _be_tolerant() -> None:
    """A character that the terminal's encoding lacks is shown by its number, and a stream that is closed leads nowhere."""
    import os
    from io import TextIOWrapper

    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """What is still to be written goes nowhere: at its end the interpreter would try again, and complain."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
