"""Reads a function's signature and docstring: how it is described to the model, and how it is called. Pure.

A signature that cannot be described is a UsageError when the tool is made: a parameter without a type, a positional-only
one, `*args`, `**kwargs`. Evener passes a parameter annotated `ToolContext`; the model never sees it.
"""

import inspect
import types
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Union, get_args, get_origin

import msgspec

from evener.errors import UsageError
from evener.tools.arguments import Typed, converter, typed_reader
from evener.tools.context import ToolContext
from evener.tools.schema import Convert, Schema, Shapes, closed_object, default_of, hints_of, read_docstring

Function = Callable[..., object]
EMPTY = inspect.Parameter.empty


class Signature(msgspec.Struct, frozen=True):
    """The schema of a function's parameters, and their conversion: of each, and of all in one step where that works."""

    schema: Schema
    converters: dict[str, Convert]
    typed: Typed | None


class Callee(msgspec.Struct, frozen=True):
    """A function and how to call it: the name of its parameter for the ToolContext (if any), and whether it is async."""

    function: Function
    context: str
    awaits: bool

    @classmethod
    def of(cls, function: Function) -> "Callee":
        """Inspect a function once, so that calling it need not."""
        inner = _unwrap(function)
        awaits = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(_find_annotated(function))
        return cls(function, _context_name(function), awaits)


def read_signature(function: Function) -> Signature:
    """Return the schema of a function's parameters, and how each is converted."""
    where = f"The tool {name_of(function)!r}"
    words = read_docstring(_doc(function))[1]
    shapes = Shapes()
    properties: dict[str, object] = {}
    required: list[str] = []
    converters: dict[str, Convert] = {}
    kinds: dict[str, object] = {}
    for name, kind, default in _parameters(function, where):
        if _is_context(kind):
            continue
        place = f"{where}, parameter {name!r}"
        schema = shapes.whole(kind, place)
        about = _about(kind) or words.get(name, "")
        properties[name] = {**schema, **({"description": about} if about else {}), **default_of(default)}
        converters[name] = converter(kind, place)
        kinds[name] = kind
        if default is EMPTY:
            required.append(name)
    whole = closed_object(properties, required)
    if shapes.definitions:
        whole["$defs"] = shapes.definitions
    return Signature(whole, converters, typed_reader(kinds, whole))


def check_takes_one(function: Function) -> None:
    """Refuse a function that cannot take its arguments as one value."""
    where = f"The tool {name_of(function)!r}"
    context = _context_name(function)
    try:
        _signature(function, where).bind({}, **({context: None} if context else {}))
    except TypeError as error:
        raise UsageError(f"{where} must take its arguments as one value ({error}). Give it one parameter.") from None


def check_verifies(verify: Function, names: Iterable[str], where: str) -> None:
    """Refuse a `verify` that cannot take the arguments of its tool."""
    given = {*names, _context_name(verify)} - {""}
    try:
        _signature(verify, f"{where}: its `verify`").bind(**dict.fromkeys(given))
    except TypeError as error:
        raise UsageError(
            f"{where}: its `verify` does not take the same arguments ({error}). Give it the parameters of the tool."
        ) from None


def _context_name(function: Function) -> str:
    """Return the name of the parameter for the ToolContext; empty when there is none."""
    hints = hints_of(_find_annotated(function), f"The function {name_of(function)!r}")
    return next((name for name, kind in hints.items() if name != "return" and _is_context(kind)), "")


def describe(function: Function) -> str:
    """Return what the docstring says, without what it says about parameters."""
    return read_docstring(_doc(function))[0]


def name_of(function: object) -> str:
    """Return the name of a function, or of the class of a callable object."""
    inner = _unwrap(function)
    return str(getattr(inner, "__name__", "") or type(inner).__name__)


def _unwrap(function: object) -> object:
    return function.func if isinstance(function, partial) else function


def _find_annotated(function: Function) -> object:
    """Return the object that carries the annotations and the docstring."""
    inner = _unwrap(function)
    if inspect.isroutine(inner) or isinstance(inner, type):
        return inner
    return type(inner).__call__


def _doc(function: Function) -> str | None:
    """Return the docstring of a function; of a callable object its own, or that of its `__call__`."""
    inner = _unwrap(function)
    text = inner.__doc__
    if not inspect.isroutine(inner) and not type(inner).__dict__.get("__doc__"):
        text = getattr(_find_annotated(function), "__doc__", None)
    return text


def _signature(function: Function, where: str) -> inspect.Signature:
    if isinstance(function, type):
        raise UsageError(f"{where} is a class. A tool is a function, a bound method or an object that can be called.")
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        raise UsageError(f"{where} has no signature that can be read. Wrap it in a function with annotations.") from None


def _parameters(function: Function, where: str) -> list[tuple[str, object, object]]:
    """Return name, type and default of each parameter."""
    signature = _signature(function, where)
    hints = hints_of(_find_annotated(function), where)
    given = function.keywords if isinstance(function, partial) else {}
    found = []
    for name, parameter in signature.parameters.items():
        if name in given:
            continue
        _check_kind(parameter, where)
        if name not in hints:
            more = " If it is a method, make the tool from the bound one: tool(thing.method)." if name == "self" else ""
            raise UsageError(f"{where}: the parameter {name!r} has no type. Annotate it.{more}")
        found.append((name, hints[name], parameter.default))
    return found


def _check_kind(parameter: inspect.Parameter, where: str) -> None:
    wrong = {
        inspect.Parameter.POSITIONAL_ONLY: "is positional only, but models pass arguments by name. Remove the slash.",
        inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments, which no schema can express. Use a list.",
        inspect.Parameter.VAR_KEYWORD: "takes arguments of any name, which no schema can express. Use a dict or name them.",
    }
    if parameter.kind in wrong:
        raise UsageError(f"{where}: the parameter {str(parameter).partition(':')[0]!r} {wrong[parameter.kind]}")


def _is_context(kind: object) -> bool:
    if get_origin(kind) in (Union, types.UnionType):
        return any(_is_context(part) for part in get_args(kind))
    if get_origin(kind) is Annotated:
        return _is_context(get_args(kind)[0])
    return kind is ToolContext or get_origin(kind) is ToolContext


def _about(kind: object) -> str:
    """Return the description that stands beside the type in `Annotated`."""
    if get_origin(kind) is not Annotated:
        return ""
    for note in get_args(kind)[1:]:
        text = note if isinstance(note, str) else getattr(note, "description", None)
        if isinstance(text, str):
            return text
    return ""
