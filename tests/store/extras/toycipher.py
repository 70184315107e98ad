"""A cipher for tests only: a keystream from SHAKE-256, then a MAC. It shows the protocol; use a reviewed library instead."""

import hmac
from hashlib import sha256, shake_256
from secrets import token_bytes

NONCE = MAC = 32


class ToyCipher:
    """Encrypts, then authenticates the content and what it is about. For tests only."""

    name = "toy for tests"

    def __init__(self, key: bytes) -> None:
        self._stream_key = sha256(b"stream" + key).digest()
        self._mac_key = sha256(b"mac" + key).digest()

    def seal(self, content: bytes, about: bytes) -> bytes:
        nonce = token_bytes(NONCE)
        body = self._mixed(nonce, content)
        return nonce + body + self._mac(nonce + body, about)

    def open(self, content: bytes, about: bytes) -> bytes:
        sealed, mac = content[:-MAC], content[-MAC:]
        if not hmac.compare_digest(mac, self._mac(sealed, about)):
            raise ValueError("the MAC does not fit")
        return self._mixed(sealed[:NONCE], sealed[NONCE:])

    def _mac(self, sealed: bytes, about: bytes) -> bytes:
        return hmac.digest(self._mac_key, len(about).to_bytes(8) + about + sealed, "sha256")

    def _mixed(self, nonce: bytes, content: bytes) -> bytes:
        stream = shake_256(self._stream_key + nonce).digest(len(content))
        return (int.from_bytes(content) ^ int.from_bytes(stream)).to_bytes(len(content))
