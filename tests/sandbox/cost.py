"""What a sandbox costs: the start of a server at each level, a call, and the system calls of a host without one.

All levels take turns on one host, so that its own start and the machine's changes count for none of them. A server is
idle for a moment, ends, and the next call starts it: that call is what is measured.
"""

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from program import LEVELS, Host, below

# What a level may add to a start, in milliseconds, and to a call, as a factor.
MOST = {"default": 5.0, "strict": 25.0}
MOST_CALL = 1.01
# Calls of one turn.
TURN = 50
# A host that sees no process but its own: it looks through those of the machine for some that were left.
ALONE = ["bwrap", "--dev-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--"]
# How often calls are counted; the fewest count, since threads that meet by chance add some.
TIMES = 5
# Calls by which threads wait for each other. How many there are is chance.
WAITS = {"futex", "epoll_wait", "epoll_pwait", "sched_yield", "restart_syscall"}


def guarded(host):
    """Returns how many processes there are below the host."""
    return len(below(host.child.pid))


def starts(binary, count):
    """Returns the times of calls that start a server, in milliseconds, by level."""
    times = {level: [] for level in LEVELS}
    with tempfile.TemporaryDirectory() as home:
        host = Host(binary, home, LEVELS, idleStop="20ms")
        host.tools()
        for turn in range(count + 2):
            for level in LEVELS:
                # The guard alone is there.
                while guarded(host) > 1:
                    time.sleep(0.002)
                begun = time.perf_counter()
                assert host.call(level)["content"][0]["text"] == "done"
                # The first turns also read the programs from the disk.
                if turn > 1:
                    times[level].append((time.perf_counter() - begun) * 1000)
        host.close()
    return times


def calls(binary, count):
    """Returns the times of turns of calls, in microseconds a call, by level."""
    times = {level: [] for level in LEVELS}
    with tempfile.TemporaryDirectory() as home:
        host = Host(binary, home, LEVELS)
        host.tools()
        for turn in range(count + 2):
            for level in LEVELS:
                begun = time.perf_counter()
                for _ in range(TURN):
                    host.call(level)
                if turn > 1:
                    times[level].append((time.perf_counter() - begun) / TURN * 1e6)
        host.close()
    return times


def told(what, times, unit):
    """Prints the medians of the levels, and returns what each adds to `off`: as a difference, and as a factor."""
    middle = {level: statistics.median(took) for level, took in times.items()}
    # A pair of one turn met the same machine.
    added = {
        level: statistics.median(mine - its for mine, its in zip(took, times["off"]))
        for level, took in times.items()
    }
    for level, took in middle.items():
        print(f"{what} {level:8} median {took:.1f} {unit}, {added[level]:+.2f} {unit}")
    return {level: (added[level], 1 + added[level] / middle["off"]) for level in times}


def counted(binary):
    """Returns the system calls of a host that starts a server without a sandbox and answers a hundred calls."""
    with tempfile.TemporaryDirectory() as folder:
        file, home = Path(folder) / "counts", Path(folder) / "home"
        home.mkdir()
        host = Host(binary, home, ["off"], wrapper=[*ALONE, "strace", "-f", "-c", "-o", file])
        host.tools()
        for _ in range(100):
            host.call("off")
        host.close()
        rows = [line.split() for line in file.read_text().splitlines()]
    counts = {row[-1]: int(row[3]) for row in rows if len(row) in (5, 6) and re.fullmatch(r"\d+", row[3])}
    counts.pop("total", None)
    return counts


def compared(before, binary):
    """Prints how many system calls each of two programs makes; returns those that the newer makes more often."""
    runs = {program: [] for program in (before, binary)}
    for _ in range(TIMES):
        for program, counts in runs.items():
            counts.append(counted(program))
    names = sorted({name for counts in runs.values() for count in counts for name in count})
    fewest = [{name: min(count.get(name, 0) for count in counts) for name in names} for counts in runs.values()]
    for name in names:
        print(f"  {name:20} {fewest[0][name]:6} {fewest[1][name]:6}")
    return [name for name in names if name not in WAITS and fewest[1][name] > fewest[0][name]]


def main(binary, count, before):
    failed = 0
    start, call = told("start", starts(binary, count), "ms"), told("call ", calls(binary, count), "us")
    for level, most in MOST.items():
        for what, found, limit in [("start", start[level][0], most), ("call", call[level][1], MOST_CALL)]:
            is_over = found > limit
            failed += is_over
            print(f"{'FAIL' if is_over else 'ok  '} {what} {level}: {found:.3f}, {limit} at most")
    if before and shutil.which("strace"):
        more = compared(before, binary)
        failed += bool(more)
        print(f"{'FAIL' if more else 'ok  '} system calls without a sandbox: {'more of ' + ', '.join(more) if more else 'no more'}")
    print(f"{4 + bool(before) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
