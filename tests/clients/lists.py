"""Starts what stands in a client's file, by the official Python SDK, and prints the names of the tools that it lists.

    lists.py PROCESSES COMMAND...

Reads from standard input: a JSON list of [name, command, args]. All are started at once and listed. While all of them are connected,
the command prints the status of the host, until its servers have PROCESSES processes or half a minute is over. Then all are ended.
"""

import asyncio
import contextlib
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.types import PaginatedRequestParams


async def names(session):
    found, cursor = [], None
    while True:
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        found += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            return sorted(found)


async def processes(command):
    status = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await status.communicate()
    return sum(server["leases"] for server in json.loads(said)["servers"])


async def main():
    listed = {}
    async with contextlib.AsyncExitStack() as stack:
        for name, command, args in json.load(sys.stdin):
            server = StdioServerParameters(command=command, args=args, env=dict(os.environ))
            read, write = await stack.enter_async_context(stdio_client(server))
            session = await stack.enter_async_context(ClientSession(read, write))
            await session.initialize()
            listed[name] = await names(session)
        # Lists are answered before the servers are up.
        for _ in range(60):
            count = await processes(sys.argv[2:])
            if count >= int(sys.argv[1]):
                break
            await asyncio.sleep(0.5)
    json.dump({"listed": listed, "processes": count}, sys.stdout)


asyncio.run(main())
