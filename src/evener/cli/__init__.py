"""The command line: parses arguments, calls one function, prints. Heavy modules load only when a command needs them.

Exit codes: 0 done; 1 failed; 2 wrong usage; 3 a key is missing; 4 the provider refused; 5 network error or timeout;
130 interrupted; 141 the reader of the output is gone.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]

FAILED, USAGE, NO_KEY, PROVIDER, TRANSPORT, INTERRUPTED, PIPE = 1, 2, 3, 4, 5, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    try:
        code = _run(argv)
        sys.stdout.flush()  # here, so that a broken pipe is handled below
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return PIPE
    except OSError as error:
        _discard_output()
        what = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else error.strerror or error
        print(f"evener: {what}", file=sys.stderr)
        return FAILED
    return code


def _run(argv: Sequence[str] | None) -> int:
    from evener.cli.parser import parse, run
    from evener.errors import EvenerError

    _prepare_streams()
    try:
        options = parse(argv)
    except SystemExit as ended:  # --help, --version or wrong usage; what was printed is flushed by the caller
        return int(ended.code or 0)
    try:
        return run(options)
    except EvenerError as error:
        from evener.cli.terminal import say

        say(" ".join((f"evener: {error}", *getattr(error, "__notes__", ()))))
        return _exit_code(error)


def _exit_code(error: Exception) -> int:
    from evener.errors import ProviderError, TransportError, UsageError
    from evener.providers.keys import MissingKey

    codes = ((MissingKey, NO_KEY), (UsageError, USAGE), (ProviderError, PROVIDER), (TransportError, TRANSPORT))
    return next((code for kind, code in codes if isinstance(error, kind)), FAILED)


def _prepare_streams() -> None:
    """Escape characters that the terminal's encoding lacks, and point closed streams at /dev/null."""
    import os
    from io import TextIOWrapper

    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Point stdout at /dev/null: at exit the interpreter would try to flush it again, and print an error."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
