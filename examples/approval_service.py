#!/usr/bin/env python3
"""An approval service: a page and a Slack channel with two buttons for each call that waits for a person.

    echo "whsec_$(openssl rand -base64 32)" >relay.secret
    python3 approval_service.py relay.secret
    dispatcher relay --to http://127.0.0.1:8092/questions --relay-secret-file relay.secret

SLACK_WEBHOOK_URL is where questions go as messages (an incoming webhook of Slack), SLACK_SIGNING_SECRET is that of the
Slack app whose interactivity has this service's /slack as its address. Without them there is the page only, which asks
nobody who they are: it is for this machine.
"""

import base64
import getpass
import hashlib
import hmac
import html
import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(open(sys.argv[1]).read().strip().removeprefix("whsec_"))
SLACK = os.environ.get("SLACK_SIGNING_SECRET", "")
TOLERANCE_S, MOST_BYTES, MOST_QUESTIONS = 300, 1 << 20, 1000
questions = {}  # by the id of the question


def signature(id, at, body):
    """That of Standard Webhooks 1.0."""
    return "v1," + base64.b64encode(hmac.digest(KEY, f"{id}.{at}.".encode() + body, hashlib.sha256)).decode()


def slack_signature(at, body):
    return "v0=" + hmac.new(SLACK.encode(), f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()


def now(at):
    return at.isdigit() and abs(time.time() - int(at)) < TOLERANCE_S


def answer(question, decision, by):
    """Sends a decision to the relay. Returns what people are told."""
    data = questions[question]
    body = json.dumps({"type": "approval.answer", "data": {
        "id": data["id"], "decision": decision, "by": by, "input_sha256": data["input_sha256"]}}).encode()
    id, at = "msg_" + uuid.uuid4().hex, str(int(time.time()))
    request = urllib.request.Request(data["callback"], body, {
        "Content-Type": "application/json", "Webhook-Id": id, "Webhook-Timestamp": at,
        "Webhook-Signature": signature(id, at, body)})
    try:
        urllib.request.urlopen(request, timeout=30).close()
    except urllib.error.HTTPError as e:
        if e.code != 409:
            return f"not decided: {e.read().decode()}"
        questions.pop(question, None)
        return "somebody else has decided, or it waits no more"
    questions.pop(question, None)
    return f"{decision}: {data['tool']}, by {by}"


def message(question, data):
    """The question as a message of Slack."""
    button = lambda word: {"type": "button", "action_id": word, "value": f"{word}:{question}",
                           "text": {"type": "plain_text", "text": word}}
    text = f"{data['tool']} of agent {data['agent']}\n" + "\n".join(data["lines"])
    return {"blocks": [{"type": "section", "text": {"type": "plain_text", "text": text[:3000]}},
                       {"type": "actions", "elements": [button("allow"), button("deny")] if len(text) <= 3000
                        else [button("deny")]}]}  # nobody allows what is not shown whole


class Service(BaseHTTPRequestHandler):
    def do_GET(self):
        page = "<h1>Calls that wait</h1>"
        for question, data in list(questions.items()):
            page += (f"<form method=post action=/decide><h2>{html.escape(data['tool'])}</h2>"
                     f"<pre>{html.escape(chr(10).join(data['lines']))}</pre><p>{html.escape(data['reason'])}</p>"
                     f"<input type=hidden name=question value={question}>"
                     "<button name=decision value=allow>Allow</button> <button name=decision value=deny>Deny</button>"
                     "</form>")
        self.say(200, page)

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > MOST_BYTES:
            return self.say(413, "too long")
        body, h = self.rfile.read(length), self.headers
        if self.path == "/questions":
            id, at = h.get("Webhook-Id", ""), h.get("Webhook-Timestamp", "")
            if not now(at) or signature(id, at, body) not in h.get("Webhook-Signature", "").split():
                return self.say(401, "not signed")
            if len(questions) >= MOST_QUESTIONS:
                return self.say(503, "too many questions")
            questions[id] = json.loads(body)["data"]
            if url := os.environ.get("SLACK_WEBHOOK_URL"):
                urllib.request.urlopen(urllib.request.Request(url, json.dumps(message(id, questions[id])).encode(), {
                    "Content-Type": "application/json"}), timeout=10).close()
            return self.say(200, "asked")
        form = dict(urllib.parse.parse_qsl(body.decode()))
        if self.path == "/slack":
            at = h.get("X-Slack-Request-Timestamp", "")
            if not SLACK or not now(at) or not hmac.compare_digest(
                    slack_signature(at, body), h.get("X-Slack-Signature", "")):
                return self.say(401, "not signed")
            clicked = json.loads(form["payload"])
            decision, _, question = clicked["actions"][0]["value"].partition(":")
            by = "slack:" + clicked["user"]["username"]
        elif self.path == "/decide" and h.get("Origin", "").removeprefix("http://") in ("", h.get("Host")):
            decision, question, by = form["decision"], form["question"], getpass.getuser()
        else:
            return self.say(404, "there is no such place")
        if question not in questions:
            return self.say(409, "somebody else has decided, or it waits no more")
        self.say(200, html.escape(answer(question, decision, by)))

    def say(self, status, text):
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8092"))), Service)
print(f"service: http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
