"""A daemon that is killed under its clients, and what they see of it."""

import http.client
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
SESSIONS = 100
PATIENCE = 60


class Fault(Exception):
    """What does not hold."""


class Daemon:
    """A daemon with a home of its own, always at the same port."""

    def __init__(self, binary, folder, **host):
        folder.mkdir()
        self.binary, self.folder, self.calls = binary, folder, folder / "calls"
        self.calls.write_text("")
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.config = folder / "mcp-host.json"
        entry = {"command": sys.executable, "args": [str(HERE / "server.py"), str(self.calls)]}
        self.config.write_text(json.dumps({"mcpServers": {"it": entry}, "host": host}))
        self.child = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/mcp"

    @property
    def state(self):
        return self.folder / ".local/state/mcp-host"

    def start(self):
        words = [self.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--config", str(self.config)]
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.folder)}
        log = open(self.folder / "log", "a")
        self.child = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            except OSError:
                pass
            if self.child.poll() is not None:
                raise Fault(f"the daemon ended: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)
        raise Fault("the daemon does not answer")

    def kill(self):
        self.child.kill()
        self.child.wait()

    def stop(self):
        self.child.terminate()
        self.child.wait(timeout=PATIENCE)


class Session:
    """A session by raw HTTP."""

    def __init__(self, daemon, revision):
        self.daemon, self.revision, self.count, self.id = daemon, revision, 0, None
        info = {"name": "raw", "version": "1"}
        status, answer = self.ask("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": info})
        if status != 200 or answer["result"]["protocolVersion"] != revision or not self.id:
            raise Fault(f"`initialize` of {revision}: {status} {answer}")

    def headers(self):
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.id:
            headers |= {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.revision}
        return headers

    def send(self, method, body=None, **more):
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.port, timeout=PATIENCE)
        connection.request(method, "/mcp", body and json.dumps(body), self.headers() | more)
        return connection.getresponse()

    def ask(self, method, params):
        """Returns the status, and the message that answers."""
        self.count += 1
        answer = self.send("POST", {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params})
        self.id = answer.headers.get("mcp-session-id") or self.id
        text = answer.read().decode()
        lines = [line.removeprefix("data: ") for line in text.splitlines()]
        messages = [json.loads(line) for line in lines if line.startswith("{")]
        return answer.status, next((message for message in messages if message.get("id") == self.count), text)

    def begin(self, mark):
        """Begins a call that takes long; returns the id of its first event and its number, once the server runs it."""
        self.count += 1
        params = {"name": "it__wait", "arguments": {"mark": mark}, "_meta": {"progressToken": self.count}}
        answer = self.send("POST", {"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": params})
        last = None
        while True:
            line = answer.fp.readline().decode()
            if line.startswith("id: "):
                last = line.removeprefix("id: ").strip()
            if "notifications/progress" in line:
                return answer, last, self.count


def raw(binary, folder):
    """Sessions of each revision go on after each of three kills."""
    daemon, seen = Daemon(binary, folder), []
    daemon.start()
    sessions = [Session(daemon, REVISIONS[number % 4]) for number in range(SESSIONS)]
    for round in range(3):
        begun = [session.begin(f"{round}-{number}") for number, session in enumerate(sessions[:8])]
        daemon.kill()
        daemon.start()
        for number, session in enumerate(sessions):
            for method, params in [("tools/list", {}), ("tools/call", {"name": "it__echo", "arguments": {"n": number}})]:
                status, answer = session.ask(method, params)
                seen.append(status)
                if status != 200 or "result" not in answer or answer["result"].get("isError"):
                    raise Fault(f"{session.revision}, {method} after the kill: {status} {answer}")
        # A call under way ends as one whose outcome nobody knows, and is not made again.
        for session, (stream, last, id) in zip(sessions, begun):
            stream.close()
            answer = session.send("GET", None, **{"Last-Event-ID": last})
            text = answer.read().decode()
            if answer.status != 200 or f'"id":{id},' not in text or '"outcome_unknown"' not in text:
                raise Fault(f"the call under way: {answer.status} {text}")
    ran = daemon.calls.read_text().splitlines()
    waits = [line for line in ran if "mark" in line]
    if len(waits) != len(set(waits)) or len(waits) != 24:
        raise Fault(f"calls under way were made {len(waits)} times")
    # Ended by its client, killed, and started again: it stays ended.
    if sessions[0].send("DELETE").status != 204:
        raise Fault("DELETE")
    end = time.monotonic() + PATIENCE
    while not (daemon.state / "ended-sessions").exists() and time.monotonic() < end:
        time.sleep(0.02)
    daemon.kill()
    daemon.start()
    statuses = [session.ask("tools/list", {})[0] for session in sessions]
    daemon.stop()
    if statuses != [404] + [200] * (SESSIONS - 1):
        raise Fault(f"after DELETE: {statuses}")
    return f"{SESSIONS} sessions, 3 kills, {len(seen)} requests, {seen.count(404)} x 404, 24 calls under way ended once"


def first(binary, folder):
    """An id that was given out is good, whenever the daemon is killed: its key is on the disk before."""
    rounds = 20
    for round in range(rounds):
        daemon = Daemon(binary, folder.with_name(f"{folder.name}-{round}"))
        daemon.start()
        session = Session(daemon, REVISIONS[round % 4])
        daemon.kill()
        daemon.start()
        status, answer = session.ask("ping", {})
        daemon.kill()
        if status != 200:
            raise Fault(f"round {round}: {status} {answer}")
    return f"{rounds} daemons killed after their first answer, 0 x 404"


def both(binary, folder):
    """Two daemons that start at once on one home have one key."""
    rounds = 5
    for round in range(rounds):
        one = Daemon(binary, folder.with_name(f"{folder.name}-{round}"))
        other = Daemon(binary, folder.with_name(f"{folder.name}-{round}-other"))
        other.folder = one.folder
        one.start()
        other.start()
        made = []
        work = [threading.Thread(target=lambda daemon=daemon: made.append(Session(daemon, "2025-11-25"))) for daemon in (one, other)]
        [each.start() for each in work]
        [each.join() for each in work]
        for session in made:
            session.daemon = other if session.daemon is one else one
            status, answer = session.ask("ping", {})
            if status != 200:
                raise Fault(f"round {round}: {status} {answer}")
        one.kill()
        other.kill()
    return f"{rounds} pairs"


def official(command, count):
    """Clients of an official SDK go on after a kill."""

    def check(binary, folder):
        daemon = Daemon(binary, folder)
        daemon.start()
        child = subprocess.Popen(
            [*command, daemon.url, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            if not select.select([child.stdout], [], [], 2 * PATIENCE)[0] or child.stdout.readline() != "ready\n":
                child.kill()
                raise Fault(f"the clients did not come: {child.communicate()[1][-2000:]}")
            daemon.kill()
            daemon.start()
            out, err = child.communicate("go\n", timeout=3 * PATIENCE)
        finally:
            child.kill()
            daemon.kill()
        told = json.loads(out.splitlines()[-1]) if out.strip() else None
        if not told or told["went"] != count:
            raise Fault(f"{told} {err[-2000:]}")
        gone = [error for error in told["errors"] if "404" in error or "request:" in error]
        if gone:
            raise Fault(f"{len(gone)} errors: {gone[:3]}")
        if told["ended"] != ["outcome_unknown"] * 5:
            raise Fault(f"the calls under way ended so: {told['ended']}")
        calls = daemon.calls.read_text().splitlines()
        if len(calls) != count + 5:
            raise Fault(f"{len(calls)} calls were made, not {count + 5}")
        return f"{count} clients, 0 x 404, 5 calls under way ended as `outcome_unknown`"

    return check


def main(binary, *sdks):
    checks = {
        "raw sessions of all revisions outlive kills": raw,
        "an id is good from its first answer on": first,
        "two daemons agree on one key": both,
    }
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        if sdks:
            modules, python = sdks
            # Packages are found beside the script.
            script = Path(folder) / "clients.mjs"
            (Path(folder) / "node_modules").symlink_to(modules)
            script.write_text((HERE / "clients.mjs").read_text())
            checks["clients of the TypeScript SDK outlive a kill"] = official(["node", str(script)], SESSIONS)
            checks["clients of the Python SDK outlive a kill"] = official([python, str(HERE / "clients.py")], SESSIONS)
        for number, (name, check) in enumerate(checks.items()):
            begun = time.monotonic()
            try:
                told, word = check(binary, Path(folder).resolve() / str(number)), "ok    "
            except (Fault, OSError, ValueError, subprocess.TimeoutExpired, http.client.HTTPException) as fault:
                told, word = f"{type(fault).__name__}: {fault}", "FAILED"
                failed += 1
            print(f"{word} {name}: {told}, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
