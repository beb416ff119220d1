"""Playwright's server with a real browser: clients keep their pages when their roots change, and do not see each other's.

It asks for roots at its first call, so the key of a process is the list of roots. The only client of a list keeps its
process and browser when its roots change. A client that shares its list shares the browser, until its own roots change.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from census import Census, Counted
from mcp import Client
from peers import Peer, call, enter, ran, tools
from processes import LEFT, spawn
from sharing import expect
from world import Report, World, alive

PATIENCE = 120


async def evaluate(client: Client, function: str) -> str:
    fine, text = await call(client, "browser__browser_evaluate", {"function": function})
    expect(fine, text)
    return text


async def visits(client: Client, page: str, mark: str) -> None:
    """Opens the page and sets a mark in its memory, which no other or later browser has."""
    fine, text = await call(client, "browser__browser_navigate", {"url": page})
    expect(fine, text)
    expect(mark in await evaluate(client, f"() => window.mark = '{mark}'"), mark)


def checks(world: World, report: Report) -> None:
    program = world.npm.parent / "browser" / "node_modules" / "@playwright" / "mcp" / "cli.js"
    options = ["--executable-path", str(world.chromium), "--headless", "--no-sandbox", "--isolated"]
    folder = world.root / "browser"
    folder.mkdir()
    host = Counted(world, "browser", {"browser": spawn(["node", str(program), *options]) | {"cwd": str(folder)}})
    mark = host.marks["browser"]
    lists = [world.root / "roots-of-browser" / name for name in ("one", "two", "three")]
    for each in lists:
        each.mkdir(parents=True)
    one, two = Peer("one", ("roots",), [lists[0]]), Peer("two", ("roots", "sampling"), [lists[1]])

    async def changes(client: Client, peer: Peer, number: int) -> None:
        """Changes the roots, and waits until the host has asked for them."""
        before = len(peer.asked)
        peer.roots = [lists[number]]
        await client.send_roots_list_changed()
        async with asyncio.timeout(10):
            while len(peer.asked) == before:
                await asyncio.sleep(0.05)

    async def visit(census: Census) -> None:
        async with AsyncExitStack() as stack:
            (first,) = await enter(stack, host.url, one)
            with report.check("browser: a client opens a page"):
                expect("browser__browser_navigate" in await tools(first), "no tools")
                await visits(first, world.page, "of-one")
            with report.check("browser: its roots change, and it keeps its process, its browser and its page"):
                before = census.look()["browser"]
                await changes(first, one, 2)
                expect("of-one" in await evaluate(first, "() => window.mark"), "another browser")
                expect(census.look()["browser"] == before, (before, census.look()))
                expect(len(browsers(mark)) == 1, browsers(mark))
            (second,) = await enter(stack, host.url, two)
            with report.check("browser: a client with other roots has its own browser"):
                await visits(second, world.page, "of-two")
                expect("of-one" in await evaluate(first, "() => window.mark"), "it lost its page")
                expect("of-two" in await evaluate(second, "() => window.mark"), "it lost its page")
                expect(len(browsers(mark)) == 2, browsers(mark))

    with report.check("browser: the server is connected"):
        host.wait_connected()
    # Without the browser's own processes: some of those have no parent.
    with Census(host.marks, host.process.pid) as census:
        ran(visit(census), PATIENCE)
    with report.check("browser: at most one process per list of roots, and one that lists"):
        census.one_each({"browser": 3})
    with report.check("browser: one process after the last client, and no browser without a client"):
        host.back_to_one(LEFT)
    with report.check("browser: no process is left, not of the browser either"):
        host.over()


def browsers(mark: str) -> dict[int, str]:
    """Returns the browsers' main processes."""
    return {pid: words[:80] for pid, words in alive(mark).items() if "--remote-debugging" in words and "--type=" not in words}
