"""A model's response while it is written."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from . import limits
from ._http import LostError, Pieces, Stop, Stopped, ToolyardError, Transport, Tries, checked, read_events


class AnswerStream:
    """What comes back while a model's stream goes in: an iterator of {"event": name, ...}.

    The events are batch (id, agent, results), result (result), cut (problem) and note (items). A connection that is cut
    is made again under the same batch id: the server runs nothing twice, and each result is yielded once.
    """

    def __init__(self, http_: Transport, provider: str, stream: Iterable[Any], options: Mapping[str, Any],
                 retries: int) -> None:
        self.id: str = options["id"]
        self._http, self._provider, self._options, self._retries = http_, provider, options, retries
        self._source = Kept(stream)
        self.cut: dict[str, Any] | None = None  # why the model's response is not whole
        self._reply: Any = None
        self._failed: BaseException | None = None
        self._stop = Stop()
        self._pieces: Pieces | None = None  # of the answer that is being read
        self._running = self._keep(self._run())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self._running

    def results(self) -> Iterator[Any]:
        """The results alone."""
        return (e["result"] for e in self._running if e["event"] == "result")

    def reply(self) -> Any:
        """Reads the rest, and returns what goes back to the provider: None if the response had no call.

        It raises what the answer ended with, and what the model's stream failed with if no call had come by then."""
        for _ in self._running:
            pass
        if self._failed is not None:
            raise self._failed
        if self._reply is None:
            self._source.check()
        return self._reply

    def close(self) -> None:
        """Leaves the stream: whoever reads it gets Stopped. The batch goes on with the calls that are complete."""
        self._stop.set()

    def _keep(self, events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Keeps what the events end with: without it nobody knows whether a reply is missing."""
        try:
            yield from events
        except GeneratorExit:
            self._failed = Stopped("the stream was left before its end")
            raise
        except Exception as e:
            self._failed = e
            raise

    def _run(self) -> Iterator[dict[str, Any]]:
        following = 0  # the index of the next result that was not yielded
        begun = False
        tries = Tries(self._retries, self._stop)
        while True:
            conn = self._http.connect(limits.STREAM_SILENCE)
            self._pieces = None
            try:
                for event in self._exchange(conn):
                    match event.name:
                        case "batch":
                            if not begun:
                                yield {"event": "batch", **event.json()}
                            begun = True
                        case "result":
                            result = event.json()
                            if result["index"] < following:
                                continue
                            following = result["index"] + 1
                            tries.progress()
                            yield {"event": "result", "result": result}
                        case "cut":
                            if event.json()["status"] != 409:  # that is of a batch that was closed before
                                self.cut = event.json()
                            yield {"event": "cut", "problem": event.json()}
                        case "note":
                            yield {"event": "note", **event.json()}
                        case "reply":
                            self._reply = event.json()
                        case "problem":
                            raise ToolyardError(event.json())
                        case "completed":
                            return
                raise LostError("the answer to the stream was cut")
            except (ToolyardError, LostError) as e:
                self._source.check()
                if not self._source.whole:
                    raise
                if self._pieces and self._pieces.long and isinstance(e, LostError):
                    tries.progress()
                tries.failed(e)
            finally:
                self._stop.release()
                conn.close()

    def _exchange(self, conn: http.client.HTTPConnection) -> Iterator[Any]:
        """Sends the stream in a thread, and yields what comes back at the same time."""
        path = self._http.target(f"/v1/stream/{self._provider}", self._options)
        headers = self._http.headers({"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        try:
            self._stop.connect(conn)
            conn.putrequest("POST", path, skip_accept_encoding=True)
            for name, value in headers.items():
                conn.putheader(name, value)
            conn.endheaders()
        except (OSError, http.client.HTTPException) as e:
            raise LostError(f"no answer from {self._http.url}: {e}") from e
        sock = conn.sock

        def send() -> None:
            try:
                for chunk in self._source.chunks():
                    if chunk:
                        sock.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                sock.sendall(b"0\r\n\r\n")
            except OSError:
                pass  # the one who reads finds out

        threading.Thread(target=send, name="toolyard-stream", daemon=True).start()
        try:
            response = conn.getresponse()
            checked(response)
        except (OSError, http.client.HTTPException) as e:
            raise LostError(f"no answer from {self._http.url}: {e}") from e
        self._pieces = Pieces(response)
        yield from read_events(self._pieces.read)


class Kept:
    """Reads a model's stream once, and gives it to each attempt from its beginning."""

    def __init__(self, stream: Iterable[Any]) -> None:
        self._source = iter(stream)
        self._reading = threading.Lock()
        self._kept: list[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: BaseException | None = None

    @property
    def whole(self) -> bool:
        """Whether all that was read is still here."""
        return self._size <= limits.MAX_KEPT_BYTES

    def check(self) -> None:
        """Raises what the model's stream failed with: that is the caller's to know."""
        if self._failure is not None:
            raise self._failure

    def chunks(self) -> Iterator[bytes]:
        at = 0
        while True:
            with self._reading:
                if at == len(self._kept) and not self._ended:
                    self._read()
                if at == len(self._kept):
                    return
                chunk = self._kept[at]
                if not self.whole:
                    self._kept[at] = b""  # it is too long to be sent again
            at += 1
            yield chunk

    def _read(self) -> None:
        try:
            chunk = encode(next(self._source))
        except StopIteration:
            self._ended = True
            return
        except Exception as e:  # the server is told of a stream that ends too early, and answers for it
            self._ended, self._failure = True, e
            return
        self._size += len(chunk)
        self._kept.append(chunk)


def encode(chunk: Any) -> bytes:
    """An event of an SDK as its provider sends it."""
    if isinstance(chunk, bytes):
        return chunk
    if isinstance(chunk, str):
        return chunk.encode()
    return b"data: " + json_of(chunk).encode() + b"\n\n"


def json_of(value: Any) -> str:
    """A dict, or an object of an SDK, as the provider writes it."""
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json(by_alias=True, exclude_unset=True))
    return json.dumps(value)


def plain(value: Any) -> Any:
    """A dict, or an object of an SDK, as a dict."""
    return json.loads(json_of(value)) if hasattr(value, "model_dump_json") else value


@contextlib.contextmanager
def closing(events: Any) -> Iterator[Any]:
    """Ends a model's stream, whatever became of its answer: the model would write on otherwise, at its price."""
    try:
        yield events
    finally:
        with contextlib.suppress(Exception):  # as of a generator that is waited for in a thread; and SDKs' of any kind
            getattr(events, "close", lambda: None)()


@contextlib.asynccontextmanager
async def aclosing(events: Any) -> AsyncIterator[Any]:
    """closing for the streams of asyncio."""
    try:
        yield events
    finally:
        with contextlib.suppress(Exception):
            close = getattr(events, "close", None) or getattr(events, "aclose", lambda: None)
            if inspect.isawaitable(closed := close()):
                await closed


class Reader:
    """Passes the events of an SDK on, and looks at each."""

    _failed: Exception | None = None

    def read(self, events: Any) -> Iterator[Any]:
        try:
            for event in events:
                self.take(plain(event))
                yield event
        except Exception as e:
            self._failed = e
            raise

    async def aread(self, events: Any) -> AsyncIterator[Any]:
        try:
            async for event in events:
                self.take(plain(event))
                yield event
        except Exception as e:
            self._failed = e
            raise

    def check(self, cut: Mapping[str, Any] | None) -> None:
        """Raises why the response is not whole: half of one is no end, and nothing to send back to the model."""
        if self._failed is not None:
            raise self._failed
        if cut is not None:
            raise ToolyardError(cut)

    def take(self, event: dict[str, Any]) -> None:
        raise NotImplementedError


def tools_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a conversation that the list of tools has too."""
    if wrong := {"id", "format"} & options.keys():
        raise TypeError(f"{wrong.pop()!r} is of one batch, and a conversation has many")
    return {k: options[k] for k in ("agent", "session", "workspace", "deny") if k in options}
