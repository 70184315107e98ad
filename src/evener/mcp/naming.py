"""The names of MCP tools for a model: `mcp__server__tool`, in characters that every provider accepts. Pure."""

import re
from collections.abc import Collection
from hashlib import sha256

LONGEST = 64
OTHER = re.compile(r"[^A-Za-z0-9_-]")


def name_tool(server: str, tool: str, taken: Collection[str] = ()) -> str:
    """Return the name of a server's tool. One that was changed, is too long or is taken ends in a hash.

    So does one that could be read as a tool of another server: `b` of `a__x` and `x__b` of `a` are both `mcp__a__x__b`.
    """
    plain = f"mcp__{OTHER.sub('_', server)}__{OTHER.sub('_', tool)}"
    is_clear = plain == f"mcp__{server}__{tool}" and "__" not in server and not server.endswith("_")
    if len(plain) <= LONGEST and plain not in taken and is_clear:
        return plain
    mark = sha256(f"{server}\0{tool}".encode()).hexdigest()[:8]
    return f"{plain[: LONGEST - 9]}_{mark}"


def name_sampling(server: str) -> str:
    """Return the name of the tool by which a server asks the model. No tool of a server can have it."""
    return f"mcp_sampling__{OTHER.sub('_', server)}"[:LONGEST]
