"""A server with one tool, which runs the Python that it is given, and answers with what `r` is afterwards."""
import ctypes, json, os, resource, signal, socket, subprocess, sys, tempfile

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    """Makes a system call; returns the name of its error, or `ok`."""
    if libc.syscall(number, *[ctypes.c_long(argument) for argument in arguments]) >= 0:
        return "ok"
    error = ctypes.get_errno()
    return __import__("errno").errorcode.get(error, str(error))


def run(code):
    scope = dict(globals(), real=os.environ["REAL"], tmp=tempfile.gettempdir())
    try:
        exec(code, scope)
        return {"content": [{"type": "text", "text": str(scope.get("r", "done"))}]}
    except BaseException as error:
        return {"isError": True, "content": [{"type": "text", "text": f"{type(error).__name__}: {error}"}]}


hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
tools = {"tools": [{"name": "run", "inputSchema": {"type": "object", "properties": {"code": {"type": "string"}}}}]}
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        result = hello
    elif method == "tools/list":
        result = tools
    elif method == "tools/call":
        result = run(message["params"]["arguments"]["code"])
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
