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


def counted(binary, levels, folder):
    """Returns the system calls of a host that starts servers at these levels and answers a hundred calls, without waits."""
    file = Path(folder) / "counts"
    home = Path(folder) / "home"
    home.mkdir(exist_ok=True)
    host = Host(binary, home, levels, wrapper=["strace", "-f", "-c", "-o", file])
    host.tools()
    for _ in range(100):
        host.call(levels[0])
    host.close()
    rows = [line.split() for line in file.read_text().splitlines()]
    counts = {row[-1]: int(row[3]) for row in rows if len(row) in (5, 6) and re.fullmatch(r"\d+", row[3])}
    counts.pop("total", None)
    return counts


def main(binary, count, before):
    failed = 0
    start, call = told("start", starts(binary, count), "ms"), told("call ", calls(binary, count), "us")
    for level, most in MOST.items():
        for what, found, limit in [("start", start[level][0], most), ("call", call[level][1], MOST_CALL)]:
            is_over = found > limit
            failed += is_over
            print(f"{'FAIL' if is_over else 'ok  '} {what} {level}: {found:.3f}, {limit} at most")
    if before and shutil.which("strace"):
        with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
            first, second = counted(before, ["off"], old), counted(binary, ["off"], new)
        more = {name: (first.get(name, 0), many) for name, many in second.items() if name not in first}
        # Threads that wait meet each other by chance; other calls do not differ.
        for name in sorted(first.keys() | second.keys()):
            print(f"  {name:20} {first.get(name, 0):6} {second.get(name, 0):6}")
        failed += bool(more)
        print(f"{'FAIL' if more else 'ok  '} kinds of system calls of an unconfined server that were not there before: {more}")
    print(f"{4 + bool(before) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
