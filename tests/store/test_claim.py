"""Whether a holder is dead: said only of processes of this machine, and only for certain."""

import os
import subprocess
import sys

import pytest

from evener.store.sqlite.leases import deserted, new_claim

SHORT_OF_FILES = """
import resource
from evener.store.sqlite.leases import deserted, new_claim
deserted("x y z w")  # finds out about the machine
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
first = new_claim()
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(first.split()[2], new_claim().split()[2])
"""
ASK = "from evener.store.sqlite.leases import new_claim; print(new_claim(), flush=True); input()"


def test_a_claim_is_new_each_time_and_this_process_lives() -> None:
    assert new_claim() != new_claim()
    assert not deserted(new_claim())


def test_a_process_that_ended_is_dead_even_before_it_is_buried() -> None:
    running = subprocess.Popen([sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    claim = running.stdout.readline().strip()
    assert not deserted(claim)
    running.kill()
    os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOWAIT)
    assert deserted(claim)
    running.communicate(timeout=120)
    assert deserted(claim)


def test_when_it_started_is_asked_again_if_the_system_could_not_tell() -> None:
    said = subprocess.run([sys.executable, "-c", SHORT_OF_FILES], capture_output=True, text=True, timeout=120, check=True)
    first, second = said.stdout.split()
    assert (first, second.isdecimal()) == ("-", True)


@pytest.mark.parametrize(
    ("changes", "dead"),
    [
        ({}, False),
        ({0: "elsewhere"}, False),
        ({2: "1"}, True),  # the number was given to another process
        ({2: "-"}, False),  # it is not known when it started
        ({1: "999999999"}, True),
        ({0: "elsewhere", 1: "999999999"}, False),
        ({1: "many"}, False),
    ],
)
def test_only_the_certainly_dead_are_called_dead(changes: dict[int, str], dead: bool) -> None:
    words = [changes.get(number, word) for number, word in enumerate(new_claim().split())]
    assert deserted(" ".join(words)) is dead


@pytest.mark.parametrize("claim", ["", "x", "a b c d e"])
def test_what_is_no_claim_is_nobody_dead(claim: str) -> None:
    assert not deserted(claim)
