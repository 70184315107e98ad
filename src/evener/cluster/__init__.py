"""Workers on several machines: they perform the runs that other processes submit. The log is the only state; this package
moves it on.
"""

from evener.cluster.worker import Worker

__all__ = ["Worker"]
