"""Models that run on this machine, without a key and without a server of yours: llama.cpp in a child process."""

from evener.local.download import Bundle
from evener.local.keeper import LocalSettings
from evener.local.transport import LocalTransport
from evener.local.weights import BUNDLES, Fetched, Weights, fetch_weights, locate_weights, weights_folder

__all__ = [
    "BUNDLES",
    "Bundle",
    "Fetched",
    "LocalSettings",
    "LocalTransport",
    "Weights",
    "fetch_weights",
    "locate_weights",
    "weights_folder",
]
