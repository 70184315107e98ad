"""What went wrong with a connection, as an error of ours: what happened, what was expected, what to do next.

No sentence here has a query, a header, a body or the credentials of an address in it: those may be secrets.
"""

import errno
import re
import socket
import ssl
from typing import Literal
from urllib.parse import urlsplit

from evener.errors import ConnectFailed, EvenerError, TimedOut, TruncatedStream, WireError

__all__ = [
    "Deadline",
    "beside",
    "broken_off",
    "closed_early",
    "cut_head",
    "dial_failure",
    "malformed",
    "not_http",
    "place_of",
    "proxy_refused",
    "timed_out",
]

Deadline = Literal["connect", "idle", "total"]

MEANT: dict[Deadline, str] = {
    "connect": "no connection to {place} stood after {seconds} seconds",
    "idle": "nothing came from {place} for {seconds} seconds",
    "total": "the exchange with {place} was not over after {seconds} seconds",
}
AUTHORITY = re.compile(r"(?:[\w.~%-]+|\[[\w.:%]+\])(?::\d{0,5})?")
REASONS = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.EHOSTUNREACH: "there is no route to it",
    errno.ENETUNREACH: "there is no route to it",
    errno.ECONNRESET: "it closed the connection at once",
    errno.ECONNABORTED: "it closed the connection at once",
    errno.EMFILE: "this process has too many files open",
    errno.EADDRNOTAVAIL: "the address cannot be used from here",
    errno.ETIMEDOUT: "the operating system gave up waiting",
}


def place_of(url: str) -> str:
    """The host, and the port where one is written: all of an address that may be shown."""
    try:
        authority = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        authority = ""
    if not authority:
        return "an address without a host"
    return authority if AUTHORITY.fullmatch(authority) else "an address with an odd host"  # it may be half of a password


def beside(place: str) -> str:
    """The proxy on the way to a place, where a place is named."""
    return f"the proxy on the way to {place}"


def timed_out(deadline: Deadline, seconds: float, place: str) -> TimedOut:
    """A deadline that passed."""
    what = MEANT[deadline].format(place=place, seconds=f"{seconds:g}")
    return TimedOut(f"The {deadline} deadline passed: {what}. Raise it with Deadlines({deadline}=...), or try again later.")


def dial_failure(error: OSError, place: str, *, proxy: bool) -> EvenerError:
    """Why no connection stands. `proxy`: it was the way to a proxy that failed."""
    peer = beside(place) if proxy else place
    match error:
        case ssl.SSLCertVerificationError():
            return _untrusted(error, peer)
        case ssl.SSLError():
            return ConnectFailed(
                f"No secure connection to {peer} could be made: the TLS handshake failed. "
                "Check that the address is right and that https:// is spoken on this port."
            )
        case _ if proxy:
            return ConnectFailed(
                f"The proxy on the way to {place} could not be reached: {_reason(error)}. "
                "Check `proxy` or the variables HTTP_PROXY and HTTPS_PROXY, or name the host in NO_PROXY."
            )
        case socket.gaierror():
            return ConnectFailed(
                f"The name in {place} is not known: no address was found. Check its spelling, and the network's name servers."
            )
    return ConnectFailed(
        f"No connection to {place} could be made: {_reason(error)}. Check the address, and that the server runs."
    )


def not_http(place: str) -> WireError:
    """Something came that is no answer."""
    return WireError(f"What came from {place} is not HTTP. Check the address, its port, and whether it wants https://.")


def closed_early(place: str) -> TruncatedStream:
    """Nothing came."""
    return TruncatedStream(f"{place} closed the connection before it answered. Send the request again.")


def cut_head(place: str) -> WireError:
    """An answer began. No TransportError: a request that was answered must not be sent again by itself."""
    return WireError(
        f"{place} broke off in the first lines of its answer, so it does not count. The request may have been carried out: "
        "send it again if that does no harm."
    )


def proxy_refused(status: int, place: str) -> ConnectFailed:
    """A proxy that opens no tunnel."""
    if status == 407:
        advice = "It wants credentials: write them into its address, as in http://user:password@host:port."
    else:
        advice = "Check that it may reach this host, or name the host in NO_PROXY."
    return ConnectFailed(f"The proxy on the way to {place} answered HTTP {status} instead of connecting. {advice}")


def broken_off(place: str) -> TruncatedStream:
    """A body that was cut."""
    return TruncatedStream(f"{place} broke off in the middle of its answer, so it does not count. Send the request again.")


def malformed(place: str) -> WireError:
    """An answer whose framing is wrong."""
    return WireError(f"The answer of {place} breaks the rules of HTTP, so it does not count. Send the request again.")


def _untrusted(error: ssl.SSLCertVerificationError, place: str) -> ConnectFailed:
    return ConnectFailed(
        f"The certificate of {place} is not trusted: {error.verify_message or 'it could not be verified'}. If this server is "
        "yours, name its authority's certificate with `ca_file`; if not, something stands between you and the provider."
    )


def _reason(error: OSError) -> str:
    """What the system said; where the event loop said it instead, a connection was closed."""
    number = error.errno or (errno.ECONNRESET if isinstance(error, ConnectionError) else 0)
    return REASONS.get(number, f"the operating system said {type(error).__name__}")
