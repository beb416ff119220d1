"""A server on the official Python SDK that records its starts and its calls, one line each.

    tally.py FILE [SECONDS]     over stdio; SECONDS delays its start, like a first download
    tally.py FILE --port PORT   over HTTP, at /mcp
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("interop-tally", version="1.0.0")
book = Path(sys.argv[1])


def write(line: str) -> None:
    with book.open("a") as out:
        out.write(f"{line}\n")


@server.tool(structured_output=False)
def note(word: str) -> str:
    """Writes a word down. Use this whenever a word is to be noted."""
    write(f"call {os.getpid()} {word}")
    return f"noted {word}"


if __name__ == "__main__":
    write(f"start {os.getpid()}")
    words = sys.argv[2:]
    if words[:1] == ["--port"]:
        server.run("streamable-http", port=int(words[1]))
    else:
        time.sleep(float(words[0]) if words else 0)
        server.run("stdio")
