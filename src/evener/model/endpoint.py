"""The endpoint of a model: row, codec, address, credentials, transport, deadlines; and the request that is made for it."""

import msgspec

from evener.encodings import EncodingName, Prepared, prepare
from evener.providers.rows import Facts
from evener.transcript.ask import Ask
from evener.transcript.loss import Loss
from evener.transport.exchange import Auth, Caps, Deadlines, Retries, Transport
from evener.transport.limiter import Limiter, limiter_for
from evener.wire import Codec, Encoded


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider. Holds no credential itself: `auth` puts it on each request.

    `account` is a fingerprint of the key: calls of this process with the same one share a rate.
    """

    facts: Facts
    codec: Codec
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    auth: Auth
    transport: Transport
    account: str
    encoding: EncodingName | None = None
    deadlines: Deadlines = Deadlines()
    caps: Caps = Caps()
    retries: Retries = Retries()

    @property
    def limiter(self) -> Limiter:
        """The limiter of the account, made when it is first needed: where no rate is set, none is."""
        return limiter_for(self.account)

    def __repr__(self) -> str:
        return f"<Endpoint {self.facts.provider.name}:{self.facts.model} at {self.url}>"


class Sent(msgspec.Struct, frozen=True, gc=False):
    """The request as it goes out. Given back with the next ask of the same conversation, it saves work."""

    prepared: Prepared
    encoded: Encoded

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Everything that the request could not express as it was asked."""
        return self.prepared.losses + self.encoded.losses


def prepare_request(ask: Ask, endpoint: Endpoint, prior: Sent | None = None) -> Sent:
    """Return the request for this ask: the one that is sent, previewed and asked for its losses. Sends nothing.

    `prior` is the request before it in the same conversation. It changes no byte; it only saves work.
    """
    quirks = endpoint.facts.quirks
    if prior is None:
        prepared = prepare(ask, quirks, encoding=endpoint.encoding)
        return Sent(prepared, endpoint.codec.encode(prepared.ask, quirks, None))
    prepared = prepare(ask, quirks, encoding=endpoint.encoding, prior=prior.prepared)
    return Sent(prepared, endpoint.codec.encode(prepared.ask, quirks, prior.encoded))
