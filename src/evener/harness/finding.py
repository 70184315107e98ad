"""Finds a harness by its name, so that another process can continue its runs: by `module:attribute`, or by a name in a config
file.

Importing a module runs its code. So only references from the caller, or from a config file that the user trusts, are followed.
"""

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

from evener.errors import EvenerError, UsageError
from evener.harness.harness import Harness
from evener.providers.config import FILE, Config, load_config


def find_harness(name: str, *, start: Path | None = None) -> Harness:
    """Return the harness of this name. A plain name is looked up in the table `[harness]` of the config files.

    A file that came with a project must be trusted. Modules are searched first beside the file that names them, or, for a name
    with a module, in the trusted project's folder or the working folder.
    """
    if not isinstance(name, str):
        raise UsageError(f"`name` takes module:attribute, or a name in {FILE}, as a text; not {type(name).__name__}.")
    config = load_config(start, environ=os.environ)
    reference, folder = (name, config.project or str(start or Path.cwd())) if ":" in name else _find_named(name, config)
    module, _, attribute = reference.partition(":")
    return _harness(module, attribute, folder)


def _find_named(name: str, config: Config) -> tuple[str, str]:
    """Return the reference that the config files have for a plain name, and the folder of that file."""
    found = config.harnesses.get(name)
    if found is None:
        known = f" Known there: {', '.join(sorted(config.harnesses))}." if config.harnesses else ""
        raise UsageError(
            f"There is no harness {name!r}. Write module:attribute, or name it in {FILE}: "
            f'[harness] and below it {name} = "module:attribute".{known}'
        )
    if not found.trusted:
        raise UsageError(
            f"The harness {name!r} is named by {found.file}, which may have come with a cloned project, and loading it runs "
            f'code from there. If you know the file, write trusted = ["{found.folder}"] in your own config.toml; '
            f"or name the code yourself: {found.reference}."
        )
    return found.reference, found.folder


def _harness(module: str, attribute: str, folder: str) -> Harness:
    reference = f"{module}:{attribute}"
    sys.path.insert(0, folder)
    try:
        found: object = import_module(module)
    except EvenerError:
        raise  # a key that is missing, for example, where the harness is made
    except Exception as error:
        if not module or (isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")):
            raise UsageError(f"The harness {reference} cannot be loaded from {folder}: {error}. Check the module.") from error
        raise UsageError(
            f"The harness {reference} cannot be loaded: {blame(error)}. Correct the module, then try again."
        ) from error
    finally:
        sys.path.remove(folder)
    try:
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError as error:
        raise UsageError(f"The harness {reference} cannot be loaded from {folder}: {error}. Check the attribute.") from error
    if not isinstance(found, Harness):
        raise UsageError(f"{module}:{attribute} is a {type(found).__name__}, not a Harness. Name the Harness object itself.")
    return found


def blame(error: Exception) -> str:
    """Describe an error raised by the user's own module, with its file and line."""
    if isinstance(error, SyntaxError):
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    last = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")][-1]
    return f"{last.filename}, line {last.lineno}: {type(error).__name__}: {error}"
