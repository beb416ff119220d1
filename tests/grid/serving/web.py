"""The server's end of Streamable HTTP and of HTTP+SSE: strictly one era, strictly one of the two."""

from __future__ import annotations

import asyncio
import json
import secrets

from control import Side
from serving import legacy, modern, rules, tools
from wire.http import Asked
from words import R25A, R25C, R26

HTTP_STATUS = {-32601: 404, -32021: 400, -32020: 400, -32022: 400}


def parsed(asked: Asked, side: Side) -> object:
    for fault in rules.posted(asked.headers):
        side.violation(fault)
    try:
        return json.loads(asked.body)
    except ValueError:
        side.violation(f"not JSON: {asked.body[:100]!r}")
        return None


class LegacyHttp:
    """Streamable HTTP with sessions, for any of the four revisions."""

    def __init__(self, alias: str, revision: str, side: Side) -> None:
        self.alias, self.revision, self.side = alias, revision, side
        self.sessions: dict[str, Web] = {}

    async def handle(self, asked: Asked) -> None:
        if asked.path != "/mcp":
            return asked.plain(404)
        message = parsed(asked, self.side) if asked.method == "POST" else None
        if legacy.claims_modern(message):
            if message.get("method") != "server/discover" or "mcp-session-id" in asked.headers:
                self.side.violation(f"{self.revision}: {message}")
            error = {"code": -32000, "message": "Bad Request: Server not initialized"}
            return asked.plain(400, {"jsonrpc": "2.0", "id": None, "error": error})
        if isinstance(message, dict) and message.get("method") == "initialize":
            id = secrets.token_urlsafe(16)
            web = self.sessions[id] = Web(self, id)
            self.check(asked, None)
            return await web.post(asked, message)
        id = asked.header("mcp-session-id") or ""
        web = self.sessions.get(id)
        if web is None:
            self.side.violation(f"{self.revision}: {asked.method} under session {id!r}")
            return asked.plain(404)
        self.check(asked, id)
        if asked.method == "POST":
            await web.post(asked, message)
        elif asked.method == "GET":
            await web.get(asked)
        else:
            del self.sessions[id]
            web.close()
            asked.plain(200)

    def check(self, asked: Asked, session: str | None) -> None:
        for fault in rules.legacy_headers(self.revision, asked.headers, session is None, session):
            self.side.violation(f"{self.revision}: {fault}")


class Web:
    """One session: a stream per request, and one for messages that belong to none."""

    def __init__(self, http: LegacyHttp, id: str) -> None:
        self.http, self.id = http, id
        self.session = legacy.Session(http.alias, http.revision, http.side, self.send)
        self.posts: dict[object, tuple[Asked, asyncio.Event]] = {}
        self.stream: Asked | None = None
        self.waiting: list = []
        self.events = 0
        self.closed = asyncio.Event()

    async def post(self, asked: Asked, message: object) -> None:
        batch = message if isinstance(message, list) else [message]
        if batch is message and (self.http.revision != R25A or not batch):
            self.http.side.violation(f"{self.http.revision}: a batch")
        requests = [one for one in batch if isinstance(one, dict) and "method" in one and "id" in one]
        if len(requests) > 1:
            self.http.side.violation("a batch of requests, which this server accepts only one by one")
        if not requests:
            for one in batch:
                self.session.receive(one)
            return asked.plain(202)
        done = asyncio.Event()
        id = requests[0]["id"]
        self.posts[id] = (asked, done)
        if requests[0]["method"] in ("tools/call", "prompts/get"):
            self.open(asked)
        self.session.receive(requests[0])
        # A client that disconnects has not canceled: the work continues.
        ended = {asyncio.create_task(event.wait()) for event in (done, self.closed)}
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.cancel()
        self.posts.pop(id, None)
        if not asked.answered:
            asked.plain(404)

    def open(self, asked: Asked) -> None:
        asked.stream()
        if self.http.revision >= R25C:
            asked.event("", id=self.number())  # primes the stream: an id, and data that is not a message

    def number(self) -> str:
        self.events += 1
        return f"{self.id}-{self.events}"

    def send(self, message: dict | list, id: object) -> None:
        asked, done = self.posts.get(id, (None, None)) if id is not None else (None, None)
        if asked is None:
            if self.stream is None or self.stream.gone.is_set():
                return self.waiting.append(message)
            return self.stream.event(message, id=self.number())
        last = isinstance(message, dict) and "method" not in message
        if last and not asked.streaming:
            headers = {"Mcp-Session-Id": self.id} if "protocolVersion" in message.get("result", {}) else {}
            # A client of the revision with batches must accept a response in one.
            asked.plain(200, [message] if self.http.revision == R25A and not headers else message, headers)
        else:
            if not asked.streaming:
                self.open(asked)
            asked.event(message, id=self.number())
        if last:
            done.set()

    async def get(self, asked: Asked) -> None:
        if self.stream is not None and not self.stream.gone.is_set():
            return asked.plain(409)
        if "last-event-id" in asked.headers and not asked.headers["last-event-id"].startswith(self.id):
            self.http.side.violation(f"Last-Event-ID {asked.headers['last-event-id']!r} of another session")
        asked.stream()
        self.stream = asked
        waiting, self.waiting = self.waiting, []
        for message in waiting:
            asked.event(message, id=self.number())
        ended = {asyncio.create_task(event.wait()) for event in (asked.gone, self.closed)}
        await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.cancel()

    def close(self) -> None:
        self.session.end()
        self.closed.set()


class Sse:
    """HTTP+SSE: one stream per session, an endpoint to post to; its end is the end of the session."""

    def __init__(self, alias: str, revision: str, side: Side) -> None:
        self.alias, self.revision, self.side = alias, revision, side
        self.sessions: dict[str, legacy.Session] = {}

    async def handle(self, asked: Asked) -> None:
        if asked.method == "GET" and asked.path == "/sse":
            await self.open(asked)
        elif asked.method == "POST" and asked.path == "/messages":
            self.post(asked)
        else:
            asked.plain(405 if asked.path == "/sse" else 404)  # a client tries Streamable HTTP first

    async def open(self, asked: Asked) -> None:
        if "text/event-stream" not in asked.headers.get("accept", ""):
            self.side.violation(f"Accept: {asked.headers.get('accept')} for a stream")
        id = secrets.token_urlsafe(16)
        send = lambda message, _: asked.event(message, event="message")  # noqa: E731
        self.sessions[id] = legacy.Session(self.alias, self.revision, self.side, send)
        asked.stream()
        asked.event(f"/messages?session={id}", event="endpoint")
        await asked.gone.wait()
        self.sessions.pop(id).end()

    def post(self, asked: Asked) -> None:
        session = self.sessions.get(asked.query.get("session", ""))
        if session is None:
            return asked.plain(404)
        if asked.headers.get("content-type", "").split(";")[0] != "application/json":
            self.side.violation(f"Content-Type: {asked.headers.get('content-type')}")
        version = asked.headers.get("mcp-protocol-version")
        wanted = self.revision if session.stage != "new" and self.revision >= "2025-06-18" else None
        if version != wanted and not (version is None and session.stage == "initializing"):
            self.side.violation(f"MCP-Protocol-Version {version!r}, not {wanted!r}")
        asked.plain(202)
        message = json.loads(asked.body)
        if isinstance(message, list) and self.revision != R25A:
            self.side.violation(f"{self.revision}: a batch")
        for one in message if isinstance(message, list) else [message]:
            session.receive(one)


class ModernHttp:
    """POST only; a disconnect cancels."""

    def __init__(self, alias: str, side: Side) -> None:
        self.engine, self.side = modern.Engine(alias, side), side
        self.was_asked = False

    async def handle(self, asked: Asked) -> None:
        if asked.path != "/mcp":
            return asked.plain(404)
        if asked.method != "POST":
            self.side.violation(f"{R26}: {asked.method}")
            return asked.plain(405)
        message = parsed(asked, self.side)
        if message.get("method") == "initialize":
            # A host may ask once whether there are sessions, too, for its clients with a session.
            for fault in rules.initialize(message.get("params", {})):
                self.side.violation(f"{R26}: {fault}")
            if self.was_asked:
                self.side.violation(f"{R26}: `initialize` again, after it was refused")
            self.was_asked = True
            error = {"code": -32601, "message": "there are no sessions"}
            return asked.plain(404, {"jsonrpc": "2.0", "id": message.get("id"), "error": error})
        if not self.engine.check(message, stdio=False):
            error = {"code": -32602, "message": "not like this"}
            return asked.plain(400, {"jsonrpc": "2.0", "id": None, "error": error})
        wanted = tools.mirrored(message.get("params", {}).get("name"), R26)
        for fault in rules.modern_headers(message, asked.headers, wanted):
            self.side.violation(f"{R26}: {fault}")
        work = asyncio.create_task(self.answer(asked, message))
        gone = asyncio.create_task(asked.gone.wait())
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)

    async def answer(self, asked: Asked, message: dict) -> None:
        def send(notice: dict) -> None:
            if not asked.streaming:
                asked.stream({"X-Accel-Buffering": "no"})
            asked.event(notice)

        response = await self.engine.serve(message, send)
        if asked.streaming:
            asked.event(response)
        else:
            asked.plain(HTTP_STATUS.get(response.get("error", {}).get("code"), 200), response)
