"""Tools that agents use: files, search, shell, JSONL, web pages, a browser, to-dos, questions. Loaded when they are used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evener.toolset.fence import Fence
    from evener.toolset.files import FileTools
    from evener.toolset.searching import SearchTools
    from evener.toolset.shell.tools import ShellTools

__all__ = ["Fence", "FileTools", "SearchTools", "ShellTools"]

_HOMES = {
    "Fence": "evener.toolset.fence",
    "FileTools": "evener.toolset.files",
    "SearchTools": "evener.toolset.searching",
    "ShellTools": "evener.toolset.shell.tools",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'evener.toolset' has no attribute {name!r}")
    return getattr(import_module(home), name)
