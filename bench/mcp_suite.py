"""The official conformance suite of MCP, scenario by scenario: our connections as its client, `evener mcp` as its server.

    python -m bench mcp                       all client scenarios of the requirement set, and the server scenarios that apply
    python -m bench mcp --scenario tools_call one of them

The suite starts everything at once, if it is let; on a small machine its own deadlines then expire. So one follows the other.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.mcp_reference import npm_alone
from bench.npm_packages import NoNode

__all__ = ["CLIENT", "SERVER", "Suite", "main", "run_client"]

ROOT = Path(__file__).parent.parent
SUITE = {"@modelcontextprotocol/conformance": "0.2.0-alpha.12"}
NEWEST = 22
"""The Node that the suite needs, at least."""
REVISION = "2026-07-28"
SECONDS = 180
CLIENT = """
tools_call request-metadata auth/metadata-default auth/metadata-var1 auth/metadata-var2 auth/metadata-var3 auth/basic-cimd
auth/scope-from-www-authenticate auth/scope-from-scopes-supported auth/scope-omitted-when-undefined auth/scope-step-up
auth/scope-retry-limit auth/token-endpoint-auth-basic auth/token-endpoint-auth-post auth/token-endpoint-auth-none
auth/pre-registration auth/resource-mismatch auth/offline-access-scope auth/offline-access-not-supported
auth/authorization-server-migration auth/iss-supported auth/iss-not-advertised auth/iss-supported-missing auth/iss-wrong-issuer
auth/iss-unexpected auth/iss-normalized auth/metadata-issuer-mismatch sep-2322-client-request-state http-standard-headers
http-custom-headers http-invalid-tool-headers json-schema-ref-no-deref
""".split()
"""The client scenarios of the requirement set; `main` compares them with the suite's own list."""
SERVER = """
server-stateless tools-list tools-call-simple-text tools-call-image tools-call-error tools-call-with-progress
server-sse-multiple-streams dns-rebinding-protection caching http-header-validation
""".split()
"""The server scenarios about tools and the transport: a harness has no resources, prompts or completions to serve."""
INAPPLICABLE = {
    "sep-2575-server-rejects-undeclared-capability": "no tool of a harness asks the caller for sampling",
    "sep-2575-missing-capability-http-400": "no tool of a harness asks the caller for sampling",
}
"""Checks that call a tool of the suite's own fixture which a harness cannot have."""


class Verdict(msgspec.Struct, frozen=True):
    """What the suite says of one scenario. `detail` is the output where it did not pass."""

    scenario: str
    passed: bool
    checks: str
    detail: str = ""


class Suite(msgspec.Struct, frozen=True):
    """The suite's program, and the environment to run it in."""

    program: str
    environ: dict[str, str]

    @classmethod
    def install(cls, *, own: bool) -> "Suite":
        """Return the suite, installed once. Raises NoNode if it cannot be had; `own`: with a Node of its own, if need be."""
        folder, programs = npm_alone("mcp-suite", SUITE, least=NEWEST, own=own)
        path = f"{programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return cls(str(folder / "node_modules" / ".bin" / "conformance"), {**os.environ, "PATH": path})


def main(only: str = "") -> int:
    """Run the scenarios and print a table; 1 if one did not pass, 2 if the suite cannot be had."""
    try:
        suite = Suite.install(own=True)
    except NoNode as why:
        print(f"not run: the suite cannot be installed: {why}")
        return 2
    odd = set(_required(suite)) ^ set(CLIENT)
    verdicts = [_show("client", run_client(suite, name)) for name in CLIENT if only in ("", name)]
    verdicts += [_show("server", one) for one in _servers(suite, [name for name in SERVER if only in ("", name)])]
    passed = sum(one.passed for one in verdicts)
    print(f"{passed} of {len(verdicts)} scenarios passed")
    if odd:
        print(f"the suite's list of client scenarios differs from ours: {', '.join(sorted(odd))}")
    return int(bool(odd) or passed < len(verdicts))


def run_scenario(suite: Suite, side: str, scenario: str, *target: str) -> Verdict:
    """Run one scenario against a command (`client`) or an address (`server`)."""
    with tempfile.TemporaryDirectory() as results:
        command = (suite.program, side, *target, "--scenario", scenario, "--spec-version", REVISION, "--force", "-o", results)
        command += ("--timeout", str(SECONDS * 500))
        try:
            done = subprocess.run(command, cwd=ROOT, env=suite.environ, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return Verdict(scenario, False, "", f"no end within {SECONDS} seconds")
        found = [one for file in Path(results).rglob("checks.json") for one in msgspec.json.decode(file.read_bytes())]
    judged = [one for one in found if one["status"] in ("SUCCESS", "FAILURE") and one["id"] not in INAPPLICABLE]
    failed = [one for one in judged if one["status"] == "FAILURE"]
    left = len([one for one in found if one["id"] in INAPPLICABLE])
    checks = f"{len(judged) - len(failed)}/{len(judged)}{f', {left} do not apply' if left else ''}"
    ran = bool(judged) and (side == "server" or done.returncode == 0)
    told = [f"{one['id']}: {one.get('errorMessage', '')}" for one in failed] or [(done.stdout + done.stderr)[-2_000:]]
    passed = ran and not failed
    return Verdict(scenario, passed, checks, "" if passed else "\n".join(told))


def _required(suite: Suite) -> list[str]:
    command = (suite.program, "list", "--requirements", REVISION)
    said = subprocess.run(command, env=suite.environ, capture_output=True, text=True, timeout=SECONDS).stdout
    clients = said.partition("Client scenarios")[2].partition("\n\n")[0]
    return re.findall(r"^\s+- (\S+)$", clients, re.MULTILINE)


def run_client(suite: Suite, scenario: str) -> Verdict:
    """Run one client scenario with our connections."""
    return run_scenario(suite, "client", scenario, "--command", f"{sys.executable} -m bench.mcp_client")


def _servers(suite: Suite, scenarios: Sequence[str]) -> Iterator[Verdict]:
    if not scenarios:
        return
    with serve() as url:
        for scenario in scenarios:
            yield run_scenario(suite, "server", scenario, "--url", url)


@contextmanager
def serve() -> Iterator[str]:
    """Run `evener mcp --http` with tools of the kinds that the suite calls; give its address."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = (sys.executable, "-m", "evener", "mcp", "--harness", "bench.mcp_served:harness", "--http", str(port))
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(30)


def _show(side: str, verdict: Verdict) -> Verdict:
    print(f"{side:7}{verdict.scenario:40}{'passed' if verdict.passed else 'FAILED':8}{verdict.checks}", flush=True)
    if verdict.detail:
        print(verdict.detail, flush=True)
    return verdict
