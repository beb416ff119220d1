"""Generates the cells, runs them, and counts; see `run`."""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import re
import sys
import time
from collections.abc import Awaitable
from contextlib import nullcontext
from pathlib import Path

from client.base import Client
from corners import FEATURES, HOSTED
from features import Pair
from forgotten import FORGOTTEN
from official import Official, Packages
from report import Report
from words import R25B, R25C, R26, SHORT, Peer, peers
from world import World, open_client, warm_up

AT_ONCE = 8  # pairs
PACE = 0.025  # seconds between two calls of one client in the crowd


async def one_pair(pair: Pair, features: list[str], world: World, report: Report) -> None:
    silent = pair.up.modern and pair.up.transport == "stdio"
    for feature in features:
        # Forgetting a server affects all of its cells, so they run in turn.
        alone = world.locks[pair.up] if feature in FORGOTTEN else nullcontext()
        turn = world.turns.take(silent and feature in ("log", "quiet log")) if silent else nullcontext()
        async with alone, turn:
            began = time.monotonic()
            try:
                await asyncio.wait_for((FEATURES | FORGOTTEN)[feature](pair), 120)
                fault = None
            except Exception as error:  # a fault is one line; the other cells still run
                fault = f"{type(error).__name__}: {error}"
        report.cell(pair.down, pair.up, feature, fault, time.monotonic() - began)


async def downstream(
    world: World, down: Peer, ups: list[Peer], options: argparse.Namespace, slots: asyncio.Semaphore, report: Report
) -> None:
    """Runs all cells of one kind of client: one client that answers, one that is quiet, many servers."""
    names = f"c{SHORT[down.revision]}-{down.transport}"
    fresh = itertools.count(1)

    def another(up: Peer) -> Client:
        # A host of its own needs only one server. A joined one has the daemon's servers.
        config = None if options.direct else world.configure(f"only-{up.alias}", world.entries([up]))
        return world.client(f"{names}-{next(fresh)}", down, direct=options.direct, config=config)

    clients = [
        world.client(names, down, quiet=False, direct=options.direct),
        world.client(f"{names}-quiet", down, quiet=True, direct=options.direct),
    ]
    try:
        async with slots:
            await asyncio.gather(*(open_client(client) for client in clients))
    except Exception as error:  # without a client every cell fails
        for up, feature in itertools.product(ups, options.features):
            fault = f"the client cannot connect: {type(error).__name__}: {error}"
            report.cell(down, up, feature, fault, 0)
        return

    async def run(up: Peer) -> None:
        async with slots:
            forget = functools.partial(world.forget, up.alias)
            pair = Pair(down, up, *clients, world.control, options.direct, another, forget)
            await one_pair(pair, options.features, world, report)

    await asyncio.gather(*(run(up) for up in ups))
    for client in clients:
        await guarded(client.close(), client, "closing")
    report.lines("violation", [line for client in clients for line in client.violations])


async def guarded(work: Awaitable, client: Client, what: str) -> None:
    try:
        await asyncio.wait_for(work, 30)
    except Exception as error:
        client.wrong(f"{what}: {type(error).__name__}: {error}")


async def crowd(world: World, report: Report, calls: int = 1000) -> None:
    """Clients of different revisions use one asking server at once: each gets its own questions and answers."""
    up = Peer(R25C, "stdio")
    downs = [Peer(R25B, "http"), Peer(R26, "http")]
    clients = [world.client(f"crowd-{SHORT[down.revision]}", down) for down in downs]
    quiet = world.client("crowd-quiet", Peer(R25C, "http"), quiet=True)
    await asyncio.gather(*(open_client(client) for client in [*clients, quiet]))

    async def one(down: Peer, client: Client) -> None:
        pair = Pair(down, up, client, quiet, world.control, False, lambda _: world.client("crowd-more", down))
        for number in range(calls // len(downs)):
            began = time.monotonic()
            try:
                await asyncio.wait_for(FEATURES["form" if number % 2 else "sampling"](pair), 60)
                fault = None
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
            report.cell(down, up, f"crowd {number}", fault, time.monotonic() - began)
            # A server may ask 50 questions a second (H18).
            await asyncio.sleep(max(0.0, PACE - (time.monotonic() - began)))

    await asyncio.gather(*(one(down, client) for down, client in zip(downs, clients, strict=True)))
    for client in [*clients, quiet]:
        await guarded(client.close(), client, "closing")
    report.lines("violation", [line for client in clients for line in client.violations])
    print(f"crowd: {calls} calls of {len(downs)} clients that were asked at once by one server", flush=True)


async def main(options: argparse.Namespace) -> int:
    began = time.monotonic()
    downs = [peer for peer in peers() if re.fullmatch(options.down, str(peer))]
    options.features = options.features or list(FORGOTTEN if options.forget else FEATURES)
    if options.joined:
        downs = [peer for peer in downs if peer.transport == "stdio"]
    if options.forget:
        # A host on a pipe has one client, and its own knowledge of servers.
        downs = [peer for peer in downs if peer.transport != "stdio"]
    ups = [peer for peer in peers() if re.fullmatch(options.up, str(peer))]
    if options.direct:
        options.features = [feature for feature in options.features if feature not in HOSTED]
    if options.replicas:
        # What has no session lands anywhere. A server that a host starts is another process at each host, and what one of them
        # lists or changes is news of that one alone.
        downs = [peer for peer in downs if peer.modern and peer.transport == "http"]
        ups = [peer for peer in ups if peer.modern and peer.transport == "http"]
    report, slots = Report(), asyncio.Semaphore(AT_ONCE)
    world = World(options.binary, options.joined, options.parts, options.replicas)
    try:
        await world.open()
        if not options.direct:
            world.config = world.configure("mcp", world.entries(ups))
            world.host = await (world.serve_all if options.replicas else world.serve)(world.config)
            if not options.replicas:
                await warm_up(world, [up.alias for up in ups], "roots", "sampling", "form")
            await world.remembered(ups)
    except Exception as error:
        print(f"grid: cannot run: {type(error).__name__}: {error}", file=sys.stderr)
        await world.close(True)
        return 2
    try:
        pairs = [(down, [down] if options.direct else ups) for down in downs]
        count = sum(len(others) for _, others in pairs)
        cells = f"{count} pairs x {len(options.features)} features = {count * len(options.features)} cells"
        print(f"{len(downs)} kinds of clients, {len(ups)} kinds of servers: {cells}", flush=True)
        await asyncio.gather(*(downstream(world, down, others, options, slots, report) for down, others in pairs))
        if not options.direct and not options.forget and len(downs) == len(ups) == len(peers()):
            await crowd(world, report)
        if options.rmcp:
            packages = Packages(*(getattr(options, name) for name in Packages.__dataclass_fields__))
            await Official(world, packages, report).run()
    finally:
        faults = await world.close(options.keep or report.failed > 0)
    report.lines("violation", world.control.violations + faults)
    report.table(ups)
    report.slowest()
    print(f"{time.monotonic() - began:.0f} s")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", default="")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--forget", action="store_true")
    parser.add_argument("--joined", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--replicas", action="store_true")
    parser.add_argument("--down", default=".*")
    parser.add_argument("--up", default=".*")
    parser.add_argument("--features", type=lambda text: text.split(","), default=[])
    parser.add_argument("--keep", action="store_true")
    for name in Packages.__dataclass_fields__:
        parser.add_argument(f"--{name}", type=Path)
    sys.exit(asyncio.run(main(parser.parse_args())))
