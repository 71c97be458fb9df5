"""Requests, and which of them are repeated."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from . import limits

T = TypeVar("T")
Query = Mapping[str, Any]

AGAIN = (429, 502, 503, 504)


class ToolyardError(Exception):
    """An answer of the server that is not a good one, or a problem that a stream tells.

    type is what kind of problem it is, "about:blank" or "urn:toolyard:problem:" and a word; field what is wrong of the
    request, if it is one thing; retry_after after how many seconds to ask again, if the server says so.
    """

    def __init__(self, problem: Mapping[str, Any], status: int | None = None, retry_after: float = 0) -> None:
        self.status = int(status or problem.get("status") or 0)
        self.type = str(problem.get("type") or "about:blank")
        self.field: str | None = problem.get("field")
        self.retry_after = retry_after
        detail = problem.get("detail") or problem.get("title") or f"the server answers with status {self.status}"
        super().__init__(f"{self.field}: {detail}" if self.field else str(detail))


class LostError(Exception):
    """No answer came, or half of one: what became of the request is not known, unless it was not sent."""

    unsent = False


class Stopped(Exception):
    """A stream or a wait was ended by its Stop."""


def segment(name: str) -> str:
    """A name as one segment of a path. Servers drop the segments "." and ".."."""
    return "%2E" * len(name) if name in (".", "..") else urllib.parse.quote(name, safe="")


def passes(error: BaseException) -> bool:
    """Whether what failed so may succeed when it is repeated."""
    return isinstance(error, LostError) or isinstance(error, ToolyardError) and error.status in AGAIN


class Stop:
    """Ends a stream or a wait from another thread: whoever reads it gets Stopped."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None

    def connect(self, conn: http.client.HTTPConnection) -> None:
        """Makes a connection, and keeps its socket to cut it: the connection drops its own when the answer begins."""
        self.check()
        conn.connect()
        with self._lock:
            self._sock = conn.sock
        self.check()

    def release(self) -> None:
        with self._lock:
            self._sock = None

    def check(self) -> None:
        if self._event.is_set():
            raise Stopped

    def sleep(self, seconds: float) -> None:
        self._event.wait(seconds)
        self.check()

    def set(self) -> None:
        self._event.set()
        with self._lock:
            if self._sock is not None:
                with contextlib.suppress(OSError):  # it may be closed already
                    # Not that of TLS, which takes away what the reader reads from.
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


# What ends the requests of a thread: the asynchronous client sets it around what it runs.
stops = threading.local()


@dataclass
class Event:
    """A server-sent event."""

    name: str
    data: str
    id: str | None = None

    def json(self) -> Any:
        return json.loads(self.data)


def read_events(read: Callable[[], bytes]) -> Iterator[Event]:
    """Server-sent events from pieces of bytes, as the HTML standard defines them. The last piece is empty."""
    unfinished, held = [], 0  # the pieces of a line without an end, and how many bytes they have
    after_return = False
    name, data, event_id = "", [], None
    size = 0
    while piece := read():
        if after_return and piece.startswith(b"\n"):  # the second half of a line's end
            piece = piece[1:]
        after_return = piece.endswith(b"\r")
        first, *more = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        unfinished.append(first)
        lines = []
        if more:
            lines = [b"".join(unfinished), *more[:-1]]
            unfinished, held = more[-1:], 0
        held += len(unfinished[-1])
        if held + size > limits.MAX_EVENT_BYTES:
            raise ValueError(f"an event of the stream has more than {limits.MAX_EVENT_BYTES} bytes")
        for line in lines:
            if not line:
                if data:
                    yield Event(name or "message", "\n".join(data), event_id)
                name, data, event_id, size = "", [], None, 0
                continue
            field, _, value = line.decode("utf-8", "replace").partition(":")
            value = value.removeprefix(" ")
            if field == "id":
                event_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data.append(value)
                size += len(line)


class Transport:
    """Makes requests to a server."""

    def __init__(self, url: str, token: str | None, retries: int, context: ssl.SSLContext | None = None) -> None:
        at = urllib.parse.urlsplit(url)
        if at.scheme not in ("http", "https") or not at.hostname or at.query or at.fragment:
            raise ValueError(f"{url!r} is not the URL of a server; use http://HOST:PORT")
        self.url = url.rstrip("/")
        self._at, self._token, self._retries, self._context = at, token, retries, context

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        # Without a port http.client would take the last part of an IPv6 address for one.
        host, port = self._at.hostname or "", self._at.port
        if self._at.scheme == "https":
            return http.client.HTTPSConnection(host, 443 if port is None else port, timeout=timeout,
                                               context=self._context)
        return http.client.HTTPConnection(host, 80 if port is None else port, timeout=timeout)

    def target(self, path: str, query: Query | None) -> str:
        known = {k: str(v).lower() if isinstance(v, bool) else v for k, v in (query or {}).items() if v is not None}
        return self._at.path.rstrip("/") + path + ("?" + urllib.parse.urlencode(known, doseq=True) if known else "")

    def headers(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        out = {"Connection": "close", **(more or {})}
        if self._token:
            out["Authorization"] = "Bearer " + self._token
        return out

    def answer(self, method: str, path: str, *, query: Query | None = None, body: Any = None,
               headers: Mapping[str, str] | None = None, once: bool = False,
               timeout: float = limits.ANSWER_TIMEOUT,
               stop: Stop | None = None) -> tuple[int, http.client.HTTPMessage, Any]:
        """Makes a request until it is answered. Returns status, headers and the JSON; a 304 has none."""

        ends: Stop = stop or getattr(stops, "stop", None) or Stop()

        def attempt() -> tuple[int, http.client.HTTPMessage, Any]:
            conn = self.connect(timeout)
            try:
                sent = dict(headers or {})
                data = None
                if body is not None:
                    sent["Content-Type"] = "application/json"
                    data = json.dumps(body).encode()
                try:
                    ends.connect(conn)
                except OSError as e:
                    lost = LostError(f"no answer from {self.url}: {e}")
                    lost.unsent = True
                    raise lost from e
                try:
                    conn.request(method, self.target(path, query), data, self.headers(sent))
                    response = conn.getresponse()
                    checked(response)
                    text = response.read(limits.MAX_ANSWER_BYTES + 1)
                except (OSError, http.client.HTTPException) as e:
                    raise LostError(f"no answer from {self.url}: {e}") from e
                if len(text) > limits.MAX_ANSWER_BYTES:
                    raise ValueError(f"the answer to {method} {path} has more than {limits.MAX_ANSWER_BYTES} bytes")
                if response.length:  # read says nothing of what is missing
                    raise LostError(f"the answer to {method} {path} was cut")
                if response.status == 304:
                    return response.status, response.headers, None
                try:
                    return response.status, response.headers, json.loads(text)
                except ValueError:
                    if not text or response.headers.get_content_type() == "application/json":  # cut, in the head too
                        raise LostError(f"the answer to {method} {path} was cut") from None
                    raise ToolyardError({"detail": f"{self.url} answers {method} {path} with no JSON; is it the "
                                         "address of a Toolyard server?"}, response.status) from None
            finally:
                ends.release()
                conn.close()

        return self.retry(attempt, ends, once=once)

    def json(self, method: str, path: str, **options: Any) -> Any:
        return self.answer(method, path, **options)[2]

    def retry(self, attempt: Callable[[], T], stop: Stop, *, once: bool = False) -> T:
        """Tries something until it succeeds, fails for good, or has failed too often."""
        tries = Tries(self._retries, stop)
        while True:
            try:
                return attempt()
            except (ToolyardError, LostError) as e:
                if once and not (isinstance(e, LostError) and e.unsent):
                    raise
                tries.failed(e)

    def follow(self, path: str, query: Query, stop: Stop, cut: Callable[[], Event] | None = None) -> Iterator[Event]:
        """The events of a stream, over as many connections as it takes: a stream that is cut goes on behind the last
        event that has an id. It ends when the caller leaves it, or the server says that there is no more."""
        last: str | None = None
        tries = Tries(self._retries, stop)
        while True:
            conn = self.connect(limits.STREAM_SILENCE)
            pieces: Pieces | None = None
            try:
                headers = {"Accept": "text/event-stream"}
                if last is not None:
                    headers["Last-Event-ID"] = last
                try:
                    stop.connect(conn)
                    conn.request("GET", self.target(path, query), None, self.headers(headers))
                    response = conn.getresponse()
                    checked(response)
                except (OSError, http.client.HTTPException) as e:
                    raise LostError(f"no answer from {self.url}: {e}") from e
                if response.status == 204:
                    return
                pieces = Pieces(response)
                for event in read_events(pieces.read):
                    if event.name == "problem":
                        raise ToolyardError(event.json())
                    if event.name == "behind":
                        break
                    yield event
                    tries.progress()
                    last = event.id if event.id is not None else last
                raise LostError(f"the stream of {path} was cut")
            except (ToolyardError, LostError) as e:
                if pieces and pieces.long and isinstance(e, LostError):
                    tries.progress()
                tries.failed(e)
            finally:
                stop.release()
                conn.close()
            if cut:
                yield cut()


class Tries:
    """Counts how often in a row something failed, and pauses."""

    def __init__(self, most: int, stop: Stop) -> None:
        self._most, self._stop = most, stop
        self.progress()

    def progress(self) -> None:
        self._failed, self._pause = 0, limits.FIRST_RETRY

    def failed(self, error: ToolyardError | LostError) -> None:
        """Pauses before the next attempt, or raises the error if there is to be none."""
        self._stop.check()
        self._failed += 1
        if self._failed > self._most or not passes(error):
            raise error
        least = error.retry_after if isinstance(error, ToolyardError) else 0
        self._stop.sleep(min(max(self._pause, least), limits.LONGEST_RETRY))
        self._pause = min(2 * self._pause, limits.LONGEST_RETRY)


class Pieces:
    """Reads an answer piece by piece. long says that the connection gave signs of life for long enough to be worth a
    new one, so that the server is not asked more often than otherwise."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response, self._began, self.long = response, time.monotonic(), False

    def read(self) -> bytes:
        try:
            piece = self._response.read1(65536)
        except TimeoutError as e:  # no sign
            raise LostError(f"the connection was cut: {e}") from e
        except (OSError, ValueError, http.client.HTTPException) as e:
            self._sign()
            raise LostError(f"the connection was cut: {e}") from e
        self._sign()
        return piece

    def _sign(self) -> None:
        self.long = time.monotonic() - self._began >= limits.LONGEST_RETRY


def checked(response: http.client.HTTPResponse) -> None:
    """Raises what an answer says that is not a good one."""
    if 200 <= response.status < 300 or response.status == 304:
        return
    text = response.read(limits.MAX_PROBLEM_BYTES)
    if len(text) < limits.MAX_PROBLEM_BYTES and response.length:  # read says nothing of what is missing
        raise LostError(f"an answer with status {response.status} was cut")
    problem: dict[str, Any] = {}
    if response.headers.get_content_type() == "application/problem+json":
        with contextlib.suppress(ValueError):  # the status says enough
            problem = json.loads(text)
    after = response.headers.get("Retry-After", "")
    raise ToolyardError(problem, response.status, float(after) if after.isdigit() else 0)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
