"""Which addresses lie in the public internet, and which on this machine, in a private network, or nowhere. Pure.

Written out from IANA's registries of special-purpose addresses (2025), because what `ipaddress` knows of them differs between
releases of Python. An IPv6 address that stands for one of IPv4 is judged as that one.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from evener.errors import UsageError

__all__ = ["PrivateAddress", "is_public"]

PRIVATE_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24",
        "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
PUBLIC_6 = IPv6Network("2000::/3")
PRIVATE_6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"))
"""Within the public part: protocol assignments with Teredo, documentation, and 6to4, which leads to any address of IPv4."""
AS_IPV4 = tuple(IPv6Network(text) for text in ("::ffff:0:0/96", "64:ff9b::/96"))
"""IPv4 written as IPv6: mapped, and by the well-known prefix of NAT64, which networks without IPv4 use for public hosts."""


class PrivateAddress(UsageError):
    """A request that may only go to the public internet leads elsewhere."""


def is_public(address: str) -> bool:
    """True if a numeric address belongs to the public internet."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if not any(found in network for network in AS_IPV4):
            return found in PUBLIC_6 and not any(found in network for network in PRIVATE_6)
        found = IPv4Address(int(found) & 0xFFFF_FFFF)
    return not any(found in network for network in PRIVATE_4)
