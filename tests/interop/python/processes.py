"""How many processes clients with many sets of capabilities cause, and how long their first list takes.

`few`: six clients with six sets of capabilities only list, at four servers of which one asks. `many`: sixteen clients call
a tool of each server of the interop set. A server's questions decide who shares it, so a server that asks nothing has one
process for all clients.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import time
from contextlib import AsyncExitStack

import clients
import compare
from census import Census, Counted
from peers import ABLE, Peer, call, enter, ran, tools
from world import Report, World

SETS = [(), ("roots",), ("sampling",), ("elicitation",), ("roots", "sampling"), ABLE]
# The most processes of six sets together, at four servers.
TOGETHER = 10
# A list that waits for a server's start takes over a second more than one that waits for none. What the client itself takes
# on a busy machine, lists of known sets show.
SOON = 0.5
# A process without clients is kept for a minute; the rest is a margin for a busy machine.
LEFT = 90
SILENT = 30


def few(world: World, report: Report) -> None:
    node = {name: ["node", world.package(f"server-{name}", "dist/index.js")] for name in ("everything", "memory", "sequential-thinking")}
    host = Counted(world, "few", {
        "everything": spawn([*node["everything"], "stdio"]),  # asks for roots after its start
        "memory": spawn(node["memory"]) | {"env": {"MEMORY_FILE_PATH": str(world.root / "few.jsonl")}},
        "thinking": spawn(node["sequential-thinking"]),
        "time": spawn([str(world.venv / "bin" / "mcp-server-time"), "--local-timezone", "UTC"]),
    })  # fmt: skip
    label = "processes: 6 sets of capabilities at 4 servers"
    with report.check(f"{label}: the daemon is warm"):
        host.wait_connected()
    new: dict[str, tuple[float, list[str]]] = {}
    known: dict[str, tuple[float, list[str]]] = {}

    async def listed(can: tuple[str, ...], stack: AsyncExitStack) -> tuple[float, list[str]]:
        """Returns the time from the first byte to the list, and the servers that it lacks."""
        began = time.monotonic()
        (client,) = await enter(stack, host.url, Peer("few", can, [world.files]))
        names = await tools(client)
        took = time.monotonic() - began
        return took, [each for each in host.names if not any(name.startswith(f"{each}__") for name in names)]

    async def visit() -> None:
        async with AsyncExitStack() as stack:
            for can in SETS:
                new["+".join(can) or "none"] = await listed(can, stack)
            # Processes that open behind the list's answer start soon after it.
            await asyncio.sleep(3)
            for can in SETS:
                known["+".join(can) or "none"] = await listed(can, stack)

    with Census(host.marks) as census:
        with report.check(f"{label}: all list"):
            ran(visit(), 120)
    soon = SOON + max((took for took, _ in known.values()), default=0)
    faults = [f"{can}: {took:.3f} s, without {lacking}" for can, (took, lacking) in new.items() if lacking or took > soon]
    report.line(f"{label}: the first list of a new set is whole, and waits for no start", "; ".join(faults) or None)
    for words, seen in (("new set", new), ("known set", known)):
        print(f"     first list, {words}: {', '.join(f'{can} {took * 1000:.0f} ms' for can, (took, _) in seen.items())}", flush=True)
    print(f"     at most {census.total} processes: {census.peak}", flush=True)
    with report.check(f"{label}: at most {TOGETHER} processes, and one of each that asks nothing"):
        # A client that can answer a question of `everything` may have its own process.
        census.one_each({"everything": TOGETHER - 3})
        if census.total > TOGETHER:
            raise AssertionError(f"{census.total} processes: {census.peak}")
    with report.check(f"{label}: one process per server after the last client"):
        host.back_to_one(LEFT)
    with report.check(f"{label}: none is left"):
        host.over()


def many(world: World, report: Report) -> None:
    servers = world.servers("many")
    one = {name: next(words for method, words in compare.calls(world, name) if method == "tools/call") for name in servers}
    # Clients without a session count as gone after this time without a request.
    host = Counted(world, "many", servers, limits={"sessionIdle": f"{SILENT}s"})
    label = f"processes: 16 clients at {len(host.marks)} servers"
    with report.check(f"{label}: the daemon is warm"):
        host.wait_connected()
    answers: list[str] = []

    async def used(peer: Peer, mode: str, everybody: asyncio.Barrier) -> None:
        async with peer.client(host.url, mode) as client:
            names = await tools(client)
            for server, words in one.items():
                name = f"{server}__{words['name']}"
                fine, said = await call(client, name, words["arguments"])
                if not fine or name not in names:
                    answers.append(f"{peer.name} ({mode}, {peer.can}) at {name}: {said[:200]}")
            # All clients are connected at this moment, and so are their processes.
            await everybody.wait()

    async def visit() -> None:
        kinds = list(itertools.product(SETS, ("legacy", "auto")))
        everybody = asyncio.Barrier(len(kinds))
        async with asyncio.TaskGroup() as group:
            for number, (can, mode) in enumerate(kinds):
                group.create_task(used(Peer(f"many-{number}", can, [world.files]), mode, everybody))

    with Census(host.marks) as census:
        # Four programs on other SDKs call at the same time; all four have the same list of roots.
        others: list[tuple[str, str, subprocess.Popen]] = []
        for who, (kind, era) in enumerate((("typescript", "legacy"), ("typescript2", "any"), ("rmcp", "legacy"), ("rmcp", "any"))):
            given = clients.options("everything", era, 0, ["echo", "progress", "prompts"])
            home = f"many-{who}-{kind}"
            command = clients.script(world, kind) + given + ["--url", host.url]
            others.append((kind, era, world.start(command, world.environment(home), home, stdout=subprocess.PIPE)))
        with report.check(f"{label}: twelve on the Python SDK list, and call a tool of each server"):
            ran(visit(), 240)
            if answers:
                raise AssertionError("; ".join(answers))
        for kind, era, process in others:
            wrong = [f"{name}: {why}" for name, why in clients.lines(process, 120) if why is not None]
            report.line(f"{label}: {kind} ({era}) calls", "; ".join(wrong) or None)
    print(f"     at most {census.total} processes: {census.peak}", flush=True)
    with report.check(f"{label}: one of each, except those that ask"):
        # Two servers ask for roots, of which there are two lists; the third lists pages for clients that show them (MCP Apps).
        census.one_each({"everything": 3, "filesystem": 3, "typescript-sdk": 2})
    with report.check(f"{label}: one process per server after the last client"):
        host.back_to_one(SILENT + LEFT)
    with report.check(f"{label}: none is left"):
        host.over()


def spawn(command: list[str]) -> dict:
    return {"command": command[0], "args": command[1:]}


def checks(world: World, report: Report) -> None:
    few(world, report)
    many(world, report)
