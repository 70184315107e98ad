"""What is observed about runs: for now, what they cost."""

from evener.observe.cost import Cost, price

__all__ = ["Cost", "price"]
