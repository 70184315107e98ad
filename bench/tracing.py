"""What traces cost the loop, and what a backend makes of them.

`tracing` counts the instructions of the loop's own thread with valgrind: traces off, written to files, and sent to a collector
that is dead, slow, or refuses. `mlflow` starts MLflow from a wheel in an environment of its own, sends it a run by OTLP, and
reads back what it shows.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from signal import SIGKILL, SIGTERM
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any
from urllib.request import Request, urlopen

from bench.instructions import compare_turns
from bench.peers import Missing, Peer, environment
from evener import Harness, SqliteStore, tool
from evener.cli.commands.stored.trace import read_spans
from evener.errors import EvenerError
from evener.harness import Subagent
from evener.model import open_model
from evener.observe.otlp import send_all
from evener.testing import Call, FakeServer, Text, turn
from evener.testing.scripted_model import ScriptedModel

__all__ = ["main", "mlflow"]

WIRE = "openai_responses"
UNSET = {"EVENER_TRACE_CONTENT": "", "EVENER_OTLP": ""}
SECONDS = 900
MLFLOW = ("3.18.0", "3.17.2")
"""Versions to try. A registry may have the one and lack a part of it."""
MOST = 1.02
"""What the loop may cost with traces, against without."""


def main() -> int:
    """Print the instructions of a turn in the loop's thread for each collector; the exit code."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("bench: instructions are counted by valgrind, and there is none. Install the package valgrind.", file=sys.stderr)
        return 1
    with TemporaryDirectory(prefix="evener-traces-") as folder, collecting(0.0) as refusing, collecting(60.0) as slow:
        files = {"EVENER_TRACES": f"{folder}/traces"}
        cases = {
            "off": {"EVENER_TRACES": "off"},
            "files": files,
            "files, content": {**files, "EVENER_TRACE_CONTENT": "on"},
            "collector dead": {**files, "EVENER_OTLP": f"http://127.0.0.1:{closed_port()}"},
            "collector slow": {**files, "EVENER_OTLP": slow},
            "collector refuses": {**files, "EVENER_OTLP": refusing},
        }
        each = compare_turns(valgrind, {name: {"wire": WIRE, "env": {**UNSET, **env}} for name, env in cases.items()})
    print(f"{'traces':20}{'thousands of instructions a turn, in the thread of the loop':>60}{'against off':>14}")
    for name, count in each.items():
        print(f"{name:20}{count:60,.1f}{count / each['off']:14.4f}")
    worst = max(each.values()) / each["off"]
    print(f"the most: {worst:.4f}; the bar is {MOST}")
    return 0 if worst <= MOST else 1


@contextmanager
def collecting(wait: float) -> Iterator[str]:
    """Run a collector that answers 503, after so many seconds; its address."""
    over = threading.Event()

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            over.wait(wait)
            self.send_response(503)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def closed_port() -> int:
    """Return a port of loopback at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# MLflow.


@tool(effect="read")
def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 3 kg"


async def _talk(store: SqliteStore) -> str:
    """Run an agent with a call and an agent inside it, against a fake provider; its thread."""
    helper = Harness(ScriptedModel(["It is heavy."]), store="memory")
    inner = Subagent(name="helper", harness=helper, description="Judges.")
    script = [turn(Call("weigh", {"what": "iron"})), turn(Call("helper", {"task": "judge"})), turn(Text("It is heavy."))]
    with FakeServer(WIRE, script, models=("gpt-5.5",)) as server:
        model = open_model("openai:gpt-5.5", key="not-a-key", base_url=server.url)
        shop = Harness(model, tools=[weigh], agents=[inner], store=store, name="shop")
        result = await shop.run("How heavy is iron?")
    return result.thread


def mlflow() -> int:
    """Send a run to MLflow, and print what it shows of it; the exit code."""
    python = _find_mlflow()
    if python is None:
        return 1
    with TemporaryDirectory(prefix="evener-mlflow-") as folder, _mlflow_server(python, Path(folder)) as url:
        experiment = _post(f"{url}/api/2.0/mlflow/experiments/create", {"name": "evener"})["experiment_id"]
        thread = _send(Path(folder), url, str(experiment))
        places: list[dict[str, Any]] = [{"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment}}]
        return _report(url, _wait_for(url, places), thread)


def _find_mlflow() -> Path | None:
    for version in MLFLOW:
        try:
            python = environment(Peer("", "mlflow", version), seconds=2 * SECONDS)
        except Missing as why:
            print(f"bench: MLflow {version} cannot be had: {str(why)[:160]}", file=sys.stderr)
            continue
        print(f"MLflow {version}", flush=True)
        return python
    return None


def _send(folder: Path, url: str, experiment: str) -> str:
    import asyncio

    async def work() -> str:
        store = SqliteStore(folder / "store.db")
        thread = await _talk(store)
        spans = await read_spans(store, thread, content=True)
        if not await asyncio.to_thread(send_all, spans, url, headers={"x-mlflow-experiment-id": experiment}):
            raise EvenerError("MLflow did not take the spans.")
        await store.aclose()
        return thread

    return asyncio.run(work())


def _wait_for(url: str, places: list[dict[str, Any]]) -> list[dict[str, Any]]:
    deadline = monotonic() + 60
    while monotonic() < deadline:
        found = _post(f"{url}/api/3.0/mlflow/traces/search", {"locations": places, "max_results": 10}).get("traces", [])
        if found:
            return list(found)
        sleep(0.5)
    return []


def _report(url: str, traces: list[dict[str, Any]], thread: str) -> int:
    """Print each trace with its spans, its tokens and its session; 1 if anything is not there."""
    wanted = {"trace": len(traces) == 1}
    for one in traces:
        told = one.get("trace_metadata", {})
        usage = json.loads(str(told.get("mlflow.trace.tokenUsage", "{}")))
        session = told.get("mlflow.trace.session", "")
        with urlopen(f"{url}/api/3.0/mlflow/traces/get?trace_id={one['trace_id']}", timeout=60) as answer:
            spans = json.loads(answer.read())["trace"]["spans"]
        print(f"trace    {one.get('trace_id')}  state {one.get('state')}  {one.get('execution_duration')}")
        print(f"asked    {one.get('request_preview', '')}\nanswered {one.get('response_preview', '')}")
        for span in spans:
            print(f"span     {span['name']}")
        print(f"tokens   {usage}\nsession  {session}")
        names = {span["name"].split(" ")[0] for span in spans}
        wanted |= {"tokens": bool(usage.get("total_tokens")), "session": session == thread}
        wanted |= {kind: kind in names for kind in ("invoke_agent", "chat", "execute_tool")}
    missing = [name for name, there in wanted.items() if not there]
    print("MLflow shows everything" if not missing else f"not shown: {', '.join(missing)}")
    return 1 if missing else 0


def _post(url: str, body: object) -> dict[str, Any]:
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=60) as answer:
        return dict(json.loads(answer.read()))


@contextmanager
def _mlflow_server(python: Path, folder: Path) -> Iterator[str]:
    port = closed_port()
    words = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    store = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")]
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen([python, *words, *store], cwd=folder, stdout=log, stderr=log, start_new_session=True)
        try:
            _await_server(server, f"http://127.0.0.1:{port}/health", folder / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(server)


def _end(server: "subprocess.Popen[bytes]") -> None:
    """End the server and its workers: they are one group."""
    for signal in (SIGTERM, SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal)
        with suppress(subprocess.TimeoutExpired):
            server.wait(20)


def _await_server(server: "subprocess.Popen[bytes]", url: str, log: Path) -> None:
    deadline = monotonic() + SECONDS
    while monotonic() < deadline and server.poll() is None:
        try:
            urlopen(url, timeout=5).close()
        except OSError:
            sleep(0.5)
        else:
            return
    raise RuntimeError(f"MLflow did not start: {log.read_text(errors='replace')[-800:]}")
