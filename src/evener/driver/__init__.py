"""The driver: performs the plan's steps and appends what happened. The only concurrent code."""

from evener.driver.driver import Agent, Driver
from evener.driver.inbox import finish_anyway

__all__ = ["Agent", "Driver", "finish_anyway"]
