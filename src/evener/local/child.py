"""The child process: llama.cpp's HTTP server, and nothing else. Started as a file; imports nothing of Evener.

It reads one line of settings from its standard input, the key among them, and writes one marked line back: the address, or
why there is none. Then it waits for its input to end. That happens when the parent closes it or ends in any way, a kill
included: so the child never outlives its parent.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1
WARNINGS = 2
"""llama.cpp's level: what goes wrong, and no prompts."""
PROMPT_CACHE_MIB = 512
"""Memory for prompts whose slot another conversation has taken. llama.cpp's own default is 8 GiB."""


def main() -> None:
    """Run until the parent has ended."""
    settings = json.loads(sys.stdin.buffer.readline())
    die_with(settings["parent"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C: it may want to finish a turn
    sys.path[:] = settings["path"]
    server, said = None, {}
    try:
        server = serve(settings)
        said = {"address": server.listening_address}
    except Exception as error:  # the parent reports it to the user
        said = {"error": f"{type(error).__name__}: {error}"[:500]}
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"\n{settings['mark']} {json.dumps(said)}\n".encode())  # the log may have left a line unfinished
    if server is not None:
        sys.stdin.buffer.read()
    os._exit(0)  # the library's own shutdown would wait for requests whose responses are no longer read


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, also while the weights are loaded. Only on Linux."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def serve(settings: dict[str, Any]) -> Any:
    """Start llama.cpp's server, and return it. Its waiting threads sleep instead of spinning.

    Spinning on a busy machine would make an answer of one second take half a minute.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.model_alias = {settings["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0  # the kernel picks a free one
    params.api_keys = [settings["key"]]
    params.n_parallel = settings["parallel"]
    params.n_ctx = settings["context"] * settings["parallel"]
    params.cpuparams.n_threads = settings["threads"] or max(1, cores() - 1)
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.verbosity = WARNINGS
    params.ui = False
    params.endpoint_slots = False
    return xllamacpp.Server(params)


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


if __name__ == "__main__":
    main()
