"""Lets one vendor's SDK decode a stream and measures its CPU. Run by `peers.py` with the Python of that SDK's environment.

Uses the standard library and the SDK only. The bytes come from memory through a transport of the SDK's own HTTP client;
no connection is made. Reads a line of JSON and then the stream's bytes from standard input, prints a line of JSON.
"""

import gc
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from time import process_time

import httpx2

NOWHERE = "http://127.0.0.1:9"
PROMPT = "Say something."
KEY = "none"


class Chunks(httpx2.SyncByteStream):
    """A body in the given pieces."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.chunks)


class Canned(httpx2.BaseTransport):
    """Answers every request with the same stream."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = chunks

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        headers = {"content-type": "text/event-stream; charset=utf-8"}
        return httpx2.Response(200, headers=headers, stream=Chunks(self.chunks), request=request)


Ask = Callable[[], Iterable[object]]


def anthropic_messages(transport: Canned) -> Ask:
    import anthropic

    client = anthropic.Anthropic(api_key=KEY, base_url=NOWHERE, http_client=httpx2.Client(transport=transport))
    return lambda: client.messages.create(
        model="a-model", max_tokens=1, messages=[{"role": "user", "content": PROMPT}], stream=True
    )


def openai_responses(transport: Canned) -> Ask:
    import openai

    client = openai.OpenAI(api_key=KEY, base_url=NOWHERE, http_client=httpx2.Client(transport=transport))
    return lambda: client.responses.create(model="a-model", input=PROMPT, stream=True)


def openai_chat(transport: Canned) -> Ask:
    import openai

    client = openai.OpenAI(api_key=KEY, base_url=NOWHERE, http_client=httpx2.Client(transport=transport))
    return lambda: client.chat.completions.create(model="a-model", messages=[{"role": "user", "content": PROMPT}], stream=True)


def gemini(transport: Canned) -> Ask:
    from google import genai
    from google.genai import types

    options = types.HttpOptions(base_url=NOWHERE, client_args={"transport": transport})
    client = genai.Client(api_key=KEY, http_options=options)
    return lambda: client.models.generate_content_stream(model="a-model", contents=PROMPT)


PEERS = {
    "anthropic_messages": anthropic_messages,
    "openai_responses": openai_responses,
    "openai_chat": openai_chat,
    "gemini": gemini,
}


def measured(ask: Ask) -> tuple[float, int]:
    """CPU seconds from the first event to the last, and how many there were: the request itself does not count."""
    gc.collect()
    events = iter(ask())
    next(events)
    start = process_time()
    count = 1 + sum(1 for _ in events)
    return process_time() - start, count


def main() -> None:
    order = json.loads(sys.stdin.buffer.readline())
    chunks = [sys.stdin.buffer.read(length) for length in order["lengths"]]
    ask = PEERS[order["wire"]](Canned(chunks))
    runs = [measured(ask) for _ in range(order["passes"])]
    print(json.dumps({"cpu": min(cpu for cpu, _ in runs), "events": runs[0][1]}))


if __name__ == "__main__":
    main()
