"""The interface for encryption at rest: what a cipher is, what it gets, and the check that a store gets the cipher it was
made with.

Evener has no cipher and stores no key. Payloads, notes, titles, tags and blobs are encrypted; ids, names of harnesses,
times, kinds, sizes and digests are not. Digests and chains cover the encrypted bytes, so a log is verified without the key.
Blobs are named with a key that the store creates and encrypts, so their names tell a reader without the cipher nothing.
"""

from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Protocol

from evener.errors import StoreError
from evener.store.protocol import Damaged

if TYPE_CHECKING:
    import sqlite3

PROOF = b"evener store"
ABOUT_PROOF = b"store"
"""What a new store seals once, so that a wrong key is told at the door."""
ABOUT_NAMES = "blob names"
NAMING_KEY = 32


class WrongCipher(StoreError):
    """The store was made with another cipher or key, or without one. Nothing was read or changed."""


class Cipher(Protocol):
    """Encrypts bytes, and decrypts them. It must detect each changed byte, and must not give the same output twice.

    `about` says what the content is and where it belongs: authenticate it, so that encrypted content cannot be moved
    elsewhere. The threads of the store call it. An exception ends only the operation that called it.
    """

    @property
    def name(self) -> str:
        """Return the name of the method, not of the key; it is kept in the store."""
        ...

    def seal(self, content: bytes, about: bytes) -> bytes:
        """Return the content, unreadable without the key."""
        ...

    def open(self, content: bytes, about: bytes) -> bytes:
        """Return what was sealed. Raises when the key, the bytes or `about` are not those of the sealing."""
        ...


def open_sealed(cipher: Cipher, content: bytes, about: str) -> bytes:
    """Return what was sealed, or an error that says what could not be opened."""
    try:
        return cipher.open(content, about.encode())
    except Exception as error:
        raise Damaged(
            f"What is stored as {about!r} cannot be opened by the cipher {cipher.name!r} ({type(error).__name__}): its bytes "
            "were changed, or the key is not the one it was sealed with. Run `evener verify`, and restore a backup if needed."
        ) from None


def agree(connection: "sqlite3.Connection", path: Path, cipher: Cipher | None, *, writable: bool = True) -> None:
    """Refuse a store that was made with another cipher. In a new store, record its cipher, in a transaction that may write."""
    noted = dict(connection.execute("SELECT key, value FROM meta WHERE key LIKE 'cipher%'").fetchall())
    if not noted and cipher is None:
        return
    if not noted and cipher is not None:
        if connection.execute("SELECT EXISTS (SELECT 1 FROM logs) OR EXISTS (SELECT 1 FROM blobs)").fetchone()[0]:
            raise WrongCipher(
                f"The store {path} is not encrypted, and a cipher was given. Nothing was changed. Open it without one, or "
                "export its threads and import them into a new store with the cipher."
            )
        connection.executemany("INSERT INTO meta VALUES (?, ?)", sealed_notes(cipher, token_bytes(NAMING_KEY)))
        return
    if cipher is None or cipher.name != noted.get("cipher"):
        given = "without one" if cipher is None else f"with {cipher.name!r}"
        raise WrongCipher(
            f"The store {path} was made with the cipher {noted.get('cipher')!r} and was opened {given}. Nothing was read or "
            "changed. Give the store that cipher, with its key."
        )
    if not _is_proof(cipher, noted.get("cipher_proof", "")):
        raise WrongCipher(
            f"The store {path} was made with another key for the cipher {cipher.name!r}. Nothing was read or changed. "
            "Give the cipher the key of this store."
        )
    if "cipher_names" not in noted and writable:  # made before blobs were named by a key
        sealed = sealed_notes(cipher, token_bytes(NAMING_KEY))
        connection.executemany("INSERT INTO meta VALUES (?, ?)", [note for note in sealed if note[0] == "cipher_names"])


class SameKey:
    """Detects that the store was given another key while it was open: what is written with the old one could not be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._proof: str | None = None

    def __call__(self, connection: "sqlite3.Connection") -> None:
        (proof,) = connection.execute("SELECT value FROM meta WHERE key = 'cipher_proof'").fetchone()
        if self._proof is None:
            self._proof = proof
        if self._proof != proof:
            raise WrongCipher(
                f"The store {self._path} was given another key while it was open, so this call stored nothing. "
                "Close this store, and open the file again with the new key."
            )


def sealed_notes(cipher: Cipher, key: bytes) -> list[tuple[str, str]]:
    """Return what a store notes of its cipher: the method, a proof of the key, and the key that names blobs, sealed."""
    proof, names = cipher.seal(PROOF, ABOUT_PROOF), cipher.seal(key, ABOUT_NAMES.encode())
    return [("cipher", cipher.name), ("cipher_proof", proof.hex()), ("cipher_names", names.hex())]


def naming_key(connection: "sqlite3.Connection", cipher: Cipher) -> bytes:
    """Return the key that names blobs. A store that cannot be written and is older than such names has none, and needs none."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'cipher_names'").fetchone()
    return open_sealed(cipher, bytes.fromhex(found[0]), ABOUT_NAMES) if found else b""


def _is_proof(cipher: Cipher, proof: str) -> bool:
    try:
        return cipher.open(bytes.fromhex(proof), ABOUT_PROOF) == PROOF
    except Exception:
        return False
