"""A collector on loopback that decodes what the host sends."""

import http.server
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PATIENCE = 60
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
CANARIES = [f"canary-{number:02}-plover" for number in range(20)]

got: queue.Queue = queue.Queue()
results = []


class Collector(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        got.put((self.path, dict(self.headers), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def check(name, holds, why=""):
    results.append(holds)
    print(f"{'ok' if holds else 'FAILED'} {name}" + (f": {why}" if why and not holds else ""), flush=True)


def attributes(of):
    return {each.key: each.value.string_value or each.value.int_value for each in of}


def spans(bodies):
    for body in bodies:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                yield from scope.spans


def call(port, text):
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "a test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
        "traceparent": f"00-{TRACE}-{PARENT}-01",
    }
    params = {"name": "echo__echo", "arguments": {"text": text}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}).encode()
    heads = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "echo__echo",
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", body, heads)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return answer.read().decode()


def main(binary):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as home:
        env = {f"SECRET_{number}": canary for number, canary in enumerate(CANARIES[:8])}
        config = {
            "mcpServers": {"echo": {"command": binary, "args": ["__demo-server"], "env": env}},
            "host": {"otel": {"endpoint": f"http://127.0.0.1:{server.server_port}", "headers": {"x-key": CANARIES[8]}}},
        }
        with open(os.path.join(home, "mcp.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        places = {name: home for name in ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"]}
        words = [binary, "serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]
        daemon = subprocess.Popen(words, cwd=home, env=places, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            port = None
            for line in daemon.stdout:
                if "listening on" in line:
                    port = line.split("127.0.0.1:")[1].split("/")[0].strip()
                if "connected" in line:
                    break
            if port is None:
                print("otel: the daemon does not start; was it built with the cargo feature `otel`?", file=sys.stderr)
                return 2
            answer = call(port, " ".join(CANARIES[9:]))
            check("the call is answered", CANARIES[-1] in answer, answer)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(PATIENCE)
    bodies = {"/v1/traces": [], "/v1/metrics": []}
    while not got.empty():
        path, headers, body = got.get()
        bodies[path].append(body)
        check(f"{path} is protobuf with our header", headers.get("Content-Type", headers.get("content-type")) == "application/x-protobuf"
              and CANARIES[8] in headers.values(), str(headers))
    all_spans = list(spans(bodies["/v1/traces"]))
    ours = [span for span in all_spans if span.trace_id.hex() == TRACE]
    check("door and attempt are of the client's trace", len(ours) == 2, str(all_spans))
    if len(ours) == 2:
        door, attempt = sorted(ours, key=lambda span: span.kind)
        check("the door's parent is the client", door.parent_span_id.hex() == PARENT and door.kind == 2)
        check("the attempt's parent is the door", attempt.parent_span_id == door.span_id and attempt.kind == 3)
        of = attributes(door.attributes)
        check("the door has the names of the conventions", of.get("mcp.method.name") == "tools/call"
              and of.get("gen_ai.tool.name") == "echo__echo" and of.get("gen_ai.operation.name") == "execute_tool", str(of))
    check("the start of the server has a span", any(span.name == "mcp_host.server.start" for span in all_spans))
    names = [metric.name for body in bodies["/v1/metrics"] for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics
             for scope in resource.scope_metrics for metric in scope.metrics]
    check("metrics of both sides", names[:2] == ["mcp.server.operation.duration", "mcp.client.operation.duration"], str(names))
    whole = b"".join(bodies["/v1/traces"] + bodies["/v1/metrics"])
    check("no canary is in any of it", not any(canary.encode() in whole for canary in CANARIES))
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


sys.exit(main(sys.argv[1]))
