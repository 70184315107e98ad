"""Fuzz inputs by number, and what is done with each. A case never raises anything but what the code under test raises."""

import typing
from collections.abc import Callable
from random import Random

import msgspec
from msgspec.structs import replace

from bench.mutate import mutated, nonsense
from bench.seeds import Seeds, seeds
from evener.errors import EvenerError, ProviderError
from evener.transcript import Origin
from evener.transcript.delta import Delta, Failed
from evener.transcript.json import dump, load
from evener.wire import CODECS, Quirks, assemble

__all__ = ["Case", "case_from", "case_of", "run"]

NONSENSE_ONE_IN = 8
FLAGS = tuple(field.name for field in msgspec.structs.fields(Quirks) if field.type is bool)
CHOICES = {
    field.name: typing.get_args(field.type)
    for field in msgspec.structs.fields(Quirks)
    if typing.get_origin(field.type) is typing.Literal
}
STATUSES = (0, 200, 400, 401, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 529, 599, 999)
HEADERS = ("retry-after", "retry-after-ms", "request-id", "x-request-id", "x-should-retry", "content-type")
VALUES = ("", "1", "-1", "1e309", "nan", "Wed, 21 Oct 2099 07:28:00 GMT", "Wed, 99 Foo", "\x00", "9" * 5000)


class Case(msgspec.Struct, frozen=True):
    """One input. `salt` seeds what else is random about it: how it is chunked, and the quirks."""

    target: str
    wire: str
    data: bytes
    salt: int

    @property
    def file_name(self) -> str:
        """A name that holds all but the data."""
        return f"{self.target}.{self.wire}.{self.salt}.bin"


def case_of(seed: int, number: int) -> Case:
    """The input of this number: the same on every machine."""
    random = Random(f"{seed}/{number}")
    target, wire = random.choice(tuple(TARGETS)), random.choice(tuple(CODECS))
    good = _good(seeds(wire), target)
    if not good or not random.randrange(NONSENSE_ONE_IN):
        data = nonsense(random)
    else:
        data = mutated(random.choice(good), good, random)
    return Case(target, wire, data, random.randrange(1 << 32))


def case_from(file_name: str, data: bytes) -> Case:
    """The case that was saved under this name."""
    target, wire, salt, _ = file_name.split(".")
    return Case(target, wire, data, int(salt))


def run(case: Case) -> str:
    """`read` or `refused`; raises when anything but our own errors comes out."""
    try:
        TARGETS[case.target](case, Random(case.salt))
    except EvenerError:
        return "refused"
    return "read"


def _good(found: Seeds, target: str) -> tuple[bytes, ...]:
    return {
        "stream": found.stream,
        "body": found.body,
        "request": found.request,
        "fault": found.fault,
        "document": found.document,
    }[target]


def _stream(case: Case, random: Random) -> None:
    decoder = CODECS[case.wire].decoder(_quirks(random))
    found: list[Delta] = []
    size = random.choice((1, 7, 100, 16384, len(case.data) + 1))
    size = max(size, len(case.data) // 2000)
    for start in range(0, len(case.data), size):
        found += decoder.feed(case.data[start : start + size])
    found += decoder.close()
    ends = [number for number, delta in enumerate(found) if isinstance(delta, Failed)]
    if ends and ends != [len(found) - 1]:
        raise AssertionError(f"a failure is not the last delta: {ends} of {len(found)}")
    assemble(found)


def _body(case: Case, random: Random) -> None:
    CODECS[case.wire].decode(case.data, _quirks(random))


def _request(case: Case, random: Random) -> None:
    """Read a request, then write it for every wire."""
    origin = Origin(wire=case.wire, provider="bench", model="a-model")
    ask = CODECS[case.wire].read_request(case.data, _quirks(random), origin)
    for wire, codec in CODECS.items():
        aimed = ask if random.randrange(2) else replace(ask, target=replace(ask.target, wire=wire))
        try:
            encoded = codec.encode(aimed, _quirks(random), None)
        except EvenerError:
            continue
        msgspec.json.decode(encoded.body, type=dict[str, msgspec.Raw])


def _fault(case: Case, random: Random) -> None:
    headers = {name: random.choice(VALUES) for name in random.sample(HEADERS, 3)}
    error = CODECS[case.wire].fault(random.choice(STATUSES), headers, case.data)
    if not isinstance(error, ProviderError):
        raise AssertionError(f"{type(error).__name__} is no ProviderError")
    str(error)


def _document(case: Case, random: Random) -> None:  # noqa: ARG001 - all targets look alike
    dump(load(case.data))


TARGETS: dict[str, Callable[[Case, Random], None]] = {
    "stream": _stream,
    "body": _body,
    "request": _request,
    "fault": _fault,
    "document": _document,
}


def _quirks(random: Random) -> Quirks:
    """The defaults, or any mixture of deviations."""
    if random.randrange(2):
        return Quirks()
    flags = {name: not random.randrange(2) for name in FLAGS}
    choices = {name: random.choice(values) for name, values in CHOICES.items()}
    return msgspec.convert({**flags, **choices}, Quirks)
