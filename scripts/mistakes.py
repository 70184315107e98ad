"""Writes docs/mistakes.md: what users get wrong, and the message that each mistake gets. `--check`: is it stale?

The mistakes are those of tests/harness/test_mistakes.py. Each is made, here and in the tests.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "mistakes.md"
sys.path.insert(0, str(ROOT))

from evener.errors import EvenerError  # noqa: E402 - the tests are found from the root
from tests.harness.test_mistakes import MISTAKES  # noqa: E402

ID = re.compile(r"\b[0-9a-f]{32}\b")
HEAD = """\
# Mistakes and their error messages

Evener checks each argument when you pass it. `make docs` makes each of these mistakes and writes the messages into this page.

| mistake | error | message |
| --- | --- | --- |
"""


def main() -> int:
    """Write the page, or compare it."""
    rows = []
    for name, make, _ in MISTAKES:
        try:
            make()
        except EvenerError as error:
            text = ID.sub("ID", " ".join(str(error).split())).replace("|", "\\|")
            rows.append(f"| {name} | `{type(error).__name__}` | {text} |\n")
        else:
            raise SystemExit(f"The mistake {name!r} is not refused.")
    page = HEAD + "".join(rows)
    if "--check" not in sys.argv:
        DOCUMENT.write_text(page, encoding="utf-8")
    elif DOCUMENT.read_text(encoding="utf-8") != page:
        print(f"{DOCUMENT.name} is stale. Run `make docs`.")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
