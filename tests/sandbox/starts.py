"""Starts hosts with a server at each level, kills each host, and looks for what is left of it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEVELS = {"off": "off", "default": "default", "strict": {"level": "strict", "network": ["api.example.com"]}}
# How long the guard may take, in seconds.
PATIENCE = 20

SERVER = """
import json, subprocess, sys
subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
results = {"initialize": hello, "tools/list": {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") in results:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        print(json.dumps(answer), flush=True)
"""


def processes():
    """Returns the parent of each process that is no zombie."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            found[int(pid)] = int(fields[1])
    return found


def below(root):
    parents, found = processes(), {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} | found
        if more == found:
            return found - {root}
        found = more


def run(binary, home, level):
    """Starts a host, kills it when its server has listed its tools, and returns how long that took, and what is left."""
    config = Path(home) / "mcp.json"
    entry = {"command": "python3", "args": [f"{home}/server.py"], "sandbox": LEVELS[level]}
    config.write_text(json.dumps({"host": {"startupWait": "60s"}, "mcpServers": {level: entry}}))
    pipe, environment = subprocess.PIPE, {"HOME": home, "PATH": os.environ["PATH"]}
    begun = time.monotonic()
    command = [binary, "stdio", "--own", "--config", config]
    host = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, text=True)
    client = {"name": "starts", "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    for message in [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list", "params": {}},
    ]:
        host.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        host.stdin.flush()
    tools = None
    for line in host.stdout:
        message = json.loads(line)
        if message.get("id") == 2:
            tools = message["result"]["tools"]
            break
    took = time.monotonic() - begun
    its = below(host.pid)
    host.kill()
    host.wait()
    if not tools:
        return took, ["its server did not start"]
    until = time.monotonic() + PATIENCE
    while left := its & processes().keys():
        if time.monotonic() > until:
            return took, [f"process {pid}" for pid in left]
        time.sleep(0.01)
    return took, []


def main(binary, count):
    failed, times = 0, {level: [] for level in LEVELS}
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "server.py").write_text(SERVER)
        for number in range(count):
            for level in LEVELS:
                took, left = run(binary, home, level)
                times[level].append(took)
                if left:
                    failed += 1
                    print(f"FAIL start {number} with {level}: {', '.join(left)}", flush=True)
        doors = sorted(Path(home).glob(".local/state/mcp-host/sandbox/*/door-*"))
        # A host that was killed leaves the name of its last door, and the next start takes it away.
        if len(doors) > 1:
            failed += 1
            print(f"FAIL {len(doors)} doors are left")
        for level, took in times.items():
            took.sort()
            print(f"{level:8} a start with its first list: median {took[len(took) // 2] * 1000:.0f} ms")
    print(f"{count * len(LEVELS) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
