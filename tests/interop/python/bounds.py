"""How many processes twelve clients of all eight profiles may have at ten servers whose questions are known.

Six servers ask nothing and have one process for all clients. Two ask for roots: one process per list of roots, of which
there are three, and the one from the start. One asks for sampling and one for elicitation: one process for each client that
can answer, and one for all others. An earlier run of the same host has learned this. Processes are counted every 20 ms, not
only while all clients are connected.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from pathlib import Path

import compare
from census import Census, Counted
from mcp import Client
from peers import ABLE, Peer, call, ran, tools
from processes import LEFT, spawn
from sharing import expect, shows
from world import Report, World

PACE = 0.02
QUIET = ("memory", "thinking", "time", "git", "fetch", "python-sdk")
ROOTS = ("folder", "other-folder")
SAMPLES, CONFIRMS = "everything-old", "couchbase"
CONFIRMED = "get_server_configuration_status"
# Every set of capabilities, and four of them twice.
PROFILES = [tuple(itertools.compress(ABLE, bits)) for bits in itertools.product((False, True), repeat=len(ABLE))]
PROFILES += [(), ("roots",), ("sampling", "elicitation"), ABLE]


def entries(world: World) -> dict[str, dict]:
    servers = {name: entry for name, entry in world.servers("bounds").items() if name in QUIET}
    for name in ROOTS:
        folder = world.root / name
        folder.mkdir()
        servers[name] = spawn(["node", world.package("server-filesystem", "dist/index.js"), str(folder)])
    servers[SAMPLES] = spawn(["node", str(world.npm / "node_modules" / "everything-old" / "dist" / "index.js")])
    program = str(world.npm.parent / "couchbase" / "bin" / "couchbase-mcp-server")
    servers[CONFIRMS] = spawn([program, "--confirmation-required-tools", CONFIRMED])
    return servers


async def asked(client: Client, peer: Peer) -> None:
    """Calls both servers that ask: a client that can answer is asked once, for its own call; no other client is."""
    before = len(peer.asked)
    fine, text = await call(client, f"{SAMPLES}__sampleLLM", {"prompt": f"from {peer.name}", "maxTokens": 5})
    expect(fine == ("sampling" in peer.can) and (not fine or f"sampled by {peer.name}" in text), (peer.name, text))
    fine, text = await call(client, f"{CONFIRMS}__{CONFIRMED}")
    expect(text and (fine or "elicitation" not in peer.can), (peer.name, text))
    questions = [each.partition(" ")[0] for each in peer.asked[before:] if each != "roots"]
    expect(questions == [each for each in ("sampling", "elicitation") if each in peer.can], (peer.name, peer.asked))


def learned(world: World, host: Counted) -> None:
    """Runs a host until it has learned what its servers ask."""
    peer = Peer("first", ABLE, [world.files], content={"confirm": True})

    async def visit() -> None:
        async with peer.client(host.url) as client:
            await tools(client)
            await asked(client, peer)

    host.wait_connected()
    ran(visit(), 90)
    host.over()


def known(host: Counted) -> None:
    """Checks what a new host knows, by its own words."""
    wanted = dict.fromkeys(host.names, "has asked clients nothing") | dict.fromkeys(ROOTS, "asks clients for roots:")
    wanted |= {SAMPLES: "asks clients for sampling:", CONFIRMS: "asks clients for elicitation:"}
    said = {name: row["sharing"][0] for name, row in host.status().items()}
    wrong = {name: said.get(name) for name, words in wanted.items() if not str(said.get(name)).startswith(words)}
    expect(not wrong, wrong)


def checks(world: World, report: Report) -> None:
    label = f"bounds: {len(PROFILES)} clients of {len(set(PROFILES))} profiles at 10 known servers"
    host = Counted(world, "bounds", entries(world))
    expect(len(host.names) == 10, host.names)
    with report.check(f"{label}: an earlier run of the host has learned what they ask"):
        learned(world, host)
        host.begin()
        host.wait_connected()
        known(host)
        host.back_to_one(5)
    one = {name: next(words for method, words in compare.calls(world, name) if method == "tools/call") for name in QUIET}
    lists = [[world.root / "lists-of-bounds" / each] for each in ("one", "two", "three")]
    for (folder,) in lists:
        folder.mkdir(parents=True)
    peers: list[Peer] = []
    for number, can in enumerate(PROFILES):
        told = sum("roots" in each.can for each in peers)
        peers.append(Peer(f"peer-{number}", can, lists[told % len(lists)] if "roots" in can else [], content={"confirm": True}))

    faults: list[str] = []

    async def through(peer: Peer, everybody: asyncio.Barrier) -> None:
        try:
            await used(peer, everybody)
        except Exception as error:  # the others do not wait for it, and all faults are reported
            while isinstance(error, ExceptionGroup):
                error = error.exceptions[0]
            if not isinstance(error, asyncio.BrokenBarrierError):
                faults.append(f"{peer.name} {peer.can}: {error!r}")
            await everybody.abort()

    # The fetch server blocks while it reads a page, so a dozen calls at once would time out.
    turn = asyncio.Lock()

    async def used(peer: Peer, everybody: asyncio.Barrier) -> None:
        async with peer.client(host.url) as client:
            names = await tools(client)
            lacking = [each for each in host.names if not any(name.startswith(f"{each}__") for name in names)]
            expect(not lacking, f"{peer.name}: without {lacking}")
            for server, words in one.items():
                async with turn if server == "fetch" else contextlib.nullcontext():
                    fine, said = await call(client, f"{server}__{words['name']}", words["arguments"])
                expect(fine, (peer.name, server, said))
            for server in ROOTS:
                folder: Path = peer.roots[0] if peer.roots else world.root / server
                await shows(client, f"{server}__list_allowed_directories", folder)
            await asked(client, peer)
            # All clients are connected at this moment, and so are their processes.
            await everybody.wait()
            await asked(client, peer)

    async def visit() -> None:
        everybody = asyncio.Barrier(len(peers))
        async with asyncio.TaskGroup() as group:
            for peer in peers:
                group.create_task(through(peer, everybody))

    able = {name: sum(can in each for each in PROFILES) for name, can in ((SAMPLES, "sampling"), (CONFIRMS, "elicitation"))}
    allowed = dict.fromkeys(ROOTS, 1 + len(lists)) | {name: 1 + count for name, count in able.items()}
    together = len(QUIET) + sum(allowed.values())
    began = time.monotonic()
    with Census(host.marks, host.process.pid, PACE) as census:
        with report.check(f"{label}: each lists and calls at each, has its own roots, and is asked what it can answer"):
            ran(visit(), 240)
            expect(not faults, faults)
        took = time.monotonic() - began
    print(f"     at most {census.total} processes: {census.peak}; {census.looks} looks in {took:.1f} s", flush=True)
    k = next(iter(able.values()))
    with report.check(f"{label}: at most 6 + 2 x ({k} + 1) + 2 x 4 = {together} at any moment"):
        expect(together == 6 + 2 * (k + 1) + 2 * 4, able)
        census.one_each(allowed)
        expect(census.total <= together, f"{census.total}: {census.peak}")
        expect(census.peak[SAMPLES] > 1 and census.peak[ROOTS[0]] > 1, f"nothing was counted: {census.peak}")
        expect(census.looks > took / PACE / 4, f"looked {census.looks} times in {took:.1f} s")
    with report.check(f"{label}: one process per server after the last client"):
        left = time.monotonic()
        host.back_to_one(LEFT)
        print(f"     {time.monotonic() - left:.0f} s after the last client", flush=True)
    with report.check(f"{label}: none is left"):
        host.over()
