"""What the checks share: the program as a stdio server, a small server, and the processes below the program."""

import json
import os
import subprocess
from pathlib import Path

SERVER = """
import json, subprocess, sys
if "with-child" in sys.argv:
    # It leaves its group, and has no mark.
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(["sleep", "600"], start_new_session=True, **quiet)
hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
answer = {"content": [{"type": "text", "text": "done"}]}
tools = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
results = {"initialize": hello, "tools/list": tools, "tools/call": answer}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") in results:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}
        print(json.dumps(answer), flush=True)
"""

LEVELS = {"off": "off", "default": "default", "strict": {"level": "strict", "network": ["api.example.com"]}}


def processes():
    """Returns the parent of each process that is no zombie."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] not in "ZX":
            found[int(pid)] = int(fields[1])
    return found


def below(root):
    """Returns the processes below another one."""
    parents, found = processes(), {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} | found
        if more == found:
            return found - {root}
        found = more


class Client:
    """The program as a stdio server, and its client."""

    def __init__(self, command, environment, errors, name):
        pipe = subprocess.PIPE
        self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment, text=True)
        self.count = 0
        client = {"name": name, "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self.say({"method": "notifications/initialized"})

    def say(self, message):
        self.child.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.child.stdin.flush()

    def ask(self, method, params):
        self.count += 1
        self.say({"id": self.count, "method": method, "params": params})
        for line in self.child.stdout:
            message = json.loads(line)
            if message.get("id") == self.count and "method" not in message:
                return message.get("result", message.get("error"))
        raise EOFError(f"the host ended while it was asked {method}")

    def tools(self):
        """Returns the tools of all pages."""
        found, params = [], {}
        while True:
            page = self.ask("tools/list", params)
            found += page["tools"]
            if not page.get("nextCursor"):
                return found
            params = {"cursor": page["nextCursor"]}

    def close(self):
        self.child.stdin.close()
        self.child.wait(timeout=60)


class Host(Client):
    """The program with the small server at each of these levels."""

    def __init__(self, binary, home, levels, wrapper=(), arguments=(), **more):
        self.home, self.arguments, self.more = Path(home), list(arguments), more
        (self.home / "server.py").write_text(SERVER)
        self.configure(levels)
        command = [*wrapper, binary, "stdio", "--own", "--config", self.home / "mcp.json"]
        environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
        super().__init__(command, environment, subprocess.DEVNULL, "starts")

    def configure(self, levels):
        """Writes the config at once, as an editor does."""
        entry = {"command": "python3", "args": ["-I", "-S", f"{self.home}/server.py", *self.arguments], **self.more}
        entries = {level: {**entry, "sandbox": LEVELS[level]} for level in levels}
        text = json.dumps({"host": {"startupWait": "60s"}, "mcpServers": entries})
        (self.home / "new.json").write_text(text)
        os.replace(self.home / "new.json", self.home / "mcp.json")

    def names(self):
        return {tool["name"] for tool in self.tools()}

    def call(self, level):
        return self.ask("tools/call", {"name": f"{level}__t", "arguments": {}})
