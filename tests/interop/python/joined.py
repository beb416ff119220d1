"""The stages over stdio again, beside a daemon of the same config: `mcp-host stdio` joins it and only relays bytes."""

from __future__ import annotations

import subprocess

import clients
import compare
import faults
from world import Host, Report, World, alive, end


def checks(world: World, report: Report) -> None:
    host = Host(world, "joined")
    with report.check(f"joined: a daemon of all {len(host.names)} servers"):
        host.wait_connected()
    relay = host.relay()
    clients.pipes(world, report, relay, "a joined stdio", one_server=True)
    for era in ("legacy", "auto"):
        clients.inspections(world, report, ["--", *relay], "everything", era, f"over a joined stdio, {era}")
    for era in ("legacy", "any"):
        compare.piped(world, report, host, era, relay, "a joined stdio")
    with report.check("joined: no relay is alive after its client ends"):
        host.no_relay_left(clients.LINGER)
    for way in faults.WAYS:
        with report.check(f"joined: stop, {way}: the relay ends with 0, the servers stay"):
            _stop(world, host, relay, way)
    with report.check("joined: each of them was a relay to this daemon"):
        print(f"     {host.all_joined()} relays", flush=True)
    with report.check("joined: the daemon then stops with 0 and leaves no process"):
        faults.stop_and_look(host)


def _stop(world: World, host: Host, relay: list[str], way: str) -> None:
    process = world.start(relay, world.environment("relay"), "relay", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        faults.begin(process)
        servers = alive(host.mark)
        code = faults.leave(process, way)
        host.no_relay_left(3)
        if code != 0:
            raise AssertionError(f"ended with {code}")
        if lost := servers.keys() - alive(host.mark).keys():
            raise AssertionError(f"ended with the relay: {[servers[pid] for pid in lost]}")
        if set(host.states().values()) != {"connected"}:
            raise AssertionError(host.states())
    finally:
        end(process)
