"""The endpoint of a model: row, codec, address, credentials, transport, deadlines."""

import msgspec

from evener.encodings import EncodingName
from evener.providers.rows import Facts
from evener.transport.exchange import Auth, Caps, Deadlines, Retries, Transport
from evener.transport.limiter import Limiter, limiter_for
from evener.wire import Codec


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One model at one provider. Contains no credential: `auth` adds it to each request.

    `account` is a fingerprint of the key: all calls of this process with the same key share a rate.
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
