"""Fetching pages: text of HTML, bounds, and addresses that are refused wherever they come from."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from evener.toolset.web import WebTools, text_of_html
from tests.toolset.calls import Caller

PAGE = (
    "<html><head><title>t</title><script>alert(1)</script></head><body><h1>Hello&nbsp;you</h1><style>p{}</style>"
    "<p>A <a href='https://example.org/x'>link</a> &amp; more.</p><ul><li>one<li>two</ul></body></html>"
)
ANSWERS: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/page": (200, {"content-type": "text/html; charset=utf-8"}, PAGE.encode()),
    "/moved": (302, {"location": "/page"}, b""),
    "/inside": (302, {"location": "http://169.254.169.254/latest/meta-data"}, b""),
    "/round": (302, {"location": "/round"}, b""),
    "/huge": (200, {"content-type": "text/plain"}, b"x" * (3 << 20)),
    "/image": (200, {"content-type": "image/png"}, b"\x89PNG"),
    "/odd": (200, {"content-type": "text/plain; charset=nonsense"}, b"plain"),
}


class Answering(BaseHTTPRequestHandler):
    """Answers from the table."""

    def do_GET(self) -> None:
        status, headers, body = ANSWERS.get(self.path, (404, {}, b""))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            return

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_page_is_returned_as_text(address: str) -> None:
    caller = Caller(WebTools(reach="anywhere").tools)
    result = caller.call("fetch", {"url": f"{address}/moved"})
    assert result.text.splitlines()[1:] == ["Hello you", "A link (https://example.org/x) & more.", "one", "two"]
    assert result.metadata["label"] == {"tool": "fetch", "source": "web", "traits": ["untrusted", "outward"], "trusted": False}
    assert caller.call("fetch", {"url": f"{address}/odd"}).text.endswith("plain")


@pytest.mark.parametrize(
    ("path", "told"),
    [("/huge", "cannot be fetched"), ("/image", "is no text"), ("/round", "redirects"), ("/none", "status 404")],
)
def test_what_cannot_be_shown_says_why(path: str, told: str, address: str) -> None:
    result = Caller(WebTools(reach="anywhere").tools).call("fetch", {"url": f"{address}{path}"})
    assert not result.ok
    assert told in result.text


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/", "http://localhost/", "http://[::1]/", "http://0.0.0.0/", "http://10.0.0.1/", "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data", "http://[::ffff:127.0.0.1]/", "http://2130706433/", "http://0x7f.1/",
        "file:///etc/passwd", "ftp://example.org/", "http://user:word@127.0.0.1/", "gopher://127.0.0.1/", "http:///x", "x",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public_are_refused(url: str) -> None:
    assert not Caller(WebTools().tools).call("fetch", {"url": url}).ok


def test_a_page_without_end_tags_is_read() -> None:
    assert text_of_html("<div>a<p>b<script>c") == "a\nb"


@pytest.mark.parametrize(
    "piece",
    ["<", "<!--", "<a ", "&", "<a href='", '<a b="', "<script>", "<script></scrip", "&#x", "<![CDATA[", "<?", "</", "<!",
     "</a ", "<!-- --", "<a b='c' ", "<style>", "<title>x", "<svg>", "<b>", "<a href=http://x>", "&#" + "9" * 5_000],
)  # fmt: skip
def test_a_hostile_page_of_two_megabytes_is_read_in_linear_time(piece: str) -> None:
    """It would take hours otherwise, on the event loop: the parser of the standard library does."""
    assert isinstance(text_of_html(piece * ((2 << 20) // len(piece))), str)


@pytest.mark.parametrize(
    ("page", "shown"),
    [
        ("<html><head><title>t</title><body>text", "text"),  # </head> may be left out
        ("a <!-- b --> c<!-- d", "a c"),
        ("1 < 2 &lt; 3 &amp; <b>more</b>", "1 < 2 < 3 & more"),
        ("<a title='x > y' HREF=\"https://e.org/?a=1&amp;b\">go</a>", "go (https://e.org/?a=1&b)"),
        ("<p don't>one</p><p>two", "one\ntwo"),
        ("<SCRIPT>if (a < b) '</p>'</Script>seen<svg><text>no</text></svg><svg/>yes<noscript>no</noscript>", "seenyes"),
        ("<!DOCTYPE html><?xml x?><p>in</p >out", "in\nout"),
    ],
)
def test_what_a_reader_sees_is_shown(page: str, shown: str) -> None:
    assert text_of_html(page) == shown
