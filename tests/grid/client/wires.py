"""The transports of a client: a child's pipes, HTTP+SSE, Streamable HTTP with sessions."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urljoin

from client.base import Call
from wire import http
from wire.events import Event
from words import R25B

LIMIT = 16 * 1024 * 1024
BOTH = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Pipe:
    """A child process, its standard error in a file. The modern client uses it over stdio, too."""

    def __init__(self, command: list[str], environment: dict[str, str], errors: str) -> None:
        self.command, self.environment, self.errors = command, environment, errors

    async def open(self, client) -> None:  # noqa: ANN001  legacy or modern
        self.client = client
        with open(self.errors, "ab") as errors:
            self.child = await asyncio.create_subprocess_exec(
                *self.command, stdin=-1, stdout=-1, stderr=errors, env=self.environment, limit=LIMIT
            )
        self.reading = asyncio.create_task(self.read())

    async def read(self) -> None:
        while line := await self.child.stdout.readline():
            try:
                message = json.loads(line)
            except ValueError:
                self.client.wrong(f"not JSON: {line[:200]!r}")
                continue
            self.client.receive(message, "pipe")

    async def send(self, message: dict, _call: Call | None) -> None:
        self.child.stdin.write(json.dumps(message).encode() + b"\n")
        await self.child.stdin.drain()

    async def ready(self) -> None:
        pass

    async def close(self) -> None:
        self.child.stdin.close()
        try:
            await asyncio.wait_for(self.child.wait(), 15)
        except TimeoutError:
            self.client.wrong("did not end when its input was closed")
            self.child.kill()
        await self.reading


class Sse:
    """HTTP+SSE: everything comes on one stream."""

    def __init__(self, url: str) -> None:
        self.url, self.endpoint = url, None

    async def open(self, client) -> None:  # noqa: ANN001
        self.client, self.found = client, asyncio.Event()
        self.answer = await http.send("GET", self.url, {"Accept": "text/event-stream"})
        if self.answer.status != 200 or self.answer.type != "text/event-stream":
            self.answer.close()
            raise AssertionError(f"GET {self.url}: {self.answer.status} {self.answer.type}")
        self.reading = asyncio.create_task(self.read())
        await asyncio.wait_for(self.found.wait(), 10)

    async def read(self) -> None:
        try:
            async for event in self.answer.events():
                if event.event == "endpoint":
                    self.endpoint = urljoin(self.url, event.data)
                    self.found.set()
                elif self.endpoint is None:
                    self.client.wrong(f"an event before the endpoint: {event}")
                elif event.event == "message":
                    self.client.receive(json.loads(event.data), "pipe")
                else:
                    self.client.wrong(f"event {event}")
            self.client.wrong("the stream ended")
        except (ConnectionError, asyncio.IncompleteReadError, ValueError) as error:
            self.client.wrong(f"the stream broke: {error!r}")

    async def send(self, message: dict, _call: Call | None) -> None:
        headers = {"Content-Type": "application/json"}
        if self.client.stage == "ready" and self.client.revision >= R25B:
            headers["MCP-Protocol-Version"] = self.client.revision
        answer = await http.send("POST", self.endpoint, headers, json.dumps(message).encode())
        body = await answer.read()
        if answer.status not in (200, 202):
            self.client.wrong(f"POST: {answer.status} {body[:200]!r}")

    async def ready(self) -> None:
        pass

    async def close(self) -> None:
        self.reading.cancel()
        await asyncio.gather(self.reading, return_exceptions=True)
        self.answer.close()


class Http:
    """Streamable HTTP: one POST per request, and one stream for the rest."""

    def __init__(self, url: str) -> None:
        self.url, self.session = url, None
        self.listening: asyncio.Task | None = None

    async def open(self, client) -> None:  # noqa: ANN001
        self.client = client

    def headers(self) -> dict[str, str]:
        headers = {"Mcp-Session-Id": self.session} if self.session else {}
        if self.client.stage == "ready" and self.client.revision >= R25B:
            headers["MCP-Protocol-Version"] = self.client.revision
        return headers

    async def send(self, message: dict, call: Call | None) -> None:
        answer = await http.send("POST", self.url, BOTH | self.headers(), json.dumps(message).encode())
        if call is None:
            body = await answer.read()
            if answer.status != 202 or body:
                self.client.wrong(f"a POST without a request: {answer.status} {body[:200]!r}")
            return
        call.status = answer.status
        if call.method == "initialize":
            self.session = answer.headers.get("mcp-session-id")
            if self.session is not None and not all("\x21" <= each <= "\x7e" for each in self.session):
                self.client.wrong(f"session id {self.session!r}")
        if answer.type == "text/event-stream":
            async for event in answer.events():
                self.take(event, "post", call)
            if not call.outcome.done() and not call.cancelled:
                self.client.wrong(f"the stream of `{call.method}` ended without its answer")
        elif answer.type == "application/json":
            self.client.receive(json.loads(await answer.read()), "post", call)
        else:
            body = await answer.read()
            if not call.cancelled:
                self.client.wrong(f"`{call.method}`: {answer.status} {answer.type!r} {body[:200]!r}")
                call.end({"error": {"code": 0, "message": f"HTTP {answer.status}"}})

    def take(self, event: Event, place: str, call: Call | None = None) -> None:
        if not event.data:  # primes the stream: an id without data
            return
        if event.event != "message":
            self.client.wrong(f"event {event}")
        self.client.receive(json.loads(event.data), place, call)

    async def ready(self) -> None:
        """Opens the stream for messages that belong to no request."""
        answer = await http.send("GET", self.url, {"Accept": "text/event-stream"} | self.headers())
        if answer.status != 200 or answer.type != "text/event-stream":
            answer.close()
            raise AssertionError(f"GET: {answer.status} {answer.type}")
        self.stream = answer

        async def listen() -> None:
            async for event in answer.events():
                self.take(event, "get")

        self.listening = self.client.spawn(listen())

    async def close(self) -> None:
        if self.listening:
            self.listening.cancel()
            await asyncio.gather(self.listening, return_exceptions=True)
            self.stream.close()
        answer = await http.send("DELETE", self.url, self.headers())
        await answer.read()
        if answer.status not in (200, 202, 204):
            self.client.wrong(f"DELETE: {answer.status}")
