"""Finds a harness by its name, so that another process can go on with its runs: `module:attribute`, or as evener.toml says."""

import sys
import tomllib
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from evener.errors import UsageError
from evener.harness.harness import Harness

__all__ = ["find_harness"]

FILE = "evener.toml"


def find_harness(name: str, *, start: Path | None = None) -> Harness:
    """The harness of this name. A plain name is looked up in the table `[harness]` of the nearest evener.toml.

    Modules are looked for beside that file, or in the working folder, before anywhere else.
    """
    folder, table = _table(start or Path.cwd())
    reference = name if ":" in name else table.get(name, "")
    if not reference:
        known = f" Known there: {', '.join(sorted(table))}." if table else ""
        raise UsageError(
            f"There is no harness {name!r}. Write module:attribute, or name it in {FILE}: "
            f'[harness] and below it {name} = "module:attribute".{known}'
        )
    module, _, attribute = reference.partition(":")
    return _harness(module, attribute, folder)


def _harness(module: str, attribute: str, folder: Path) -> Harness:
    sys.path.insert(0, str(folder))
    try:
        found: object = import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"The harness {module}:{attribute} cannot be loaded from {folder}: {error}.") from error
    finally:
        sys.path.remove(str(folder))
    if not isinstance(found, Harness):
        raise UsageError(f"{module}:{attribute} is a {type(found).__name__}, not a Harness. Name the Harness object itself.")
    return found


def _table(start: Path) -> tuple[Path, Mapping[str, str]]:
    for folder in (start, *start.parents):
        file = folder / FILE
        if file.is_file():
            try:
                table = tomllib.loads(file.read_text(encoding="utf-8")).get("harness", {})
            except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
                raise UsageError(f"{file} cannot be read: {error}. Mend it.") from None
            if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
                raise UsageError(f'{file}: [harness] holds lines such as name = "module:attribute". Mend it.')
            return folder, table
    return start, {}
