"""The command line: parses words, calls one function, prints. Heavy parts load only when a command needs them.

Exit codes: 0 done, 1 the command failed, 2 it was called wrongly, 130 interrupted.
"""

import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    from evener.cli.parser import parser
    from evener.errors import EvenerError, UsageError

    try:
        options = parser().parse_args(argv)
        return int(options.run(options))
    except UsageError as error:
        return _failed(error, 2)
    except EvenerError as error:
        return _failed(error, 1)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone; there is nobody left to tell
        return 1


def _failed(error: Exception, code: int) -> int:
    print(f"evener: {error}", file=sys.stderr)
    return code
