#!/usr/bin/env python3
"""A tool in Python for a Toolyard worker: an MCP server on stdin and stdout, with nothing but the standard library.

    worker serve --tools examples/mcp/tools.yaml --workspace default=.

NOTES_FILE says where the notes are kept. The official SDK (the package mcp) has the same parts.
"""

import json
import os
import sys
import threading

NOTES = os.environ.get("NOTES_FILE", "notes.jsonl")

# The annotations say the class of a call, and whether it may run twice: the worker believes a server that is "trusted".
TOOLS = [
    {
        "name": "list_notes",
        "description": "Lists the notes, the oldest first.",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
        "annotations": {"readOnlyHint": True},  # READ_ONLY: beside any other read
    },
    {
        "name": "add_note",
        "description": "Adds a note and waits until it has been looked over in so many steps.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}, "steps": {"type": "integer", "minimum": 0, "maximum": 1000}},
            "required": ["text"],
            "additionalProperties": False,
        },
        # WRITE_EXCLUSIVE, and idempotent: a call whose worker was lost is run again.
        "annotations": {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True},
    },
]

writing = threading.Lock()  # one message at a time
noting = threading.Lock()
running: dict = {}  # the calls under way, by the id of their request: an event that cancels each


def send(**message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def notes():
    if not os.path.exists(NOTES):
        return []
    with open(NOTES, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def add_note(text, key):
    """Adds a note once for each key, and says whether it is new. The key is the same when a call runs again."""
    with noting:
        if any(n["key"] == key for n in notes()):
            return False
        with open(NOTES, "a", encoding="utf-8") as f:
            f.write(json.dumps({"key": key, "text": text}) + "\n")
            f.flush()
            os.fsync(f.fileno())
        return True


def call(name, arguments, meta, canceled):
    if name == "list_notes":
        return "\n".join(n["text"] for n in notes()) or "There are no notes."
    if name != "add_note":
        raise ValueError(f"there is no tool {name!r}")
    new = add_note(arguments["text"], meta["dev.toolyard/idempotency-key"])
    steps = arguments.get("steps", 0) if new else 0
    for step in range(1, steps + 1):
        if canceled.wait(0.1):  # stands for work
            raise InterruptedError
        if "progressToken" in meta:
            send(method="notifications/progress", params={
                "progressToken": meta["progressToken"], "progress": step, "total": steps,
                "message": f"step {step} of {steps}"})
    return f"Noted: {arguments['text']}"


def run(id, params, canceled):
    try:
        text, failed = call(params["name"], params.get("arguments", {}), params.get("_meta", {}), canceled), False
    except InterruptedError:
        return  # a request that was canceled has no answer
    except (ValueError, OSError, KeyError) as e:
        text, failed = f"{type(e).__name__}: {e}", True
    finally:
        running.pop(id, None)
    send(id=id, result={"content": [{"type": "text", "text": text}], "isError": failed})


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        send(id=message["id"], result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                                       "serverInfo": {"name": "notes", "version": "1"}})
    elif method == "tools/list":
        send(id=message["id"], result={"tools": TOOLS})
    elif method == "tools/call":
        canceled = running[message["id"]] = threading.Event()
        threading.Thread(target=run, args=(message["id"], params, canceled), daemon=True).start()
    elif method == "notifications/cancelled":
        if event := running.get(params["requestId"]):
            event.set()
    elif method == "ping":
        send(id=message["id"], result={})
    elif "id" in message:
        send(id=message["id"], error={"code": -32601, "message": f"there is no method {method}"})
