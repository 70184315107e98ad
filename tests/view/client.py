"""A plain HTTP client for the viewer, which sends exactly the headers it is told."""

import asyncio
import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from tests.patience import PATIENCE


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def _fetch(url: str, method: str, headers: dict[str, str], body: bytes | None) -> Answer:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.putrequest(method, parts.path + (f"?{parts.query}" if parts.query else ""), skip_host=True)
        for name, value in {"host": parts.netloc, **headers}.items():
            connection.putheader(name, value)
        if body is not None and "content-length" not in headers:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())
    finally:
        connection.close()


async def fetch(url: str, *, method: str = "GET", headers: dict[str, str] | None = None, body: bytes | None = None) -> Answer:
    """Send a request, and read the whole answer."""
    return await asyncio.to_thread(_fetch, url, method, headers or {}, body)


async def get(url: str, path: str) -> Any:
    """Return the JSON at a path of the viewer."""
    answer = await fetch(url + path)
    assert answer.status == 200, answer.body
    return answer.json


async def post(url: str, path: str, value: object, **headers: str) -> Answer:
    """Post as the page does."""
    parts = urlsplit(url)
    own = {"origin": f"http://{parts.netloc}", "content-type": "application/json", "sec-fetch-site": "same-origin"}
    return await fetch(url + path, method="POST", headers={**own, **headers}, body=json.dumps(value).encode())
