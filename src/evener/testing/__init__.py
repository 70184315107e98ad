"""Tools for testing against Evener and the providers it speaks to. Light to import; nothing here opens a connection."""

from evener.testing.check import Violation, check_request
from evener.testing.scripted import ScriptedCompleter

__all__ = ["ScriptedCompleter", "Violation", "check_request"]
