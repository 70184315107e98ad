"""Others' servers and the official suite: the short form of `python -m bench mcp-servers` and `python -m bench mcp`."""

import pytest

from bench.mcp_reference import SERVERS, play
from bench.mcp_suite import Suite, run_client
from bench.npm_packages import NoNode

WIRES = {
    "everything": ("anthropic_messages", "gemini"),
    "filesystem": ("openai_responses", "openai_chat"),
    "memory": ("gemini", "openai_responses"),
    "git": ("openai_chat", "anthropic_messages"),
    "time": ("openai_responses", "gemini"),
}


@pytest.mark.parametrize("name", SERVERS)
def test_a_reference_server_is_used_by_the_loop_on_two_wires(name: str) -> None:
    """S2.77, S3.24 (C9): the names are the same in the schemas and in the history, and every wire takes them."""
    for wire in WIRES[name]:
        try:
            assert play(SERVERS[name], wire, own=False) == []
        except NoNode as why:
            pytest.skip(f"the servers from npm cannot be had: {why}")


@pytest.mark.parametrize(
    "scenario", ["tools_call", "http-custom-headers", "auth/pre-registration", "sep-2322-client-request-state"]
)
def test_the_official_suite_accepts_our_connections(scenario: str) -> None:
    try:
        suite = Suite.install(own=False)
    except NoNode as why:
        pytest.skip(f"the conformance suite cannot be had: {why}")
    verdict = run_client(suite, scenario)
    assert (verdict.passed, verdict.detail) == (True, "")
