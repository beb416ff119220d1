"""A small server over stdio: one tool that answers, one that fails, one that ends the process."""

import json
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "fail", "exit")]


def answer(method, params):
    if method == "initialize":
        info = {"name": "small", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        if params["name"] == "exit":
            sys.exit(3)
        return {"content": [{"type": "text", "text": "x"}], "isError": params["name"] == "fail"}
    return {}


print("ready", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
