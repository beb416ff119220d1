"""Starts hosts with confined servers, ends the servers in each way, and looks for what is left of them.

The ways: the host is killed, the config loses them, they are idle. What may be left: processes, also those that left their
group; namespaces; mounts; sockets; names of doors; folders for temporary files.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from program import Host, below, processes

# How long the end of a server may take, in seconds.
PATIENCE = 20
WAYS = ["killed", "reload", "idle"]
CONFINED = ["default", "strict"]


def namespaces(pid):
    """Returns the namespaces of mounts, networks and processes that a process is in, but for those that we are in."""
    found = set()
    for kind in ["mnt", "net", "pid"]:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            continue
    return found - (namespaces("self") if pid != "self" else set())


def inside(mine, moment):
    """Returns the processes in some namespaces that began before a moment: a number of a namespace is used again."""
    found = []
    for pid in processes():
        began = read(pid, "stat").rpartition(")")[2].split()
        if began and int(began[19]) / os.sysconf("SC_CLK_TCK") < moment and namespaces(pid) & mine:
            found.append(f"process {pid} in its namespaces")
    return found


def names(home):
    """Returns what is left in folders: doors, traces, and sockets by their paths."""
    state = Path(home) / ".local/state/mcp-host"
    left = [str(path) for pattern in ["sandbox/*/door-*", "trace-*"] for path in state.glob(pattern)]
    sockets = [line for line in Path("/proc/net/unix").read_text().splitlines() if f"{home}/" in line]
    return left + sockets


def gone(pids):
    """Waits for processes to end; returns those that do not."""
    until = time.monotonic() + PATIENCE
    while left := pids & processes().keys():
        if time.monotonic() > until:
            return left
        time.sleep(0.005)
    return set()


def read(pid, name):
    """Reads a file of a process; nothing if that has ended."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""


def of_servers(host):
    """Waits until each server has the process that it starts; returns all but the guard."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        # The guard stays with the host.
        found = {pid for pid in below(host.child.pid) if "guard" not in read(pid, "cmdline")}
        if sum(read(pid, "comm").strip() == "sleep" for pid in found) >= len(CONFINED):
            return found
        time.sleep(0.005)
    raise TimeoutError("a server has not started its process")


def run(binary, home, way):
    """Starts a host, ends its servers in a way, and returns what is wrong."""
    more = {"idleStop": "2s"} if way == "idle" else {}
    host = Host(binary, home, CONFINED, arguments=["with-child"], **more)
    if host.names() != {f"{level}__t" for level in CONFINED}:
        host.child.kill()
        return ["a server did not start"]
    its = of_servers(host)
    mine = set().union(*map(namespaces, its))
    if not mine:
        return ["the strict server has no namespaces"]
    if way == "killed":
        its = below(host.child.pid)
        host.child.kill()
    elif way == "reload":
        host.configure([])
    wrong = [f"process {pid}" for pid in gone(its)]
    wrong += inside(mine, time.clock_gettime(time.CLOCK_BOOTTIME))
    if way != "killed":
        until = time.monotonic() + PATIENCE
        while (left := names(home)) and time.monotonic() < until:
            time.sleep(0.005)
        wrong += left
        host.close()
    host.child.wait()
    if way == "killed" and len(left := names(home)) > 1:
        # The name of the last door stays, since nobody is there to take it away; the next start does.
        wrong += left
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return wrong + [f"mount {line}" for line in mounts if f"{home}/" in line]


def main(binary, count):
    failed = 0
    with tempfile.TemporaryDirectory() as home:
        for number in range(count):
            # Kills are what the count is about; the other ways take their turn.
            way = "killed" if number % 10 else WAYS[1 + number // 10 % 2]
            if wrong := run(binary, home, way):
                failed += 1
                print(f"FAIL host {number}, {way}: {', '.join(wrong)}", flush=True)
        own = Path(home) / ".local/state/mcp-host/sandbox"
        tmp = [str(path) for folder in own.glob("*/tmp") for path in folder.iterdir()]
        if tmp:
            failed += 1
            print(f"FAIL temporary files: {', '.join(tmp)}")
    print(f"{count} hosts with {count * len(CONFINED)} confined servers")
    print(f"{count - min(failed, count)} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
