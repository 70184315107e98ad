"""Workers on several machines: they perform the runs that other processes submit. The log is the truth, this only moves it."""

from evener.cluster.worker import Worker

__all__ = ["Worker"]
