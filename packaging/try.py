"""A host in an empty root, between a client and a server that speak TLS: both are the official Python SDK.

    try.py ROOT            the unpacked archive is the root
    try.py ROOT BUNDLE     the root of an image, which BUNDLE (the config of OCI's runtimes) says how to run: it stays read-only
"""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx2 as httpx
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer

ROOT = Path(sys.argv[1])
BUNDLE = json.loads(Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else None
# The config and the certificates, and where the program sees them.
FILES, SEEN = (Path(tempfile.mkdtemp(dir=ROOT.parent)), "/etc/mcp-host") if BUNDLE else (ROOT, "")
HOME = "/var/lib/mcp-host" if BUNDLE else "/"


def certificates():
    """An authority, and a certificate of it for 127.0.0.1."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=FILES, check=True, capture_output=True)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-keyout", "key.pem", "-out", "cert.pem")


async def serve():
    """A server over HTTPS. Returns its port."""
    server = MCPServer("far")

    @server.tool()
    def shout(text: str) -> str:
        """Says it louder."""
        return text.upper()

    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_level="error",
                            ssl_certfile=FILES / "cert.pem", ssl_keyfile=FILES / "key.pem")
    runs = uvicorn.Server(config)
    task = asyncio.create_task(runs.serve(sockets=[door]))
    return door.getsockname()[1], runs, task


def command():
    """The command line that runs the program in its root."""
    if BUNDLE:
        state = tempfile.mkdtemp(dir=ROOT.parent)
        process = BUNDLE["process"]
        user = process["user"]
        mounts = ["--ro-bind", ROOT, "/", "--bind", state, HOME, "--ro-bind", FILES, SEEN, "--tmpfs", "/tmp", "--dev", "/dev", "--proc", "/proc"]
        alone = ["--unshare-user", "--uid", user["uid"], "--gid", user["gid"], "--die-with-parent", "--clearenv"]
        given = [word for pair in process["env"] for word in ["--setenv", *pair.split("=", 1)]]
        return [str(word) for word in ["bwrap", *alone, *mounts, *given, "--", *process["args"]]]
    chroot = shutil.which("chroot") or "/usr/sbin/chroot"
    apart = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
    return [*apart, chroot, str(ROOT), "/mcp-host", "serve", "--config", "/config.json"]


async def main():
    certificates()
    port, runs, task = await serve()
    (FILES / "config.json").write_text(json.dumps({
        "mcpServers": {"far": {"type": "http", "url": f"https://127.0.0.1:{port}/mcp", "tls": {"ca": "ca.pem"}}},
        "host": {
            "listen": "127.0.0.1:0",
            "tls": {"cert": "cert.pem", "key": "key.pem"},
        },
    }))
    host = await asyncio.create_subprocess_exec(
        *command(), env={"HOME": HOME, "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    said = ""
    try:
        while "listening on " not in said:
            line = await asyncio.wait_for(host.stdout.readline(), 30)
            if not line:
                sys.exit(f"the host ended:\n{said}")
            said += line.decode()
        url = said.split("listening on ")[1].split()[0]
        trust = ssl.create_default_context(cafile=FILES / "ca.pem")
        async with httpx.AsyncClient(verify=trust) as web:
            async with Client(streamable_http_client(url, http_client=web)) as client:
                for _ in range(300):
                    tools = [tool.name for tool in (await client.list_tools()).tools]
                    if tools:
                        break
                    await asyncio.sleep(0.1)
                result = await client.call_tool("far__shout", {"text": "hello"})
        if tools != ["far__shout"] or result.content[0].text != "HELLO":
            sys.exit(f"{url} lists {tools} and answers {result}\n{said}")
        print(f"{tools[0]} says {result.content[0].text}")
    finally:
        if host.returncode is None:
            host.terminate()
        await host.wait()
        runs.should_exit = True
        await task


asyncio.run(main())
