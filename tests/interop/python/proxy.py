"""A proxy on the official Python SDK, which offers everything of a server again over stdio.

    proxy.py FILE --url URL
    proxy.py FILE -- COMMAND ARGUMENTS...

The SDK starts a command with a short environment of its own, so variables of its parent do not arrive. Each time the proxy
lists its tools, it asks the server again, writes a line to FILE, and announces a few times that they have changed. Its own
tool `relay` calls a tool of the server, as an agent does that is itself a server.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.stdio import stdio_server

CHANGES = 6
OWN = types.Tool(name="relay", input_schema={"type": "object", "properties": {"tool": {"type": "string"}}})


def target(words: list[str]) -> Any:
    if words[0] == "--url":
        return words[1]
    return StdioServerParameters(command=words[1], args=words[2:])


async def main() -> None:
    notes, behind = Path(sys.argv[1]), target(sys.argv[2:])
    asked = 0

    async def list_tools(context: Any, _params: Any) -> types.ListToolsResult:
        nonlocal asked
        asked += 1
        async with Client(behind) as client:
            tools = (await client.list_tools()).tools
        with notes.open("a") as out:
            out.write(f"{len(tools)}\n")
        if asked <= CHANGES:
            asyncio.get_running_loop().call_later(
                0.3, lambda: asyncio.ensure_future(context.session.send_tool_list_changed())
            )
        return types.ListToolsResult(tools=[OWN, *tools])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        async with Client(behind) as client:
            return await client.call_tool(params.arguments["tool"], {})

    server = Server("proxy", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        await server.run(read, write, options)


if __name__ == "__main__":
    asyncio.run(main())
