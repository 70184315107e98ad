"""Example turns with which a model of 135 million parameters calls a calculator and fills a schema, greedily decoded.

Two of each, in the shape that the answer is constrained to. Without them it does sums in its head, and gets them wrong.
"""

import json

from evener.transcript import Message

__all__ = ["ENVELOPE", "PERSON", "SYSTEM", "called", "people", "sums"]

SYSTEM = "You answer with one JSON object. To calculate, call the tool."


def closed(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TEXT = {"type": "string"}
ENVELOPE = json.dumps({"anyOf": [closed(tool={"const": "calculator"}, arguments=closed(expression=TEXT)), closed(answer=TEXT)]})
PERSON = json.dumps(closed(name=TEXT, age={"type": "integer"}, city=TEXT))


def called(expression: str) -> Message:
    return said({"tool": "calculator", "arguments": {"expression": expression}})


def said(value: object) -> Message:
    return Message.assistant_text(json.dumps(value, separators=(",", ":")))


def sums(question: str, *then: Message) -> list[Message]:
    """Two sums with call, result and answer, and a question."""
    examples: list[Message] = []
    for expression, result in (("8 * 9", 72), ("41 + 5", 46)):
        examples += [Message.user_text(f"What is {expression}?"), called(expression), result_of(result)]
        examples.append(said({"answer": f"{expression} = {result}"}))
    return [*examples, Message.user_text(question), *then]


def result_of(result: int) -> Message:
    return Message.user_text(f'{{"result":{result}}}')


def people(sentence: str) -> list[Message]:
    """Two persons, and a sentence about a third."""
    return [
        Message.user_text("Peter is 28 years old and lives in Berlin."),
        said({"name": "Peter", "age": 28, "city": "Berlin"}),
        Message.user_text("Sofia, who is 45, lives in Rome."),
        said({"name": "Sofia", "age": 45, "city": "Rome"}),
        Message.user_text(sentence),
    ]
