"""Which proxy a request goes through: the one that was named, or the environment's. Opens no connection."""

from base64 import b64encode
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from urllib.parse import unquote, urlsplit

import msgspec

from evener.errors import BadValue

__all__ = ["Proxy", "proxy_for", "proxy_from"]


class Proxy(msgspec.Struct, frozen=True):
    """Where it is, without credentials, and the header that carries them; that header is empty when there are none."""

    url: str
    authorization: str = ""

    def __repr__(self) -> str:
        """Without the header."""
        return f"Proxy({self.url})"


def proxy_from(text: str) -> Proxy:
    """Read a proxy's address, as in `http://user:password@proxy.example:3128`. Raises BadValue."""
    if "://" not in text:
        text = f"http://{text}"
    scheme = text.partition("://")[0].lower()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if scheme not in ("http", "https") or not host:
        text, parts = "", urlsplit("")  # a traceback may be printed with its locals, and the address may hold a password
        raise BadValue(
            f"A proxy's address must be http://host:port or https://host:port, and this one, a {scheme}:// address, is not. "
            "Correct `proxy` or the variables HTTP_PROXY, HTTPS_PROXY and ALL_PROXY."
        )
    place = f"[{host}]" if ":" in host else host
    url = f"{scheme}://{place}:{port or (443 if scheme == 'https' else 80)}"
    if parts.username is None:
        return Proxy(url)
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(url, "Basic " + b64encode(pair.encode()).decode())


def proxy_for(url: str, environment: Mapping[str, str]) -> Proxy | None:
    """What HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY say, in either case. Raises BadValue."""
    parts = urlsplit(url)
    found = _variable(f"{parts.scheme}_proxy", environment) or _variable("all_proxy", environment)
    if not found or _excepted(parts.hostname or "", parts.port, _variable("no_proxy", environment)):
        return None
    return proxy_from(found)


def _variable(name: str, environment: Mapping[str, str]) -> str:
    """The lower case wins. A web server sets HTTP_PROXY from a request's `Proxy` header: there, upper case is not believed."""
    if name == "http_proxy" and "REQUEST_METHOD" in environment:
        return environment.get(name, "").strip()
    return (environment.get(name) or environment.get(name.upper(), "")).strip()


def _excepted(host: str, port: int | None, exceptions: str) -> bool:
    for written in exceptions.split(","):
        entry = written.strip().lower().removeprefix("*").removeprefix(".")
        if written.strip() == "*":
            return True
        if entry and (_covers(entry, host) or (port is not None and _covers(entry.removesuffix(f":{port}"), host))):
            return True
    return False


def _covers(entry: str, host: str) -> bool:
    """Whether an entry names the host, a domain it lies in, or a network."""
    if host == entry or host.endswith(f".{entry}"):
        return True
    try:
        return "/" in entry and ip_address(host) in ip_network(entry, strict=False)
    except ValueError:
        return False
