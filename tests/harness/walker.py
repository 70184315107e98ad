"""Runs one prompt in this process and prints the files under src/evener of which a function ran, as JSON.

Called by `test_walk` in a fresh process, with a model and a server's address. Nothing else is set: the store is a SQLite
file and traces are on, as they are by default. A module body and a class body are no functions. What runs while a module of
ours is imported is told apart, and so is the thread that writes traces, which gets a run when its result is there.
"""

import asyncio
import inspect
import json
import sys
import threading
from types import FrameType

ROOT = "/src/evener/"
RECORDER = "evener-traces"
found: dict[str, set[str]] = {}
beside: dict[str, set[str]] = {}
importing: dict[int, int] = {}  # by thread: how many module bodies of ours are being run


def watch(frame: FrameType, event: str, _argument: object) -> None:
    code = frame.f_code
    place = code.co_filename.rfind(ROOT)
    if place < 0 or event not in ("call", "return"):
        return
    me = threading.get_ident()
    if code.co_name == "<module>":
        importing[me] = importing.get(me, 0) + (1 if event == "call" else -1)
    elif event == "call" and code.co_flags & inspect.CO_OPTIMIZED:
        name = threading._active[me].name  # type: ignore[attr-defined]  # current_thread() would be traced itself
        functions = beside if importing.get(me) or name == RECORDER else found
        functions.setdefault(code.co_filename[place + len(ROOT) :], set()).add(code.co_qualname)


def main(model: str, url: str) -> None:
    sys.setprofile(watch)
    threading.setprofile(watch)
    from evener import Harness, open_model

    opened = open_model(model, base_url=url, key="sk-test", environ={})
    result = asyncio.run(Harness(opened).run("Hi"))
    sys.setprofile(None)
    threading.setprofile(None)
    print(json.dumps({"text": result.text, "files": list_files(found), "beside": list_files(beside)}))


def list_files(functions: dict[str, set[str]]) -> dict[str, list[str]]:
    return {file: sorted(names) for file, names in sorted(functions.items()) if not file.startswith("testing/")}


if __name__ == "__main__":
    main(*sys.argv[1:])
