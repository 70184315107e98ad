"""Makes the ids and seals of one fake server: unlike those of any other server, and each only once. Remembers nothing."""

import base64
import hashlib
import secrets

__all__ = ["Mint"]


class Mint:
    """Counts up from a secret seed; the same seed gives the same names in the same order."""

    def __init__(self, seed: str = "") -> None:
        self._seed = seed or secrets.token_hex(16)
        self._count = 0

    def id(self, prefix: str, length: int = 24) -> str:
        """A fresh name of `length` letters and digits after the prefix."""
        return prefix + self._next().hex()[:length]

    def seal(self) -> str:
        """A fresh opaque value as a provider would make it: long, and base64."""
        return base64.b64encode(self._next() + self._next()).decode()

    def _next(self) -> bytes:
        self._count += 1
        return hashlib.sha512(f"{self._seed}:{self._count}".encode()).digest()
