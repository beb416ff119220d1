"""Counts the processes of each server: each entry carries its own mark, and a thread counts repeatedly."""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from pathlib import Path

from world import MARK, Host, World, end, free_port, none_left, until


def every() -> dict[str, int]:
    """Counts the processes that a host started, by mark. Their own children, such as a shell's or npx's, do not count."""
    marks: dict[int, str] = {}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, IndexError):
            found = [each for each in (entry / "environ").read_bytes().split(b"\0") if each.startswith(f"{MARK}=".encode())]
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            if found and state[0] != "Z":
                marks[int(entry.name)] = found[0].partition(b"=")[2].decode()
                parents[int(entry.name)] = int(state[1])
    counts: dict[str, int] = {}
    for pid, mark in marks.items():
        if marks.get(parents[pid]) != mark:
            counts[mark] = counts.get(mark, 0) + 1
    return counts


def children(host: int) -> dict[str, int]:
    """Counts the same for one host without looking at other processes, for frequent counts."""
    counts: dict[str, int] = {}
    for task in Path(f"/proc/{host}/task").iterdir():
        with contextlib.suppress(OSError):
            for pid in (task / "children").read_text().split():
                with contextlib.suppress(OSError, IndexError):
                    child = Path("/proc") / pid
                    found = [each for each in (child / "environ").read_bytes().split(b"\0") if each.startswith(f"{MARK}=".encode())]
                    if found and (child / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                        mark = found[0].partition(b"=")[2].decode()
                        counts[mark] = counts.get(mark, 0) + 1
    return counts


class Census:
    """The most processes that each server had at one moment while the block runs. Servers by name, with their marks.

    Counts every `pace` seconds: all processes, or the children of `host`, which takes a millisecond.
    """

    def __init__(self, marks: dict[str, str], host: int | None = None, pace: float = 0.1) -> None:
        self.marks, self.host, self.pace = marks, host, pace
        self.looks = 0
        self.peak = dict.fromkeys(marks, 0)
        self.total = 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Census:
        self.look()
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def look(self) -> dict[str, int]:
        counts = every() if self.host is None else children(self.host)
        self.looks += 1
        now = {name: counts.get(mark, 0) for name, mark in self.marks.items()}
        self.peak = {name: max(self.peak[name], count) for name, count in now.items()}
        self.total = max(self.total, sum(now.values()))
        return now

    def _watch(self) -> None:
        while not self.over.wait(self.pace):
            self.look()

    def one_each(self, others: dict[str, int] | None = None) -> None:
        """Checks for at most one process per server, or as many as `others` allows."""
        allowed = dict.fromkeys(self.marks, 1) | (others or {})
        more = {name: count for name, count in self.peak.items() if count > allowed[name]}
        if more:
            raise AssertionError(f"at most {allowed}; these had more at one moment: {more}, all together {self.total}")


class Counted(Host):
    """`mcp-host serve` whose servers each carry a mark, which identifies their processes."""

    def __init__(self, world: World, name: str, servers: dict[str, dict], environment: dict[str, str] | None = None, **settings: object) -> None:
        self.world, self.name = world, name
        self.names = list(servers)
        self.marks = {each: f"{name}-{each}-{uuid.uuid4()}" for each, entry in servers.items() if "command" in entry}
        world.marks |= set(self.marks.values())
        for each, mark in self.marks.items():
            servers[each] = servers[each] | {"env": servers[each].get("env", {}) | {MARK: mark}}
        self.environment = environment or world.environment(name)
        self.address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{self.address}/mcp"
        self.config = world.root / f"{name}.json"
        self.config.write_text(json.dumps({"mcpServers": servers, "host": settings}, indent=2))
        self.begin()

    def begin(self) -> None:
        """Starts the daemon, again after `over` with what it has learned and kept."""
        command = [self.world.binary, "serve", "--config", str(self.config), "--listen", self.address]
        self.process = self.world.start(command, self.environment, self.name)

    def back_to_one(self, seconds: float) -> None:
        """Checks that each server has one process after the clients have gone."""
        census = Census(self.marks)
        try:
            until("one process per server", seconds, lambda: set(census.look().values()) == {1})
        except AssertionError as error:
            raise AssertionError(f"{error}: {census.look()}; {self.whose()}") from None

    def whose(self) -> dict[str, list[str]]:
        """Returns the host's words on why servers have several processes."""
        return {name: row["sharing"] for name, row in self.status().items() if len(row["sharing"]) > 2}

    def over(self) -> None:
        end(self.process)
        for mark in self.marks.values():
            none_left(mark, {}, 6)
