"""Clients that refuse long lists, with 300 tools behind the host, and clients that get large results: by the official SDKs. See
`caps`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sys
import tempfile
from pathlib import Path

from mcp import Client, ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

import tables

HERE = Path(__file__).parent
BINARY, PACKAGES = sys.argv[1:]
PATIENCE = 60
#: What clients say of themselves, and how many tools they take.
CLIENTS = [("cursor-vscode", 40), ("Visual Studio Code", 128), ("somebody", 128)]
CATALOGS = {"search": {"mode": "search"}, "auto": {"mode": "auto"}}


class Refused(Exception):
    """The client takes no list that is so long."""


async def listed(client: ClientSession | Client, most: int) -> list[str]:
    """Returns the names of all tools, as a client that takes no more than `most`."""
    names, cursor = [], None
    while True:
        if isinstance(client, ClientSession):
            page = await client.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        else:
            page = await client.list_tools(cursor=cursor)
        names += [tool.name for tool in page.tools]
        if len(names) > most:
            raise Refused(f"{len(names)} tools or more; {most} at most")
        cursor = page.next_cursor
        if cursor is None:
            return names


def text(result: types.CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if part.type == "text")


async def works(client: ClientSession | Client, most: int) -> None:
    """Lists, finds a tool, calls it by `call_tool` and by its name."""
    names = await listed(client, most)
    assert {"find_tools", "call_tool"} <= set(names), names
    found = text(await client.call_tool("find_tools", {"query": "thing number 73 of beta"}))
    assert "beta__act_73(" in found, found
    wanted = {"tool": "act_73", "server": "beta", "text": "hello"}
    arguments = {"name": "beta__act_73", "arguments": {"text": "hello"}}
    for call in ("call_tool", arguments), ("beta__act_73", {"text": "hello"}):
        result = await client.call_tool(*call)
        assert json.loads(text(result)) == wanted, result


async def cut(client: ClientSession | Client, _: int) -> None:
    """Calls a tool whose result is cut: the SDK checks what is left by the output schema. Reads the rest by pages."""
    await listed(client, 10)
    result = await client.call_tool("tables__rows", {})
    rows, whole = result.structured_content["rows"], tables.table()
    assert 2 <= len(rows) < tables.ROWS and rows == whole["rows"][: len(rows)], len(rows)
    found = re.search(r'with id "([^"]+)"', text(result))
    assert found, text(result)
    pages, number = [], 1
    while True:
        page = text(await client.call_tool("read_result", {"id": found[1], "page": number}))
        body, mark, _ = page.partition("\n[mcp-host: page ")
        pages.append(body)
        if not mark:
            break
        number += 1
    assert json.loads("".join(pages)) == whole, f"{number} pages"


def command(home: Path, catalog: dict) -> StdioServerParameters:
    names = ("alpha", "beta", "gamma")
    servers = {name: {"command": sys.executable, "args": [str(HERE / "many.py"), name]} for name in names}
    return host(home, {"catalog": catalog}, servers)


def of_tables(home: Path) -> StdioServerParameters:
    servers = {"tables": {"command": sys.executable, "args": [str(HERE / "tables.py")]}}
    return host(home, {"results": {"limit": "20KiB"}}, servers)


def host(home: Path, settings: dict, servers: dict) -> StdioServerParameters:
    config = home / "config.json"
    config.write_text(json.dumps({"host": settings, "mcpServers": servers}))
    return StdioServerParameters(
        command=BINARY, args=["stdio", "--own", "--config", str(config)], env={"HOME": str(home), "PATH": "/usr/bin:/bin"}
    )


async def with_session(parameters: StdioServerParameters, name: str, most: int, check=works) -> None:
    info = types.Implementation(name=name, version="1")
    with open("/dev/null", "w") as nowhere:
        async with stdio_client(parameters, errlog=nowhere) as (read, write):
            async with ClientSession(read, write, client_info=info) as session:
                await session.initialize()
                await check(session, most)


async def by_default(parameters: StdioServerParameters, name: str, most: int, check=works) -> None:
    """The SDK's own client, which chooses the revision."""
    info = types.Implementation(name=name, version="1")
    with open("/dev/null", "w") as nowhere:
        async with Client(stdio_client(parameters, errlog=nowhere), client_info=info) as client:
            await check(client, most)


async def main() -> int:
    passed = failed = 0
    for way in with_session, by_default:
        for name, most in CLIENTS:
            if way is by_default and most < 128:
                continue  # Without a session, the view and the principal decide alone.
            for mode, catalog in {**CATALOGS, "full": {}}.items():
                with tempfile.TemporaryDirectory() as home:
                    wants_refusal = mode == "full"
                    try:
                        await asyncio.wait_for(way(command(Path(home), catalog), name, most), PATIENCE)
                        told, holds = "works", not wants_refusal
                    except BaseException as error:  # noqa: BLE001, the SDK groups exceptions
                        refused = refusal(error)
                        told, holds = str(refused or repr(error)), refused is not None and wants_refusal
                passed, failed = passed + holds, failed + (not holds)
                print(f"{'ok  ' if holds else 'FAIL'} {way.__name__:13} {name:20} {most:4} {mode:7} {told}", flush=True)
        with tempfile.TemporaryDirectory() as home:
            try:
                await asyncio.wait_for(way(of_tables(Path(home)), "somebody", 10, cut), PATIENCE)
                told, holds = "works", True
            except BaseException as error:  # noqa: BLE001
                told, holds = repr(error), False
        passed, failed = passed + holds, failed + (not holds)
        print(f"{'ok  ' if holds else 'FAIL'} {way.__name__:13} {'a result that is cut':33} {told}", flush=True)
    for sdk in "1", "2":
        with tempfile.TemporaryDirectory() as home:
            told = await by_typescript(of_tables(Path(home)), sdk)
        holds = told == "works"
        passed, failed = passed + holds, failed + (not holds)
        print(f"{'ok  ' if holds else 'FAIL'} {'TypeScript ' + sdk:13} {'a result that is cut':33} {told}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


async def by_typescript(parameters: StdioServerParameters, sdk: str) -> str:
    """Does the same as `cut` by an SDK for TypeScript; returns what went wrong."""
    words = [str(HERE / "cut.mjs"), PACKAGES, sdk, parameters.command, *parameters.args]
    environment = {**parameters.env, "PATH": os.environ["PATH"]}
    child = await asyncio.create_subprocess_exec("node", *words, env=environment, stderr=asyncio.subprocess.PIPE)
    try:
        _, said = await asyncio.wait_for(child.communicate(), PATIENCE)
    except TimeoutError:
        child.kill()
        await child.wait()
        return f"it takes longer than {PATIENCE} s"
    lines = [line for line in said.decode(errors="replace").splitlines() if line.strip()]
    return "works" if child.returncode == 0 else " | ".join(lines[:8])


def refusal(error: BaseException) -> Refused | None:
    """Finds the refusal in what the SDK raises."""
    if isinstance(error, Refused):
        return error
    return next((found for each in getattr(error, "exceptions", ()) if (found := refusal(each))), None)


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # It says that a tool which is called is not listed.
    sys.exit(asyncio.run(main()))
