"""A server whose tools are the lines of a file. It writes each call that it runs to another file.

server.py TOOLS CALLS
"""

import json
import sys

tools, calls = sys.argv[1:3]


def definition(name):
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}}


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "server", "version": "1"},
        }
    elif method == "tools/list":
        with open(tools) as file:
            answer["result"] = {"tools": [definition(name) for name in file.read().split()]}
    elif method == "tools/call":
        with open(calls, "a") as file:
            file.write(params["name"] + "\n")
        answer["result"] = {"content": [{"type": "text", "text": "done"}]}
    else:
        answer["error"] = {"code": -32601, "message": "unknown method"}
    print(json.dumps(answer), flush=True)
