"""The lying site, the logins, and the verdict on the trace."""

import http.client
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# One internal address, written in many ways.
INTERNAL = [
    "169.254.169.254",
    "169.254.169.254.",
    "169.254.169.254:80",
    "user@169.254.169.254",
    "2852039166",
    "0xA9FEA9FE",
    "0251.0376.0251.0376",
    "0xa9.0xfe.0xa9.0xfe",
    "0xA9.254.0251.254",
    "169.254.43518",
    "169.16689662",
    "%31%36%39.254.169.254",
    "169\u3002254\u3002169\u3002254",
    "\u2460\u2465\u2468.254.169.254",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "[fe80::a9fe:a9fe]",
]

# URLs that could pass for a command, an option, another program's address, or a forbidden page.
PAGES = [
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "vbscript:msgbox(1)",
    "file:///bin/sh",
    "file://SITE/bin/sh",
    "ms-officecmd:{}",
    "search-ms:query=x",
    "smb://a.example/share",
    "\\\\a.example\\share",
    "calc.exe",
    "/bin/sh",
    "--help",
    "-a Calculator",
    "",
    "//a.example/x",
    "https:///x",
    "https://[::1",
    "http://a.example/x",
    "https://user:secret@a.example/x",
    "http://127.0.0.1@a.example/x",
    "https://a.example/x#fragment",
    "https://a.example/" + "x" * 9000,
    "SITE/authorize;touch${IFS}MARKER",
    "SITE/authorize$(touch${IFS}MARKER)",
    "SITE/authorize`touch MARKER`",
    "SITE/authorize|touch MARKER",
    "SITE/authorize&&touch MARKER",
    "SITE/authorize' touch MARKER '",
    'SITE/authorize" touch MARKER "',
    "SITE/authorize\ntouch MARKER",
    "SITE/authorize%0atouch%20MARKER",
    "SITE/authorize --new-window file:///bin/sh",
]

# A page that a browser may open: only these schemes, no user, no fragment, no unprintable characters.
PAGE = re.compile(r"(http://127\.0\.0\.1:\d+|https://[a-z0-9.]+)/[!\"$-~]*")
KINDS = ["metadata", "issuer", "token", "registration", "redirect", "moved", "sse"]
PATIENCE = 60


class Site(http.server.BaseHTTPRequestHandler):
    """Each case has its own prefix: `/KIND-NUMBER/mcp` is a server, and `/KIND-NUMBER` its issuer."""

    protocol_version = "HTTP/1.1"
    cases = {}

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value.encode("utf-8").decode("latin-1"))
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def json(self, value):
        self.answer(200, json.dumps(value).encode(), content_type="application/json")

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.route()

    def do_GET(self):
        self.route()

    do_DELETE = do_GET

    def route(self):
        site = f"http://127.0.0.1:{self.server.server_port}"
        path = self.path.split("?")[0]
        found = re.search(r"/([a-z]+-\d+)(/|$)", path)
        if not found or found[1] not in self.cases:
            return self.answer(404)
        case = found[1]
        kind, evil = case.split("-")[0], self.cases[case]
        resource = f"{site}/.well-known/oauth-protected-resource/{case}/mcp"
        if path == f"/{case}/sse":
            if self.command != "GET":
                return self.answer(405)
            event = f"event: endpoint\ndata: https://{evil}/messages\n\n".encode()
            return self.answer(200, event, content_type="text/event-stream")
        if path == f"/{case}/mcp":
            if kind == "redirect":
                return self.answer(307, location=f"https://{evil}/mcp")
            if kind == "metadata":
                resource = f"https://{evil}/.well-known/oauth-protected-resource"
            return self.answer(401, www_authenticate=f'Bearer resource_metadata="{resource}"')
        if path.startswith("/.well-known/oauth-protected-resource/"):
            if kind in ("metadata", "redirect", "sse"):
                return self.answer(404)
            if kind == "moved":
                return self.answer(302, location=f"https://{evil}/x")
            issuer = f"https://{evil}" if kind == "issuer" else f"{site}/{case}"
            return self.json({"resource": f"{site}/{case}/mcp", "authorization_servers": [issuer]})
        if path.startswith("/.well-known/oauth-authorization-server/"):
            told = {
                "issuer": f"{site}/{case}",
                "authorization_endpoint": f"{site}/{case}/authorize",
                "token_endpoint": f"{site}/{case}/token",
                "registration_endpoint": f"{site}/{case}/register",
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
            lies = {
                "token": ("token_endpoint", f"https://{evil}/token"),
                "registration": ("registration_endpoint", f"https://{evil}/register"),
                "page": ("authorization_endpoint", evil),
            }
            if kind in lies:
                told[lies[kind][0]] = lies[kind][1]
            return self.json(told)
        if path == f"/{case}/register":
            body = json.dumps({"client_id": "client", "redirect_uris": []}).encode()
            return self.answer(201, body, content_type="application/json")
        return self.answer(404)


class Traced:
    """A program and its trace."""

    def __init__(self, home, name, command):
        self.log = home / f"{name}.trace"
        places = {name: str(home) for name in ("HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME")}
        environment = {"PATH": f"{home}/bin:/usr/bin:/bin", **places}
        trace = ["strace", "-f", "-qq", "-s", "16384", "-e", "trace=connect,execve", "-o", str(self.log)]
        self.child = subprocess.Popen(
            trace + command, env=environment, cwd=home, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    def connected(self):
        """Every IP address that was tried."""
        text = self.log.read_text(errors="replace")
        four = re.findall(r'sin_port=htons\((\d+)\), sin_addr=inet_addr\("([^"]+)"\)', text)
        six = re.findall(r'sin6_port=htons\((\d+)\).*?inet_pton\(AF_INET6, "([^"]+)"', text)
        return {(address, int(port)) for port, address in four + six}

    def started(self):
        """The arguments of every program that was started, except the first program."""
        lines = re.findall(r"execve\((\".*?\"), \[(.*?)\], 0x", self.log.read_text(errors="replace"))
        return [(program.strip('"'), arguments) for program, arguments in lines][1:]


class Verdict:
    def __init__(self):
        self.passed = self.failed = 0

    def say(self, what, wrong):
        if wrong:
            self.failed += 1
            print(f"FAILED {what}: {wrong}", flush=True)
        else:
            self.passed += 1
            print(f"ok     {what}", flush=True)


def login(binary, home, name, browser):
    """Signs in as far as possible: (exit code, output, trace)."""
    command = [binary, "login", name] + ([] if browser else ["--no-browser"])
    program = Traced(home, f"login-{name}", command)
    said = []

    def read():
        for line in program.child.stdout:
            said.append(line)
            if line.startswith("http"):
                asked = urllib.parse.parse_qs(urllib.parse.urlsplit(line.strip()).query)
                if "redirect_uri" in asked and "state" in asked:
                    back = urllib.parse.urlsplit(asked["redirect_uri"][0])
                    query = urllib.parse.urlencode({"code": "a-code", "state": asked["state"][0]})
                    come_back(back.port, f"{back.path}?{query}")

    reader = threading.Thread(target=read)
    reader.start()
    try:
        code = program.child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        program.child.terminate()
        code = program.child.wait()
    reader.join()
    return code, "".join(said), program


def come_back(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", path)
    connection.getresponse().read()


def main(binary):
    verdict = Verdict()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        marker, opened = home / "marker", home / "opened"
        opened.mkdir()
        (home / "bin").mkdir()
        opener = home / "bin" / "xdg-open"
        opener.write_text(f'#!/bin/sh\nfor each; do printf "%s\\0" "$each"; done >{opened}/$$\n')
        opener.chmod(0o700)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        site = f"http://127.0.0.1:{server.server_port}"
        for kind in KINDS:
            Site.cases.update({f"{kind}-{number}": evil for number, evil in enumerate(INTERNAL)})
        for number, page in enumerate(PAGES):
            Site.cases[f"page-{number}"] = page.replace("SITE", site).replace("MARKER", str(marker))
        entry = lambda case: (
            {"type": "sse", "url": f"{site}/{case}/sse"}
            if case.startswith("sse")
            else {"type": "http", "era": "legacy", "url": f"{site}/{case}/mcp"}
        )
        config = {"mcpServers": {case: {**entry(case), "restart": {"maxRetries": 1}} for case in Site.cases}}
        (home / "mcp.json").write_text(json.dumps(config))
        host = Traced(home, "serve", [binary, "serve", "--quiet", "--listen", "127.0.0.1:0", "--config", "mcp.json"])
        first = host.child.stdout.readline()
        threading.Thread(target=lambda: host.child.stdout.read(), daemon=True).start()
        if not first.startswith("listening on"):
            sys.exit(f"hostile: the program does not serve: {first}")
        logins = [case for case in Site.cases if case.split("-")[0] not in ("redirect", "sse")]
        with ThreadPoolExecutor(4) as pool:
            done = dict(zip(logins, pool.map(lambda case: login(binary, home, case, case.startswith("page")), logins)))
        pid, states = settled(binary, home)
        port = {("127.0.0.1", server.server_port)}
        for kind in KINDS:
            cases = [case for case in Site.cases if case.startswith(f"{kind}-")]
            wrong = [f"`{Site.cases[case]}`: signed in" for case in cases if case in done and done[case][0] == 0]
            wrong += [
                f"`{Site.cases[case]}`: {states[case]}" for case in cases
                if states[case] not in (("failed", "reconnecting") if kind in ("redirect", "sse") else ("unauthorized",))
            ]
            verdict.say(f"{kind:<13} {len(cases)} spellings of an internal address are refused", wrong)
        strange = host.connected() - port if host.connected() & port else "no connection was seen at all"
        verdict.say(f"{len(Site.cases)} servers: the daemon connected to the site and nowhere else", strange)
        verdict.say("the daemon started no program but its guard", [
            each for each in host.started() if os.path.realpath(each[0]) not in (os.path.realpath(binary), "/proc/self/exe")
        ])
        pages = {case: run for case, run in done.items() if case.startswith("page-")}
        openers = {case: [each for each in run[2].started()] for case, run in pages.items()}
        odd = [
            f"`{Site.cases[case]}`: {started}" for case, started in openers.items()
            if len([1 for program, _ in started if program.endswith("xdg-open")]) > 1
            or any(not clean(program, arguments, str(opener)) for program, arguments in started)
        ]
        verdict.say(f"{len(pages)} hostile pages: no program ran but the opener, with one clean URL", odd)
        given = [path.read_bytes().split(b"\0")[:-1] for path in opened.iterdir()]
        odd = [each for each in given if len(each) != 1 or not PAGE.fullmatch(each[0].decode())]
        verdict.say(f"{len(given)} of them are valid pages, each opened as one argument", odd)
        verdict.say("at least one was opened: the check sees openers", [] if given else ["none"])
        verdict.say("the marker never appeared", [str(marker)] if marker.exists() else [])
        os.kill(pid, signal.SIGTERM)
        host.child.wait(PATIENCE)
    lacks = flipped(binary, verdict)
    print(f"{verdict.passed} passed, {verdict.failed} failed" + (f", could not run: {lacks}" if lacks else ""))
    return 1 if verdict.failed else 2 if lacks else 0


def flipped(binary, verdict):
    """Runs `flip.py`; returns why that was not possible, if it was not."""
    what = "names that resolve outside first and inside later"
    alone = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net", "--mount"]
    look = [sys.executable, "-B", str(Path(__file__).with_name("flip.py")), binary]
    try:
        done = subprocess.run([*alone, *look], capture_output=True, text=True, timeout=PATIENCE * 5)
        for each, wrong in json.loads(done.stdout):
            verdict.say(f"{what}: {each}", wrong)
    except FileNotFoundError:
        return f"{what}: not found: unshare"
    except subprocess.TimeoutExpired:
        verdict.say(what, "not finished within five minutes")
    except ValueError:
        return f"{what}: {done.stderr.strip() or 'no output'}"


def clean(program, arguments, opener):
    """Whether this is the opener with one URL; what the opener itself starts belongs to the test."""
    if not program.endswith("xdg-open"):
        return False
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', arguments)
    words = [word for word in words if word not in ("/bin/sh", opener, "xdg-open")]
    return len(words) == 1 and PAGE.fullmatch(words[0]) is not None


def settled(binary, home):
    """Returns the daemon's process id, and the states of all servers once none is starting."""
    for _ in range(PATIENCE * 2):
        told = subprocess.run(
            [binary, "status", "--json"], cwd=home, capture_output=True, text=True,
            env={"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "XDG_STATE_HOME": str(home)},
        )
        status = json.loads(told.stdout)
        states = {server["name"]: server["state"] for server in status["servers"]}
        if not any(state in ("starting", "connecting", "disconnected") for state in states.values()):
            break
        time.sleep(0.5)
    return status["pid"], states


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
