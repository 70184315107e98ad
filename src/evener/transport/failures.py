"""What went wrong with a connection, as an error of ours: what happened, what was expected, what to do next.

No sentence here has a query, a header, a body or the credentials of an address in it: those may be secrets. The library's own
errors carry the request's headers, so they are never chained to ours.
"""

import errno
import ssl
from typing import Literal
from urllib.parse import urlsplit

from evener.errors import BadValue, ConnectFailed, EvenerError, TimedOut, TruncatedStream, WireError

__all__ = ["Deadline", "body_failure", "broken_off", "head_failure", "malformed", "place_of", "timed_out"]

Deadline = Literal["connect", "idle", "total"]

MEANT: dict[Deadline, str] = {
    "connect": "no connection to {place} stood after {seconds} seconds",
    "idle": "nothing came from {place} for {seconds} seconds",
    "total": "the exchange with {place} was not over after {seconds} seconds",
}
REASONS = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.EHOSTUNREACH: "there is no route to it",
    errno.ENETUNREACH: "there is no route to it",
    errno.ECONNRESET: "it closed the connection at once",
    errno.EMFILE: "this process has too many files open",
    errno.EADDRNOTAVAIL: "the address cannot be used from here",
    errno.ETIMEDOUT: "the operating system gave up waiting",
}


def place_of(url: str) -> str:
    """The host, and the port where one is written: all of an address that may be shown."""
    authority = urlsplit(url).netloc.rpartition("@")[2]
    return authority or "an address without a host"


def timed_out(deadline: Deadline, seconds: float, place: str) -> TimedOut:
    """A deadline that passed."""
    what = MEANT[deadline].format(place=place, seconds=f"{seconds:g}")
    return TimedOut(f"The {deadline} deadline passed: {what}. Raise it with Deadlines({deadline}=...), or try again later.")


def head_failure(error: Exception, place: str) -> EvenerError | None:
    """An error before the answer's head had come; None for one that is no failure of the connection."""
    import aiohttp

    match error:
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return _untrusted(error, place)
        case aiohttp.ClientConnectorSSLError() | ssl.SSLError():
            return ConnectFailed(
                f"No secure connection to {place} could be made: the TLS handshake failed. "
                "Check that the address is right and that https:// is spoken on this port."
            )
        case aiohttp.ClientHttpProxyError(status=status):
            return _proxy_refused(status, place)
        case aiohttp.ClientProxyConnectionError(os_error=cause):
            return ConnectFailed(
                f"The proxy on the way to {place} could not be reached: {_reason(cause)}. "
                "Check `proxy` or the variables HTTP_PROXY and HTTPS_PROXY, or name the host in NO_PROXY."
            )
        case aiohttp.ClientConnectorDNSError():
            return ConnectFailed(
                f"The name in {place} is not known: no address was found. Check its spelling, and the network's name servers."
            )
        case aiohttp.ClientConnectorError(os_error=cause):
            return ConnectFailed(
                f"No connection to {place} could be made: {_reason(cause)}. Check the address, and that the server runs."
            )
        case aiohttp.ClientResponseError():
            return WireError(f"What came from {place} is not HTTP. Check the address, its port, and whether it wants https://.")
        case ValueError():
            return BadValue(
                f"The request to {place} cannot be sent: its address or one of its headers has characters that HTTP forbids."
            )
        case aiohttp.ClientError() | OSError():
            return TruncatedStream(f"{place} closed the connection before it answered. Send the request again.")
    return None


def body_failure(error: Exception, place: str) -> EvenerError | None:
    """An error while the body came; None for one that is no failure of the connection."""
    import aiohttp

    match error:
        case aiohttp.ClientError() | OSError():
            return broken_off(place)
    return None


def broken_off(place: str) -> TruncatedStream:
    """A body that was cut."""
    return TruncatedStream(f"{place} broke off in the middle of its answer, so it does not count. Send the request again.")


def malformed(place: str) -> WireError:
    """A body whose framing is wrong."""
    return WireError(
        f"The answer of {place} breaks the rules of HTTP in its middle, so it does not count. Send the request again."
    )


def _untrusted(error: Exception, place: str) -> ConnectFailed:
    why = getattr(error, "certificate_error", error)
    said = getattr(why, "verify_message", "") or "it could not be verified"
    return ConnectFailed(
        f"The certificate of {place} is not trusted: {said}. If this server is yours, name its authority's certificate "
        "with `ca_file`; if not, something stands between you and the provider."
    )


def _proxy_refused(status: int, place: str) -> ConnectFailed:
    if status == 407:
        advice = "It wants credentials: write them into its address, as in http://user:password@host:port."
    else:
        advice = "Check that it may reach this host, or name the host in NO_PROXY."
    return ConnectFailed(f"The proxy on the way to {place} answered HTTP {status} instead of connecting. {advice}")


def _reason(cause: OSError) -> str:
    return REASONS.get(cause.errno or 0, f"the operating system said {type(cause).__name__}")
