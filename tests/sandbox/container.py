"""Starts a server in a container of a real engine, tries to get out, and looks for what is left.

The engine is the one that the program takes: podman, else docker. The image is made here, of busybox and nothing else, so nothing is
fetched.
"""

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from program import Client

# How long the end of a container may take, in seconds.
PATIENCE = 20
IMAGE = "localhost/mcp-host-test:1"
SERVER = r"""
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9][0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) r='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) r='{"tools":[{"name":"run","inputSchema":{"type":"object","properties":{"code":{"type":"string"}}}}]}' ;;
    *'"tools/call"'*)
      code=$(printf '%s' "$line" | sed -n 's/.*"code": *"\([^"]*\)".*/\1/p')
      out=$(sh -c "$code" 2>&1 | tr '\n"\\\t' '    ')
      r='{"content":[{"type":"text","text":"'$out'"}]}'
      ;;
    *) continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$r"
done
# A server that does not end with its input.
[ -z "$DEAF" ] || sleep 600
"""


def tar(busybox, mark):
    """Returns the files of an image: busybox under its names, the server, and a file that tells images apart."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:

        def add(name, data, mode=0o755):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))

        add("bin/busybox", Path(busybox).read_bytes())
        names = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
        for name in names:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if name != "busybox":
                archive.addfile(link)
        add("server", SERVER.encode(), 0o644)
        add("mark", mark.encode(), 0o644)
    return out.getvalue()


class Engine:
    def __init__(self):
        self.program = next(name for name in ["podman", "docker"] if subprocess.run(["which", name], capture_output=True).returncode == 0)

    def run(self, *words, **more):
        done = subprocess.run([self.program, *words], capture_output=True, **more)
        if done.returncode != 0:
            raise RuntimeError(f"{self.program} {' '.join(words)}: {done.stderr.decode()[-600:]}")
        return done.stdout.decode()

    def load(self, busybox, mark):
        # Without a PATH in the image, no command would be found.
        self.run("import", "--change", "ENV PATH=/bin", "-", IMAGE, input=tar(busybox, mark))

    def left(self):
        """Returns the containers of hosts, also those that have ended."""
        return self.run("ps", "--all", "--quiet", "--filter", "label=mcp-host").split()

    def controllers(self):
        """Returns the keys of `sandbox` that it can limit here."""
        said = json.loads(self.run("info", "--format", "json" if self.program == "podman" else "{{json .}}"))
        if self.program == "podman":
            own = said["host"].get("cgroupControllers") or []
            return {key for key, name in [("memory", "memory"), ("cpu", "cpu"), ("processes", "pids")] if name in own}
        return {key for key, name in [("memory", "MemoryLimit"), ("cpu", "CpuCfsQuota"), ("processes", "PidsLimit")] if said[name]}


class Host(Client):
    def __init__(self, binary, state, entries):
        (state / "mcp.json").write_text(json.dumps({"host": {"startupWait": "60s"}, "mcpServers": entries}))
        # podman keeps its images below the HOME and the session of the user; only the host's own state goes elsewhere.
        environment = {**os.environ, "XDG_STATE_HOME": str(state), "SECRET_OF_HOST": "correct-horse"}
        self.log = open(state / "log", "w+")
        command = [binary, "stdio", "--own", "--config", state / "mcp.json"]
        super().__init__(command, environment, self.log, "container")

    def run(self, server, code):
        answer = self.ask("tools/call", {"name": f"{server}__run", "arguments": {"code": code}})
        if "content" not in answer:
            self.log.seek(0)
            raise RuntimeError(f"{answer}\n{self.log.read()[-2000:]}")
        return answer["content"][0]["text"].strip()


def entry(home, sandbox, **env):
    env = {"REAL": str(home), **env}
    return {"command": "sh", "args": ["/server"], "env": env, "sandbox": {"container": IMAGE, **sandbox}}


def ways(host, home):
    """Returns what is wrong with what a server can do and what it cannot."""
    for code, expected in [
        ("cat $REAL/keys/id 2>/dev/null || echo refused", "refused"),
        ("ls $REAL", "desk note"),
        ("cat $REAL/note", "a note"),
        ("(echo x > $REAL/note) 2>/dev/null || echo refused", "refused"),
        ("echo written > $REAL/desk/new && cat $REAL/desk/new", "written"),
        ("touch /new 2>/dev/null || echo refused", "refused"),
        ("touch /tmp/new $HOME/new && echo done", "done"),
        ("ls /sys/class/net", "lo"),
        ("grep -c . /proc/net/route", "1"),
        ("sed -n s/^CapBnd:.//p /proc/self/status", "0000000000000000"),
        ("sed -n s/^NoNewPrivs:.//p /proc/self/status", "1"),
        ("id -u", str(os.geteuid())),
        ("[ $(ls -d /proc/[0-9]* | wc -l) -lt 12 ] && echo few", "few"),
        ("echo [$SECRET_OF_HOST] [$TOKEN]", "[] [a token]"),
        ("mount -t tmpfs x /mnt 2>/dev/null || echo refused", "refused"),
        ("cat /mark", "first"),
    ]:
        found = host.run("strict", code)
        yield (code, None if found == expected else f"{found!r}, and not {expected!r}")
    there = (home / "desk/new").stat()
    yield ("the owner of a written file", None if there.st_uid == os.geteuid() else f"uid {there.st_uid}")
    found = host.run("open", "ls /sys/class/net | wc -w")
    yield ("a network of its own", None if found.isdigit() and int(found) > 1 else f"devices: {found}")


def gone(engine):
    until = time.monotonic() + PATIENCE
    while left := engine.left():
        if time.monotonic() > until:
            return f"left: {left}"
        time.sleep(0.05)
    return None


def limits(engine, binary, home, state):
    """Returns whether each limit is in force where the engine has it, and fails the server where it has not."""
    can = engine.controllers()
    for key, value, file, expected in [
        ("memory", "64MiB", "memory.max", "67108864"),
        ("cpu", 0.5, "cpu.max", "50000 100000"),
        ("processes", 64, "pids.max", "64"),
    ]:
        host = Host(binary, state, {"box": entry(home, {"level": "strict", key: value})})
        if key in can:
            found = host.run("box", f"cat /sys/fs/cgroup/{file}")
            yield (f"{key}, which the engine has", None if found == expected else found)
        else:
            answer = host.ask("tools/call", {"name": "box__run", "arguments": {"code": "true"}})
            host.log.seek(0)
            told = json.dumps(answer) + host.log.read()
            is_named = f"cannot limit `{key}` on this machine" in told
            yield (f"{key}, which the engine lacks", None if is_named else told[-600:])
        host.close()


def main(binary):
    engine, failed, count = Engine(), 0, 0

    def tell(what, wrong):
        nonlocal failed, count
        count += 1
        failed += wrong is not None
        print(f"{'FAIL' if wrong else 'ok  '} {what}{f': {wrong}' if wrong else ''}", flush=True)

    busybox = subprocess.run(["which", "busybox"], check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        home, state = Path(folder).resolve(), Path(other).resolve()
        for name in ["keys", "desk"]:
            (home / name).mkdir()
        (home / "keys/id").write_text("a planted key")
        (home / "note").write_text("a note")
        engine.load(busybox, "first")
        listed = {"read": [str(home / "note")], "write": [str(home / "desk")]}
        entries = {
            "strict": entry(home, {"level": "strict", **listed}, TOKEN="a token"),
            "open": entry(home, {}),
            "deaf": entry(home, {"level": "strict"}, DEAF="yes"),
        }
        host = Host(binary, state, entries)
        for what, wrong in ways(host, home):
            tell(what, wrong)
        tell("three containers", None if len(engine.left()) == 3 else f"{engine.left()}")
        host.close()
        tell("nothing is left of a host that ended", gone(engine))
        # The name means another image by now.
        engine.load(busybox, "second")
        host = Host(binary, state, entries)
        found = host.run("strict", "cat /mark")
        tell("the image of the first use", None if found == "first" else found)
        host.run("deaf", "true")
        host.child.kill()
        host.child.wait()
        tell("nothing is left of a host that was killed", gone(engine))
        for what, wrong in limits(engine, binary, home, state):
            tell(what, wrong)
        tell("nothing is left", gone(engine))
    print(f"{engine.program}: {count - failed} passed, {failed} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
