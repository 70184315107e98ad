"""A tool, the decorator that makes one from a function, and the toolbox: an immutable mapping from names to tools."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    get_args,
    overload,
)

import msgspec
from msgspec.structs import force_setattr

from evener.errors import UsageError
from evener.tools.arguments import ArgumentReader, ReadArguments, converter, unchanged, unenforced_by_types
from evener.tools.context import ToolContext
from evener.tools.result import Envelope, report_failure
from evener.tools.schema import Problem, close_schema, root_schema
from evener.tools.signature import Callee, Function, check_takes_one, check_verifies, describe, name_of, read_signature
from evener.tools.validation import Validator
from evener.transcript.ask import ToolSpec
from evener.transcript.blocks import check_choice, check_number, check_text, check_type, json_object, json_text

if TYPE_CHECKING:  # defaults of type variables are for checkers, which know them on any Python
    from typing_extensions import ParamSpec as DefaultParamSpec
    from typing_extensions import TypeVar as DefaultTypeVar

    Needs = DefaultTypeVar("Needs", contravariant=True, default=Any)
    Given = DefaultParamSpec("Given", default=...)
    Returned = DefaultTypeVar("Returned", covariant=True, default=object)
else:
    Needs = TypeVar("Needs", contravariant=True)
    Given = ParamSpec("Given")
    Returned = TypeVar("Returned", covariant=True)
D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")

Effect = Literal["read", "idempotent", "write"]
"""`read` may be repeated, `idempotent` may be repeated with the same key, `write` is never repeated by us."""
EFFECTS: tuple[str, ...] = get_args(Effect)

Empty: Mapping[str, object] = MappingProxyType({})

TIMEOUT = 60.0
RETRIES = 2
OUTPUT_LIMIT = 50_000


class CallOptions(TypedDict, total=False):
    """The fields of a tool that control how its calls run: keywords of `tool` and of `Tool.of`."""

    effect: Effect
    sequential: bool
    timeout: float | None
    retries: int
    approval: bool
    verify: Function | None
    metadata: Mapping[str, object]
    output_limit: int


class Tool(msgspec.Struct, Generic[Needs], frozen=True, kw_only=True, eq=False):
    """Everything that a run needs to know about a tool. `Needs` is the type of the dependencies that its function requires.

    `timeout` is in seconds; None means none. `retries` is how often, in one run, the model may correct an invalid call.
    `sequential` runs the whole batch of calls one by one. With `approval`, each call needs approval. `verify` takes the same
    arguments as the function and says, after a crash, whether a call took effect (True, False, or None: unknown).
    `output_limit` is in characters: longer text is spilled. `metadata` is for the program. `hidden`: requests do not declare
    the tool until a result reveals it (`find_tools_tool`); it can be called in any case. `inner` are tools of runs inside
    its calls: decisions about their calls are checked against these. `asks` names an argument: a call that has it needs
    approval, whatever a policy allows. `callee` and `verifier` are always derived from the functions.
    """

    spec: ToolSpec
    function: Function
    arguments: ArgumentReader
    effect: Effect = "write"
    sequential: bool = False
    timeout: float | None = TIMEOUT
    retries: int = RETRIES
    approval: bool = False
    verify: Function | None = None
    metadata: Mapping[str, object] = Empty
    output_limit: int = OUTPUT_LIMIT
    hidden: bool = False
    inner: "tuple[Tool, ...]" = ()
    asks: str = ""
    callee: Callee | None = None
    verifier: Callee | None = None

    def __post_init__(self) -> None:
        check_choice(self.effect, EFFECTS, f"The effect of {self.name!r}")
        if not callable(self.function) or (self.verify is not None and not callable(self.verify)):
            raise UsageError(f"The function of the tool {self.name!r}, and its `verify` if it has one, must be callable.")
        if not self.name:
            raise UsageError("A tool needs a name. Give one with name=...")
        self._check_options()
        force_setattr(self, "metadata", MappingProxyType(dict(self.metadata)))
        force_setattr(self, "callee", Callee.of(self.function))
        force_setattr(self, "verifier", None if self.verify is None else Callee.of(self.verify))

    def _check_options(self) -> None:
        """Refuse an option that is not what it has to be."""
        for name in ("sequential", "approval", "hidden"):
            check_type(getattr(self, name), (bool,), f"`{name}` of the tool {self.name!r}")
        for name in ("timeout", "retries", "output_limit"):
            check_number(getattr(self, name), f"`{name}` of the tool {self.name!r}", whole=name != "timeout")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"The timeout of {self.name!r} must be above 0 seconds, or None for none; not {self.timeout}.")
        if self.retries is None or self.output_limit is None or self.retries < 0 or self.output_limit < 1:
            raise UsageError(f"The retries of {self.name!r} must be at least 0, and its output_limit at least 1.")
        if not isinstance(self.metadata, Mapping):
            raise UsageError(
                f"`metadata` of the tool {self.name!r} takes a mapping of your own; not {type(self.metadata).__name__}."
            )

    @classmethod
    def of(
        cls,
        name: str,
        schema: str | Mapping[str, object] | type,
        *,
        function: Function,
        description: str | None = None,
        hidden: bool = False,
        **options: Unpack[CallOptions],
    ) -> "Tool":
        """Make a tool whose function takes its arguments as one value: a dict that fits a JSON Schema, or a value of a type.

        A JSON Schema that leaves open whether an object takes unknown fields is closed; say `additionalProperties: true`
        to allow them.
        """
        check_takes_one(function)
        where = f"The schema of {name!r}"
        arguments, text = _read_type(schema, where) if isinstance(schema, type) else _read_schema(schema, where)
        return cls(
            spec=ToolSpec(name, describe(function) if description is None else description, text),
            function=function,
            arguments=arguments,
            hidden=hidden,
            **options,
        )

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        return self.spec.name

    @property
    def description(self) -> str:
        """The description for the model."""
        return self.spec.description

    @property
    def schema(self) -> str:
        """The JSON text of the schema of its arguments."""
        return self.spec.schema

    @property
    def unenforced(self) -> tuple[str, ...]:
        """The parts of the schema that are not validated before the function is called, each with its place and the reason."""
        return self.arguments.unenforced

    @property
    def awaits(self) -> bool:
        """True if the function is async; others run in a thread."""
        return self.callee is not None and self.callee.awaits

    def read(self, raw: str) -> ReadArguments | tuple[Problem, ...]:
        """Return the arguments in a call's JSON text, ready for the function, or what is wrong with them."""
        return self.arguments.read(raw)


class FunctionTool(Tool[Needs], Generic[Needs, Given, Returned], frozen=True, kw_only=True, eq=False):
    """A tool that was made from a function, and can still be called like it."""

    def __call__(self, *args: Given.args, **kwargs: Given.kwargs) -> Returned:
        """Call the function itself: no check, no approval, no log."""
        return cast(Returned, self.function(*args, **kwargs))


class ToolOptions(CallOptions, total=False):
    """The keywords of `tool`."""

    name: str
    description: str | None


class ToolMaker(Protocol):
    """What `tool(...)` returns without a function: it makes a tool from the function that follows."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[ToolContext[D], P], R]
    ) -> FunctionTool[D, Concatenate[ToolContext[D], P], R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> FunctionTool[object, P, R]: ...


@overload
def tool(
    function: Callable[Concatenate[ToolContext[D], P], R], **options: Unpack[ToolOptions]
) -> FunctionTool[D, Concatenate[ToolContext[D], P], R]: ...
@overload
def tool(function: Callable[P, R], **options: Unpack[ToolOptions]) -> FunctionTool[object, P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> ToolMaker: ...
def tool(
    function: Function | None = None,
    *,
    name: str = "",
    description: str | None = None,
    **options: Unpack[CallOptions],
) -> FunctionTool | ToolMaker:
    """Make a tool from a function's signature and docstring; usable as `@tool`, `@tool(...)`, and on bound methods."""

    def make(function: Function) -> FunctionTool:
        if isinstance(function, Tool):
            raise UsageError(
                f"{function.name!r} is a tool already. To make another tool, use tool({function.name}.function, ...)."
            )
        if not callable(function):
            raise UsageError(f"A tool is made from a function, not from {type(function).__name__}.")
        signature = read_signature(function)
        where = f"The tool {name or name_of(function)!r}"
        _check_words(function, description, where)
        verify = options.get("verify")
        if callable(verify):
            check_verifies(verify, signature.converters, where)
        validator = Validator(signature.schema, where=where)
        return FunctionTool(
            spec=ToolSpec(
                name or name_of(function),
                describe(function) if description is None else description,
                json_text(signature.schema, where),
            ),
            function=function,
            arguments=ArgumentReader(
                validator, signature.converters, unenforced=unenforced_by_types(validator), typed=signature.typed
            ),
            **options,
        )

    return cast(ToolMaker, make) if function is None else make(function)


def _check_words(function: Function, description: str | None, where: str) -> None:
    """Refuse a description that is there and says nothing: the model would have to guess from the name."""
    if description is not None:
        check_text(description, f"{where}: its description")
    text = function.__doc__ if description is None else description
    if text is not None and not text.strip():
        raise UsageError(f"{where} has an empty description. Say in its docstring what it does, and when to call it.")


def _read_type(kind: type, where: str) -> tuple[ArgumentReader, str]:
    schema = root_schema(kind, where)
    if schema.get("type") != "object":
        raise UsageError(f"{where}: the arguments of a tool are an object. Use a class with named fields, or a dict.")
    validator = Validator(schema, where=where)
    arguments = ArgumentReader(validator, one=converter(kind, where), unenforced=unenforced_by_types(validator))
    return arguments, json_text(schema, where)


def _read_schema(schema: str | Mapping[str, object], where: str) -> tuple[ArgumentReader, str]:
    text = schema if isinstance(schema, str) else json_text(schema, where)
    shape = json_object(text, where)
    kind = shape.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise UsageError(f"{where}: the arguments of a tool are an object. Set its type to 'object'.")
    whole = '"$ref":"#"' in json_text(shape, where)  # what refers to the root may be more than an object
    narrow = close_schema(shape if whole else {**shape, "type": "object"})
    text = text if narrow == shape else json_text(narrow, where)
    validator = Validator(narrow, where=where)
    return ArgumentReader(validator, one=unchanged, unenforced=validator.unenforced), text


MOST_NAMED = 50


class Toolbox(Mapping[str, Tool]):
    """Name -> tool, in the given order. A function is made a tool. Adding a tool creates another box."""

    __slots__ = ("_specs", "_tools")

    def __init__(self, tools: Iterable[Tool | Callable[..., object]] = ()) -> None:
        held: dict[str, Tool] = {}
        for given in tools:
            one = given if isinstance(given, Tool) else tool(given)
            if one.name in held:
                raise UsageError(f"Two tools are named {one.name!r}. Give one of them another name with tool(..., name=...).")
            held[one.name] = one
        self._tools: Mapping[str, Tool] = MappingProxyType(held)
        self._specs = tuple(one.spec for one in held.values())

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The descriptions for the model; the same tuple each time."""
        return self._specs

    def add(self, *tools: Tool | Callable[..., object]) -> "Toolbox":
        """Return a box with these tools as well."""
        return Toolbox((*self._tools.values(), *tools))

    def without(self, *names: str) -> "Toolbox":
        """Return a box without the tools of these names."""
        for name in names:
            if name not in self._tools:
                raise UsageError(f"There is no tool {name!r} to remove. The tools are {self._names()}.")
        return Toolbox(one for one in self._tools.values() if one.name not in names)

    def unknown(self, name: str) -> Envelope:
        """Return the result for a call of a tool that does not exist."""
        near = get_close_matches(name[:200], self._tools, n=3)
        hint = f"Did you mean {' or '.join(map(repr, near))}? " if near else ""
        return report_failure(f"There is no tool {name[:200]!r}. {hint}The tools are: {self._names()}.", retry=True)

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"

    def _names(self) -> str:
        names = ", ".join(list(self._tools)[:MOST_NAMED])
        more = len(self._tools) - MOST_NAMED
        return f"{names} and {more} more" if more > 0 else names or "none"
