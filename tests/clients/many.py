"""A server of 100 tools, over stdio: the first argument is its name, and each tool answers with its own name and arguments."""

import json
import sys

NAME = sys.argv[1]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string", "description": "What to say"}}}
TOOLS = [
    {"name": f"act_{number}", "description": f"Does the thing number {number} of {NAME}.", "inputSchema": SCHEMA}
    for number in range(100)
]


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        info = {"name": NAME, "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        said = {"tool": params["name"], "server": NAME, "text": params.get("arguments", {}).get("text")}
        return {"content": [{"type": "text", "text": json.dumps(said)}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    error = {"code": -32601, "message": "unknown method"}
    outcome = {"error": error} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
