"""A server over stdio that lists what a real one was recorded to list: `recorded.py ALIAS`. A few of its tools answer."""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
#: How many issues there are, and how many people.
ISSUES, PEOPLE = 60, 80
#: On which page of commits the one is that is looked for.
PAGE = 7


def person(number):
    return f"dev-{number % 12}"


def issue(number):
    """An issue, as the API of GitHub has it."""
    user = {"login": person(number * 5), "id": 1000 + number, "type": "User", "site_admin": False}
    user |= {"avatar_url": f"https://avatars.example/u/{1000 + number}?v=4", "html_url": f"https://code.example/{user['login']}"}
    text = f"When I run step {number} twice, the second run takes {number + 3} minutes. I expect it to take as long as the first one. "
    return {
        "url": f"https://api.code.example/repos/acme/app/issues/{number}", "id": 77000 + number, "number": number,
        "title": f"Step {number} is slow the second time", "user": user, "labels": [{"name": "bug", "color": "d73a4a"}],
        "state": "open", "locked": False, "assignee": {"login": person(number), "id": 2000 + number}, "milestone": None,
        "comments": number % 7, "created_at": "2026-03-01T10:00:00Z", "updated_at": "2026-03-02T10:00:00Z", "closed_at": None,
        "author_association": "CONTRIBUTOR", "body": text * 4, "reactions": {"+1": number % 3, "total_count": number % 3},
    }  # fmt: skip


def commit(number):
    """A commit, as the API of GitHub has it."""
    author = {"name": f"Dev {number % 12}", "email": f"{person(number)}@acme.example", "date": "2026-02-28T12:00:00Z"}
    words = "Fix the date of invoices in leap years" if number == 30 * PAGE - 4 else f"Move part {number} of the parser"
    return {
        "sha": f"{number:040x}", "node_id": f"C_{number}", "html_url": f"https://code.example/acme/app/commit/{number:040x}",
        "commit": {"author": author, "committer": author, "message": words, "tree": {"sha": f"{number + 1:040x}"}, "comment_count": 0},
        "author": {"login": person(number), "id": 2000 + number % 12}, "parents": [{"sha": f"{number + 1:040x}"}],
    }  # fmt: skip


def member(number):
    """A user, as the API of Slack has it."""
    name = f"Person Number {number}"
    profile = {"real_name": name, "display_name": f"p{number}", "email": f"{person(number)}@acme.example" if number < 12 else f"p{number}@acme.example"}
    profile |= {"title": "Engineer", "phone": "", "status_text": "", "image_72": f"https://avatars.example/{number}-72.png"}
    return {"id": f"U{number:06}", "team_id": "T1", "name": f"p{number}", "deleted": False, "real_name": name, "profile": profile}


def answer(tool, given):
    """Returns the text of an answer, indented as the real servers write it."""
    if tool == "get_issue":
        said = issue(int(given["issue_number"]))
    elif tool == "list_issues":
        said = [issue(number) for number in range(1, ISSUES + 1)]
    elif tool == "slack_get_users":
        said = {"ok": True, "members": [member(number) for number in range(PEOPLE)], "response_metadata": {"next_cursor": ""}}
    elif tool == "list_commits":
        first = 30 * (int(given.get("page", 1)) - 1)
        said = [commit(number) for number in range(first + 1, first + 31)]
    else:
        return None
    return json.dumps(said, indent=2)


def main():
    alias = sys.argv[1]
    packages = dict(line.split() for line in (HERE / "servers.txt").read_text().splitlines())
    recorded = (HERE.parent / "fixtures/definitions/recorded.jsonl").read_text().splitlines()
    tools = next(server["tools"] for line in recorded if (server := json.loads(line))["package"] == packages[alias])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        method, params, result = message["method"], message.get("params") or {}, None
        if method == "initialize":
            info = {"name": alias, "version": "1"}
            result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        elif method == "tools/list":
            result = {"tools": tools}
        elif method == "tools/call" and (text := answer(params["name"], params.get("arguments") or {})) is not None:
            result = {"content": [{"type": "text", "text": text}]}
        elif method == "ping":
            result = {}
        outcome = {"result": result} if result is not None else {"error": {"code": -32601, "message": "not recorded"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)


if __name__ == "__main__":
    main()
