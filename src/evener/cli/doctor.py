"""`evener doctor`: is everything there, does it fit together, who can be reached; and how to mend what is not so."""

import asyncio
import os
import sys
from collections.abc import Iterable, Mapping

import msgspec

from evener.cli.checks import Finding, State, config_findings, key_findings, keyed, local_findings, version_findings
from evener.cli.models import is_local
from evener.cli.terminal import Style, clean, escape_json, styled
from evener.errors import EvenerError, UsageError
from evener.providers.config import Config
from evener.providers.keys import account_values, key_file
from evener.providers.names import LOCAL
from evener.providers.rows import Provider
from evener.transport.exchange import Deadlines, Request, Transport

__all__ = ["reach", "run"]

PATIENCE = Deadlines(connect=4.0, idle=4.0, total=6.0)
COLOURS: Mapping[State, Style] = {"ok": "green", "note": "yellow", "problem": "red"}


def run(*, offline: bool, as_json: bool) -> int:
    """Look at everything, print the findings; 1 if something that is configured is broken."""
    environ = os.environ
    found, config = config_findings(environ)
    found = [*version_findings(), *found, *key_findings(config, environ), *local_findings(config)]
    if not offline:
        found += asyncio.run(_reached(config, environ))
    if as_json:
        sys.stdout.buffer.write(escape_json(msgspec.json.format(msgspec.json.encode(found), indent=2)) + b"\n")
    else:
        _print(found, environ)
    return int(any(finding.state == "problem" for finding in found))


async def _reached(config: Config, environ: Mapping[str, str]) -> list[Finding]:
    """Every address that has a key, and the servers on this machine, all at once; each address is tried once."""
    from evener.transport.http import HttpTransport

    rows = {row.name: row for row, _ in keyed(config, environ)}
    rows |= {row.name: row for row in config.rows.providers if row.keyless and is_local(row) and row.vendor != LOCAL}
    by_address: dict[str, list[Provider]] = {}
    for row in rows.values():
        address = _address(row, environ)
        if address:
            by_address.setdefault(address, []).append(row)
    async with HttpTransport() as transport, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(reach(address, users, transport=transport)) for address, users in by_address.items()]
    return [task.result() for task in running]


def _address(row: Provider, environ: Mapping[str, str]) -> str:
    """Scheme and host; empty where the account's part of the address is missing, which is said with the keys."""
    try:
        url = row.url(account_values(row, environ=environ, file=key_file(environ)))
    except UsageError:
        return ""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/"


async def reach(address: str, users: list[Provider], *, transport: Transport) -> Finding:
    """Whether anything answers there: any answer to a plain GET without a key will do."""
    about = ", ".join(row.name for row in users)
    try:
        response = await transport.send(Request(address, (), b"", method="GET", deadlines=PATIENCE))
        await response.aclose()
    except EvenerError as error:
        if all(row.keyless and is_local(row) for row in users):
            return Finding(about, "note", f"no server runs at {address}", "Start it if you want to use it")
        return Finding(
            about, "problem", f"{address} cannot be reached: {error}", "Check the network, the proxy and the address"
        )
    return Finding(about, "ok", f"{address} answers")


def _print(found: Iterable[Finding], environ: Mapping[str, str]) -> None:
    for finding in found:
        mark = styled(finding.state.ljust(8), COLOURS[finding.state], stream=sys.stdout, environ=environ)
        print(f"{mark}{clean(finding.about)}: {clean(finding.text)}")
        if finding.fix:
            print(f"        fix: {clean(finding.fix)}")
