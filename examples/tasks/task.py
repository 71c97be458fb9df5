#!/usr/bin/env python3
"""A client of MCP that calls a slow tool as a task: it gets the task's id, and asks for the result later.

    dispatcher serve --with-worker --workspace default=. --tools examples/tasks/tools.yaml --allow build
    python3 examples/tasks/task.py

TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.
"""

import json
import os
import time
import urllib.request

URL = os.environ.get("TOOLYARD_URL", "http://127.0.0.1:8080")
TOKEN = os.environ.get("TOOLYARD_TOKEN", "")
REVISION = "2026-07-28"  # every request stands alone: there is no session to begin
MOST_QUESTIONS = 600  # how often the client asks for the task at most


def request(method, about, **params):
    """Sends one request, and returns its result. A client that knows tasks says so in each request."""
    params["_meta"] = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientInfo": {"name": "task.py", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
    }
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
               "Mcp-Protocol-Version": REVISION, "Mcp-Method": method, "Mcp-Name": about}
    if TOKEN:
        headers["Authorization"] = "Bearer " + TOKEN
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    asked = urllib.request.Request(URL + "/mcp", data=body, headers=headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        for line in answer:  # a JSON document, or an event stream that ends with the answer
            text = line.decode().strip().removeprefix("data: ")
            if not text.startswith("{"):
                continue
            message = json.loads(text)
            if "error" in message:
                raise SystemExit(f"{method}: {message['error']['message']}")
            if "result" in message:
                return message["result"]
    raise SystemExit(f"{method} was not answered")


def main():
    said = request("tools/call", "build", name="build", arguments={"part": "docs"})
    if said.get("resultType") != "task":  # it was fast enough, or it could not run
        print("no task:", said["content"][0]["text"])
        return
    task = said["taskId"]
    print("task", said["status"])
    # The id is all that a client keeps. Any server of the pool knows the task, also after this one is gone.
    for _ in range(MOST_QUESTIONS):
        now = request("tasks/get", task, taskId=task)
        if now["status"] != "working":
            break
        time.sleep(now.get("pollIntervalMs", 1000) / 1000)
    print("task", now["status"])
    if now["status"] == "completed":
        print(now["result"]["content"][0]["text"].strip())


if __name__ == "__main__":
    main()
