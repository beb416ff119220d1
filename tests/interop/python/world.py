"""The world of one run: a temporary directory, the standard servers, the host, and what it leaves behind."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
MARK = "MCP_HOST_INTEROP_RUN"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(what: str, seconds: float, found: Callable[[], object]) -> object:
    """Polls until another process has done something."""
    end = time.monotonic() + seconds
    while True:
        if value := found():
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.1)


class Report:
    """Prints one line per check, and counts."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0
        self.faults: list[str] = []

    def line(self, name: str, fault: str | None = None) -> None:
        if fault is None:
            self.passed += 1
            print(f"ok   {name}", flush=True)
        else:
            self.failed += 1
            self.faults.append(f"FAIL {name}: {' '.join(fault.split())[:900]}")
            print(self.faults[-1], flush=True)

    @contextlib.contextmanager
    def check(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # a fault is one line; the other checks still run
            self.line(name, f"{type(error).__name__}: {error}")
        else:
            self.line(name)


class Page(http.server.BaseHTTPRequestHandler):
    """One page for the fetch server; no robots.txt."""

    def do_GET(self) -> None:
        found = self.path == "/page.html"
        body = b"<html><body><h1>Interop</h1><p>A page on loopback.</p></body></html>" if found else b""
        self.send_response(200 if found else 404)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class World:
    """Everything a run needs; on exit, it ends what it started."""

    def __init__(self, binary: str, npm: str, python: str, uvtools: str, rmcp: str, chromium: str = "") -> None:
        self.binary, self.rmcp, self.chromium = binary, rmcp, chromium
        self.npm, self.venv, self.uvtools = Path(npm), Path(python), Path(uvtools)
        self.agents = self.npm.parent / "agents"
        self.stack = contextlib.ExitStack()
        self.direct = f"direct-{uuid.uuid4()}"
        self.marks: set[str] = set()
        # Direct answers of the servers, by server, era, and whether their client can be asked: see `compare`.
        self.references: dict[tuple[str, str, bool], tuple[dict, dict]] = {}

    def __enter__(self) -> World:
        self.root = Path(tempfile.mkdtemp(prefix="interop-"))
        self.stack.callback(shutil.rmtree, self.root, ignore_errors=True)
        self.stack.callback(lambda: [sweep(mark) for mark in self.marks])
        try:
            self._fill()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def _fill(self) -> None:
        # Node looks for packages beside a script, so the scripts are copied there.
        self.node_scripts = self.root / "node"
        shutil.copytree(HERE / "node", self.node_scripts)
        (self.node_scripts / "node_modules").symlink_to(self.npm / "node_modules")
        self.files = self.root / "files"
        (self.files / "inner").mkdir(parents=True)
        (self.files / "inner" / "hello.txt").write_text("hello\nworld \N{SNOWMAN}\n")
        self.memory = self.root / "memory.jsonl"
        self.memory.write_text('{"type":"entity","name":"Ann","entityType":"person","observations":["likes tea"]}\n')
        self.repository = self.root / "repository"
        self._commit()
        pages = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=pages.serve_forever, daemon=True).start()
        self.stack.callback(pages.shutdown)
        self.page = f"http://127.0.0.1:{pages.server_address[1]}/page.html"
        self.remote = self._everything("remote", "streamableHttp", "/mcp")
        self.old = self._everything("old", "sse", "/sse")

    def _everything(self, name: str, transport: str, path: str) -> str:
        port = free_port()
        shim = str(self.node_scripts / "loopback.mjs")
        command = ["node", "--import", shim, self.package("server-everything", "dist/index.js"), transport]
        self.start(command, self.environment(name) | {"PORT": str(port)}, name)
        until(f"server-everything listens ({transport})", 20, lambda: not refuses(port))
        return f"http://127.0.0.1:{port}{path}"

    def _commit(self) -> None:
        who = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        for role in ("AUTHOR", "COMMITTER"):
            who |= {f"GIT_{role}_NAME": "A", f"GIT_{role}_EMAIL": "a@example.test", f"GIT_{role}_DATE": "2026-01-01T00:00:00Z"}
        self.repository.mkdir()
        (self.repository / "file.txt").write_text("one\n")
        for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "First"]):
            subprocess.run(["git", *words], cwd=self.repository, env=os.environ | who, check=True, timeout=20)

    def package(self, name: str, path: str) -> str:
        return str(self.npm / "node_modules" / "@modelcontextprotocol" / name / path)

    def environment(self, name: str) -> dict[str, str]:
        """Makes a home for a program, so that it does not see the state of the user or of other programs."""
        home = self.root / "home" / name
        runtime = home / "run"
        runtime.mkdir(parents=True, exist_ok=True)
        runtime.chmod(0o700)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("MCP_HOST_", "XDG_"))}
        kept |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime), "NO_PROXY": "127.0.0.1,localhost", "NO_COLOR": "1"}
        kept |= {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("STATE", "CONFIG", "CACHE", "DATA")}
        return kept

    def start(self, command: list[str], environment: dict[str, str], name: str, **more: object) -> subprocess.Popen:
        """Starts a program in its own process group, which ends with the world."""
        log = open(self.root / f"{name}.log", "ab")
        process = subprocess.Popen(
            command, env=environment, stdin=more.pop("stdin", subprocess.DEVNULL), stdout=more.pop("stdout", log),
            stderr=log, start_new_session=True, **more,
        )  # fmt: skip
        log.close()
        self.stack.callback(end, process)
        return process

    def tail(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.root / f"{name}.log").read_text(errors="replace")[-600:]
        return ""

    def servers(self, mark: str) -> dict[str, dict]:
        """The standard servers, some behind the usual wrappers. Their processes carry the mark."""
        self.marks.add(mark)
        thinking = self.package("server-sequential-thinking", "dist/index.js")
        python = str(self.venv / "bin" / "python")
        return {
            "everything": _spawn(mark, ["node", self.package("server-everything", "dist/index.js"), "stdio"]),
            "remote": {"type": "http", "url": self.remote},
            # HTTP+SSE, which the host must detect.
            "old": {"url": self.old},
            "filesystem": _spawn(mark, ["node", self.package("server-filesystem", "dist/index.js"), str(self.files)]),
            "memory": _spawn(mark, ["npx", "-y", "@modelcontextprotocol/server-memory"], MEMORY_FILE_PATH=str(self.memory))
            | {"cwd": str(self.npm)},
            "thinking": _spawn(mark, ["sh", "-c", f'node "{thinking}"; exit $?']),
            "time": _spawn(mark, [str(self.venv / "bin" / "uv"), "run", "--no-project", "--offline", "mcp-server-time", "--local-timezone", "UTC"], VIRTUAL_ENV=str(self.venv)),
            "git": _spawn(mark, [str(self.venv / "bin" / "mcp-server-git"), "--repository", str(self.repository)]),
            "fetch": _spawn(mark, [str(self.venv / "bin" / "mcp-server-fetch"), "--allow-private-ips"]),
            "python-sdk": _spawn(mark, [python, str(HERE / "python" / "server.py"), "--with-child"]),
            "typescript-sdk": _spawn(mark, ["node", str(self.node_scripts / "server.mjs")]),
        }  # fmt: skip

    def config(self, name: str, mark: str, only: list[str] | None = None) -> Path:
        servers = {key: entry for key, entry in self.servers(mark).items() if only is None or key in only}
        # Lists wait for every server: the answers are compared, not the speed of starts.
        path = self.root / f"{name}.json"
        path.write_text(json.dumps({"mcpServers": servers, "host": {"startupWait": "60s"}}, indent=2))
        return path


class Host:
    """`mcp-host serve` with some servers behind it."""

    def __init__(self, world: World, name: str, only: list[str] | None = None) -> None:
        self.world, self.name = world, name
        self.mark = f"{name}-{uuid.uuid4()}"
        self.names = [key for key in world.servers(self.mark) if only is None or key in only]
        self.environment = world.environment(name)
        self.address = f"127.0.0.1:{free_port()}"
        self.url, self.sse = (f"http://{self.address}{path}" for path in ("/mcp", "/sse"))
        self.config = world.config(name, self.mark, only)
        self.relays = world.root / f"{name}.relays"
        command = [world.binary, "serve", "--config", str(self.config), "--listen", self.address]
        self.process = world.start(command, self.environment, name)

    def status(self) -> dict[str, dict]:
        """Returns what `mcp-host status` says about each server."""
        command = [self.world.binary, "status", "--json", "--listen", self.address]
        done = subprocess.run(command, env=self.environment, capture_output=True, timeout=20, check=False)
        return dict(_rows(json.loads(done.stdout), set(self.names))) if done.returncode == 0 else {}

    def states(self) -> dict[str, str]:
        return {name: str(row.get("state")) for name, row in self.status().items()}

    def wait_connected(self, seconds: float = 90) -> None:
        def connected() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the host ended with {self.process.returncode}: {self.world.tail(self.name)}")
            self.seen = self.states()
            return set(self.seen) == set(self.names) and set(self.seen.values()) == {"connected"}

        try:
            until("every server connected", seconds, connected)
        except AssertionError as error:
            raise AssertionError(f"{error}; {getattr(self, 'seen', None)}") from None

    def relay(self) -> list[str]:
        """Returns the command of `mcp-host stdio` with the same config, which joins this host. `all_joined` reads its output."""
        # Clients may discard standard error, so it goes to a file.
        noted = ["sh", "-c", 'echo "started $$" >>"$0"; exec "$@" 2>>"$0"', str(self.relays)]
        place = f"XDG_RUNTIME_DIR={self.environment['XDG_RUNTIME_DIR']}"
        return ["env", place, *noted, self.world.binary, "stdio", "--config", str(self.config)]

    def all_joined(self) -> int:
        """Returns the number of relays; checks that all joined this host and reported nothing else."""
        said = self.relays.read_text().splitlines()
        started = [line for line in said if line.startswith("started ")]
        joined = [line for line in said if line == f"note: joined the mcp-host on port {self.address.rpartition(':')[2]}"]
        if not started or len(joined) != len(started) or len(said) != 2 * len(started):
            raise AssertionError(f"{len(started)} started, {len(joined)} joined {self.address}: {said[-4:]}")
        return len(started)

    def no_relay_left(self, seconds: float) -> None:
        pids = [line.split()[1] for line in self.relays.read_text().splitlines() if line.startswith("started ")]
        command = f"{self.world.binary}\0stdio\0".encode()

        def left() -> list[str]:
            found = []
            for pid in pids:
                with contextlib.suppress(OSError):
                    if (Path("/proc") / pid / "cmdline").read_bytes().startswith(command):
                        found.append(pid)
            return found

        until("every relay gone", seconds, lambda: not left())

    def stop(self, seconds: float = 25) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


def _spawn(mark: str, command: list[str], **environment: str) -> dict:
    return {"command": command[0], "args": command[1:], "env": {MARK: mark, **environment}}


def _rows(value: object, names: set[str], key: str | None = None) -> Iterator[tuple[str, dict]]:
    """Finds the servers in the status, which may be a map by name or rows with names."""
    if isinstance(value, list):
        for each in value:
            yield from _rows(each, names)
    elif isinstance(value, dict):
        own = [key, *(value.get(word) for word in ("name", "server", "alias"))]
        if "state" in value and (named := [each for each in own if each in names]):
            yield named[0], value
        else:
            for word, each in value.items():
                yield from _rows(each, names, word)


def refuses(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


def end(process: subprocess.Popen) -> None:
    """Ends a process of this run and its group: SIGTERM first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(8)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def alive(mark: str) -> dict[int, str]:
    """Returns the processes with a mark in their environment, whatever their parent is."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}\0".encode() not in (entry / "environ").read_bytes() + b"\0":
                continue
            words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            if words:  # a zombie has no words; its parent must collect it
                found[int(entry.name)] = words
    return found


def sweep(mark: str) -> None:
    """Kills processes that still carry a mark: their parent, a part of this run, is gone."""
    for pid in alive(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> dict[int, str]:
    """Returns the process tree below a process."""
    parents: dict[int, list[int]] = {}
    words: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                stat = (entry / "stat").read_text()
                parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry.name))
                words[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    found, todo = {}, [pid]
    while todo:
        for child in parents.get(todo.pop(), []):
            found[child] = words.get(child, "")
            todo.append(child)
    return found


def none_left(mark: str, known: dict[int, str], seconds: float = 3) -> None:
    """Checks that no process with the mark, and none of the former tree, is alive."""
    left: dict[int, str] = {}

    def gone() -> bool:
        left.clear()
        left.update(alive(mark))
        for pid, words in known.items():
            with contextlib.suppress(OSError):
                if words and (Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip() == words:
                    left[pid] = words
        return not left

    try:
        until("every process gone", seconds, gone)
    except AssertionError:
        survivors = dict(left)
        sweep(mark)
        raise AssertionError(f"still alive: {survivors}") from None


if __name__ == "__main__":
    sys.exit("run tests/interop/run")
