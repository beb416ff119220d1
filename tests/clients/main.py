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
import tomllib
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent

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
        path = os.pathsep.join([str(self.folder / "bin"), given["PATH"]])
        return given | QUIET | {"HOME": str(self.folder), "PATH": path}

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


def by_program(binary, folder, found, _places):
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


def by_url(binary, folder, found, _places):
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


class Shop:
    """Ten real servers, as words that start them: four of npm and three of PyPI work, `everything` is an older one, whose tools
    do not depend on its client; `broken` ends at once, and `locked` wants a login."""

    def __init__(self, modules, python, folder):
        self.modules, self.folder = modules, folder
        self.goods = folder / "goods"
        self.goods.mkdir(parents=True)
        scope = "@modelcontextprotocol/server-"
        self.words = {
            "files": self.node(scope + "filesystem", str(self.goods)),
            "memory": self.node(scope + "memory"),
            "thinking": self.node(scope + "sequential-thinking"),
            "everything": self.node("everything-old"),
            "docs": self.node("@upstash/context7-mcp"),
            "time": [str(python / "bin/mcp-server-time")],
            "fetch": [str(python / "bin/mcp-server-fetch")],
            "git": [str(python / "bin/mcp-server-git")],
            "broken": self.node(scope + "filesystem", str(folder / "no/such/folder")),
        }
        # Scripts find packages from the folder where they are.
        (folder / "protected.mjs").write_bytes((HERE / "protected.mjs").read_bytes())
        (folder / "node_modules").symlink_to(modules)
        self.locked = subprocess.Popen(
            ["node", "protected.mjs"], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        self.url = f"http://127.0.0.1:{int(self.locked.stdout.readline())}/mcp"

    def node(self, package, *words):
        return ["node", str(next(self.modules.glob(f"{package}/dist/index.js"))), *words]

    def close(self):
        self.locked.kill()
        self.locked.communicate()


def five(shop):
    """The files of five clients, as these write them."""
    words = shop.words

    def entry(name, **more):
        return {"command": words[name][0], "args": words[name][1:], **more}

    def typed(name):
        return entry(name, type="stdio", env={})

    claude = {
        "numStartups": 3, "hasCompletedOnboarding": True,
        "mcpServers": {
            "files": typed("files"), "memory": typed("memory"), "time": typed("time"), "docs": typed("docs"),
            "locked": {"type": "http", "url": shop.url},
        },
        "projects": {},
    }  # fmt: skip
    cursor = {
        "files": entry("files"), "everything": entry("everything"), "git": entry("git"), "login": {"url": shop.url},
    }  # fmt: skip
    codex = ["# mine", 'model = "x"', "check_for_update_on_startup = false"]
    for name in ("thinking", "time", "broken"):
        codex += ["", f"[mcp_servers.{name}] # {name}", f"command = {json.dumps(words[name][0])}"]
        codex += [f"args = {json.dumps(words[name][1:])}", "startup_timeout_sec = 60"]
    codex += ["", "[analytics]", "enabled = false", ""]
    goose = "GOOSE_MODEL: x\nextensions:\n  developer: { type: builtin, enabled: true, name: developer }\n"
    for name in ("memory", "fetch"):
        goose += f"  {name}: # mine\n    enabled: true\n    type: stdio\n    name: {name}\n    cmd: {words[name][0]}\n"
        goose += f"    args: {json.dumps(words[name][1:])}\n    envs: {{}}\n    timeout: 300\n"
    opencode = {
        "$schema": "https://opencode.ai/config.json", "autoupdate": False,
        "mcp": {name: {"type": "local", "command": words[name], "enabled": True} for name in ("files", "thinking")},
    }  # fmt: skip
    return {
        ".claude.json": json.dumps(claude, indent=2),
        ".cursor/mcp.json": "\ufeff{\n\t// mine\n\t\"mcpServers\": " + json.dumps(cursor, indent="\t") + ",\n}\n",
        ".codex/config.toml": "\r\n".join(codex),
        ".config/goose/config.yaml": goose,
        ".config/opencode/opencode.json": json.dumps(opencode, indent=2) + "\n",
    }


# How many servers each of them has.
OWN = {"claude-code": 5, "codex": 3, "cursor": 4, "goose": 2, "opencode": 2}


def linked(home):
    """Returns what the five files say about this host: the words that each client would start."""

    def words(entry):
        return [entry["command"], *entry["args"]]

    def plain(name):
        # A byte order mark, comments on lines of their own, and commas before a bracket.
        text = re.sub(r"^\s*//.*$", "", home.read(name).decode("utf-8-sig"), flags=re.M)
        return json.loads(re.sub(r",(\s*[}\]])", r"\1", text))

    goose = home.read(".config/goose/config.yaml").decode().split("  mcp-host:", 1)[1]
    args = re.search(r"args: *(\[.*\])", goose) or re.search(r"args:\n((?: +- .*\n)+)", goose)
    args = args.group(1).strip()
    args = json.loads(args) if args.startswith("[") else [line.strip()[2:].strip("\"'") for line in args.splitlines()]
    return {
        "claude-code": words(plain(".claude.json")["mcpServers"]["mcp-host"]),
        "cursor": words(plain(".cursor/mcp.json")["mcpServers"]["mcp-host"]),
        "codex": words(tomllib.loads(home.read(".codex/config.toml").decode())["mcp_servers"]["mcp-host"]),
        "goose": [re.search(r"cmd: *\"?([^\"\n]*)", goose).group(1), *args],
        "opencode": plain(".config/opencode/opencode.json")["mcp"]["mcp-host"]["command"],
    }


def tools(said):
    # What is said beside the list stands behind it.
    return sorted(tool["name"] for tool in json.JSONDecoder().raw_decode(said[said.index("[") :])[0])


def direct(home):
    """Returns the tools of each server of the config, asked for alone by a host that has no other server."""
    found = []
    for name, entry in json.loads(home.read(home.own))["mcpServers"].items():
        if "url" in entry:
            continue
        home.write("alone.json", json.dumps({"mcpServers": {name: entry}}))
        found += tools(home.host(0, "tools", "--json", "--config", str(home.folder / "alone.json")))
    return sorted(found)


def lists_of(home, python):
    """Starts at once what stands in the five files, and lists the tools by the official Python SDK. Returns the names by
    client, and how many processes the servers have meanwhile."""
    asked = json.dumps([[client, words[0], words[1:]] for client, words in linked(home).items()])
    done = subprocess.run(
        [python / "bin/python", HERE / "lists.py", "8", home.binary, "status", "--json"], cwd=home.work, env=home.environment(),
        input=asked, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if done.returncode != 0:
        raise Fault(f"the SDK cannot list: {done.stderr[-2000:]}")
    said = json.loads(done.stdout)
    return said["listed"], said["processes"]


# Takes the place of systemd: starts the service as its unit says, and ends it.
SYSTEMCTL = """#!/bin/sh
unit=$HOME/.config/systemd/user/mcp-host.service
case "$*" in
*" restart "*)
  eval "exec env -i HOME='$HOME' $(sed -n 's/^Environment=//p' "$unit" | tr '\\n' ' ') $(sed -n 's/^ExecStart=//p' "$unit")" >"$HOME/service.log" 2>&1 &
  echo $! >"$HOME/service.pid" ;;
*"disable --now"*) kill "$(cat "$HOME/service.pid")" ;;
*is-enabled*) echo enabled ;;
*is-active*) kill -0 "$(cat "$HOME/service.pid")" 2>/dev/null && echo active || echo inactive ;;
esac
"""


def until(what, test, limit=30):
    end = time.monotonic() + limit
    while not test():
        if time.monotonic() > end:
            raise Fault(f"waited {limit} s until {what}")
        time.sleep(0.2)


def seen_in_the_page(home):
    """Opens the page with the link that `open` prints, as a browser would, and returns what it shows of tools."""
    link = home.host(0, "open", "--no-browser").splitlines()[0]
    origin, code = link.split("/#k=")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(path, body=None, **headers):
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(origin + path, data, {"Origin": origin, "Content-Type": "application/json", **headers})
        with opener.open(asked, timeout=30) as answer:
            return answer.read().decode()

    if "<html" not in ask("/").lower():
        raise Fault("there is no page")
    token = json.loads(ask("/console/session", {"code": code}))["token"]
    return ask("/console/tools", Authorization=f"Bearer {token}")


def has_all(text, names):
    return all(f'"{name}"' in text for name in names)


def moved(binary, folder, found, places):
    """A newcomer with five clients and ten servers: `migrate`, `service install --dry-run`, `doctor`; every client lists all tools
    through one host; `undo` brings every byte back."""
    home = Home(binary, folder, {})
    shop = Shop(places.modules, places.python, folder / "shop")
    try:
        return walk(home, shop, found, places.python)
    finally:
        shop.close()


def walk(home, shop, found, python):
    files = five(shop)
    for name, text in files.items():
        home.write(name, text)
    before = {name: home.read(name) for name in files} | {home.own: home.read(home.own)}
    begun = time.monotonic()
    words = ("migrate", "claude-code", "codex", "cursor", "goose", "opencode", "--yes")
    said = home.host(1, *words)
    took = time.monotonic() - begun
    summary = next((line for line in said.splitlines() if "mcp-host undo 1" in line), "")
    expected = "13 processes -> 8, 2 connections -> 1, 5 clients;"
    wants = "`locked` wants a login: mcp-host login locked"
    if not summary.startswith(expected) or "Codex: `broken`: stays there" not in said or wants not in said:
        raise Fault(said)
    if said.count("warning: ") != 1:
        raise Fault(f"more is wrong than one broken server: {said}")
    left = tomllib.loads(home.read(".codex/config.toml").decode())["mcp_servers"]
    if sorted(left) != ["broken", "mcp-host"]:
        raise Fault(f"Codex has {sorted(left)}")

    ours, theirs = tools(home.host(0, "tools", "--json")), direct(home)
    if not ours or ours != theirs:
        raise Fault(f"the host has {ours}, the servers have {theirs}")
    service = home.host(0, "service", "install", "--dry-run")
    config = str(home.folder / home.own)
    if f"serve --config {config}\n" not in service or f"Environment=PATH={home.environment()['PATH']}\n" not in service:
        raise Fault(service)
    report = home.host(0, "doctor")
    bad = [line for line in report.splitlines() if re.match(r"D\d\d  (warn|fail)", line)]
    # Other hosts on this machine are none of its business.
    bad = [line for line in bad if not line.startswith("D12")]
    known = [r"D06  warn  .*`everything`.* 2024-11-05", r"D07  warn  .*`locked` wants", rf"D09  warn  .*Cursor takes 40.* {len(ours)}$"]
    if len(bad) != len(known) or not all(map(re.match, known, bad)) or "help: mcp-host login locked" not in report:
        raise Fault(report)
    # One service, which serves all of them, and whose page shows all tools.
    until("the daemon that the commands started is gone", lambda: home.run(home.binary, "status")[0] != 0)
    home.write("bin/systemctl", SYSTEMCTL)
    (home.folder / "bin/systemctl").chmod(0o755)
    home.host(0, "service", "install")
    home.host(0, "service", "status")
    until("the service runs", lambda: home.run(home.binary, "status")[0] == 0)
    until("the page shows all tools", lambda: has_all(seen_in_the_page(home), ours))
    whole = time.monotonic() - begun
    if took > 60 or whole > 120:
        raise Fault(f"`migrate` took {took:.0f} s, all until the page {whole:.0f} s")
    listed, processes = lists_of(home, python)
    home.host(0, "service", "uninstall")
    for client, names in listed.items():
        if names != ours:
            raise Fault(f"{client} lists {names}, not {ours}")
    if len(listed) != 5 or processes != 8:
        raise Fault(f"{len(listed)} clients have {processes} processes, not 8")
    home.host(0, "undo")
    same(home, before)

    # Once more, for the clients that are here themselves; some of them write into their files.
    home.host(1, *words)
    for client in found:
        if client.word in listed:
            home.works(client, "after migrate")
    said = home.host(0, "undo")
    states = json.loads(home.host(0, "clients", "--json").splitlines()[0])["clients"]
    servers = {state["client"]: state["servers"] for state in states if state["client"] in listed}
    if any(state["state"] == "linked" for state in states) or servers != OWN:
        raise Fault(f"{servers} is not {OWN}: {said}")
    return f"{len(ours)} tools of 8 servers in 5 clients, {took:.0f} s; {summary}"


class Places:
    """The cache: packages of npm, and a Python with packages of PyPI."""

    def __init__(self, modules, python):
        self.modules, self.python = Path(modules), Path(python)


def main(binary, agents, modules, python):
    checks = {
        "clients start the host that link wrote": by_program,
        "clients connect to the address that link wrote": by_url,
        "five clients with ten real servers become one host, and back": moved,
    }
    found, failed = clients(Path(agents)), 0
    folder = Path(tempfile.mkdtemp()).resolve()
    for name, check in checks.items():
        begun = time.monotonic()
        try:
            told, word = check(binary, folder / check.__name__, found, Places(modules, python)), "ok    "
        except (Fault, OSError, ValueError, LookupError, AttributeError, subprocess.TimeoutExpired) as fault:
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
