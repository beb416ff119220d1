"""The server's end of stdio: one message per line, strictly one era."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from control import Side
from serving import legacy, modern, rules
from words import R26
from words import modern as is_modern

LIMIT = 16 * 1024 * 1024


async def lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def write(message: object) -> None:
    """Writes a whole message at once: answers here are small, and the client reads."""
    data = json.dumps(message).encode() + b"\n"
    os.set_blocking(1, True)
    while data:
        data = data[os.write(1, data) :]


async def serve(alias: str, revision: str, side: Side) -> None:
    reader = await lines()
    end = Modern(alias, side) if is_modern(revision) else Legacy(alias, revision, side)
    while line := await reader.readline():
        try:
            message = json.loads(line)
        except ValueError:
            side.violation(f"not JSON: {line[:100]!r}")
            continue
        end.receive(message)
    end.end()


class Legacy:
    """One session, as long as the process lives. A probe for the stateless revision is refused."""

    def __init__(self, alias: str, revision: str, side: Side) -> None:
        self.revision, self.side = revision, side
        self.session = legacy.Session(alias, revision, side, lambda message, _: write(message))

    def receive(self, message: object) -> None:
        if isinstance(message, list):
            if not rules.batches(self.revision) or not message:
                return self.side.violation(f"{self.revision}: a batch")
            for one in message:
                self.session.receive(one)
        elif legacy.claims_modern(message) and message.get("method") == "server/discover" and "id" in message:
            if self.session.stage != "new":
                self.side.violation(f"{self.revision}: server/discover in a session")
            write({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "what?"}})
        else:
            self.session.receive(message)

    def end(self) -> None:
        self.session.end()


class Modern:
    """Serves requests concurrently; a probing `initialize` is told which revision this server speaks."""

    def __init__(self, alias: str, side: Side) -> None:
        self.engine, self.side = modern.Engine(alias, side), side
        self.seen: set = set()
        self.methods: list[str] = []  # the latest ones
        self.running: dict[object, asyncio.Task] = {}

    def receive(self, message: object) -> None:
        if isinstance(message, dict) and message.get("method") == "initialize" and "id" in message:
            # A client may fall back once after a slow probe.
            self.methods.append("initialize")
            if set(self.methods[:-1]) - {"server/discover"}:
                self.side.violation(f"initialize to a modern server after {self.methods[:-1]}")
            data = {"supported": [R26], "requested": message.get("params", {}).get("protocolVersion")}
            error = {"code": -32022, "message": "no handshake here", "data": data}
            return write({"jsonrpc": "2.0", "id": message["id"], "error": error})
        if not self.engine.check(message, stdio=True):
            if isinstance(message, dict) and "id" in message and "method" in message:
                error = {"code": -32601, "message": "not here"}
                write({"jsonrpc": "2.0", "id": message["id"], "error": error})
            return
        if "id" not in message:
            return self.cancel(message.get("params", {}).get("requestId"))
        id = message["id"]
        if id in self.seen:
            self.side.violation(f"id {id!r} again")
        self.seen.add(id)
        self.methods = [*self.methods[-8:], message["method"]]
        self.running[id] = asyncio.create_task(self.one(message))

    async def one(self, message: dict) -> None:
        response = await self.engine.serve(message, write)
        self.running.pop(message["id"], None)
        write(response)

    def cancel(self, id: object) -> None:
        if id not in self.seen:
            self.side.violation(f"cancels {id!r}, an unknown request")
        elif task := self.running.pop(id, None):
            task.cancel()

    def end(self) -> None:
        for task in self.running.values():
            task.cancel()
