"""Bounded memory: a huge answer costs little, whoever reads it, however it is packed. Measured in processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.transport.conftest import Certificates

BOUND = 50 << 20
SIZE = 200 << 20

SERVER = """
import asyncio, ssl, sys, zlib
CHUNKED = b"HTTP/1.1 200 OK\\r\\nconnection: close\\r\\ntransfer-encoding: chunked\\r\\n"
SIZE = int(sys.argv[2])
def bomb():
    packer = zlib.compressobj(9, wbits=31)
    for _ in range(SIZE >> 20):
        yield packer.compress(bytes(1 << 20))
    yield packer.flush()
def line():
    for _ in range(SIZE >> 16):
        yield b"x" * 65536
async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    await reader.readexactly(2)
    packed = sys.argv[1] == "bomb"
    try:
        if sys.argv[1] == "length":
            writer.write(b"HTTP/1.1 200 OK\\r\\nconnection: close\\r\\ncontent-length: %d\\r\\n\\r\\n" % SIZE)
        else:
            writer.write(CHUNKED + (b"content-encoding: gzip\\r\\n" if packed else b"") + b"\\r\\n")
        for piece in bomb() if packed else line():
            if piece:
                writer.write(piece if sys.argv[1] == "length" else b"%x\\r\\n%b\\r\\n" % (len(piece), piece))
                await writer.drain()
        if sys.argv[1] != "length":
            writer.write(b"0\\r\\n\\r\\n")
        await writer.drain()
    except ConnectionError:
        pass
    writer.close()
async def main():
    context = None
    if sys.argv[3]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[3] + "/server.pem", sys.argv[3] + "/server.key")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
asyncio.run(main())
"""

CLIENT = """
import asyncio, sys
from bench.memory import most_resident as peak
from evener.errors import WireError
from evener.transport.exchange import Request
from evener.transport.http import HttpTransport, read_all
async def main():
    folder = sys.argv[3]
    async with HttpTransport(ca_file=folder + "/authority.pem" if folder else None) as http:
        request = Request(f"{'https' if folder else 'http'}://127.0.0.1:{sys.argv[1]}/", (), b"{}")
        first = await http.send(request)  # loads what there is to load
        await first.read()
        before, total, largest = peak(), 0, 0
        if sys.argv[2] == "slow":
            await asyncio.sleep(0.5)
        while piece := await first.read():
            total += len(piece)
            largest = max(largest, len(piece))
        try:
            await read_all(await http.send(request), 1 << 20)
        except WireError:
            print(peak() - before, total, largest)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("kind", "reader", "way"),
    [("line", "slow", "plain"), ("length", "quick", "plain"), ("bomb", "quick", "plain"), ("length", "slow", "tls")],
)
def test_two_hundred_megabytes_cost_less_than_fifty(kind: str, reader: str, way: str, certificates: Certificates) -> None:
    folder = str(Path(certificates.ca_file).parent) if way == "tls" else ""
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, kind, str(SIZE), folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with server:
        assert server.stdin is not None
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        command = [sys.executable, "-c", CLIENT, port, reader, folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        server.stdin.close()
    assert done.returncode == 0, done.stderr
    rise, total, largest = (int(word) for word in done.stdout.split())
    assert total > SIZE - (1 << 20)
    assert largest <= 256 << 10
    assert rise < BOUND
