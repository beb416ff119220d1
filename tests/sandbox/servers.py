"""Twenty real servers of npm and PyPI: how each starts, and one call."""

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    command: str
    arguments: list
    tool: str
    params: dict
    # Whether it has to say what it needs, because it makes a sandbox of its own.
    is_browser: bool = False
    env: dict = {}
    # Whether it fetches a part of itself from npm at its first call.
    fetches: bool = False


def npx(package, *arguments):
    return "npx", ["-y", package, *arguments]


def own(name, *arguments):
    return npx(f"@modelcontextprotocol/server-{name}", *arguments)


def uvx(package, *arguments, program=None):
    return "uvx", ["--from", package, program, *arguments] if program else [package, *arguments]


def prepare(home):
    """Makes what the servers work on."""
    folder, repository = home / "files", home / "repository"
    folder.mkdir()
    (folder / "note").write_text("a note")
    (folder / "page.js").write_text("let a = 1;\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", "-C", repository]
    subprocess.run(["git", "init", "-q", repository], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    return str(folder), str(repository)


def servers(home, port):
    """Returns each server by its name. `port` is that of a page on loopback."""
    folder, repository = prepare(Path(home))
    page = f"http://127.0.0.1:{port}/page"
    thought = {"thought": "one", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}
    times = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    chromium = shutil.which("chromium") or "/usr/bin/chromium"
    browser = ("--headless", "--isolated", "--executable-path", chromium)
    shell = {"ALLOW_COMMANDS": "echo"}
    return {
        "filesystem": Server(*own("filesystem@2026.8.31", folder), "read_text_file", {"path": f"{folder}/note"}),
        "memory": Server(*own("memory@2026.8.31"), "read_graph", {}),
        "everything": Server(*own("everything@2026.8.31", "stdio"), "echo", {"message": "hello"}),
        "thinking": Server(*own("sequential-thinking"), "sequentialthinking", thought),
        "time": Server(*uvx("mcp-server-time==2026.10.19", "--local-timezone=UTC"), "convert_time", times),
        "fetch": Server(*uvx("mcp-server-fetch==2026.10.24", "--allow-private-ips"), "fetch", {"url": page}, fetches=True),
        "git": Server(*uvx("mcp-server-git==2026.10.19", "--repository", repository), "git_log", {"repo_path": repository}),
        "github": Server(*own("github@2025.4.8"), "get_issue", {}),
        "calculator": Server(*uvx("mcp-server-calculator==0.2.1"), "calculate", {"expression": "6 * 7"}),
        "hello": Server(*npx("mcp-hello-world@1.1.2"), "echo", {"message": "hello"}),
        "duckdb": Server(
            *uvx("mcp-server-motherduck==1.1.0", "--db-path", ":memory:", "--read-write"),
            "execute_query",
            {"sql": "select 42"},
        ),
        "excel": Server(*uvx("excel-mcp-server==2.2.2", "stdio"), "create_workbook", {"filepath": f"{folder}/sheet.xlsx"}),
        "word": Server(
            *uvx("office-word-mcp-server==1.1.11", program="word_mcp_server"),
            "list_available_documents",
            {"directory": folder},
        ),
        "shell": Server(*uvx("mcp-shell-server==1.1.14"), "shell_execute", {"command": ["echo", "hi"], "directory": folder}, env=shell),
        "commands": Server(*npx("mcp-server-commands@0.5.0"), "run_command", {"command": "echo hi"}),
        "arxiv": Server(*uvx("arxiv-mcp-server==0.8.2", "--storage-path", folder), "list_papers", {}),
        "eslint": Server(*npx("@eslint/mcp@0.3.13"), "lint-files", {"filePaths": [f"{folder}/page.js"]}),
        "log": Server(*npx("@cyanheads/git-mcp-server@2.15.3"), "git_log", {"path": repository}),
        "chart": Server(*npx("@antv/mcp-server-chart@0.9.10"), "generate_pie_chart", {"data": 1}),
        "browser": Server(*npx("@playwright/mcp@0.0.83", *browser), "browser_navigate", {"url": page}, is_browser=True),
    }
