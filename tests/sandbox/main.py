"""Starts each server without a sandbox, with `default`, and with `strict`, and compares what they list and answer."""

import functools
import http.server
import ipaddress
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.parse
from pathlib import Path

LEVELS = ["off", "box", "strict"]
PATIENCE = 300


@functools.cache
def registries():
    """Returns the hosts of npm's registry and of PyPI, as npm and pip know them."""
    from pip._internal.models.index import PyPI

    npm = subprocess.run(["npm", "config", "get", "registry"], check=True, capture_output=True, text=True).stdout
    return [urllib.parse.urlparse(npm.strip()).hostname, PyPI.netloc, PyPI.file_storage_domain]


def sandbox(level, network):
    """Returns the sandbox of a server at a level. `network` is what it reaches with `strict`."""
    if level != "strict":
        return {"off": "off", "box": "default"}[level]
    hosts = list(registries())
    for name in registries():
        # A mirror in a private network has to be listed by its address, too.
        found = {entry[4][0] for entry in socket.getaddrinfo(name, 443, socket.AF_INET)}
        hosts += [f"{address}:443" for address in found if not ipaddress.ip_address(address).is_global]
    return {"level": "strict", "install": hosts} | ({"network": network} if network else {})


class Page(http.server.BaseHTTPRequestHandler):
    """A page on loopback for the server that fetches."""

    def do_GET(self):
        found = self.path == "/page"
        body = b"<html><body><p>A page of the test</p></body></html>" if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def servers(folder, repository, port):
    """Each server: how it starts, and one call."""
    npm = lambda package, *arguments: ("npx", ["-y", f"@modelcontextprotocol/server-{package}", *arguments])
    pypi = lambda package, *arguments: ("uvx", [f"mcp-server-{package}", *arguments])
    thought = {"thought": "one", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}
    times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    return {
        "filesystem": (npm("filesystem@2026.8.31", folder), "read_text_file", {"path": f"{folder}/note"}),
        "memory": (npm("memory@2026.8.31"), "read_graph", {}),
        "everything": (npm("everything@2026.8.31", "stdio"), "echo", {"message": "hello"}),
        "thinking": (npm("sequential-thinking"), "sequentialthinking", thought),
        "time": (pypi("time==2026.10.19", "--local-timezone=UTC"), "convert_time", times),
        "fetch": (pypi("fetch==2026.10.24", "--allow-private-ips"), "fetch", {"url": f"http://127.0.0.1:{port}/page"}),
        "git": (pypi("git==2026.10.19", "--repository", repository), "git_log", {"repo_path": repository}),
    }


class Host:
    """The program as a stdio server."""

    def __init__(self, binary, home, path, entries):
        config = Path(home) / "mcp.json"
        config.write_text(json.dumps({"host": {"startupWait": f"{PATIENCE}s"}, "mcpServers": entries}))
        keep = {"PATH", "LANG", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "HTTPS_PROXY", "https_proxy"}
        environment = {name: value for name, value in os.environ.items() if name in keep}
        environment |= {"HOME": home, "PATH": f"{path}:{os.environ['PATH']}"}
        command = [binary, "stdio", "--own", "--config", config]
        self.log = open(Path(home) / "log", "w+")
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.log, env=environment, text=True)
        self.count = 0
        client = {"name": "sandbox", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def say(self, message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def ask(self, method, params):
        self.count += 1
        self.say({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params})
        for line in self.child.stdout:
            message = json.loads(line)
            if message.get("id") == self.count and "method" not in message:
                return message.get("result", message.get("error"))
        raise EOFError(f"the host ended while it was asked {method}")

    def tools(self):
        found, params = [], {}
        while True:
            page = self.ask("tools/list", params)
            found += page["tools"]
            if not page.get("nextCursor"):
                return found
            params = {"cursor": page["nextCursor"]}

    def close(self):
        self.child.stdin.close()
        self.child.wait(timeout=60)


def compared(host, tools, name, tool, arguments):
    """Returns what differs, or nothing."""
    listed = {}
    for level in LEVELS:
        prefix = f"{name}-{level}__"
        own = [entry for entry in tools if entry["name"].startswith(prefix)]
        listed[level] = [{**entry, "name": entry["name"].removeprefix(prefix)} for entry in own]
    if not listed["off"]:
        return "it does not start without a sandbox either"
    for level in LEVELS[1:]:
        if listed["off"] != listed[level]:
            return f"{len(listed['off'])} tools without, {len(listed[level])} with {level}"
    answers = {
        level: host.ask("tools/call", {"name": f"{name}-{level}__{tool}", "arguments": arguments}) for level in LEVELS
    }
    if answers["off"].get("isError") or "code" in answers["off"]:
        return f"the call fails without a sandbox, too: {json.dumps(answers['off'])[:300]}"
    if any(answer != answers["off"] for answer in answers.values()):
        return "\n".join(f"  {level}: {json.dumps(answer)[:400]}" for level, answer in answers.items())
    return None


def main(binary, path):
    page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        folder, repository = Path(home) / "files", Path(home) / "repository"
        folder.mkdir()
        (folder / "note").write_text("a note")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", repository]
        subprocess.run(["git", "init", "-q", repository], check=True)
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
        table = servers(str(folder), str(repository), page.server_port)
        entries = {}
        for name, ((command, arguments), *_) in table.items():
            network = [f"127.0.0.1:{page.server_port}"] if name == "fetch" else []
            for level in LEVELS:
                limits = {"startTimeout": f"{PATIENCE}s", "restart": {"maxRetries": 0}}
                entry = {"command": command, "args": arguments, "sandbox": sandbox(level, network), **limits}
                entries[f"{name}-{level}"] = entry
        host = Host(binary, home, path, entries)
        tools = host.tools()
        failed = 0
        for name, (_, tool, arguments) in table.items():
            wrong = compared(host, tools, name, tool, arguments)
            failed += wrong is not None
            print(f"{'FAIL' if wrong else 'ok  '} {name}{f': {wrong}' if wrong else ''}", flush=True)
        host.close()
        if failed:
            host.log.seek(0)
            print(host.log.read()[-4000:], file=sys.stderr)
    print(f"{len(table) - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
