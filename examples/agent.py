#!/usr/bin/env python3
"""An agent without any library: it hands a batch to Toolyard over HTTP and reads the results as they come.

    dispatcher serve --with-worker --workspace default=.
    python3 examples/agent.py

TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.
"""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

URL = os.environ.get("TOOLYARD_URL", "http://127.0.0.1:8080")
TOKEN = os.environ.get("TOOLYARD_TOKEN", "")

# What a model said: the assistant message of an Anthropic response, as it came.
MESSAGE = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "I will look around first."},
        {"type": "tool_use", "id": "toolu_01", "name": "glob", "input": {"pattern": "*.md"}},
        {"type": "tool_use", "id": "toolu_02", "name": "grep", "input": {"pattern": "^# ", "path": "."}},
        {"type": "tool_use", "id": "toolu_03", "name": "read_file", "input": {"file_path": "go.mod", "limit": 3}},
    ],
}


def request(method, path, body=None, headers=None):
    headers = dict(headers or {})
    data = None
    if body is not None:
        data = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    if TOKEN:
        headers["Authorization"] = "Bearer " + TOKEN
    return urllib.request.Request(URL + path, data=data, method=method, headers=headers)


def submit(batch, tries=10):
    """Hands a batch in. It has an id, so handing it in again after a lost answer is safe."""
    for left in range(tries, 0, -1):
        try:
            with urllib.request.urlopen(request("POST", "/v1/batches", batch), timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            problem = json.load(e)
            if e.code not in (429, 503) or left == 1:
                raise SystemExit(f"{e.code} {problem.get('field', '')}: {problem['detail']}")
            time.sleep(int(e.headers.get("Retry-After", "1")))
        except (urllib.error.URLError, ConnectionError) as e:
            if left == 1:
                raise SystemExit(f"{URL}: {e}")
            time.sleep(1)


def events(lines):
    """Splits a stream of lines into server-sent events."""
    event = {}
    for line in lines:
        line = line.decode().rstrip("\r\n")
        if not line:
            if "event" in event:
                yield event
            event = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            event[name] = value


def results(batch_id):
    """Yields the results in the order of the calls. A stream that breaks goes on behind the last one that was seen."""
    last = None
    path = "/v1/batches/" + urllib.parse.quote(batch_id, safe="") + "/results"
    while True:
        headers = {} if last is None else {"Last-Event-ID": last}
        try:
            with urllib.request.urlopen(request("GET", path, headers=headers), timeout=60) as answer:
                for event in events(answer):
                    last = event.get("id", last)
                    if event["event"] == "completed":
                        return
                    if event["event"] == "problem":
                        raise SystemExit(json.loads(event["data"])["detail"])
                    if event["event"] == "result":  # others say that the batch waits, or that this was too slow
                        yield json.loads(event["data"])
        except urllib.error.HTTPError as e:
            if e.code not in (429, 503):
                raise SystemExit(json.load(e)["detail"])
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            pass
        time.sleep(1)


def main():
    batch = submit({"id": str(uuid.uuid4()), "session": "example", "anthropic": MESSAGE})
    print("batch", batch["id"], batch["status"])
    for r in results(batch["id"]):
        text = r["error"] if r["is_error"] else r["output"]
        print(f"[{r['index']}] {r['tool']} {r['code'] or 'ok'}: {text.splitlines()[0] if text else ''}")
    path = "/v1/batches/" + urllib.parse.quote(batch["id"], safe="") + "?format=anthropic"
    with urllib.request.urlopen(request("GET", path), timeout=60) as answer:
        back = json.load(answer)  # the next user message of the conversation
    print(back["role"], "message with", len(back["content"]), "results")


if __name__ == "__main__":
    sys.exit(main())
