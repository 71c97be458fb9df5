"""The client."""

from __future__ import annotations

import base64
import copy
import json
import ssl
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from . import limits, types
from ._http import Event, Stop, Transport, now, segment
from ._stream import AnswerStream

Provider = Literal["anthropic", "openai", "openai-chat", "gemini"]
StreamProvider = Literal["anthropic", "openai", "openai-chat"]


class Batch:
    """A batch that was handed in."""

    def __init__(self, http: Transport, id: str, agent: str | None = None) -> None:
        self.id, self.agent = id, agent
        self._http = http
        self._path = "/v1/batches/" + segment(id)
        self._query = {"agent": agent}

    def results(self, stop: Stop | None = None) -> Iterator[types.Result]:
        """The results in the order of the calls, each as soon as it is there. A cut connection is resumed."""
        for e in self._http.follow(self._path + "/results", self._query, stop or Stop()):
            if e.name == "completed":
                return
            if e.name == "result":
                yield e.json()

    def progress(self, stop: Stop | None = None) -> Iterator[dict[str, Any]]:
        """What running calls report, as types.Progress with "event": "progress", and that the batch waits for its
        turn, as types.Waiting with "event": "waiting", until the batch is complete. Reports are not stored: what a cut
        connection misses is not sent again."""
        query = {**self._query, "progress": "only"}
        for e in self._http.follow(self._path + "/results", query, stop or Stop()):
            if e.name == "completed":
                return
            if e.name in ("progress", "waiting"):
                yield {"event": e.name, **e.json()}

    def events(self, stop: Stop | None = None) -> Iterator[types.CloudEvent]:
        """What is stored about the batch as CloudEvents, from its submission to its end."""
        for e in self._http.follow(self._path + "/events", {**self._query, "end": True}, stop or Stop()):
            if e.name == "end":
                return
            if e.name == "cloudevent":
                yield e.json()

    def get(self) -> types.BatchView:
        """The state of the batch now."""
        return self._http.json("GET", self._path, query=self._query)

    def done(self, stop: Stop | None = None) -> types.BatchView:
        """Waits until the batch is complete."""
        return self._await(None, stop)

    def reply(self, provider: Provider, stop: Stop | None = None) -> Any:
        """Waits until the batch is complete, and returns what goes back to the provider."""
        return self._await(provider, stop)

    def _await(self, format: str | None, stop: Stop | None) -> Any:
        query = {**self._query, "format": format, "wait": limits.WAIT_SECONDS}
        while True:
            status, _, body = self._http.answer("GET", self._path, query=query, stop=stop,
                                                timeout=limits.WAIT_SECONDS + limits.ANSWER_TIMEOUT)
            if status == 200:
                return body

    def cancel(self, reason: str = "", calls: list[int] | None = None) -> types.BatchView:
        """Asks for the calls that have no result to end, or for those of these indices. The model reads the reason."""
        body: dict[str, Any] = {"reason": reason}
        if calls is not None:
            body["calls"] = calls
        return self._http.json("POST", self._path + "/cancel", query=self._query, body=body)


class OpenBatch(Batch):
    """A batch to which calls can be appended while the model is still talking."""

    def append(self, *calls: types.Call) -> int:
        """Adds calls, and returns the index of the first. Each starts as soon as it may."""
        # With its own id each call is recognised when a request whose answer was lost is repeated.
        named = [{**c, "id": c.get("id") or f"call_{uuid.uuid4()}"} for c in calls]
        return self._http.json("POST", self._path + "/calls", query=self._query, body={"calls": named})["first"]

    def close(self) -> types.BatchView:
        """Says that no calls follow."""
        return self._http.json("POST", self._path + "/close", query=self._query, body={})


class Toolyard:
    """Hands batches of tool calls to a pool and gets their results. It may be used from many threads.

    url is where the server is; token names the agent, if the server asks for one; agent says whose batches these are,
    where no token does; ssl_context says which certificates are trusted, if it is not the system's.
    """

    def __init__(self, url: str = "http://127.0.0.1:8080", *, token: str | None = None, agent: str | None = None,
                 max_retries: int = limits.MAX_RETRIES, ssl_context: ssl.SSLContext | None = None) -> None:
        self._http = Transport(url, token, max_retries, ssl_context)
        self._agent, self._retries = agent, max_retries
        self._tools: dict[str, tuple[str, Any]] = {}

    def _asked(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Options without those that are None, and the client's agent where they name none."""
        given = {k: v for k, v in options.items() if v is not None}
        return given if self._agent is None else {"agent": self._agent, **given}

    def _submit(self, batch: types.Submission) -> tuple[str, str | None]:
        body = self._asked({**batch, "id": batch.get("id") or str(uuid.uuid4())})
        self._http.json("POST", "/v1/batches", body=body)
        return body["id"], body.get("agent")

    def submit(self, batch: types.Submission) -> Batch:
        """Hands in a batch. It gets an id if it has none, so that a request whose answer was lost can be repeated."""
        return Batch(self._http, *self._submit(batch))

    def open(self, batch: types.Submission | None = None) -> OpenBatch:
        """Hands in a batch to which calls can be appended until it is closed."""
        return OpenBatch(self._http, *self._submit({"calls": [], **(batch or {}), "open": True}))

    def batch(self, id: str, agent: str | None = None) -> Batch:
        """A batch that was handed in before."""
        return Batch(self._http, id, agent or self._agent)

    def stream(self, provider: StreamProvider, stream: Iterable[Any], **options: Any) -> AnswerStream:
        """Hands in a model's response while the model still writes it. Each call starts when its input is complete.

        stream has bytes as they came, texts, or the events of a provider's SDK. options are those of submitStream:
        session, workspace, deny and so on.
        """
        asked = self._asked({**options, "id": options.get("id") or str(uuid.uuid4())})
        return AnswerStream(self._http, provider, stream, asked, self._retries)

    def tools(self, format: Provider | Literal["mcp", "native"], **options: Any) -> Any:
        """The tools of the next batch, in a provider's form. Ask before each request to the model.

        options are those of listTools: session, workspace, strict, deny.
        """
        query = self._asked({**options, "format": format})
        key = json.dumps(query, sort_keys=True)
        known = self._tools.get(key)
        headers = {"If-None-Match": known[0]} if known else {}
        status, answered, body = self._http.answer("GET", "/v1/tools", query=query, headers=headers)
        if status == 304 and known:
            return copy.deepcopy(known[1])
        if len(self._tools) >= limits.MAX_TOOL_LISTS:
            self._tools.clear()
        if etag := answered.get("ETag"):
            self._tools[key] = (etag, copy.deepcopy(body))  # the caller may change its own
        return body

    def batches(self, **filter: Any) -> Iterator[types.BatchInfo]:
        """Batches, the newest first, page by page. filter are session, status, limit."""
        after = 0
        while True:
            page = self._http.json("GET", "/v1/batches", query=self._asked({**filter, "after": after}))
            yield from page["batches"]
            if not (after := page.get("next", 0)):
                return

    def approvals(self) -> list[types.Approval]:
        """The calls that wait for a person, the newest first."""
        return self._http.json("GET", "/v1/approvals", query={"agent": self._agent})["approvals"]

    def decide(self, approval: str | types.Approval, decision: types.Decision) -> None:
        """Stores a person's decision about a call that waits. It is not repeated if its answer is lost.

        With an approval of the list it is about what that shows: it fails if the call waits with another input."""
        body: dict[str, Any] = dict(decision)
        if not isinstance(approval, str):  # a late no must not end a question that the person has not seen
            body["input_sha256"] = body.get("input_sha256") or approval["input_sha256"]
        id = approval if isinstance(approval, str) else approval["id"]
        self._http.json("POST", "/v1/approvals/" + segment(id), body=body, once=True)

    def session(self, id: str) -> types.Session:
        return self._http.json("GET", "/v1/sessions/" + segment(id), query={"agent": self._agent})

    def update_session(self, id: str, change: types.SessionChange) -> types.Session:
        return self._http.json("POST", "/v1/sessions/" + segment(id), query={"agent": self._agent}, body=change)

    def interrupt(self, session: str, reason: str = "") -> int:
        """Stops a session's batches where they may be stopped, and returns how many were asked. It is not repeated if
        its answer is lost: that would stop what has begun since."""
        path = "/v1/sessions/" + segment(session) + "/interrupt"
        return self._http.json("POST", path, query={"agent": self._agent}, body={"reason": reason},
                               once=True)["batches"]

    def resolve(self, session: str, reason: str = "") -> types.Interrupted:
        """Ends a session's calls that wait for a person, stops nothing else, and says how many calls it has ended. It
        is not repeated if its answer is lost."""
        path = "/v1/sessions/" + segment(session) + "/interrupt"
        body = {"reason": reason, "resolve": True}
        return self._http.json("POST", path, query={"agent": self._agent}, body=body, once=True)

    def blob(self, ref: str) -> Iterator[str | bytes]:
        """An offloaded result part by part: texts, or bytes if it is not text."""
        offset = 0
        while True:
            part = self._http.json("GET", "/v1/blobs/" + segment(ref),
                                   query={"agent": self._agent, "offset": offset})
            yield base64.b64decode(part["data"]) if "data" in part else part["content"]
            if not (offset := part.get("next", 0)):
                return

    def workers(self) -> list[types.Worker]:
        return self._http.json("GET", "/v1/workers")["workers"]

    def dead_letters(self, limit: int = 100) -> list[types.DeadLetter]:
        return self._http.json("GET", "/v1/dead", query={"limit": limit})["dead_letters"]

    def report(self, **filter: Any) -> types.Report:
        """What the batches of a period add up to: the newest, where there are too many. filter are since, until."""
        return self._http.json("GET", "/v1/report", query=self._asked(filter))

    def watch(self, stop: Stop | None = None) -> Iterator[types.Happening]:
        """What happens to all batches from now on. A gap says that events are missing before it."""

        def cut() -> Event:
            return Event("cloudevent", json.dumps({"time": now(), "gap": "the connection was lost"}))

        for e in self._http.follow("/v1/events", {"agent": self._agent}, stop or Stop(), cut):
            if e.name == "cloudevent":
                yield e.json()
