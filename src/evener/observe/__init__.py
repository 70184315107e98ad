"""Observing runs: for now, their cost."""

from evener.observe.cost import Cost, price

__all__ = ["Cost", "price"]
