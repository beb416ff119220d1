"""Clients on SDKs start `mcp-host stdio` beside a daemon of the same config, and share its processes.

The SDKs pass only six variables: HOME, LOGNAME, PATH, SHELL, TERM, USER. The daemon must be found by those. A variable
that the config names and the client lacks does not prevent joining; one with another value does.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess

from census import Census, Counted
from mcp import Client, StdioServerParameters
from mcp.client.stdio import get_default_environment
from peers import call, ran
from processes import spawn
from sharing import expect
from world import HERE, Report, World, descendants, until

SIX = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
TOKEN = "INTEROP_TOKEN"


def checks(world: World, report: Report) -> None:
    python = str(world.venv / "bin" / "python")
    entry = spawn([python, str(HERE / "python" / "server.py")]) | {"env": {"TOKEN": f"${{{TOKEN}}}"}}
    # As in a session without systemd: HOME decides where state is.
    environment = {key: value for key, value in world.environment("joins").items() if not key.startswith("XDG_")}
    host = Counted(world, "joins", {"plain": entry}, environment | {TOKEN: "of the daemon"})
    home = environment["HOME"]
    arguments = ["stdio", "--config", str(host.config)]

    def handed() -> dict[str, str]:
        return get_default_environment() | {"HOME": home}

    async def asks(more: dict[str, str] | None = None) -> tuple[str, set[str]]:
        """Returns the process of its server, and the variables that the program itself got."""
        given = StdioServerParameters(command=world.binary, args=arguments, env={"HOME": home} | (more or {}))
        before = set(descendants(os.getpid()))
        async with Client(given, mode="legacy", read_timeout_seconds=60) as client:
            fine, pid = await call(client, "plain__pid")
            expect(fine and pid.isdigit(), pid)
            mine = [each for each, words in descendants(os.getpid()).items() if each not in before and " stdio --config " in words]
            names = {line.partition("=")[0] for each in mine for line in environment_of(each)}
            return pid, names

    def served() -> str:
        command = [world.binary, "call", "plain__pid", "--config", str(host.config)]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True, text=True)
        return done.stdout.strip()

    with report.check("joins: a daemon and its client"):
        host.wait_connected()
        daemons = served()
        until("one process", 10, lambda: Census(host.marks).look()["plain"] == 1)
    with report.check("joins: the Python SDK passes at most six variables, and its client shares the daemon's process"):
        pid, names = ran(asks(), 60)
        expect(names and names <= SIX, names)
        expect(pid == daemons, (pid, daemons))
    with report.check("joins: so does the TypeScript SDK"):
        script = str(world.node_scripts / "joins.mjs")
        command = ["node", script, world.binary, *arguments]
        done = subprocess.run(command, env=handed() | {"NOT_HANDED": "x"}, capture_output=True, timeout=60, check=False, text=True)
        expect(done.returncode == 0, done.stderr[-400:])
        said = json.loads(done.stdout)
        expect(said["pid"] == daemons and set(said["handed"]) <= SIX, said)
    with report.check("joins: the same token joins, another one has a host of its own"):
        same, names = ran(asks({TOKEN: "of the daemon"}), 60)
        expect(same == daemons and TOKEN in names, (same, names))
        other, _ = ran(asks({TOKEN: "of somebody else"}), 60)
        expect(other != daemons, f"{other} has the daemon's token")
    with report.check("joins: twelve clients at once, and one process"):

        async def many() -> list[tuple[str, set[str]]]:
            return await asyncio.gather(*(asks() for _ in range(12)))

        with Census(host.marks) as census:
            pids = {pid for pid, _ in ran(many(), 90)}
        expect(pids == {daemons} and census.peak["plain"] == 1, (pids, census.peak))
    with report.check("joins: none is left"):
        host.over()


def environment_of(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
            return [each for each in file.read().split("\0") if each]
    except OSError:
        return []
