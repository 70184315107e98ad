"""Prices are reckoned with rates that were asked for once; they are those of the price list, for every model it has."""

from itertools import cycle

import genai_prices

from evener.observe.cost import SELLERS, _calculate, _look_up_rates, price
from evener.transcript.reply import Usage

USAGES = (Usage(1_000, 700, 200, 100, 50), Usage(300_000, 100_000, 200_000, 0, 5_000), Usage(10, 10))


def test_quick_prices_are_the_lists_own() -> None:
    compared, usages = 0, cycle(USAGES)
    for provider in genai_prices.data_snapshot.get_snapshot().providers:
        row = next((row for row, seller in SELLERS.items() if seller == provider.id), None)
        for model in provider.models if row else ():
            usage = next(usages)
            try:
                listed = _calculate(usage, provider.id, "", model.id, hour_writes=False, at=None)
            except (LookupError, ValueError):
                continue
            assert price(usage, provider=row or "", model=model.id).amount == listed, (provider.id, model.id, usage)
            compared += 1
    assert compared > 300


def test_a_model_is_looked_up_once() -> None:
    _look_up_rates.cache_clear()
    for tokens in range(1, 50):
        price(Usage(tokens, tokens), provider="anthropic", model="claude-sonnet-4-6")
    assert _look_up_rates.cache_info().misses <= 2  # and once more if a quarter of an hour ends just then
