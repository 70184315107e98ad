"""What calls cost: by the list, as a lower bound where it does not say, and nothing where the machine is one's own."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from evener.observe.cost import SELLERS, SERVERS, UNLISTED, Cost, price
from evener.providers.rows import load_rows
from evener.transcript.reply import Usage

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
PLAIN = Usage(input_total=1_000_000, uncached=1_000_000, output_total=1_000_000)
CACHED = Usage(input_total=1_000_000, uncached=100_000, cache_read=600_000, cache_write=300_000, output_total=10_000)

# Dollars for a million tokens in, a million out; and for the cached ones: a tenth for reading, 1.25 for writing.
LISTED = {
    ("anthropic", "claude-opus-4-5", PLAIN): "30",
    ("anthropic", "claude-opus-4-5-20251101", PLAIN): "30",
    ("anthropic", "claude-opus-4-5", CACHED): "2.925",
    ("claude-aws", "claude-opus-4-5", PLAIN): "30",
    ("bedrock", "global.anthropic.claude-opus-4-5-20251101-v1:0", PLAIN): "30",
    ("vertex", "claude-opus-4-5@20251101", PLAIN): "30",
    ("openai", "gpt-5.1", PLAIN): "11.25",
    ("openai-chat", "gpt-5.1", PLAIN): "11.25",
    ("azure", "gpt-5.1", PLAIN): "11.25",
    # Written to the cache at the price of plain input: (100k + 300k) * 1.25 + 600k * 0.125, and the output.
    ("openai", "gpt-5.1", CACHED): "0.675",
}


@pytest.mark.parametrize("case", LISTED)
def test_tokens_are_priced_by_the_list_and_cached_ones_are_not_counted_twice(case: tuple[str, str, Usage]) -> None:
    provider, model, usage = case
    assert price(usage, provider=provider, model=model, at=AT) == Cost(Decimal(LISTED[case]))


def test_what_is_kept_for_an_hour_costs_more_to_write() -> None:
    dearer = price(CACHED, provider="anthropic", model="claude-opus-4-5", hour_writes=True, at=AT)
    assert dearer == Cost(Decimal("4.05"))  # 300k at 10 instead of 6.25


UNKNOWN = {
    "a model": (PLAIN, "openai", "no-such-model", "", "does not know openai:no-such-model"),
    "a provider": (PLAIN, "lab", "m", "", "no provider 'lab'"),
    "a provider at an address": (PLAIN, "lab", "m", "https://lab.example/v1", "does not know lab:m"),
    "a router": (PLAIN, "huggingface", "m", "", "no provider 'huggingface'"),
    "a server of one's own, elsewhere": (PLAIN, "vllm", "m", "https://gpu.example/v1", "does not know vllm:m"),
    "counts": (Usage(), "openai", "gpt-5.1", "", "reported no token counts"),
    "what the counts mean": (Usage(input_total=1, cache_read=5), "openai", "gpt-5.1", "", "do not add up"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_what_is_not_known_is_a_lower_bound_that_says_so(case: str) -> None:
    usage, provider, model, url, said = UNKNOWN[case]
    cost = price(usage, provider=provider, model=model, url=url)
    assert (cost.amount, cost.exact) == (Decimal(0), False)
    assert said in cost.why
    assert str(cost).startswith("at least $0 (")


@pytest.mark.parametrize(
    ("provider", "url"),
    [
        ("local", ""),
        ("ollama", ""),
        ("ollama", "http://localhost:11434/v1"),
        ("vllm-responses", "http://127.0.0.1:8000/v1"),
        ("mine", "http://[::1]:9/v1"),
    ],
)
def test_ones_own_machine_costs_nothing_and_that_is_exact(provider: str, url: str) -> None:
    assert price(PLAIN, provider=provider, model="m", url=url) == Cost(why="It runs on your own machine.")


def test_a_seller_behind_a_proxy_on_this_machine_is_not_free() -> None:
    assert price(PLAIN, provider="anthropic", model="claude-opus-4-5", url="http://localhost:4000", at=AT).amount == 30


def test_a_row_of_ones_own_is_priced_by_its_address() -> None:
    cost = price(PLAIN, provider="mine", model="gpt-5.1", url="https://api.openai.com/v1", at=AT)
    assert cost == Cost(Decimal("11.25"))


def test_every_built_in_row_is_sold_or_unlisted_or_ones_own() -> None:
    names = {row.name for row in load_rows().providers}
    assert names == set(SELLERS) | UNLISTED | SERVERS
    assert not set(SELLERS) & UNLISTED
    assert not set(SELLERS) & SERVERS


def test_every_seller_is_in_the_list() -> None:
    from genai_prices.data_snapshot import get_snapshot

    assert set(SELLERS.values()) <= {provider.id for provider in get_snapshot().providers}


def test_costs_add_up_and_a_sum_with_a_lower_bound_is_one() -> None:
    known, bound = Cost(Decimal("0.1")), Cost(Decimal("0.2"), False, "A is not known.")
    assert known + known == Cost(Decimal("0.2"))
    assert known + bound == bound + known == Cost(Decimal("0.3"), False, "A is not known.")
    assert (bound + bound).why == "A is not known."
    assert (bound + Cost(Decimal(0), False, "Nor is B.")).why == "A is not known. Nor is B."
    assert sum([known, bound, known], Cost()) == Cost(Decimal("0.4"), False, "A is not known.")


def test_a_cost_says_itself_in_dollars() -> None:
    assert str(Cost(Decimal("0.00175"))) == "$0.00175"
    assert str(Cost()) == "$0"
    assert str(Cost(Decimal("1E+1"))) == "$10"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


ASK = "price(Usage(input_total=1, output_total=1), provider={!r}, model='gpt-5.1')"
IMPORTS = "import sys\nfrom evener.observe import price\nfrom evener.transcript import Usage\n"


def test_the_list_is_loaded_only_when_a_price_is_asked_for() -> None:
    free, sold = ASK.format("local"), ASK.format("openai")
    loaded = "print('genai_prices' in sys.modules)\n"
    assert run(f"{IMPORTS}{loaded}{free}\n{loaded}{sold}\n{loaded}").split() == ["False", "False", "True"]


def test_without_the_list_every_price_is_a_lower_bound_that_names_the_install_command() -> None:
    said = run(f"{IMPORTS}sys.modules['genai_prices'] = None\nprint({ASK.format('openai')})")
    assert said.strip() == "at least $0 (The price list is not installed. Install it with: pip install 'evener[prices]'.)"


def test_no_price_is_ever_fetched() -> None:
    guard = (
        "import socket\ndef no(*a, **k): raise AssertionError('network')\nsocket.socket.connect = no\nsocket.getaddrinfo = no\n"
    )
    threads = "import threading\nprint(threading.active_count())\n"
    assert run(f"{guard}{IMPORTS}{ASK.format('openai')}\n{threads}").strip() == "1"
