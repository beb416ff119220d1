"""Many servers with many tools: what one scrape costs, and how large it is. `tests/metrics/run --many` starts this."""

import http.server
import json
import threading
import time
from statistics import median
from pathlib import Path

SERVERS, TOOLS = 500, 1000
SCRAPES = 20
# What one scrape may take of a processor, and how many bytes it may have.
TIME, BYTES = 0.050, 8 << 20

LIST = [
    {
        "name": f"tool_{number:04}",
        "description": f"Does the thing with the number {number}, and says what became of it.",
        "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}, "count": {"type": "integer"}}},
    }
    for number in range(TOOLS)
]


class Server(http.server.BaseHTTPRequestHandler):
    """Answers as any of the servers: each has a path of its own."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.reply(202, b"")
        results = {
            "initialize": lambda: {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "many", "version": "1"},
            },
            "tools/list": lambda: {"tools": LIST},
            "tools/call": lambda: {"content": [{"type": "text", "text": "x"}]},
        }
        result = results.get(message["method"], dict)()
        self.reply(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode())

    def do_GET(self):
        self.reply(405, b"")

    do_DELETE = do_GET

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Listener(http.server.ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


def serve():
    """Starts all servers in this process. Returns their entries in a config."""
    listener = Listener(("127.0.0.1", 0), Server)
    threading.Thread(target=listener.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{listener.server_port}"
    return {f"server-{number:03}": {"type": "http", "era": "legacy", "url": f"{url}/{number}"} for number in range(SERVERS)}


def spent(pid):
    """Returns the seconds that all threads of a process have run."""
    nanos = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            nanos += int((task / "schedstat").read_text().split()[0])
        except OSError:
            pass
    return nanos / 1e9


def measure(host, check):
    """Measures scrapes, each of which is made anew, against the same time without any."""
    pid = host.process.pid
    time.sleep(1.1)
    text = host.metrics()

    def during(scrape):
        before = spent(pid)
        if scrape:
            host.metrics()
        time.sleep(1.1)
        return spent(pid) - before

    # In turns: what the host does beside is the same in both.
    turns = [(during(False), during(True)) for _ in range(SCRAPES)]
    each = median(busy - idle for idle, busy in turns)
    rest = median(idle for idle, _ in turns) / 1.1
    memory = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    print(
        f"       {SERVERS} servers with {TOOLS} tools each: one scrape takes {each * 1000:.1f} ms of a processor and has "
        f"{len(text) / 1024:.0f} KiB, {text.count(chr(10))} lines; without scrapes the host takes {rest * 100:.1f} % of one; "
        f"{memory.split()[1]} kB resident",
        flush=True,
    )
    check("one scrape of many servers takes less than 50 ms of a processor", each < TIME, each)
    check("and has less than 8 MiB", len(text) < BYTES, len(text))
    check("and leaves nothing out", "mcp_host_metrics_cut 0" in text)
    check("it counts all tools", text.count("mcp_host_tools{server=") == SERVERS and f'mcp_host_tools{{server="server-007"}} {TOOLS}' in text)
