"""A small server on the official Python SDK: exact numbers, a slow tool, and a child that is hard to end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel, Field

server = MCPServer("interop-python", version="1.0.0", instructions="A server of the interop tests.")
running = 0


class Point(BaseModel):
    x: float
    y: float
    label: str | None = None


class Answer(BaseModel):
    exact: int = Field(description="over 2^53")
    whole: float
    tiny: float
    text: str
    points: list[Point]
    nothing: None = None


@server.tool(title="Numbers and letters that are easily bent")
def exact(points: Annotated[list[Point], Field(description="come back as they are", min_length=1)]) -> Answer:
    """Returns numbers beyond 2^53, a float without a fraction and characters of every plane."""
    return Answer(exact=9007199254740993, whole=1.0, tiny=1e-300, text="\u00fc\u2028\U0001f980 \"\\\u0001", points=points)


@server.tool(structured_output=False)
def loose(anything: dict[str, Any], option: str = "none") -> str:
    """Tells its arguments as Python sees them."""
    return f"{anything!r} {option!r}"


@server.tool(structured_output=False)
def pid() -> str:
    """The process this server runs in."""
    return str(os.getpid())


@server.tool(structured_output=False)
async def slow(seconds: float) -> str:
    """Answers after a while."""
    global running
    running += 1
    try:
        await asyncio.sleep(seconds)
    finally:
        running -= 1
    return f"slept {seconds}"


@server.tool(structured_output=False)
def busy() -> str:
    """How many slow calls run now."""
    return str(running)


@server.resource("interop://note", mime_type="text/plain")
def note() -> str:
    """A fixed text."""
    return "a note of the Python server"


@server.resource("interop://notes/{name}")
def named(name: str) -> str:
    """A text by name."""
    return f"a note called {name}"


@server.prompt()
def greet(name: str) -> str:
    """A greeting."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    if "--with-child" in sys.argv:
        # A child without our pipes that ignores SIGTERM: the host that stops this server must end it, too.
        subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
        )
    server.run("stdio")
