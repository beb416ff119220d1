"""Three hosts that serve as one, and what their clients see of kills, stops, new keys and intruders; see `run`."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import http.client
import itertools
import json
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from balancer import Balancer

HERE = Path(__file__).resolve().parent
SERVER = HERE.parent / "restart" / "server.py"
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
MODERN = "2026-07-28"
PATIENCE = 60
TOKENS = {"ann": "the token of ann", "bob": "the token of bob"}
KEYS = {name: hashlib.sha256(name.encode()).hexdigest() for name in ("first", "second", "foreign")}
BROKEN = (OSError, http.client.HTTPException)


class Fault(Exception):
    """What does not hold."""


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        [probe.close() for probe in probes]


class Replica:
    """One host with a home of its own."""

    def __init__(self, cluster, number, keys):
        self.cluster, self.folder = cluster, cluster.folder / str(number)
        self.folder.mkdir()
        self.port, self.peer = cluster.ports[number], cluster.peers[number]
        self.config, self.child = self.folder / "mcp-host.json", None
        self.configure(keys)

    def configure(self, keys):
        entry = {"command": sys.executable, "args": [str(SERVER), str(self.cluster.calls)]}
        hashes = {name: "sha256:" + hashlib.sha256(token.encode()).hexdigest() for name, token in TOKENS.items()}
        host = {
            "cluster": {
                "keys": [KEYS[key] for key in keys],
                "peers": [f"127.0.0.1:{port}" for port in self.cluster.peers],
                "listen": f"127.0.0.1:{self.peer}",
            },
            "auth": {"type": "bearer", "clients": hashes},
            "allowedHosts": [f"127.0.0.1:{self.cluster.port}"],
        }
        self.config.write_text(json.dumps({"mcpServers": {"it": entry}, "host": host}))

    def start(self):
        words = [self.cluster.binary, "serve", "--listen", f"127.0.0.1:{self.port}", "--config", str(self.config)]
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.folder)}
        log = open(self.folder / "log", "a")
        self.child = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ready(self):
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
                raise Fault(f"a replica ended: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)
        raise Fault("a replica does not answer")

    def end(self, how=signal.SIGKILL):
        self.child.send_signal(how)
        self.child.wait(timeout=PATIENCE)

    def status(self):
        words = [self.cluster.binary, "status", "--json", "--listen", f"127.0.0.1:{self.port}"]
        environment = {"HOME": str(self.folder), "PATH": os.environ["PATH"], "XDG_RUNTIME_DIR": str(self.folder)}
        said = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        return json.loads(said.stdout)["cluster"]


class Cluster:
    """Replicas behind a balancer."""

    def __init__(self, binary, folder, keys=(["first"],) * 3):
        folder.mkdir()
        self.binary, self.folder, self.calls = binary, folder, folder / "calls"
        self.calls.write_text("")
        ports = free_ports(7)
        self.ports, self.peers, self.port = ports[:3], ports[3:6], ports[6]
        self.replicas = [Replica(self, number, keys[number]) for number in range(3)]

    def __enter__(self):
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(Balancer(self.ports).start(self.port), loop).result()
        [replica.start() for replica in self.replicas]
        [replica.ready() for replica in self.replicas]
        return self

    def __exit__(self, *_):
        for replica in self.replicas:
            if replica.child and replica.child.poll() is None:
                replica.end()

    def settled(self, answering=2):
        """Waits until each replica sees the others."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            seen = [[peer for peer in replica.status()["peers"] if "why" not in peer] for replica in self.replicas]
            if all(len(peers) == answering for peers in seen):
                return
            time.sleep(0.05)
        raise Fault(f"the replicas do not see each other: {seen}")

    def ran(self):
        return [json.loads(line) for line in self.calls.read_text().splitlines()]


class Client:
    """A client by raw HTTP: with a session, or of the revision without any."""

    def __init__(self, port, revision, who="ann"):
        self.port, self.revision, self.who, self.count, self.id = port, revision, who, 0, None
        if revision != MODERN:
            info = {"name": "raw", "version": "1"}
            status, answer = self.ask("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": info})
            if status != 200 or not self.id:
                raise Fault(f"`initialize` of {revision}: {status} {answer}")

    def send(self, method, body=None, port=None, **more):
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        headers["Authorization"] = f"Bearer {TOKENS[self.who]}"
        if self.id:
            headers |= {"Mcp-Session-Id": self.id, "MCP-Protocol-Version": self.revision}
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE)
        connection.request(method, "/mcp", body and json.dumps(body), headers | more)
        return connection.getresponse()

    def ask(self, method, params, port=None):
        """Returns the status, and the message that answers."""
        self.count += 1
        more = {}
        if self.revision == MODERN:
            meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
            params = params | {"_meta": meta}
            more = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            more |= {"Mcp-Name": params["name"]} if "name" in params else {}
        answer = self.send("POST", {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}, port, **more)
        self.id = answer.headers.get("mcp-session-id") or self.id
        text = answer.read().decode()
        lines = [line.removeprefix("data: ") for line in text.splitlines()]
        messages = [json.loads(line) for line in lines if line.startswith("{")]
        return answer.status, next((message for message in messages if message.get("id") == self.count), text)

    def echo(self, mark, port=None):
        """Calls a tool that answers its arguments. Returns `ok`, or what came in place of the answer."""
        status, answer = self.ask("tools/call", {"name": "it__echo", "arguments": {"mark": mark}}, port)
        if status == 200 and isinstance(answer, dict) and "result" in answer:
            text = answer["result"]["content"][0]["text"]
            if not answer["result"].get("isError") and json.loads(text) == {"mark": mark}:
                return "ok"
        if "outcome_unknown" in json.dumps(answer):
            return "outcome_unknown"
        if status == 503 and "shutting down" in json.dumps(answer):
            return "refused"
        return f"{status} {answer}"


def lands_anywhere(cluster):
    """Sessions of all revisions, and clients without one, through every replica."""
    cluster.settled()
    count = 0
    for number, revision in enumerate([*REVISIONS, MODERN] * 4):
        client = Client(cluster.port, revision, ("ann", "bob")[number % 2])
        for port in [*cluster.ports, cluster.port, cluster.port, cluster.port]:
            if (said := client.echo(f"{number}-{count}", port)) != "ok":
                raise Fault(f"{revision}: {said}")
            count += 1
        if client.id:
            if (status := client.send("DELETE", port=random.choice(cluster.ports)).status) != 204:
                raise Fault(f"DELETE: {status}")
            statuses = [client.ask("ping", {}, port)[0] for port in cluster.ports]
            if statuses != [404] * 3:
                raise Fault(f"after DELETE: {statuses}")
    return f"{count} calls of 20 clients, each at another replica than the one before"


def load(cluster, seconds, disturb, clients=8):
    """Calls of clients of all revisions while something happens. Returns how calls ended, by revision."""
    stop, ended, lock, longest = threading.Event(), {}, threading.Lock(), []

    def one(number):
        revision = MODERN if number % 2 else REVISIONS[number // 2 % 4]
        client = None
        for call in itertools.count():
            if stop.is_set():
                return
            mark, begun = f"{number}-{call}", time.monotonic()
            try:
                client = client or Client(cluster.port, revision, ("ann", "bob")[number % 3 % 2])
                said = client.echo(mark)
            except BROKEN:
                said = "broken"
            except Fault as fault:
                said = str(fault)
            with lock:
                longest.append((time.monotonic() - begun, said, revision))
                ended.setdefault("modern" if revision == MODERN else "sessions", {}).setdefault(said, []).append(mark)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(clients)]
    [thread.start() for thread in threads]
    try:
        disturb(time.monotonic() + seconds)
    finally:
        stop.set()
        [thread.join() for thread in threads]
    cluster.longest = max(longest)
    return ended


def judged(cluster, ended, allowed):
    """Checks that calls ended in no other way than allowed, and that none was made twice."""
    for kind, calls in ended.items():
        others = {said: len(marks) for said, marks in calls.items() if said not in allowed}
        if others or len(calls.get("ok", [])) < 20:
            counts = {said: len(marks) for said, marks in calls.items()}
            raise Fault(f"{kind}: {counts}")
    ran = [call["mark"] for call in cluster.ran()]
    if len(ran) != len(set(ran)):
        raise Fault(f"{len(ran) - len(set(ran))} calls were made twice")
    once = set(ran)
    made = {mark for calls in ended.values() for mark in calls.get("refused", [])} & once
    if made:
        raise Fault(f"refused, and made all the same: {sorted(made)[:3]}")
    lost = [mark for calls in ended.values() for mark in calls["ok"] if mark not in once]
    if lost:
        raise Fault(f"answered without being made: {lost[:3]}")
    told = {kind: {said: len(marks) for said, marks in calls.items()} for kind, calls in ended.items()}
    told = "; ".join(f"{kind}: " + ", ".join(f"{count} {said}" for said, count in calls.items()) for kind, calls in told.items())
    took, said, revision = cluster.longest
    return f"{told}; the longest call took {took:.1f} s ({said}, {revision})"


def killed(seconds):
    def check(cluster):
        """Replicas are killed, one each five seconds. Clients that send anew see broken connections and no other error."""
        cluster.settled()

        def disturb(end):
            for turn in itertools.count():
                time.sleep(min(5, max(0, end - time.monotonic())))
                if time.monotonic() >= end:
                    return
                replica = cluster.replicas[turn % 3]
                replica.end()
                replica.start()

        ended = load(cluster, seconds, disturb)
        return judged(cluster, ended, {"ok", "broken", "outcome_unknown"})

    return check


def rolled(cluster):
    """A rolling restart: each replica stops, and starts again before the next one stops. No session ends, and no call is lost."""
    cluster.settled()

    def disturb(_):
        for replica in cluster.replicas:
            time.sleep(1)
            replica.end(signal.SIGTERM)
            replica.start()
            replica.ready()
            cluster.settled()
        time.sleep(1)

    # This balancer goes on sending to a replica that stops. What comes there in that moment is refused before it has any effect.
    ended = load(cluster, 0, disturb)
    return judged(cluster, ended, {"ok", "broken", "refused"})


def rotated(cluster):
    """The key is replaced, replica by replica: sessions go on."""
    cluster.settled()
    clients = [Client(cluster.port, revision) for revision in REVISIONS * 3]
    made = 0
    for keys in (["first", "second"], ["second", "first"]):
        for replica in cluster.replicas:
            replica.end(signal.SIGTERM)
            replica.configure(keys)
            replica.start()
            replica.ready()
            cluster.settled()
            for client in clients:
                if (said := client.echo(f"{made}")) != "ok":
                    raise Fault(f"under {keys}: {said}")
                made += 1
    return f"{len(clients)} sessions, 6 restarts, {made} calls"


def intruders(cluster):
    """A replica with another key, clients' ports as peers, strangers at the peer channel: nothing is served to them."""
    client = Client(cluster.ports[0], "2025-11-25")
    stranger = cluster.replicas[2]
    end = time.monotonic() + PATIENCE
    while True:
        why = [peer.get("why", "") for peer in cluster.replicas[0].status()["peers"]]
        if sum("proves no key" in text for text in why) == 1:
            break
        # One that started later was not there at the first attempt.
        if time.monotonic() > end:
            raise Fault(f"status of a replica that sees one with another key: {why}")
        time.sleep(0.05)
    if client.echo("a", cluster.ports[1]) != "ok" or client.echo("b", stranger.port)[:3] != "404":
        raise Fault("a session is served by a replica with another key, or not by one with the same")
    refused = 0
    for port in cluster.peers[:2]:
        # A client with a good token, without TLS and with it.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["mcp-host-peer/1"])
        proof = base64.urlsafe_b64encode(b'{"principal":"bearer:ann"}').decode().rstrip("=")
        head = f"GET /hello HTTP/1.1\r\nHost: peer\r\nAuthorization: Bearer {TOKENS['ann']}\r\nmcp-host-proof: {proof}\r\n\r\n"
        for wrap in (lambda raw: raw, lambda raw: context.wrap_socket(raw, server_hostname="peer")):
            for sent in (head.encode(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), os.urandom(4096)):
                heard = b""
                try:
                    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw, wrap(raw) as stream:
                        stream.sendall(sent)
                        while piece := stream.recv(4096):
                            heard += piece
                except OSError:
                    pass
                if b"HTTP" in heard or b"boot" in heard:
                    raise Fault(f"a stranger was answered: {heard[:80]!r}")
                refused += 1
    # The port for clients in place of the peer channel.
    third = cluster.replicas[1]
    third.end(signal.SIGTERM)
    config = json.loads(third.config.read_text())
    config["host"]["cluster"]["peers"] = [f"127.0.0.1:{port}" for port in cluster.ports]
    third.config.write_text(json.dumps(config))
    third.start()
    third.ready()
    time.sleep(1)
    seen = third.status()["peers"]
    if len(seen) != 3 or not all("why" in peer for peer in seen):
        raise Fault(f"the port for clients counts as a peer: {seen}")
    if client.echo("c", cluster.ports[0]) != "ok":
        raise Fault("a session ended that nobody touched")
    return f"{refused} strangers, 1 replica with another key, 3 ports for clients: none was served"


def main(binary, seconds):
    other = (["first"], ["first"], ["foreign"])
    checks = [
        ("requests land anywhere", lands_anywhere, {}),
        (f"kill -9 each 5 s for {seconds} s", killed(float(seconds)), {}),
        ("a rolling restart", rolled, {}),
        ("a new key", rotated, {}),
        ("intruders", intruders, {"keys": other}),
    ]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, check, more) in enumerate(checks):
            begun = time.monotonic()
            try:
                with Cluster(binary, Path(folder).resolve() / str(number), **more) as cluster:
                    told, word = check(cluster), "ok    "
            except (Fault, ValueError, KeyError, subprocess.TimeoutExpired, *BROKEN) as fault:
                told, word = f"{type(fault).__name__}: {fault}", "FAILED"
                failed += 1
            print(f"{word} {name}: {told}, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
