"""The tools of a run: a mapping that does not change, in a stable order. (S0.48, S0.51, S2.21, S2.26, S2.27)"""

import msgspec
import pytest

from evener.errors import BadValue, UsageError
from evener.tools import Tool, Toolbox, tool
from evener.tools.arguments import ReadArguments


def read_file(path: str) -> str:
    """Read a file."""
    return path


def write_file(path: str, text: str) -> None:
    """Write a file."""


def test_tools_keep_their_order_and_functions_become_tools() -> None:
    """S2.27: the same map, however they came."""
    box = Toolbox([tool(write_file, sequential=True), read_file])
    assert list(box) == ["write_file", "read_file"]
    assert box["write_file"].sequential
    assert [spec.name for spec in box.specs] == ["write_file", "read_file"]


def test_adding_makes_another_box() -> None:
    box = Toolbox([read_file])
    more = box.add(write_file)
    assert (list(box), list(more)) == (["read_file"], ["read_file", "write_file"])
    assert list(more.without("read_file")) == ["write_file"]
    with pytest.raises(UsageError, match="There is no tool 'x' to remove"):
        more.without("x")
    with pytest.raises(TypeError):
        box["x"] = tool(read_file)  # type: ignore[index]


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="Two tools are named 'read_file'"):
        Toolbox([read_file]).add(tool(write_file, name="read_file"))


@pytest.mark.parametrize(
    ("name", "said"),
    [("readfile", "Did you mean 'read_file'"), ("zzz", "The tools are: read_file, write_file."), ("x" * 10_000, "There is no")],
)
def test_an_unknown_name_is_a_failed_result_with_names_that_are_near(name: str, said: str) -> None:
    """S0.48."""
    envelope = Toolbox([read_file, write_file]).unknown(name)
    assert (envelope.ok, envelope.retry, envelope.outcome) == (False, True, "failed")
    assert said in envelope.text
    assert len(envelope.text) < 500


def test_an_empty_box_says_so() -> None:
    assert "The tools are: none." in Toolbox().unknown("x").text


def test_a_spec_is_the_same_object_each_time_and_tells_the_model_only_what_concerns_it() -> None:
    """S2.26: the sequential flag is not sent to the model."""
    made = tool(read_file, sequential=True, approval=True, effect="read", metadata={"team": "files"})
    assert made.spec is made.spec
    assert Toolbox([made]).specs is not Toolbox([made]).specs
    assert Toolbox([made]).specs[0] is made.spec
    told = msgspec.json.encode(made.spec).decode()
    assert not any(word in told for word in ("sequential", "approval", "effect", "team"))


def test_the_defaults_are_the_safe_ones() -> None:
    """S0.51, S2.21."""
    made = tool(read_file)
    assert (made.effect, made.sequential, made.timeout, made.approval, made.retries) == ("write", False, 60.0, False, 2)
    assert (made.verify, dict(made.metadata), made.output_limit) == (None, {}, 50_000)


def test_a_tool_does_not_change() -> None:
    made = tool(read_file, metadata={"a": 1})
    with pytest.raises(AttributeError):
        made.effect = "read"  # type: ignore[misc]
    with pytest.raises(TypeError):
        made.metadata["a"] = 2  # type: ignore[index]


@pytest.mark.parametrize(
    ("field", "value"),
    [("effect", "sometimes"), ("timeout", 0), ("timeout", float("inf")), ("retries", -1), ("output_limit", 0), ("verify", 5)],
)
def test_a_tool_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(UsageError):
        msgspec.structs.replace(tool(read_file), **{field: value})


def test_the_decorator_works_with_and_without_arguments() -> None:
    @tool
    def one(x: int) -> None: ...

    @tool(name="second", description="Another one.", retries=5)
    def two(x: int) -> None: ...

    assert (one.name, one.description) == ("one", "")
    assert (two.name, two.description, two.retries) == ("second", "Another one.", 5)


SCHEMA = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}}


def test_a_raw_schema_is_closed_where_it_leaves_that_open() -> None:
    """S1.19: unknown fields are rejected."""
    made = Tool.of("t", SCHEMA, function=lambda args: args)
    assert made.read('{"c":1}') != ()
    assert not isinstance(made.read('{"c":1}'), ReadArguments)
    assert not isinstance(made.read('{"a":{"c":1}}'), ReadArguments)
    assert isinstance(made.read('{"a":{"b":"x"}}'), ReadArguments)
    assert '"additionalProperties":false' in made.schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {}}, "additionalProperties": True},
        {"type": "object", "allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"type": "object", "properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"required": ["a"]}]},
        {"type": "object", "properties": {"a": {}}, "patternProperties": {"^b": {}}},
    ],
)
def test_a_raw_schema_stays_open_where_it_says_so_or_must_be(schema: dict[str, object]) -> None:
    assert isinstance(Tool.of("t", schema, function=lambda args: args).read('{"b":1}'), ReadArguments)


def test_a_raw_schema_that_is_closed_already_is_sent_as_it_was_written() -> None:
    text = '{ "type": "object", "properties": {"a": {}}, "additionalProperties": false }'
    assert Tool.of("t", text, function=lambda args: args).schema == text


def test_alternatives_that_only_require_do_not_keep_a_schema_open() -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    made = Tool.of("t", schema, function=lambda args: args)
    assert not isinstance(made.read('{"a":1,"c":1}'), ReadArguments)
    assert isinstance(made.read('{"a":1}'), ReadArguments)
    assert not isinstance(made.read("{}"), ReadArguments)


def test_what_a_raw_schema_says_in_vain_is_listed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "format": "int32"}}, "x-order": 1}
    made = Tool.of("t", schema, function=lambda args: args)
    assert made.unenforced == ("properties.a.format: the format is not known", "x-order: the keyword is not known")
    assert tool(read_file).unenforced == ()


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ("{", BadValue),
        ("[]", BadValue),
        ({"type": "array"}, UsageError),
        ({"type": "object", "required": 5}, UsageError),
        (int, UsageError),
    ],
)
def test_a_raw_schema_that_is_none_is_refused(schema: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        Tool.of("t", schema, function=lambda args: args)


def test_a_function_for_a_raw_schema_takes_one_value() -> None:
    with pytest.raises(UsageError, match="one value"):
        Tool.of("t", SCHEMA, function=lambda a, b: (a, b))
