"""One generateContent request as a whole: its fields, and which rules apply to it. Pure and total."""

from collections.abc import Iterator, Mapping

from evener.testing.check.gemini.config import check_config
from evener.testing.check.gemini.contents import check_content, check_contents
from evener.testing.check.gemini.fields import BODY, check_message, read
from evener.testing.check.gemini.tools import check_tools
from evener.testing.check.gemini.turns import check_turns, turns_of
from evener.testing.check.models import gemini
from evener.testing.check.scope import Scope
from evener.testing.check.shape import text
from evener.testing.check.violation import Violation


def check(body: Mapping[str, object], scope: Scope) -> Iterator[Violation]:
    """Yield every reason why the API would refuse this body. The model stands in the address, so the caller has to name it."""
    held, platform = read(body, BODY), scope.dialect
    row = gemini(scope.model or text(held.get("model")))
    cached = "cachedContent" in held
    yield from check_message("", body, BODY, platform)
    yield from check_contents(held.get("contents"), row, platform)
    if isinstance(held.get("systemInstruction"), dict):
        yield from check_content("systemInstruction", held["systemInstruction"], row, platform)
    yield from check_turns(turns_of(held.get("contents")), row, cached=cached)
    yield from check_tools(held, row, platform)
    yield from check_config(held, row, platform)
    for name in ("systemInstruction", "tools", "toolConfig"):
        if cached and name in held:
            message = "CachedContent can not be used with a request setting system_instruction, tools or tool_config."
            yield Violation(name, "cached_content", message)
