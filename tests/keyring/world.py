"""A protected server with its authorization server, a D-Bus session with a keyring, and the host."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LONG = 30.0
PASSWORD = b"a password of the keyring"
# Activates no services, so the session has exactly what a case starts.
BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:dir=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*"/><allow receive_sender="*"/><allow own="*"/></policy></busconfig>
"""


def until(what: str, done, limit: float = LONG):
    """Waits for a condition and returns its value."""
    end = time.monotonic() + limit
    while True:
        value = done()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit:.0f} s: {what}")
        time.sleep(0.05)


class Site(BaseHTTPRequestHandler):
    """Both servers at one port. Tokens are valid until they are revoked."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def tell(self, status: int, body: object = None, headers: dict[str, str] | None = None) -> None:
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        url = self.server.url
        if self.path == "/.well-known/oauth-protected-resource/mcp":
            self.tell(200, {"resource": f"{url}/mcp", "authorization_servers": [url]})
        elif self.path == "/.well-known/oauth-authorization-server":
            self.tell(200, {
                "issuer": url, "authorization_endpoint": f"{url}/authorize", "token_endpoint": f"{url}/token",
                "registration_endpoint": f"{url}/register", "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            })
        else:
            self.tell(405 if self.path == "/mcp" else 404)

    def do_DELETE(self) -> None:
        self.tell(200)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        state = self.server
        if self.path == "/register":
            return self.tell(201, {"client_id": "a-client"})
        if self.path == "/token":
            with state.lock:
                state.given += 1
                # Longer than Windows' keyring accepts.
                token = f"canary-{state.given}-" + "x" * 4000
                state.good.add(token)
            return self.tell(200, {
                "access_token": token, "token_type": "Bearer", "expires_in": 3600,
                "refresh_token": f"canary-refresh-{state.given}",
            })
        if self.headers.get("authorization", "").removeprefix("Bearer ") not in state.good:
            metadata = f"{state.url}/.well-known/oauth-protected-resource/mcp"
            return self.tell(401, None, {"www-authenticate": f'Bearer resource_metadata="{metadata}"'})
        message = json.loads(body)
        match message.get("method"):
            case "initialize":
                result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                          "serverInfo": {"name": "s", "version": "1"}}
            case "tools/list":
                result = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": "done"}]}
            case _:
                return self.tell(202)
        self.tell(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})


def site() -> ThreadingHTTPServer:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    server.lock, server.given, server.good = threading.Lock(), 0, set()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class World:
    """One user's home, with or without a session and a keyring. Leaves no process behind."""

    def __init__(self, binary: str, home: Path):
        self.binary, self.home, self.site = binary, home, site()
        self.bus = self.ring = self.host = None
        self.address: str | None = None
        for name in ("run", "bus", "state"):
            (home / name).mkdir(mode=0o700)
        server = {"type": "http", "era": "legacy", "url": f"{self.site.url}/mcp"}
        (home / "mcp.json").write_text(json.dumps({"mcpServers": {"a": server}}))

    def vars(self, **more: str) -> dict[str, str]:
        places = {"HOME": self.home, "XDG_RUNTIME_DIR": self.home / "run", "XDG_STATE_HOME": self.home / "state",
                  "XDG_DATA_HOME": self.home / "data", "XDG_CONFIG_HOME": self.home / "config"}
        session = {"DBUS_SESSION_BUS_ADDRESS": self.address} if self.address else {}
        return {"PATH": os.environ["PATH"], **{name: str(place) for name, place in places.items()}, **session, **more}

    # The session and its keyring.

    def start_bus(self) -> None:
        config = self.home / "bus.conf"
        config.write_text(BUS % (self.home / "bus"))
        command = ["dbus-daemon", f"--config-file={config}", "--nofork", "--print-address=1"]
        self.bus = subprocess.Popen(command, env=self.vars(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.address = self.bus.stdout.readline().decode().strip()
        assert self.address, "dbus-daemon did not start"

    def start_keyring(self, unlocked: bool, *more: str) -> None:
        command = ["gnome-keyring-daemon", "--foreground", "--components=secrets", *more]
        command += ["--unlock"] if unlocked else []
        self.ring = subprocess.Popen(command, env=self.vars(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
        self.ring.stdin.write(PASSWORD if unlocked else b"")
        self.ring.stdin.close()
        until("a Secret Service on the bus", self.has_service)

    def has_service(self) -> bool:
        command = ["dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus", "/",
                   "org.freedesktop.DBus.NameHasOwner", "string:org.freedesktop.secrets"]
        asked = subprocess.run(command, env=self.vars(), capture_output=True, timeout=LONG)
        return b"boolean true" in asked.stdout

    def unlock(self) -> None:
        """Unlocks a keyring without a desktop: a new daemon takes its place."""
        locked = self.ring
        self.start_keyring(True, "--replace")
        locked.wait(LONG)
        until("the Secret Service of the new one", self.has_service)

    def stop_keyring(self) -> None:
        end(self.ring)
        self.ring = None

    def stop_bus(self) -> None:
        end(self.bus)
        self.bus = self.address = None

    def name_an_entry(self) -> None:
        """Two servers whose header is a keyring entry that does not exist yet."""
        header = {"Authorization": "Bearer ${keyring:api}"}
        server = {"type": "http", "era": "legacy", "url": f"{self.site.url}/mcp", "headers": header}
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": {"a": server, "b": server}}))
        self.site.good.add("a-canary")

    def check(self) -> tuple[int, str]:
        """Runs `mcp-host check`; returns its exit code and output."""
        command = [self.binary, "check", "--config", str(self.home / "mcp.json")]
        done = subprocess.run(command, env=self.vars(), cwd=self.home, capture_output=True, text=True, timeout=LONG)
        return done.returncode, done.stdout + done.stderr

    def types(self, command: list[str], question: str, answer: str) -> tuple[int, str]:
        """Runs a command at a terminal and answers its question; returns its exit code and what the terminal shows."""
        ours, theirs = pty.openpty()
        child = subprocess.Popen(command, env=self.vars(), cwd=self.home, stdin=theirs, stdout=theirs, stderr=theirs,
                                 start_new_session=True)
        os.close(theirs)
        shown, answered, end = b"", False, time.monotonic() + LONG
        while time.monotonic() < end:
            if not answered and question.encode() in shown and not termios.tcgetattr(ours)[3] & termios.ECHO:
                os.write(ours, answer.encode() + b"\n")
                answered = True
            try:
                ready, _, _ = select.select([ours], [], [], 0.05)
                piece = os.read(ours, 4096) if ready else None
            except OSError:
                break  # The other side is closed.
            if piece == b"":
                break
            shown += piece or b""
        os.close(ours)
        return child.wait(LONG), shown.decode(errors="replace")

    def in_keyring(self) -> str:
        command = ["secret-tool", "lookup", "service", "mcp-host", "username", "file-key"]
        return subprocess.run(command, env=self.vars(), capture_output=True, text=True, timeout=LONG).stdout

    # The host.

    def start_host(self, **vars: str) -> "Host":
        self.host = Host(self, vars)
        return self.host

    def files(self) -> dict[str, bytes]:
        """Returns the stored files, by path."""
        folder = self.home / "state" / "mcp-host" / "secrets"
        found = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
        return {str(path.relative_to(folder)): path.read_bytes() for path in found}

    def in_the_clear(self) -> list[str]:
        files = (path for path in self.home.rglob("*") if path.is_file())
        return [str(path) for path in files if b"canary" in path.read_bytes()]

    def close(self) -> None:
        for process in (self.ring, self.bus):
            if process and process.poll() is None:
                process.send_signal(signal.SIGCONT)
        for process in (self.host and self.host.process, self.ring, self.bus):
            end(process)
        self.site.shutdown()
        self.site.server_close()


def end(process: subprocess.Popen | None) -> None:
    """Ends a process of this test."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Host:
    """`mcp-host serve`, its output, and the commands that ask it."""

    def __init__(self, world: World, vars: dict[str, str]):
        self.world, self.lines = world, []
        command = [world.binary, "serve", "--config", str(world.home / "mcp.json"), "--listen", "127.0.0.1:0"]
        self.vars = world.vars(**vars)
        self.process = subprocess.Popen(command, env=self.vars, cwd=world.home, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        threading.Thread(target=self.read, daemon=True).start()
        self.url = self.line(r"listening on (\S+)").group(1)

    def read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def line(self, pattern: str, limit: float = LONG) -> re.Match[str]:
        def found():
            return next((match for line in list(self.lines) if (match := re.search(pattern, line))), None)
        try:
            return until(f"a line like {pattern!r}", found, limit)
        except AssertionError as error:
            raise AssertionError("\n    ".join([str(error), *self.lines])) from None

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.world.binary, *words], env=self.vars, cwd=self.world.home, capture_output=True,
                              text=True, timeout=LONG)

    def login(self) -> str:
        """Signs in; returns where the token is stored, by the command's words."""
        command = [self.world.binary, "login", "a", "--no-browser"]
        login = subprocess.Popen(command, env=self.vars, cwd=self.world.home, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        said = []
        for line in login.stdout:
            said.append(line.strip())
            if "/authorize?" in line:
                asked = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(line.strip()).query))
                back = urllib.parse.urlencode({"code": "a-code", "state": asked["state"]})
                urllib.request.urlopen(f"{asked['redirect_uri']}?{back}", timeout=LONG).read()
        assert login.wait(LONG) == 0, said
        return re.search("the token is kept in (.*)", said[-1]).group(1)

    def kept(self) -> str | None:
        """Returns where the login is, by `mcp-host auth`."""
        rows = json.loads(self.command("auth", "--json").stdout)
        return rows[0]["holding"] and rows[0]["holding"]["kept"]

    def state(self) -> tuple[str, str]:
        """Returns the server's state and last error."""
        status = json.loads(self.command("status", "--json").stdout)
        server = status["servers"][0]
        return server["state"], json.dumps(server)

    def call(self) -> bool:
        """Whether a call succeeds."""
        def post(message: dict, session: str | None = None):
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            headers |= {"mcp-session-id": session} if session else {}
            request = urllib.request.Request(self.url, json.dumps(message).encode(), headers)
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                return answer.headers.get("mcp-session-id"), answer.read().decode()
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        session, _ = post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
        post({"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
        params = {"name": "a__t", "arguments": {}}
        _, text = post({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, session)
        return '"done"' in text

    def healthy(self) -> bool:
        with urllib.request.urlopen(self.url.replace("/mcp", "/healthz"), timeout=5) as answer:
            return answer.status == 200

    def stop(self, limit: float = LONG) -> float:
        """Ends it; returns how long that took."""
        before = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(limit) == 0, self.lines
        return time.monotonic() - before
