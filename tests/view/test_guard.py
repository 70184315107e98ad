"""Who may ask the viewer: without the token, by another name or from another site, no one."""

from pathlib import Path
from urllib.parse import urlsplit

from evener import MemoryStore
from evener.view.server import Viewer
from tests.to_the_end import to_the_end
from tests.view.client import fetch, get, post
from tests.view.stage import open_file, viewing

FILLED = {"{log}": "x", "{a}": "x", "{b}": "x", "{n:int}": "1", "{place:path}": "message/blocks/0", "{name:path}": "app.js"}


def addresses() -> list[tuple[str, str]]:
    """Return the method and an address of everything that the viewer serves."""
    found = []
    for route in Viewer(MemoryStore()).routes():
        path = route.path.lstrip("/")
        for name, value in FILLED.items():
            path = path.replace(name, value)
        found += [(method, path) for method in sorted(route.methods or ())]
    assert {("GET", "api/live"), ("POST", "api/decide"), ("GET", "export/x.jsonl"), ("GET", "app.js")} < set(found)
    assert not any("{" in path for _, path in found)
    return [*found, ("GET", "")]


async def ask(url: str, method: str, path: str, **headers: str) -> int:
    """Ask as the page does, with other headers; the status."""
    if method == "POST":
        return (await post(url, path, {}, **headers)).status
    return (await fetch(url + path, method=method, headers=headers)).status


@to_the_end
async def test_without_the_token_nothing_is_served() -> None:
    async with viewing(MemoryStore()) as url:
        parts = urlsplit(url)
        token = parts.path.strip("/")
        for wrong in ("/", "/x/", f"/{token[:-1]}/", f"/{token}x/", f"/{token.swapcase()}/", f"//{token}/", f"/x/{token}/"):
            for method, path in addresses():
                assert await ask(f"http://{parts.netloc}{wrong}", method, path) == 403, (wrong, method, path)
        assert (await fetch(url)).status == 200


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:{port}"},
    {"host": "127.0.0.1"},
    {"host": "127.0.0.1.evil.example:{port}"},
    {"host": ""},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"origin": "https://127.0.0.1:{port}"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "document"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
]
FOLLOWED = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@to_the_end
async def test_a_foreign_host_origin_or_site_is_refused_everywhere() -> None:
    async with viewing(MemoryStore()) as url:
        port = str(urlsplit(url).port)
        for method, path in addresses():
            for headers in FOREIGN:
                sent = {name: value.replace("{port}", port) for name, value in headers.items()}
                assert await ask(url, method, path, **sent) == 403, (method, path, headers)


@to_the_end
async def test_a_browser_that_follows_the_address_from_elsewhere_gets_the_page_and_nothing_else() -> None:
    async with viewing(MemoryStore()) as url:
        for method, path in addresses():
            expected = 200 if (method, path) == ("GET", "") else 403
            assert await ask(url, method, path, **FOLLOWED) == expected, (method, path)


@to_the_end
async def test_what_is_only_read_takes_no_posts() -> None:
    async with viewing(MemoryStore()) as url:
        changes = {path for method, path in addresses() if method == "POST"}
        assert changes == {"api/decide", "api/fork", "api/run"}
        for method, path in addresses():
            if method == "GET":
                assert await ask(url, "POST", path) == 405, path


@to_the_end
async def test_only_our_own_page_can_post(tmp_path: Path) -> None:
    """What a form or a script of another site can send is refused, even if it knew the token."""
    store = open_file(tmp_path)
    async with viewing(store) as url:
        origin = f"http://{urlsplit(url).netloc}"
        cases: list[dict[str, str]] = [
            {"content-type": "application/json"},
            {"origin": origin},
            {"origin": origin, "content-type": "text/plain"},
            {"origin": origin, "content-type": "application/x-www-form-urlencoded"},
            {"origin": origin, "content-type": "multipart/form-data; boundary=x"},
            {"origin": origin, "content-type": "application/json", "content-length": "99999999"},
        ]
        for headers in cases[:5]:
            answer = await fetch(f"{url}api/fork", method="POST", headers=headers, body=b'{"log":"x","at":1}')
            assert answer.status == 403, headers
        assert (await fetch(f"{url}api/fork", method="POST", headers=cases[5])).status == 403
        for method in ("PUT", "DELETE", "OPTIONS", "PATCH"):
            assert (await fetch(f"{url}api/threads", method=method, headers={"origin": origin})).status == 403
        assert (await post(url, "api/fork", {"log": "x", "at": 1})).status == 409, "it is ours: there is only no such log"
    await store.aclose()


@to_the_end
async def test_every_answer_has_a_strict_policy(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    async with viewing(store) as url:
        for address in (url, f"{url}app.js", f"{url}api/threads", f"{url}api/items/none", f"{url}nothing", url[:-5]):
            headers = (await fetch(address)).headers
            assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers
            assert "server" not in headers
    await store.aclose()


@to_the_end
async def test_a_body_that_is_none_of_ours_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    store = open_file(tmp_path)
    async with viewing(store) as url:
        bodies: list[object] = [[], {"log": 1}, {"log": "x", "at": 1, "more": 1}, "x", None]
        for body in bodies:
            answer = await post(url, "api/fork", body)
            assert answer.status == 409
            assert "The request is invalid" in answer.json["error"]
        assert (await get(url, "api/threads"))["threads"] == []
    await store.aclose()
