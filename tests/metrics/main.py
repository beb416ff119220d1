"""Checks the metrics of the built program: tests/metrics/run starts this."""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import many
from prometheus_client.openmetrics.parser import text_string_to_metric_families

# The most requests of one batch, and how many are made one by one.
BATCH = 100
SINGLE = 300
STRANGE = 'a"\\\nb'
passed, failed = 0, []


def check(what, good, seen=""):
    global passed
    if good:
        passed += 1
    else:
        failed.append(what)
    print(f"{'ok    ' if good else 'FAILED'} {what}{'' if good or seen == '' else f': {seen}'}", flush=True)


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while True:
        try:
            found = condition()
        except (OSError, ValueError):
            found = None
        if found:
            return found
        if time.monotonic() > end:
            check(what, False, "not in time")
            return None
        time.sleep(0.1)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Host:
    """The program, with servers, an audit, and a token for its metrics."""

    def __init__(self, binary, folder, here, servers=None):
        self.binary, self.folder, self.port = binary, folder, free_port()
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder), "LANG": "C.UTF-8"}
        minted = json.loads(self.run("token", "--metrics", "--json").stdout)
        self.token = minted["token"]
        python, server = sys.executable, str(here / "server.py")
        self.audit = folder / "audit.jsonl"
        # A second server fails from the start.
        config = {
            "mcpServers": servers or {
                "small": {"command": python, "args": ["-B", server]},
                STRANGE: {"command": python, "args": ["-B", server]},
                "broken": {"command": python, "args": ["-c", "raise SystemExit(1)"]},
            },
            "host": {
                "audit": {"file": str(self.audit), "maxSize": "1GiB"},
                "metrics": {"token": minted["hash"], "tools": ["*" if servers else "small__*"]},
            },
        }
        self.config = folder / "mcp.json"
        self.config.write_text(json.dumps(config))
        log = open(folder / "host.log", "w")
        args = [binary, "serve", "--config", str(self.config), "--listen", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(args, env=self.env, stdout=log, stderr=log, cwd=folder)

    def run(self, *args):
        return subprocess.run([self.binary, *args], env=self.env, cwd=self.folder, capture_output=True, text=True, timeout=60)

    def ask(self, path, data=None, headers=None):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=data, headers=headers or {})
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, dict(response.headers), response.read().decode()

    def metrics(self):
        return self.ask("/metrics")[2]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


class Session:
    """A client of 2025-03-26, the revision that has batches."""

    def __init__(self, host):
        self.host, self.headers = host, {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        params = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        _, headers, _ = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        lower = {name.lower(): value for name, value in headers.items()}
        self.headers["Mcp-Session-Id"] = lower["mcp-session-id"]
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.number = 0

    def post(self, message):
        return self.host.ask("/mcp", json.dumps(message).encode(), self.headers)

    def call(self, *tools):
        batch = []
        for tool in tools:
            self.number += 1
            params = {"name": tool, "arguments": {}}
            batch.append({"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params})
        return self.post(batch)[2]


def samples(text):
    """Returns the value of each series, and the kind of each family."""
    values, kinds = {}, {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        for sample in family.samples:
            values[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return values, kinds


def total(values, name, **labels):
    return sum(value for (found, own), value in values.items() if found == name and labels.items() <= dict(own).items())


def exported(kinds):
    """Returns the names of all series that these families may have."""
    suffixes = {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}
    return {name + suffix for name, kind in kinds.items() for suffix in suffixes.get(kind, [""])}


def calls(host, count):
    """Makes many calls, and compares what is counted with the audit."""
    session = Session(host)
    until(lambda: total(samples(host.metrics())[0], "mcp_host_server_up") == 2, 30, "two servers are up")
    servers = json.loads(host.run("status", "--json").stdout)["servers"]
    alias = [server["alias"] for server in servers if server["name"] == STRANGE][0]
    session.call(f"{alias}__echo")
    turn = ["small__echo"] * 97 + ["small__fail", "small__nothing", "nowhere__x"]
    begin = time.monotonic()
    for _ in range(count // BATCH):
        session.call(*turn)
    spent = time.monotonic() - begin
    print(f"       {count} calls in {spent:.1f} s", flush=True)
    time.sleep(1.1)
    text = host.metrics()
    values, kinds = samples(text)
    lines = [json.loads(line) for line in host.audit.read_text().splitlines()]
    until(lambda: len(host.audit.read_text().splitlines()) >= count + 1, 10, "the audit has all lines")
    lines = [json.loads(line) for line in host.audit.read_text().splitlines()]
    check("the Python client reads the text", len(values) > 100, len(values))
    counted = total(values, "mcp_host_calls_total", method="tools/call")
    check("calls equal the lines of the audit", counted == len(lines) == count + 1, (counted, len(lines)))
    for outcome in {line["outcome"] for line in lines}:
        own = sum(line["outcome"] == outcome for line in lines)
        counted = total(values, "mcp_host_calls_total", method="tools/call", outcome=outcome)
        check(f"calls that ended with {outcome} equal those of the audit", counted == own, (counted, own))
    took = total(values, "mcp_host_call_duration_seconds_count", method="tools/call")
    check("each call has its duration", took == len(lines), took)
    written = total(values, "mcp_host_audit_lines_total")
    check("the audit's lines are counted", written == len(lines), written)
    strange = total(values, "mcp_host_calls_total", server=STRANGE, outcome="ok")
    check("a server may have any name", strange == 1, strange)
    tools = {dict(own)["tool"] for (name, own) in values if name == "mcp_host_tool_calls_total"}
    check("tools that are named and listed are counted one by one, and no others", tools == {"echo", "fail"}, tools)
    check("resident memory is told", total(values, "process_resident_memory_bytes") > 1e6)
    small = host.run("metrics")
    again, _ = samples(small.stdout)
    check("mcp-host metrics prints the same", exported(samples(small.stdout)[1]) == exported(kinds), small.stderr)
    check("with the same counts", total(again, "mcp_host_calls_total", method="tools/call") == count + 1)
    return kinds


def hop(host, here):
    """Compares the host's own part of calls, one after the other, with what a client sees of it: the time by the host without
    the time that the server takes when it is asked directly."""
    session = Session(host)

    def overhead():
        time.sleep(1.1)
        values, _ = samples(host.metrics())
        return [total(values, f"mcp_host_overhead_seconds_{part}") for part in ("sum", "count")]

    def mean(call):
        begin = time.monotonic()
        for _ in range(SINGLE):
            call()
        return (time.monotonic() - begin) / SINGLE

    before = overhead()
    seen = mean(lambda: session.call("small__echo"))
    after = overhead()
    inside = (after[0] - before[0]) / (after[1] - before[1])
    server = subprocess.Popen([sys.executable, "-B", here / "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}}})

    def direct():
        print(message, file=server.stdin, flush=True)
        server.stdout.readline()

    direct()
    outside = seen - mean(direct)
    server.stdin.close()
    server.wait(30)
    print(f"       a hop takes {outside * 1e6:.0f} us from outside, {inside * 1e6:.0f} us of them by the metrics", flush=True)
    check("each call has its overhead", after[1] - before[1] == SINGLE, after[1] - before[1])
    check("the host's part of a call is below what the client sees of it", 0 < inside < outside, (inside, outside))


def few(host):
    """Calls so many tools of some servers that all series of single tools are there."""
    session = Session(host)
    for server in range(5):
        names = [f"server-{server:03}__tool_{number:04}" for number in range(200)]
        for at in range(0, len(names), BATCH):
            session.call(*names[at : at + BATCH])


def names(root, kinds):
    """Checks that the files in docs name nothing that the program does not export."""
    # Only a build with the feature `otel` has the last one.
    known = exported(kinds) | {"up", "mcp_host_otel_dropped_total"}
    for file in ("docs/metrics/alerts.yml", "docs/metrics/dashboard.json", "docs/metrics.md"):
        text = (root / file).read_text()
        used = set(re.findall(r"\b(?:mcp_host|process)_[a-z_]+[a-z]\b", text))
        unknown = {name for name in used if name not in known and name not in kinds}
        check(f"{file} names only what there is", not unknown, sorted(unknown))


def queries(root):
    """Returns the expressions of the dashboard, with its variables filled in."""
    board = json.loads((root / "docs/metrics/dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    check("each panel of the dashboard has an id of its own", len(ids) == len(set(ids)) > 10, ids)
    fill = {"$__rate_interval": "1m", "$__range": "1h", "$instance": ".*", "$server": ".*"}
    for panel in board["panels"]:
        for target in panel["targets"]:
            expr = target["expr"]
            for name, value in fill.items():
                expr = expr.replace(name, value)
            yield panel["title"], expr


def prometheus(host, count, root, folder, here):
    """Lets Prometheus itself scrape the host with the files in docs."""
    if not shutil.which("promtool"):
        print("       left out: Prometheus is not installed, and apt-get has no package of it", flush=True)
        return
    home = folder / "prometheus"
    home.mkdir()
    (home / "token").write_text(host.token)
    config = (root / "docs/metrics/prometheus.yml").read_text()
    config = config.replace("/etc/prometheus/mcp-host.token", str(home / "token")).replace("127.0.0.1:8808", f"127.0.0.1:{host.port}")
    config = config.replace("15s", "1s")
    (home / "prometheus.yml").write_text(config)
    shutil.copy(root / "docs/metrics/alerts.yml", home / "alerts.yml")
    shutil.copy(here / "alerts_test.yml", home / "alerts_test.yml")
    for what, args in [
        ("the scrape config is valid", ["check", "config", "prometheus.yml"]),
        ("the alert rules are valid", ["check", "rules", "alerts.yml"]),
        ("each of the eight alerts fires, and only when it should", ["test", "rules", "alerts_test.yml"]),
    ]:
        done = subprocess.run(["promtool", *args], cwd=home, capture_output=True, text=True, timeout=60)
        check(what, done.returncode == 0, done.stdout + done.stderr)
    port = free_port()
    args = ["prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.path=data"]
    with open(home / "log", "w") as log:
        process = subprocess.Popen(args, cwd=home, stdout=log, stderr=log)
    try:

        def ask(path):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as response:
                return json.load(response)["data"]

        def value(expr):
            return ask("query?" + urllib.parse.urlencode({"query": expr}))["result"]

        up = until(lambda: [one for one in value("up") if one["value"][1] == "1"], 30, "Prometheus scrapes the host")
        if up is None:
            print((home / "log").read_text()[-2000:])
            return
        check("Prometheus scrapes the host with its token", True)
        until(lambda: len(value("count_over_time(up[1m]) >= 3")) == 1, 30, "Prometheus scrapes it again")
        for title, expr in queries(root):
            try:
                ask("query?" + urllib.parse.urlencode({"query": expr}))
                wrong = ""
            except urllib.error.HTTPError as error:
                wrong = error.read().decode()
            check(f"Prometheus evaluates the panel {title}", not wrong, wrong)
        seen = value('sum(mcp_host_calls_total{server="small"})')
        check("Prometheus has the calls", seen and float(seen[0]["value"][1]) > count * 0.9, seen)
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        wrong = [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] != "ok"]
        check("Prometheus evaluates all eight alerts", len(rules) == 8 and not wrong, wrong)
        down = [rule for rule in rules if rule["name"] == "McpServerDown"][0]
        servers = [alert["labels"]["server"] for alert in down["alerts"]]
        check("the broken server is about to raise an alert, and no other", servers == ["broken"], servers)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def main():
    given = argparse.ArgumentParser()
    given.add_argument("--binary", required=True)
    given.add_argument("--root", required=True, type=Path)
    given.add_argument("--calls", type=int, default=100_000, help="how many; a multiple of the size of a batch")
    given.add_argument("--many", action="store_true", help="only what a scrape of many servers with many tools costs")
    given = given.parse_args()
    here = Path(__file__).resolve().parent
    with tempfile.TemporaryDirectory(prefix="mcp-host-metrics-") as folder:
        folder = Path(folder)
        host = Host(given.binary, folder, here, many.serve() if given.many else None)
        try:
            until(lambda: host.ask("/healthz")[0] == 200, 30, "the host serves")
            if given.many:
                up = lambda: total(samples(host.metrics())[0], "mcp_host_server_up") == many.SERVERS
                until(up, 300, "all servers are up")
                few(host)
                many.measure(host, check)
                return
            kinds = calls(host, given.calls)
            names(given.root, kinds)
            hop(host, here)
            prometheus(host, given.calls, given.root, folder, here)
            check("the host runs on", host.process.poll() is None)
        except BaseException:
            print((folder / "host.log").read_text()[-3000:])
            raise
        finally:
            if host.process.poll() is None:
                host.stop()


main()
print(f"{passed} passed, {len(failed)} failed")
sys.exit(1 if failed else 0)
