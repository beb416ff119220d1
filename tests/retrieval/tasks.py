"""Does three tasks in three ways, as a model would, and counts what stands in its prompt. See `tasks`."""

import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import recorded

HERE = pathlib.Path(__file__).resolve().parent
REPO = {"owner": "acme", "repo": "app"}
#: How much of the tokens of another way a script may take, and how many round trips.
SHARE, TRIPS = 0.20, 3
WAYS = {"direct": {}, "search": {"mode": "search"}, "script": {"mode": "code", "code": {"tools": "all"}}}


class Agent:
    """A client, and what it would have in its prompt: the list of tools, its calls, and their results."""

    def __init__(self, binary, home, way):
        self.way, self.trips, self.said, self.number = way, 0, [], 0
        aliases = [line.split()[0] for line in (HERE / "servers.txt").read_text().splitlines()]
        servers = {alias: {"command": sys.executable, "args": ["-B", str(HERE / "recorded.py"), alias]} for alias in aliases}
        config = pathlib.Path(home) / f"{way}.json"
        config.write_text(json.dumps({"host": {"catalog": WAYS[way], "startupWait": "60s"}, "mcpServers": servers}))
        self.host = subprocess.Popen(
            [binary, "stdio", "--own", "--config", str(config)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env={"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        )  # fmt: skip
        info = {"name": "tasks", "version": "1"}
        hello = self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self.send({"method": "notifications/initialized"})
        keys = ("name", "description", "inputSchema")
        listed = self.ask("tools/list", {})["tools"]
        tools = [json.dumps({key: tool[key] for key in keys if key in tool}, ensure_ascii=False) for tool in listed]
        self.count, self.before = len(tools), [hello.get("instructions", ""), *tools]

    def send(self, message):
        self.host.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.host.stdin.flush()

    def ask(self, method, params):
        self.number += 1
        self.send({"id": self.number, "method": method, "params": params})
        for line in self.host.stdout:
            message = json.loads(line)
            if message.get("id") == self.number and "method" not in message:
                if "result" not in message:
                    raise SystemExit(f"tasks: {method} {params}: {message['error']}")
                return message["result"]
        raise SystemExit("tasks: the host ended")

    def turn(self, *calls):
        """Makes calls that do not depend on each other: one round trip. Returns their texts."""
        self.trips += 1
        texts = []
        for name, arguments in calls:
            if self.way == "search" and name != "find_tools":
                name, arguments = "call_tool", {"name": name, "arguments": arguments}
            result = self.ask("tools/call", {"name": name, "arguments": arguments})
            text = "\n".join(part["text"] for part in result["content"])
            if result.get("isError"):
                raise SystemExit(f"tasks: {name}: {text}")
            self.said += [json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False), text]
            texts.append(text)
        return texts

    def find(self, wanted):
        """Finds tools, each by its query, and has them described, unless they are listed."""
        if self.way == "direct":
            return
        found = self.turn(*(("find_tools", {"query": query}) for query in wanted))
        for (query, name), text in zip(wanted.items(), found):
            if name not in text:
                raise SystemExit(f"tasks: {query!r} does not find {name}, but {text}")
        self.turn(("find_tools", {"names": list(wanted.values()), "detail": "schema"}))

    def script(self, text):
        return json.loads(self.turn(("run_script", {"script": text}))[0])

    def close(self):
        self.host.stdin.close()
        self.host.wait(timeout=30)


def reads(agent):
    """How many comments have the first 20 issues together?"""
    agent.find({"get the details of an issue": "github__get_issue"})
    if agent.way == "script":
        return agent.script(
            'const numbers = Array.from({ length: 20 }, (_, at) => at + 1);\n'
            'const read = (issue_number) => call("github__get_issue", { owner: "acme", repo: "app", issue_number });\n'
            "return (await Promise.all(numbers.map(read))).reduce((sum, issue) => sum + issue.comments, 0);"
        )
    texts = agent.turn(*(("github__get_issue", REPO | {"issue_number": number}) for number in range(1, 21)))
    return sum(json.loads(text)["comments"] for text in texts)


def joined(agent):
    """Which three people of the workspace have the most open issues, by their names in Slack?"""
    agent.find({"list open issues of a repository": "github__list_issues", "list the users of slack": "slack__slack_get_users"})
    if agent.way == "script":
        return agent.script(
            'const [issues, { members }] = await Promise.all([\n'
            '  call("github__list_issues", { owner: "acme", repo: "app", state: "open" }), call("slack__slack_get_users")]);\n'
            "const names = new Map(members.map(({ profile }) => [profile.email.split('@')[0], profile.real_name]));\n"
            "const counts = new Map();\n"
            "for (const { assignee } of issues) {\n"
            "  const name = names.get(assignee?.login);\n"
            "  if (name) counts.set(name, (counts.get(name) ?? 0) + 1);\n"
            "}\n"
            "return [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).slice(0, 3);"
        )
    issues, users = agent.turn(("github__list_issues", REPO | {"state": "open"}), ("slack__slack_get_users", {}))
    profiles = [member["profile"] for member in json.loads(users)["members"]]
    names = {profile["email"].split("@")[0]: profile["real_name"] for profile in profiles}
    counts = collections.Counter(names[issue["assignee"]["login"]] for issue in json.loads(issues) if issue["assignee"]["login"] in names)
    return [list(each) for each in sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:3]]


def paged(agent):
    """Which commit was about leap years?"""
    agent.find({"commits of a branch": "github__list_commits"})
    if agent.way == "script":
        return agent.script(
            "for (let page = 1; page < 50; page++) {\n"
            '  const commits = await call("github__list_commits", { owner: "acme", repo: "app", page });\n'
            "  const found = commits.find(({ commit }) => /leap year/.test(commit.message));\n"
            "  if (found) return found.sha;\n"
            "  if (commits.length === 0) return null;\n"
            "}"
        )
    for page in range(1, 50):
        for commit in json.loads(agent.turn(("github__list_commits", REPO | {"page": page}))[0]):
            if "leap year" in commit["commit"]["message"]:
                return commit["sha"]


def tokens(texts):
    """Counts the tokens of each text."""
    done = subprocess.run(["node", str(HERE / "count.cjs")], input=json.dumps(texts), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main(binary):
    tasks = {"20 reads summed up": reads, "two servers joined": joined, "pages until found": paged}
    answers = {
        "20 reads summed up": sum(recorded.issue(number)["comments"] for number in range(1, 21)),
        "pages until found": f"{30 * recorded.PAGE - 4:040x}",
    }
    checks = []
    print(f"{'':20}{'':8}{'tools':>8}{'of them':>9}{'trips':>7}{'conversation':>14}{'in all':>9}   tokens (o200k)")
    with tempfile.TemporaryDirectory() as home:
        for name, task in tasks.items():
            cost, right = {}, answers.get(name)
            for way in WAYS:
                agent = Agent(binary, home, way)
                got = task(agent)
                agent.close()
                right = got if right is None else right
                if got != right:
                    raise SystemExit(f"tasks: {name}, {way}: {got} is not {right}")
                before, said = sum(tokens(agent.before)), sum(tokens(agent.said))
                cost[way] = said
                print(f"{name:20}{way:8}{agent.count:8}{before:9}{agent.trips:7}{said:14}{before + said:9}")
            for way in ("direct", "search"):
                share = cost["script"] / cost[way]
                checks.append((f"{name}: a script has {100 * share:.1f} % of the conversation of {way}", share <= SHARE))
            checks.append((f"{name}: a script takes {agent.trips} round trips", agent.trips <= TRIPS))
    print()
    for what, holds in checks:
        print(f"{'ok  ' if holds else 'FAIL'} {what}")
    failed = sum(not holds for _, holds in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
