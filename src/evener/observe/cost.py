"""Prices model calls in US dollars, by the price list of the package `genai-prices`. Offline: it never fetches one.

Only tokens are priced. An unknown price counts as 0, and the cost is then marked as a lower bound, with the reason.
"""

import re
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache, lru_cache
from time import time
from types import ModuleType
from urllib.parse import urlsplit

import msgspec

from evener.transcript.reply import Usage

FREE = "It runs on your own machine."
INSTALL = "The price list is not installed. Install it with: pip install 'evener[prices]'."

# Our rows, and the price list's names of their sellers.
SELLERS = {
    "anthropic": "anthropic",
    "claude-aws": "anthropic",
    "bedrock": "aws",
    "bedrock-mantle": "aws",
    "bedrock-mantle-chat": "aws",
    "bedrock-mantle-openai": "aws",
    "vertex": "google",
    "google": "google",
    "google-vertex": "google",
    "google-openai-compat": "google",
    "foundry": "azure",
    "azure": "azure",
    "azure-chat": "azure",
    "openai": "openai",
    "openai-chat": "openai",
    "xai": "x-ai",
    "xai-chat": "x-ai",
    "minimax": "minimax",
    "minimax-responses": "minimax",
    "deepseek": "deepseek",
    "deepseek-anthropic": "deepseek",
    "deepseek-responses": "deepseek",
    "kimi": "moonshotai",
    "kimi-anthropic": "moonshotai",
    "kimi-responses": "moonshotai",
    "zai": "zai",
    "zai-anthropic": "zai",
    "openrouter": "openrouter",
    "openrouter-anthropic": "openrouter",
    "openrouter-responses": "openrouter",
    "groq": "groq",
    "groq-responses": "groq",
    "mistral": "mistral",
    "mistral-responses": "mistral",
    "cerebras": "cerebras",
    "fireworks": "fireworks",
    "together": "together",
}

# Rows whose prices the list does not have; huggingface routes requests to other providers.
UNLISTED = frozenset({"crusoe", "heroku", "huggingface", "snowflake"})

# Servers that users run themselves: free on this machine, of unknown price elsewhere.
SERVERS = frozenset(
    {
        *("llamacpp", "llamacpp-anthropic", "llamacpp-responses", "lmstudio"),
        *("ollama", "ollama-anthropic", "ollama-responses", "vllm", "vllm-anthropic", "vllm-responses"),
        *("local", "local-anthropic", "local-responses"),
    }
)
HERE = re.compile(r"localhost|::1|127(?:\.\d{1,3}){3}")


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """US dollars. If not `exact`, it is a lower bound, and `why` says in a sentence what is missing.

    Costs can be added: the sum is exact only if both are.
    """

    amount: Decimal = Decimal(0)
    exact: bool = True
    why: str = ""

    def __add__(self, other: "Cost") -> "Cost":
        if not isinstance(other, Cost):
            return NotImplemented
        missing = dict.fromkeys(cost.why for cost in (self, other) if not cost.exact)
        whys = " ".join(missing) if missing else (self.why if self.why == other.why else "")
        return Cost(self.amount + other.amount, self.exact and other.exact, whys)

    def __str__(self) -> str:
        amount = f"${self.amount.normalize():f}"
        return amount if self.exact else f"at least {amount} ({self.why})"


def price(
    usage: Usage, *, provider: str, model: str, url: str = "", hour_writes: bool = False, at: datetime | None = None
) -> Cost:
    """Return the cost of these tokens at this provider (a row's name, or a vendor's). `url` is the address of the request.

    `hour_writes`: writes to the cache are kept for an hour, which some providers charge more for than minutes.
    `at`: the time of the request, for prices that change; now if None.
    """
    if _is_own(provider, url):
        return Cost(why=FREE)
    if not usage.total:
        return _unknown_cost(f"{provider}:{model} reported no token counts.")
    return _look_up(usage, provider, model, url, hour_writes, at)


def listed_models(provider: str, wire: str) -> tuple[str, ...]:
    """Return the models of a row that the price list names and that answer in text; none without the list."""
    seller = SELLERS.get(provider)
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return ()
    found = next((one for one in get_snapshot().providers if one.id == seller), None)
    models = found.models if found else ()
    fits = [one for one in models if not one.deprecated and "output_mtok" in str(one.prices)]
    # One seller has models of two vendors, each on its own wire.
    return tuple(one.id for one in fits if seller != "google" or one.id.startswith("claude") == (wire == "anthropic_messages"))


@lru_cache(64)
def _is_own(provider: str, url: str) -> bool:
    """True if it runs on this machine and is no gateway to a paid provider."""
    if provider in SELLERS or provider in UNLISTED:
        return False
    host = urlsplit(url).hostname or ""
    return HERE.fullmatch(host) is not None or (provider in SERVERS and not host)


def _look_up(usage: Usage, provider: str, model: str, url: str, hour_writes: bool, at: datetime | None) -> Cost:
    if _load_price_list() is None:
        return _unknown_cost(INSTALL)
    seller = SELLERS.get(provider)
    if seller is None and not url:
        return _unknown_cost(f"The price list has no provider {provider!r}.")
    try:
        quarter = int(time()) // QUARTER
        linear = None if at else _look_up_rates(seller or "", "" if seller else url, model, hour_writes, quarter)
        if isinstance(linear, LookupError):
            raise linear
        if linear is not None and usage.cache_read + usage.cache_write <= usage.input_total < linear.below:
            return Cost(linear.total(usage))
        return Cost(_calculate(usage, seller or "", "" if seller else url, model, hour_writes=hour_writes, at=at))
    except LookupError:
        return _unknown_cost(f"The price list does not know {provider}:{model}.")
    except ValueError:  # counts that contradict each other, such as more tokens read from the cache than there were
        return _unknown_cost(f"The token counts of {provider}:{model} do not add up.")


class _Rates(msgspec.Struct, frozen=True):
    """US dollars per token, for calls with fewer input tokens than `below`: larger calls may have a different price."""

    uncached: Decimal
    read: Decimal
    write: Decimal
    output: Decimal
    below: int

    def total(self, usage: Usage) -> Decimal:
        rest = usage.input_total - usage.cache_read - usage.cache_write
        return (
            self.uncached * rest + self.read * usage.cache_read + self.write * usage.cache_write
            + self.output * usage.output_total
        )  # fmt: skip


PROBE = 1_000
MOST = 1 << 60
QUARTER = 900
"""Seconds: prices that change with the time of day change at a quarter of an hour."""


@lru_cache(maxsize=256)
def _look_up_rates(seller: str, url: str, model: str, hour_writes: bool, quarter: int) -> _Rates | LookupError | None:
    """Return the rates of a model in this quarter of an hour, computed once: the library takes milliseconds.

    A model that is not in the list is cached, too: as the LookupError.
    """
    at = datetime.fromtimestamp(quarter * QUARTER, UTC)
    library = _load_price_list()
    if library is None:
        return None
    try:
        _, found = library.data_snapshot.get_snapshot().find_provider_model(model, None, seller or None, url or None)
    except LookupError as error:
        return error.with_traceback(None)
    prices = vars(found.get_prices(at))
    tiered = [value for value in prices.values() if isinstance(value, library.types.TieredPrices)]
    probes = (Usage(PROBE, PROBE), Usage(PROBE, 0, PROBE), Usage(PROBE, 0, 0, PROBE), Usage(0, 0, 0, 0, PROBE))
    uncached, read, write, output = (
        _calculate(probe, seller, url, model, hour_writes=hour_writes, at=at) / PROBE for probe in probes
    )
    below: int = min((tier.start for tiers in tiered for tier in tiers.tiers), default=MOST)
    return _Rates(uncached, read, write, output, below)


def _calculate(usage: Usage, seller: str, url: str, model: str, *, hour_writes: bool, at: datetime | None) -> Decimal:
    library = _load_price_list()
    if library is None:
        raise LookupError
    writes = {"cache_write_1h_tokens": usage.cache_write} if hour_writes else {}
    counted = library.Usage(
        input_tokens=usage.input_total,  # with what was read from and written to the cache, as the list counts it
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output_total,
        **writes,
    )
    where = {"provider_id": seller} if seller else {"provider_api_url": url}
    return Decimal(library.calc_price(counted, model, genai_request_timestamp=at, **where).total_price)


def _unknown_cost(why: str) -> Cost:
    return Cost(exact=False, why=why)


@cache
def _load_price_list() -> ModuleType | None:
    """Return the library, imported with the first price: that takes a noticeable fraction of a second."""
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices
