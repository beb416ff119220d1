"""The side channel: scripted servers report to the harness directly, past the host."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from pathlib import Path


class Control:
    """The harness's end. It finds events by name and mark, whenever they came."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: dict[tuple[str, str], list[dict]] = {}
        self.violations: list[str] = []
        self.news = asyncio.Condition()

    async def start(self) -> None:
        server = await asyncio.start_server(self.listen, "127.0.0.1", 0, backlog=512)
        self.port = server.sockets[0].getsockname()[1]

    async def listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                said = json.loads(line)
                if said["event"] == "violation":
                    self.violations.append(f"{said['who']}: {said['mark']}")
                async with self.news:
                    self.seen.setdefault((said["event"], said["mark"]), []).append(said)
                    self.news.notify_all()
        except (ConnectionError, asyncio.CancelledError):  # the run has ended
            pass
        finally:
            writer.close()

    async def wait(self, event: str, mark: str, seconds: float = 10) -> dict:
        """Returns the first such event; raises TimeoutError if none comes."""
        async with asyncio.timeout(seconds), self.news:
            await self.news.wait_for(lambda: (event, mark) in self.seen)
        return self.seen[event, mark][0]


class Side:
    """A server's end: blocking, one line per event, closed with the process."""

    def __init__(self, port: int, alias: str, state: Path) -> None:
        self.state = state  # a directory for the state that all processes of a run share
        self.who = f"{alias}#{os.getpid()}"
        self.socket = socket.create_connection(("127.0.0.1", port)) if port else None

    def say(self, event: str, mark: str, **more: object) -> None:
        if self.socket:
            line = json.dumps({"event": event, "mark": mark, "who": self.who, **more}) + "\n"
            try:
                self.socket.sendall(line.encode())
            except OSError:  # the harness has ended
                self.socket = None

    def violation(self, what: str) -> None:
        self.say("violation", what[:600])
