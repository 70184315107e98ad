"""The smallest interface: a model, functions, their schemas, a question; returns the answer as text."""

from collections.abc import Callable, Iterable, Mapping

from evener.errors import LimitReached, UsageError
from evener.events import Limits
from evener.harness.harness import Harness
from evener.model.seam import Askable
from evener.tools.tool import Tool

ITERATIONS = 20


def run(
    provider: str | Askable,
    tools: Mapping[str, Callable[..., object]] | None = None,
    *,
    tool_schemas: Iterable[Mapping[str, object]] = (),
    user_message: str,
    system: str | None = None,
    iterations: int = ITERATIONS,
) -> str:
    """Ask the model, run the calls that it makes, and repeat until it answers. Nothing is stored.

    A schema is `{"name", "description", "input_schema"}`; `parameters` is also accepted instead of `input_schema`. The function
    of that name gets the arguments by name. Raises LimitReached if there is no answer after `iterations` requests.
    """
    made = [_tool(schema, tools or {}) for schema in tool_schemas]
    limits = Limits(requests=iterations, tool_calls=None)
    result = Harness(provider, tools=made, system=system, store="memory", limits=limits).run_sync(user_message)
    if not result.ok and result.stop != "refusal":
        raise LimitReached(
            f"The model gave no final answer ({result.stop}): {result.detail} Raise `iterations`, or ask for less."
        )
    return result.text


def _tool(schema: Mapping[str, object], functions: Mapping[str, Callable[..., object]]) -> Tool:
    name = str(schema.get("name", ""))
    function = functions.get(name)
    if function is None:
        raise UsageError(f"There is a schema for the tool {name!r}, but no function. Give one: tools={{{name!r}: ...}}.")
    shape = schema.get("input_schema", schema.get("parameters", {"type": "object", "properties": {}}))
    if not isinstance(shape, Mapping):
        raise UsageError(f"The input_schema of the tool {name!r} is not a JSON Schema. Give a mapping.")

    def call(arguments: dict[str, object]) -> object:
        return function(**arguments)

    return Tool.of(name, shape, function=call, description=str(schema.get("description", "")))
