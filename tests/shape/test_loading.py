"""What stays unloaded: `import evener` and `evener --help` are quick because heavy modules wait until they are used."""

import subprocess
import sys

import pytest

IMPORT = "import evener"
HELP = (
    "import runpy; sys.argv = ['evener', '--help']; sys.stdout = sys.stderr\n"
    "try: runpy.run_module('evener', run_name='__main__')\n"
    "except SystemExit as stop: assert not stop.code, stop.code\n"
    "sys.stdout = sys.__stdout__"
)
HARNESS = "from evener import Harness"
TRANSPORT = "import evener.transport.http"
CASES = {
    IMPORT: "acp anthropic argparse asyncio email google http mcp openai pydantic sqlite3 ssl urllib.request".split(),
    HARNESS: "anthropic anyio asyncio email google httptools jsonschema_rs mcp openai pydantic re2 sqlite3 ssl urllib".split(),
    TRANSPORT: "hashlib httptools json random zlib".split(),
    HELP: "acp ag_ui anthropic anyio asyncio evener.acp evener.mcp evener.web google mcp openai pydantic sqlite3 ssl starlette "
    "uvicorn yaml".split(),
}
TERMINAL = "markdown_it prompt_toolkit pygments rich wcwidth".split()
"""What only a chat on a terminal needs; its Markdown waits for the first answer."""


def loaded(code: str) -> set[str]:
    """The modules that `code` adds to a fresh interpreter, beyond what its start-up has loaded."""
    script = f"import sys; before = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def unwanted(code: str, modules: list[str]) -> list[str]:
    return [name for name in sorted(loaded(code)) if any(f"{name}.".startswith(f"{module}.") for module in modules)]


def test_importing_evener_loads_nothing_heavy() -> None:
    assert unwanted(IMPORT, CASES[IMPORT] + TERMINAL) == []


def test_importing_the_harness_loads_nothing_that_only_a_run_needs() -> None:
    """What a harness is made of is loaded when one is made."""
    assert unwanted(HARNESS, CASES[HARNESS] + TERMINAL) == []
    assert len(loaded(HARNESS)) < 208  # half of the 417 that it once took


def test_the_transport_loads_nothing_that_a_plain_request_does_not_need() -> None:
    """The parser of chunks, the decompressor, and what retries and secrets need wait for the first use."""
    assert unwanted(TRANSPORT, CASES[TRANSPORT]) == []


def test_help_loads_nothing_heavy() -> None:
    assert unwanted(HELP, CASES[HELP] + TERMINAL) == []


def test_a_chat_without_a_terminal_loads_nothing_that_draws() -> None:
    assert unwanted("import evener.cli.chat, evener.cli.chat.linemode", TERMINAL) == []


def test_a_chat_on_a_terminal_loads_markdown_with_the_first_answer() -> None:
    assert unwanted("import evener.cli.chat.app", ["markdown_it", "pygments", "rich.markdown"]) == []


def test_naming_mcp_servers_loads_no_sdk() -> None:
    """S2.77: the SDK is loaded with the first connection."""
    code = "from evener.mcp import McpServer, McpServers; McpServers([McpServer(name='a', command='b')])"
    assert unwanted(code, ["anyio", "mcp", "mcp_types", "pydantic"]) == []


@pytest.mark.parametrize("module", ["asyncio", "email.message", "sqlite3"])
def test_a_heavy_import_is_caught(module: str) -> None:
    assert unwanted(f"import evener, {module}", CASES[IMPORT]) != []


def test_only_whole_names_count() -> None:
    assert unwanted("import json.decoder", ["jso", "decoder"]) == []
