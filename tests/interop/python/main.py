"""Runs the stages in order: those of ALL, and others if they are named. With --direct the first of these, and `agents`."""

from __future__ import annotations

import argparse
import signal
import sys

import agents
import bounds
import browser
import clients
import compare
import fixtures
import itself
import joined
import joins
import processes
import sharing
from world import Host, Report, World

LIMIT = 30 * 60
ALL = "connected features pairs inspector same joined itself files faults stop processes sharing joins".split()


def direct(world: World, report: Report, stages: set[str]) -> None:
    servers = world.servers(world.direct)
    if "features" in stages:
        clients.features_directly(world, report)
    if "pairs" in stages:
        clients.pairs(world, report, world.remote, "", "directly")
    if "inspector" in stages:
        clients.inspector_directly(world, report)
    if "same" in stages:
        compare.steadiness(world, report, list(servers))
    if "agents" in stages:
        agents.directly(world, report, world.agents)


def hosted(world: World, report: Report, stages: set[str]) -> None:
    import faults

    if stages & {"connected", "features", "pairs", "inspector", "same"}:
        host = Host(world, "serve")
        with report.check(f"connected: all {len(host.names)} servers of one config"):
            host.wait_connected()
        if "same" in stages:
            compare.through(world, report, host)
        if "features" in stages:
            clients.features(world, report, host, "same" in stages)
        if "pairs" in stages:
            for alias in ("everything", "remote"):
                clients.pairs(world, report, host.url, alias, f"through the host, {alias}")
        if "inspector" in stages:
            clients.inspector(world, report, host)
        with report.check("stop: the host of all stages so far ends with 0 and leaves no process"):
            faults.stop_and_look(host)
    if "joined" in stages:
        joined.checks(world, report)
    if "itself" in stages:
        itself.checks(world, report)
    if "files" in stages:
        fixtures.through(world, report)
    if "faults" in stages:
        faults.kill_under_load(world, report)
    if "stop" in stages:
        faults.stops(world, report)
    if "processes" in stages:
        processes.checks(world, report)
    if "sharing" in stages:
        sharing.checks(world, report)
    if "bounds" in stages:
        bounds.checks(world, report)
    if "joins" in stages:
        joins.checks(world, report)
    if "browser" in stages:
        browser.checks(world, report)
    if "agents" in stages:
        agents.through(world, report, world.agents)


def main() -> int:
    parser = argparse.ArgumentParser()
    for word in ("binary", "npm", "python", "uvtools", "rmcp"):
        parser.add_argument(f"--{word}", required=True)
    parser.add_argument("--chromium", default="")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    stages = set(options.only or ALL)
    report = Report()

    def late(number: int, _: object) -> None:
        raise SystemExit(f"interop: ended by signal {number}" if number != signal.SIGALRM else f"interop: over {LIMIT} s")

    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, late)
    signal.alarm(LIMIT)
    try:
        with World(options.binary, options.npm, options.python, options.uvtools, options.rmcp, options.chromium) as world:
            (direct if options.direct else hosted)(world, report, stages)
    except SystemExit as error:
        report.line("the whole run", str(error))
    # Once more, where they are found: the lines of a whole run are many.
    if report.faults:
        print("failed:", *report.faults, sep="\n")
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed or not report.passed else 0


if __name__ == "__main__":
    sys.exit(main())
