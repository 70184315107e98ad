"""Large output that holds a secret is stored without it, and the model is told the name that it is stored under."""

import re

from evener.events import CallFinished
from evener.store import MemoryStore
from evener.store.redaction import Funnel
from evener.tools import Toolbox, tool
from evener.tools.call import Caller, CallSite, Threads
from evener.transcript import TextBlock, ToolCall
from tests.store.stores import run

SECRET = "sk-Spilled-1234567890"


@tool(effect="read", output_limit=400)
def print_environment() -> str:
    """Says too much."""
    return "line of output\n" * 200 + f"KEY={SECRET}\n" + "line of output\n" * 200


def test_what_is_spilled_is_found_again_under_the_name_that_is_told() -> None:
    async def scenario() -> None:
        store = MemoryStore(funnel=Funnel(secrets=lambda: [SECRET]))
        caller = Caller(Toolbox([print_environment]), threads=Threads(), shelf=store)
        site = CallSite("r", "k", lambda *_: None)
        finished = await caller.run(ToolCall.of("c", "print_environment", {}), site)
        assert isinstance(finished, CallFinished)
        assert finished.spilled is not None
        [block] = finished.content
        assert isinstance(block, TextBlock)
        [name] = {*re.findall(r"[0-9a-f]{64}", block.text), finished.spilled.id}
        assert b"KEY=[secret]" in await store.get_blob(name)

    run(scenario())
