"""Clients of the official Python SDK, as `clients.mjs`.

clients.py URL COUNT
"""

import json
import sys

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

URL, COUNT = sys.argv[1], int(sys.argv[2])
errors, ended, state = [], [], {"went": 0}
WAITING = 5


async def client(number, ready, go):
    async with streamable_http_client(URL) as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            await session.initialize()
            running = anyio.Event()

            async def progress(*_):
                running.set()

            async def wait():
                try:
                    result = await session.call_tool("it__wait", {"py": number}, progress_callback=progress)
                    failed = getattr(result, "is_error", None) or getattr(result, "isError", None)
                    meta = getattr(result, "meta", None) or {}
                    ended.append(meta.get("mcp-host/error", {}).get("kind") if failed else "answered")
                except Exception as error:
                    ended.append(f"error: {error}")

            async with anyio.create_task_group() as tasks:
                if number < WAITING:
                    tasks.start_soon(wait)
                    await running.wait()
                ready.release()
                await go.wait()
                try:
                    listed = await session.list_tools()
                    said = await session.call_tool("it__echo", {"py": number})
                    state["went"] += len(listed.tools) == 2 and str(number) in said.content[0].text
                except Exception as error:
                    errors.append(f"request: {error}")


async def main():
    ready, go = anyio.Semaphore(0), anyio.Event()
    async with anyio.create_task_group() as tasks:
        for number in range(COUNT):
            tasks.start_soon(client, number, ready, go)
        for _ in range(COUNT):
            await ready.acquire()
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        go.set()
    print(json.dumps({**state, "ended": ended, "errors": errors}), flush=True)


anyio.run(main)
