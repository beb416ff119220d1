"""The part of HTTP/1.1 that a scripted peer needs, on asyncio: a server that notices disconnects, and a client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from wire.events import Event, Reader, written

REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}
LIMIT = 16 * 1024 * 1024


async def head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    """Returns the first line and the headers by lower-case name; None at the end of the connection."""
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = text[:-4].split("\r\n")
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, headers


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while True:
        size = int((await reader.readline()).split(b";")[0].strip() or b"0", 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]


@dataclass
class Asked:
    """One request at the server, and the way to answer it."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter
    gone: asyncio.Event
    streaming: bool = False
    answered: bool = False

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    def plain(self, status: int, value: object = None, headers: dict[str, str] | None = None) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.answered = True
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}", f"Content-Length: {len(body)}"]
        lines += ["Content-Type: application/json"] if body else []
        lines += [f"{name}: {text}" for name, text in (headers or {}).items()]
        self.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def stream(self, headers: dict[str, str] | None = None) -> None:
        self.answered = self.streaming = True
        lines = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Cache-Control: no-cache"]
        lines += ["Transfer-Encoding: chunked", *(f"{name}: {text}" for name, text in (headers or {}).items())]
        self.write("\r\n".join(lines).encode() + b"\r\n\r\n")

    def event(self, value: object, **fields: object) -> None:
        self.chunk(written(value if isinstance(value, str) else json.dumps(value), **fields))

    def comment(self) -> None:
        self.chunk(b": alive\n\n")

    def chunk(self, data: bytes) -> None:
        self.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def finish(self) -> None:
        if self.streaming:
            self.write(b"0\r\n\r\n")
            self.streaming = False

    def write(self, data: bytes) -> None:
        if not self.gone.is_set():
            self.writer.write(data)


Handler = Callable[[Asked], Awaitable[None]]


async def serve(handler: Handler, port: int = 0) -> int:
    """Serves on loopback until the program ends; returns the port."""

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        gone = writer.transport.get_protocol().gone
        try:
            while not gone.is_set() and (asked := await request(reader, writer, gone)):
                await handler(asked)
                asked.finish()
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Line(asyncio.StreamReader(LIMIT), connection), "127.0.0.1", port, backlog=512
    )
    return server.sockets[0].getsockname()[1]


class Line(asyncio.StreamReaderProtocol):
    """Serves one connection; `gone` is set as soon as the peer closes it, even while a handler runs."""

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.gone = asyncio.Event()

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(error)


async def request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gone: asyncio.Event
) -> Asked | None:
    found = await head(reader)
    if not found:
        return None
    first, headers = found
    method, target, _ = first.split(" ", 2)
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b"".join([chunk async for chunk in chunks(reader)])
    else:
        body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(url.query).items()}
    return Asked(method, url.path, query, headers, body, writer, gone)


class Answer:
    """An answer of a server: read it whole, or event by event."""

    def __init__(self, status: int, headers: dict, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.status, self.headers = status, headers
        self.reader, self.writer = reader, writer
        self.events_read = Reader()

    @property
    def type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0].strip()

    async def read(self) -> bytes:
        try:
            if "chunked" in self.headers.get("transfer-encoding", ""):
                return b"".join([chunk async for chunk in chunks(self.reader)])
            if "content-length" in self.headers:
                return await self.reader.readexactly(int(self.headers["content-length"]))
            return b"" if self.status in (202, 204) else await self.reader.read()
        finally:
            self.close()

    async def events(self) -> AsyncIterator[Event]:
        try:
            if "chunked" in self.headers.get("transfer-encoding", ""):
                async for chunk in chunks(self.reader):
                    for event in self.events_read.feed(chunk):
                        yield event
            else:
                while data := await self.reader.read(65536):
                    for event in self.events_read.feed(data):
                        yield event
        finally:
            self.close()

    def close(self) -> None:
        self.writer.close()


async def send(method: str, url: str, headers: dict[str, str], body: bytes = b"") -> Answer:
    """Sends one request on its own connection: closing the answer disconnects."""
    at = urlsplit(url)
    reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=LIMIT)
    target = at.path + (f"?{at.query}" if at.query else "")
    lines = [f"{method} {target} HTTP/1.1", f"Host: {at.netloc}"]
    lines += [f"{name}: {text}" for name, text in headers.items()]
    if method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    try:
        found = await head(reader)
    except BaseException:
        writer.close()
        raise
    if not found:
        writer.close()
        raise ConnectionError(f"{method} {url}: closed without an answer")
    return Answer(int(found[0].split(" ")[1]), found[1], reader, writer)
