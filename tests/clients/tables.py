"""A server over stdio whose one tool answers with a long table: as structured content by an output schema, and as text."""

import json
import sys

ROWS = 2000
ROW = {
    "type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string", "minLength": 3}},
    "required": ["id", "name"], "additionalProperties": False,
}  # fmt: skip
OUTPUT = {
    "type": "object", "properties": {"rows": {"type": "array", "items": ROW, "minItems": 2}, "all": {"const": ROWS}},
    "required": ["rows", "all"], "additionalProperties": False,
}  # fmt: skip
TOOL = {"name": "rows", "description": "Gives a long table.", "inputSchema": {"type": "object"}, "outputSchema": OUTPUT}


def table() -> dict:
    return {"rows": [{"id": number, "name": f"row {number} of the table"} for number in range(ROWS)], "all": ROWS}


def answer(method: str, params: dict) -> dict | None:
    if method == "initialize":
        info = {"name": "tables", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": json.dumps(table())}], "structuredContent": table()}
    return {} if method == "ping" else None


if __name__ == "__main__":
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        error = {"code": -32601, "message": "unknown method"}
        outcome = {"error": error} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
