"""A thousand planted secrets, in the environment, in denied files and in headers: no sink of a run has one of them in clear."""

import asyncio
import os
import re
from pathlib import Path
from random import Random

import pytest

from evener import Harness, tool
from evener.store import SqliteStore
from evener.store.transfer.jsonl import export_lines
from evener.testing import ScriptedModel, calls
from evener.toolset.sets import tools_named
from evener.toolset.shell.sandbox import bwrap_works, landlock_works
from evener.transcript import ToolCall
from evener.transport.secrets import note_secret
from tests.store.extras.stores import leftovers

_random = Random(18)
SECRETS = [f"planted-{number:04}-{_random.randbytes(12).hex()}" for number in range(1_000)]
IN_ENVIRONMENT, IN_FILES, IN_HEADERS = SECRETS[:334], SECRETS[334:667], SECRETS[667:]
CLEAR = re.compile(r"planted-\d{4}-[0-9a-f]{24}")
SANDBOX = landlock_works() and bwrap_works()
FILES = (".env", "id_rsa", "deep/server.pem", "deep/.aws/credentials")


@pytest.mark.skipif(bool(SANDBOX), reason=f"no sandbox works here: {SANDBOX}")
def test_no_sink_has_a_planted_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S1.28."""
    root = tmp_path / "root"
    for number, secret in enumerate(IN_ENVIRONMENT):
        monkeypatch.setenv(f"PLANTED_{number}_TOKEN", secret)
    for number, name in enumerate(FILES):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("\n".join(IN_FILES[number :: len(FILES)]))
    for secret in IN_HEADERS:
        note_secret(secret)

    @tool(effect="read")
    def echo() -> str:
        """Return all headers, as a careless tool would."""
        return "\n".join(f"authorization: Bearer {secret}" for secret in IN_HEADERS)

    @tool(effect="read")
    def fail() -> str:
        """Fail with all headers in the message."""
        raise ValueError(" ".join(IN_HEADERS))

    dump = "env; export -p; set; cat /proc/self/environ /proc/$PPID/environ; for p in /proc/[0-9]*; do cat $p/environ; done"
    asked: list[tuple[str, dict[str, object]]] = [
        ("shell", {"command": dump}),
        ("shell", {"command": f"cat {' '.join(FILES)}; grep -r planted ."}),
        ("shell", {"command": "grep -a planted /proc/*/environ /proc/*/cmdline; cp -r . /tmp/all; cat /tmp/all/.env"}),
        ("shell", {"command": "cat .env > copy; ln -s .env link; cat copy link"}),
        ("search", {"pattern": "planted"}),
        ("search", {"pattern": ".", "path": "deep", "context": 5}),
        ("glob", {"pattern": "**"}),
        ("echo", {}),
        ("fail", {}),
    ]
    for name in (*FILES, "link", "deep/../.env"):
        edits: dict[str, object] = {"path": name, "edits": [{"old": "planted", "new": "x"}]}
        asked += [("read", {"path": name}), ("search_jsonl", {"path": name}), ("edit", edits)]
    made = [calls(ToolCall.of(f"call-{number}", name, given)) for number, (name, given) in enumerate(asked)]
    tools = [*tools_named(["files", "search", "shell", "jsonl"], root=root, approval=False), echo, fail]

    async def main() -> str:
        sinks: list[str] = []
        (tmp_path / "store").mkdir()
        store = SqliteStore(tmp_path / "store" / "evener.db")
        for one in made:
            model = ScriptedModel([one, "Done."])
            result = await Harness(model, tools=tools, store=store).run("Show me all that you find.")
            assert result.text == "Done."
            sinks.append(f"{result!r} {result.records!r}")
            sinks.append(repr(model.asks[-1].transcript.messages))
            sinks += [line.decode(errors="replace") async for line in export_lines(store, result.thread)]
        sinks.append(leftovers(tmp_path / "store").decode(errors="replace"))
        await store.aclose()
        return "\n".join(sinks)

    shown = asyncio.run(main())
    found = set(CLEAR.findall(shown)) & set(SECRETS)
    planted = "".join((root / name).read_text() for name in FILES)
    assert len(set(CLEAR.findall(planted + repr(dict(os.environ))))) == 667  # they are there
    assert sorted(found)[:5] == []
