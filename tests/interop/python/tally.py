"""A server on the official Python SDK that writes down its starts and its calls, a line each, to the file it is given."""

from __future__ import annotations

import os
import sys
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
    server.run("stdio")
