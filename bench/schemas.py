"""Runs the official JSON-Schema-Test-Suite (Draft 2020-12, formats included) against `evener.tools.Validator`.

The suite comes in the source package of `jsonschema`, fetched by name and kept in `bench/.envs`. What differs by intent
is counted apart, each with its reason; anything else fails the command.
"""

import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evener.errors import UsageError
from evener.tools import Validator

__all__ = ["main"]

KEPT = Path(__file__).resolve().parent / ".envs" / "schema-suite"
PACKAGE = "jsonschema==4.26.0"
MARK = "/tests/draft2020-12/"

INTENDED = {
    "refRemote": "references are never fetched",
    "dynamicRef": "references are never fetched",
    "format": "a format is enforced, not only noted",
    "vocabulary": "vocabularies of one's own are not known",
    "optional/format/date-time": "read as the decoder of arguments reads them",
    "optional/format/time": "read as the decoder of arguments reads them",
    "optional/format/uuid": "read as the decoder of arguments reads them",
    "optional/ecmascript-regex": "patterns are matched in linear time",
    "optional/cross-draft": "references are never fetched",
    "optional/format-assertion": "references are never fetched",
    "optional/dependencies-compatibility": "`dependencies` was split in two",
    "optional/refOfUnknownKeyword": "what an unknown keyword holds is no schema",
    "optional/non-bmp-regex": "patterns are matched in linear time",
}


def main() -> int:
    """Print what agrees and what differs; return 1 when anything differs that is not meant to."""
    agreed, meant, wrong = 0, Counter[str](), list[str]()
    for file, group in _groups(_archive()):
        for said, good in _judged(group):
            if good:
                agreed += 1
            elif file in INTENDED:
                meant[f"{file}: {INTENDED[file]}"] += 1
            else:
                wrong.append(f"{file}: {group['description']}: {said}")
    print(f"{agreed} cases agree")
    for reason, count in meant.most_common():
        print(f"{count} differ by intent: {reason}")
    for line in wrong:
        print(f"WRONG {line}")
    return 1 if wrong or not agreed else 0


def _archive() -> Path:
    if not list(KEPT.glob("*.tar.gz")):
        KEPT.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(KEPT)]
        subprocess.run([*command, PACKAGE], check=True)
    return next(KEPT.glob("*.tar.gz"))


def _groups(archive: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with tarfile.open(archive) as suite:
        for member in suite:
            _, mark, name = member.name.partition(MARK)
            file = suite.extractfile(member) if mark and name.endswith(".json") else None
            if file is not None:
                yield from ((name.removesuffix(".json"), group) for group in json.load(file))


def _judged(group: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield each case of a group, and whether we say what the suite says."""
    schema = group["schema"] if isinstance(group["schema"], dict) else {"allOf": [group["schema"]]}
    try:
        validator = Validator(schema)
    except UsageError as error:
        yield from ((str(error), False) for _ in group["tests"])
        return
    for case in group["tests"]:
        problems = validator.problems(case["data"])
        yield case["description"], (not problems) is case["valid"] and not any("too deeply" in one.message for one in problems)
