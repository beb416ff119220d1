"""A server with two tools: `echo` answers at once; `wait` reports progress and answers after ten minutes. It writes each call
that it runs to a file.

server.py CALLS
"""

import json
import sys

calls = sys.argv[1]
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "wait")]


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        info = {"name": "server", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    elif method == "tools/call":
        with open(calls, "a") as file:
            file.write(json.dumps(params.get("arguments")) + "\n")
        if params["name"] == "wait":
            token = (params.get("_meta") or {}).get("progressToken")
            if token is not None:
                say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
            continue
        result = {"content": [{"type": "text", "text": json.dumps(params.get("arguments"))}]}
    else:
        say({"id": message["id"], "error": {"code": -32601, "message": "unknown method"}})
        continue
    say({"id": message["id"], "result": result})
