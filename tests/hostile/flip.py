"""Names that resolve to an outside address at the first lookup and to an inside one later: does the program connect inside?

Runs in its own network namespace, which has only loopback, and in its own mount namespace, where this is the system's
resolver. So the program looks names up as usual, and connections to outside addresses go nowhere. Prints pairs of a check and
its faults, as JSON.
"""

import fcntl
import http.server
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import main as hostile

# An arbitrary outside address; nothing is reached there.
OUTSIDE = "93.184.215.14"
INSIDE = "169.254.169.254"
# The ways to a foreign name. The metadata of a server comes only from its own origin.
KINDS = ["issuer", "token", "registration"]
LOOKUPS = 3


class Resolver(threading.Thread):
    """Answers for every name: an outside address at the first lookup, an inside one afterwards."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        self.told = {}

    def run(self):
        while True:
            query, sender = self.socket.recvfrom(1500)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1 : at + 1 + query[at]])
                at += 1 + query[at]
            question = query[12 : at + 5]
            name, kind = b".".join(labels).decode().lower(), struct.unpack("!H", question[-4:-2])[0]
            answers = b""
            if kind == 1:
                told = self.told.setdefault(name, [])
                told.append(INSIDE if told else OUTSIDE)
                # Time to live: zero.
                answers = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(told[-1])
            head = query[:2] + b"\x81\x80" + struct.pack("!HHHH", 1, 1 if answers else 0, 0, 0)
            self.socket.sendto(head + question + answers, sender)


def make_world(home):
    """Sets up loopback and this resolver, and nothing else; exits if anything else is there."""
    links = [name for _, name in socket.if_nameindex()]
    if links != ["lo"]:
        sys.exit(f"this is not a network of its own: {links}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
        flags = struct.unpack("16sh", fcntl.ioctl(any_socket, 0x8913, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", flags | 1))
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for path, text in [("/etc/resolv.conf", "nameserver 127.0.0.1\n"), ("/etc/nsswitch.conf", "hosts: files dns\n")]:
        ours = home / Path(path).name
        ours.write_text(text)
        if os.path.exists(path):
            subprocess.run(["mount", "--bind", str(ours), os.path.realpath(path)], check=True)
    resolver = Resolver()
    resolver.start()
    if socket.gethostbyname("check.example") != OUTSIDE:
        sys.exit("lookups do not reach this resolver")
    return resolver


def look(binary, home):
    resolver = make_world(home)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), hostile.Site)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_port}"
    hostile.Site.cases = {f"{kind}-{number}": f"{kind}.example" for number, kind in enumerate(KINDS)}
    servers = {
        case: {"type": "http", "era": "legacy", "url": f"{site}/{case}/mcp", "restart": {"maxRetries": 1}}
        for case in hostile.Site.cases
    }
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    serve = [binary, "serve", "--quiet", "--listen", "127.0.0.1:0", "--config", "mcp.json"]
    host = hostile.Traced(home, "serve", serve)
    first = host.child.stdout.readline()
    threading.Thread(target=host.child.stdout.read, daemon=True).start()
    if not first.startswith("listening on"):
        sys.exit(f"the program does not serve: {first}")
    signed_in = [
        case for case in hostile.Site.cases for _ in range(LOOKUPS) if hostile.login(binary, home, case, False)[0] == 0
    ]
    pid, _ = hostile.settled(binary, home)
    os.kill(pid, signal.SIGTERM)
    host.child.wait(hostile.PATIENCE)
    connected, names = host.connected(), [f"{kind}.example" for kind in KINDS]
    allowed = {("127.0.0.1", server.server_port), ("127.0.0.1", 53), (OUTSIDE, 443)}
    asked_again = {name: resolver.told.get(name, []) for name in names if INSIDE not in resolver.told.get(name, [])}
    return [
        (f"{len(names)} names were looked up again, and resolved to an inside address", asked_again),
        ("an outside address was tried: the check sees connections", [] if (OUTSIDE, 443) in connected else ["no"]),
        ("no inside address was connected to", sorted(connected - allowed)),
        ("no login succeeded", signed_in),
    ]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(look(sys.argv[1], Path(folder))))
