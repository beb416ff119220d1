"""Starts each server without a sandbox, with `default`, and with the table that `sandbox learn` gives, and compares what they
list and answer."""

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

from program import Client
from servers import servers

PATIENCE = 300
# The levels, and the first letter of the names of their servers: a long name would shorten those of tools.
LEVELS = {"off": "o", "default": "d", "strict": "s"}
# How many of all servers may differ: `default` has no table, and a server may work in a folder that only its calls name.
MAY_DIFFER = {"default": 2, "strict": 4}
# How the host says what a browser needs, which makes a sandbox of its own.
OF_BROWSER = "browsers make a sandbox of their own, and none can be made in this one; write \"sandbox\": \"off\""


@functools.cache
def registries():
    """Returns the hosts of npm's registry and of PyPI, as npm and pip know them."""
    from pip._internal.models.index import PyPI

    npm = subprocess.run(["npm", "config", "get", "registry"], check=True, capture_output=True, text=True).stdout
    return [urllib.parse.urlparse(npm.strip()).hostname, PyPI.netloc, PyPI.file_storage_domain]


@functools.cache
def listed():
    """Returns the same as a list of hosts. A mirror in a private network has to be listed by its address, too."""
    hosts = list(registries())
    for name in registries():
        found = {entry[4][0] for entry in socket.getaddrinfo(name, 443, socket.AF_INET)}
        hosts += [f"{address}:443" for address in found if not ipaddress.ip_address(address).is_global]
    return hosts


class Page(http.server.BaseHTTPRequestHandler):
    """A page on loopback for the servers that fetch."""

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


def environment(home, path):
    keep = {"PATH", "LANG", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "PIP_CERT", "HTTPS_PROXY", "https_proxy"}
    kept = {name: value for name, value in os.environ.items() if name in keep}
    return kept | {"HOME": home, "PATH": f"{path}:{os.environ['PATH']}"}


def write(home, entries):
    config = Path(home) / "mcp.json"
    config.write_text(json.dumps({"host": {"startupWait": f"{PATIENCE}s"}, "mcpServers": entries}))
    return config


class Host(Client):
    """The program with these entries, and its log."""

    def __init__(self, binary, home, path, entries):
        command = [binary, "stdio", "--own", "--config", write(home, entries)]
        self.log = open(Path(home) / "log", "w+")
        super().__init__(command, environment(home, path), self.log, "sandbox")


def entry(server, sandbox):
    limits = {"startTimeout": f"{PATIENCE}s", "callTimeout": f"{PATIENCE}s", "restart": {"maxRetries": 0}}
    return {"command": server.command, "args": server.arguments, "env": server.env, "sandbox": sandbox, **limits}


def learn(binary, home, path, server):
    """Returns what `sandbox learn` says of a server, or why it says nothing."""
    # The sandbox of the entry is not in force; the hosts of its registries are.
    config = write(home, {"s": entry(server, {"level": "strict", "install": listed()})})
    command = [binary, "sandbox", "learn", "s", "--yes", "--json", "--config", config, "--"]
    command += ["call", f"s__{server.tool}", json.dumps(server.params), "--no-check"]
    said = subprocess.run(command, env=environment(home, path), capture_output=True, text=True, timeout=2 * PATIENCE)
    if not said.stdout:
        return None, said.stderr
    return json.loads(said.stdout), said.stderr


def strict(told, server, page):
    """Returns the sandbox that `told` lists."""
    table = told["sandbox"] | {"install": listed()}
    if server.fetches:
        # A part that is installed at the first call need not be fetched while it is watched, if it was there.
        table["network"] = sorted({*table.get("network", []), *listed(), page})
    return table


def compared(host, tools, letter, server):
    """Returns the lists and answers of the levels, or why there are none."""
    lists, answers = {}, {}
    for level, first in LEVELS.items():
        prefix = f"{first}{letter}__"
        own = [tool for tool in tools if tool["name"].startswith(prefix)]
        lists[level] = [{**tool, "name": tool["name"].removeprefix(prefix)} for tool in own]
        if own:
            params = {"name": f"{prefix}{server.tool}", "arguments": server.params}
            answers[level] = host.ask("tools/call", params)
    return lists, answers


def judged(level, lists, answers, told, server):
    """Returns what is wrong with a level, or nothing."""
    if not lists["off"]:
        return "it does not start without a sandbox either"
    if lists[level] != lists["off"]:
        return f"{len(lists['off'])} tools without, {len(lists[level])} with it"
    if server.is_browser:
        return None if OF_BROWSER in told else f"`check` does not say what it needs: {told[:600]}"
    if answers[level] != answers["off"]:
        return f"\n  off: {json.dumps(answers['off'])[:400]}\n  {level}: {json.dumps(answers[level])[:400]}"
    return None


def main(binary, path, only):
    page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        table = {name: server for name, server in servers(home, page.server_port).items() if not only or name in only}
        counts, learned = {level: 0 for level in LEVELS if level != "off"}, 0
        for name, server in table.items():
            # One at a time, and each with a state of its own: a server has its caches by its name.
            folder = Path(home) / f"home-{name}"
            folder.mkdir()
            told, why = learn(binary, str(folder), path, server)
            if told is None:
                print(f"FAIL {name}: learn: {why[-600:]}", flush=True)
                continue
            learned += 1
            sandboxes = {"o": "off", "d": "default", "s": strict(told, server, f"127.0.0.1:{page.server_port}")}
            entries = {f"{first}": entry(server, sandbox) for first, sandbox in sandboxes.items()}
            host = Host(binary, str(folder), path, entries)
            lists, answers = compared(host, host.tools(), "", server)
            host.close()
            check = [binary, "check", "--config", str(folder / "mcp.json")]
            checked = subprocess.run(check, env=environment(str(folder), path), capture_output=True, text=True).stderr
            for level in counts:
                wrong = judged(level, lists, answers, checked, server)
                counts[level] += wrong is None
                print(f"{'FAIL' if wrong else 'ok  '} {name} with {level}{f': {wrong}' if wrong else ''}", flush=True)
                if wrong:
                    host.log.seek(0)
                    print(json.dumps(told["sandbox"]), host.log.read()[-1500:], sep="\n", file=sys.stderr, flush=True)
    wanted = len(table) * len(counts)
    passed = sum(counts.values())
    each = ", ".join(f"{count} of {len(table)} with {level}" for level, count in counts.items())
    print(f"learned {learned} of {len(table)}; equal: {each}")
    print(f"{passed} passed, {wanted - passed} failed")
    # Of all twenty, some do what a level refuses: that many may.
    return any(len(table) - counts[level] > (most if not only else 0) for level, most in MAY_DIFFER.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
