"""Each check: a home with files of clients, a command of ours, and what the clients or the files say afterwards."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Only these variables come from the user's environment: no keys, no proxies.
INHERITED = ("PATH", "LANG", "LC_ALL", "TERM", "TZ")
# Keep the clients from looking for updates and models.
QUIET = {
    "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "GEMINI_API_KEY": "none",
}  # fmt: skip
LISTEN = "127.0.0.1:18808"


class Fault(Exception):
    pass


class Client:
    """A client from npm: its word here, its program, and what its list says of a server that works."""

    def __init__(self, word, program, works):
        self.word, self.program, self.works = word, program, works


def clients(folder):
    """Returns the installed clients by their word."""

    def first(pattern, name):
        found = sorted(folder.glob(pattern))
        return found[0] if found else folder / name / "missing"

    # The packages of some find their program by an install script, which does not run: it is in a package beside them.
    return [
        Client("claude-code", first("claude/node_modules/@anthropic-ai/claude-code-linux-*/claude", "claude"), r"Connected"),
        # It lists servers without connecting to them.
        Client("codex", folder / "codex/node_modules/.bin/codex", r"enabled"),
        Client("gemini", folder / "gemini/node_modules/.bin/gemini", r"Connected"),
        Client("opencode", first("opencode/node_modules/opencode-linux-*[0-9]/bin/opencode", "opencode"), r"connected"),
    ]


class Home:
    """A home folder with the files of clients, and a folder to work in."""

    def __init__(self, binary, folder, servers):
        self.binary, self.folder, self.work = binary, folder, folder / "work"
        self.work.mkdir(parents=True)
        self.write(".gemini/trustedFolders.json", json.dumps({str(self.work): "TRUST_FOLDER"}))
        # Daemons end by themselves soon after their last client.
        host = {"listen": LISTEN, "idleExit": "2s"}
        self.own = ".config/mcp-host/config.json"
        self.write(self.own, json.dumps({"mcpServers": servers, "host": host}, indent=2))

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())

    def read(self, name):
        path = self.folder / name
        return path.read_bytes() if path.exists() else None

    def environment(self):
        given = {name: os.environ[name] for name in INHERITED if name in os.environ}
        return given | QUIET | {"HOME": str(self.folder)}

    def run(self, *words, limit=120):
        done = subprocess.run(
            words, cwd=self.work, env=self.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=limit,
        )  # fmt: skip
        return done.returncode, done.stdout

    def host(self, code, *words):
        got, said = self.run(self.binary, *words)
        if got != code:
            raise Fault(f"`{' '.join(words)}` ended with {got}, not {code}: {said.strip()}")
        return said

    def lists(self, client):
        """Returns the line of a client's own list about us, without colors; `None` if it has none."""
        if not client.program.exists():
            raise Fault(f"{client.word} is not installed")
        _, said = self.run(str(client.program), "mcp", "list")
        plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
        lines = [line for line in plain.splitlines() if re.search(r"(^|[ ✓●○✔✗])mcp-host\b", line)]
        return lines[0] if lines else None

    def works(self, client, hint):
        line = self.lists(client)
        if line is None or not re.search(client.works, line):
            raise Fault(f"{client.word} says {line!r} {hint}")


FILES = {
    "claude-code": (".claude.json", '{\n  "numStartups": 3,\n  "hasCompletedOnboarding": true\n}'),
    "codex": (".codex/config.toml", "# mine\r\ncheck_for_update_on_startup = false\r\n\r\n[analytics]\r\nenabled = false\r\n"),
    "gemini": (
        ".gemini/settings.json",
        '{\n\t// mine\n\t"privacy": { "usageStatisticsEnabled": false },\n\t"general": { "enableAutoUpdate": false },\n'
        '\t"security": { "auth": { "selectedType": "gemini-api-key" } }\n}\n',
    ),
    "opencode": (
        ".config/opencode/opencode.json",
        '{\n  // mine\n  "$schema": "https://opencode.ai/config.json",\n  "autoupdate": false,\n}\n',
    ),
}


def demo(binary):
    return {"command": binary, "args": ["__demo-server"]}


def prepared(binary, folder):
    home = Home(binary, folder, {"echo": demo(binary)})
    for name, text in FILES.values():
        home.write(name, text)
    return home


def same(home, before):
    """Fails unless all files have the bytes that they had."""
    for name, text in before.items():
        if home.read(name) != text:
            raise Fault(f"{name} is not as before: {home.read(name)!r}")


def by_program(binary, folder, found, _servers):
    """Each client starts the host."""
    home = prepared(binary, folder)
    before = {name: home.read(name) for name, _ in FILES.values()} | {home.own: home.read(home.own)}
    home.host(0, "link", *FILES, "--yes")
    for client in found:
        home.works(client, "after link")
    # Clients write their files themselves; only ours goes then.
    home.host(0, "unlink", *FILES, "--yes")
    for client in found:
        if home.lists(client) is not None:
            raise Fault(f"{client.word} still has us after unlink")
    home = prepared(binary, folder.with_name(folder.name + "-back"))
    home.host(0, "link", *FILES, "--yes")
    home.host(0, "undo")
    same(home, before)
    return f"{len(found)} clients"


def by_url(binary, folder, found, _servers):
    """Each client connects to a running daemon, with a token of its own."""
    home = prepared(binary, folder)
    for name, _ in FILES.values():
        (home.folder / name).chmod(0o600)
    own = json.loads(home.read(home.own))
    own["host"]["auth"] = {"type": "bearer", "clients": {"nobody": "sha256:" + "0" * 64}}
    home.write(home.own, json.dumps(own))
    home.host(0, "link", *FILES, "--url", "--yes")
    daemon = subprocess.Popen(
        [binary, "serve", "--config", str(home.folder / home.own)], cwd=home.work, env=home.environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        for line in daemon.stdout:
            if "listening on" in line:
                break
        else:
            raise Fault("`serve` did not start")
        for client in found:
            home.works(client, "beside a daemon")
    finally:
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=30)
    return f"{len(found)} clients"


def five(binary, modules, shop):
    """The files of five clients with real servers, one of which is broken."""

    def node(package, *words):
        return ["node", str(next(modules.glob(f"{package}/dist/index.js"))), *words]

    scope = "@modelcontextprotocol/server-"
    files, memory, thinking = node(scope + "filesystem", str(shop)), node(scope + "memory"), node(scope + "sequential-thinking")
    # The tools of a newer one depend on what its client can answer.
    everything = node("everything-old")

    def entry(words, **more):
        return {"command": words[0], "args": words[1:], **more}

    claude = {"numStartups": 3, "mcpServers": {"files": entry(files, type="stdio", env={}), "memory": entry(memory)}}
    cursor = json.dumps({"files": entry(files), "everything": entry(everything)}, indent="\t")
    codex = "\r\n".join(
        ["# mine", 'model = "x"', "", "[mcp_servers.thinking]", f"command = {json.dumps(thinking[0])}",
         f"args = {json.dumps(thinking[1:])}", "startup_timeout_sec = 60", "", "[mcp_servers.broken]",
         'command = "node"', 'args = ["/no/such/server.js"]', ""]
    )  # fmt: skip
    goose = "GOOSE_MODEL: x\nextensions:\n  developer: { type: builtin, enabled: true, name: developer }\n  memory: # mine\n"
    goose += f"    enabled: true\n    type: stdio\n    name: memory\n    cmd: {memory[0]}\n    args: {json.dumps(memory[1:])}\n    timeout: 300\n"
    opencode = json.dumps({"$schema": "https://opencode.ai/config.json", "mcp": {"files": {"type": "local", "command": files}}})
    return {
        ".claude.json": json.dumps(claude, indent=2),
        ".cursor/mcp.json": "\ufeff{\n\t// mine\n\t\"mcpServers\": " + cursor + ",\n}\n",
        ".codex/config.toml": codex,
        ".config/goose/config.yaml": goose,
        ".config/opencode/opencode.json": opencode,
    }


def tools(said):
    # What is said beside the list stands behind it.
    return sorted(tool["name"] for tool in json.JSONDecoder().raw_decode(said[said.index("[") :])[0])


def moved(binary, folder, found, modules):
    """Five clients become one host: its tools are those of the servers, and all is taken back."""
    home = Home(binary, folder, {})
    shop = home.folder / "shop"
    shop.mkdir()
    files = five(binary, modules, shop)
    for name, text in files.items():
        home.write(name, text)
    before = {name: home.read(name) for name in files} | {home.own: home.read(home.own)}
    begun = time.monotonic()
    words = ("migrate", "claude-code", "codex", "cursor", "goose", "opencode", "--yes")
    said = home.host(1, *words)
    took = time.monotonic() - begun
    summary = next((line for line in said.splitlines() if "mcp-host undo 1" in line), "")
    if not summary.startswith("7 processes -> 4, 5 clients;") or "Codex: `broken`: stays there" not in said:
        raise Fault(said)
    # The tools of each server, asked for alone in a config that knows nothing of us.
    ours = tools(home.host(0, "tools", "--json"))
    direct = []
    config = json.loads(home.read(home.own))
    for name, entry in config["mcpServers"].items():
        home.write("alone.json", json.dumps({"mcpServers": {name: entry}}))
        direct += tools(home.host(0, "tools", "--json", "--config", str(home.folder / "alone.json")))
    if not ours or ours != sorted(direct):
        raise Fault(f"the host has {ours}, the servers have {sorted(direct)}")
    left = home.read(".codex/config.toml").decode()
    if "broken" not in left or "thinking" in left:
        raise Fault(left)
    home.host(0, "undo")
    same(home, before)
    for client in found:
        if client.word in ("claude-code", "opencode"):
            home.host(1, *words)
            home.works(client, "after migrate")
            break
    return f"{len(ours)} tools of 4 servers, {took:.0f} s; {summary}"


def main(binary, agents, modules):
    checks = {
        "clients start the host that link wrote": by_program,
        "clients connect to the address that link wrote": by_url,
        "five clients with real servers become one host, and back": moved,
    }
    found, failed = clients(Path(agents)), 0
    folder = Path(tempfile.mkdtemp()).resolve()
    for name, check in checks.items():
        begun = time.monotonic()
        try:
            told, word = check(binary, folder / check.__name__, found, Path(modules)), "ok    "
        except (Fault, OSError, ValueError, subprocess.TimeoutExpired) as fault:
            told, word = fault, "FAILED"
            failed += 1
        print(f"{word} {name}: {told}, {time.monotonic() - begun:.0f} s", flush=True)
    # Daemons whose last client has gone still write their log.
    time.sleep(4)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
