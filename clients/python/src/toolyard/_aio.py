"""The client for asyncio. It runs the other one in threads of its own, at most limits.MAX_THREADS."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import ssl
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, TypeVar

from . import _client, limits, types
from ._client import Provider, StreamProvider
from ._http import Stop, Stopped, stops

T = TypeVar("T")
_END: Any = object()


class _Threads:
    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(limits.MAX_THREADS, thread_name_prefix="toolyard")

    async def run(self, f: Callable[..., T], *args: Any, **options: Any) -> T:
        """Runs something in a thread. Whoever gives up the wait ends its requests: the thread is for others."""
        stop = Stop()
        try:
            return await self._within(stop, partial(f, *args, **options))
        except asyncio.CancelledError:
            stop.set()
            raise

    async def step(self, items: Iterator[T], stop: Stop) -> T:
        return await self._within(stop, lambda: next(items, _END))

    async def _within(self, stop: Stop, f: Callable[[], T]) -> T:
        def stoppable() -> T:
            stops.stop = stop
            try:
                return f()
            finally:
                stops.stop = None

        return await asyncio.get_running_loop().run_in_executor(self._pool, stoppable)

    async def iterate(self, items: Iterator[T], stop: Stop) -> AsyncIterator[T]:
        """Reads an iterator, each step in a thread. Whoever leaves ends it."""
        try:
            while (item := await self.step(items, stop)) is not _END:
                yield item
        finally:
            stop.set()

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class AsyncBatch:
    """A batch that was handed in. See Batch."""

    def __init__(self, threads: _Threads, batch: _client.Batch) -> None:
        self.id, self.agent = batch.id, batch.agent
        self._threads, self._batch = threads, batch

    def _iterate(self, items: Callable[[Stop], Iterator[T]]) -> AsyncIterator[T]:
        stop = Stop()
        return self._threads.iterate(_until_stopped(items(stop)), stop)

    def results(self) -> AsyncIterator[types.Result]:
        return self._iterate(self._batch.results)

    def progress(self) -> AsyncIterator[dict[str, Any]]:
        return self._iterate(self._batch.progress)

    def events(self) -> AsyncIterator[types.CloudEvent]:
        return self._iterate(self._batch.events)

    async def get(self) -> types.BatchView:
        return await self._threads.run(self._batch.get)

    async def done(self) -> types.BatchView:
        return await self._threads.run(self._batch.done)

    async def reply(self, provider: Provider) -> Any:
        return await self._threads.run(self._batch.reply, provider)

    async def cancel(self, reason: str = "", calls: list[int] | None = None) -> types.BatchView:
        return await self._threads.run(self._batch.cancel, reason, calls)


class AsyncOpenBatch(AsyncBatch):
    """A batch to which calls can be appended. See OpenBatch."""

    _batch: _client.OpenBatch

    async def append(self, *calls: types.Call) -> int:
        return await self._threads.run(self._batch.append, *calls)

    async def close(self) -> types.BatchView:
        return await self._threads.run(self._batch.close)


class AsyncAnswerStream:
    """What comes back while a model's stream goes in. See AnswerStream."""

    def __init__(self, threads: _Threads, make: Callable[[Iterable[Any]], _client.AnswerStream],
                 stream: AsyncIterable[Any]) -> None:
        self._threads, self._stream = threads, stream
        self._chunks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Waiting for room takes no thread of the pool: all may read answers, which come when the chunks have gone.
        self._room = asyncio.Semaphore(limits.MAX_AHEAD)
        self._loop: asyncio.AbstractEventLoop
        self._answer = make(self._read())
        self.id = self._answer.id
        self._running = self._run()

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self._running

    @property
    def cut(self) -> dict[str, Any] | None:
        """Why the model's response is not whole."""
        return self._answer.cut

    async def reply(self) -> Any:
        """Reads the rest, and returns what goes back to the provider: None if the response had no call.

        It raises what AnswerStream.reply raises."""
        async for _ in self._running:
            pass
        return await self._threads.run(self._answer.reply)

    def _read(self) -> Iterator[Any]:
        while (chunk := self._chunks.get()) is not _END:
            if isinstance(chunk, BaseException):
                raise chunk
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing waits for room
                self._loop.call_soon_threadsafe(self._room.release)
            yield chunk

    async def _run(self) -> AsyncIterator[dict[str, Any]]:
        self._loop = asyncio.get_running_loop()
        reading = asyncio.ensure_future(self._pump())
        try:
            async for event in self._threads.iterate(_until_stopped(iter(self._answer)), self._answer._stop):
                yield event
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _pump(self) -> None:
        """Hands the chunks over to the thread that sends them."""
        last: Any = _END
        try:
            async for chunk in self._stream:
                await self._room.acquire()
                self._chunks.put(chunk)
        except Exception as e:
            last = e
        except asyncio.CancelledError:  # nobody sends any more
            with contextlib.suppress(queue.Empty):
                while True:
                    self._chunks.get_nowait()
            raise
        finally:
            self._chunks.put(last)


class AsyncToolyard:
    """Toolyard for asyncio, with the same methods. Close it, or use it with "async with"."""

    def __init__(self, url: str = "http://127.0.0.1:8080", *, token: str | None = None, agent: str | None = None,
                 max_retries: int = limits.MAX_RETRIES, ssl_context: ssl.SSLContext | None = None) -> None:
        self._yard = _client.Toolyard(url, token=token, agent=agent, max_retries=max_retries, ssl_context=ssl_context)
        self._threads = _Threads()

    async def __aenter__(self) -> AsyncToolyard:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.close()

    async def submit(self, batch: types.Submission) -> AsyncBatch:
        return AsyncBatch(self._threads, await self._threads.run(self._yard.submit, batch))

    async def open(self, batch: types.Submission | None = None) -> AsyncOpenBatch:
        return AsyncOpenBatch(self._threads, await self._threads.run(self._yard.open, batch))

    def batch(self, id: str, agent: str | None = None) -> AsyncBatch:
        return AsyncBatch(self._threads, self._yard.batch(id, agent))

    def stream(self, provider: StreamProvider, stream: AsyncIterable[Any], **options: Any) -> AsyncAnswerStream:
        return AsyncAnswerStream(self._threads, partial(self._yard.stream, provider, **options), stream)

    async def tools(self, format: Provider | Literal["mcp", "native"], **options: Any) -> Any:
        return await self._threads.run(self._yard.tools, format, **options)

    def batches(self, **filter: Any) -> AsyncIterator[types.BatchInfo]:
        return self._threads.iterate(self._yard.batches(**filter), Stop())

    async def approvals(self) -> list[types.Approval]:
        return await self._threads.run(self._yard.approvals)

    async def decide(self, approval: str | types.Approval, decision: types.Decision) -> None:
        await self._threads.run(self._yard.decide, approval, decision)

    async def session(self, id: str) -> types.Session:
        return await self._threads.run(self._yard.session, id)

    async def update_session(self, id: str, change: types.SessionChange) -> types.Session:
        return await self._threads.run(self._yard.update_session, id, change)

    async def interrupt(self, session: str, reason: str = "") -> int:
        return await self._threads.run(self._yard.interrupt, session, reason)

    async def resolve(self, session: str, reason: str = "") -> types.Interrupted:
        return await self._threads.run(self._yard.resolve, session, reason)

    def blob(self, ref: str) -> AsyncIterator[str | bytes]:
        return self._threads.iterate(self._yard.blob(ref), Stop())

    async def workers(self) -> list[types.Worker]:
        return await self._threads.run(self._yard.workers)

    async def dead_letters(self, limit: int = 100) -> list[types.DeadLetter]:
        return await self._threads.run(self._yard.dead_letters, limit)

    async def report(self, **filter: Any) -> types.Report:
        return await self._threads.run(self._yard.report, **filter)

    def watch(self) -> AsyncIterator[types.Happening]:
        stop = Stop()
        return self._threads.iterate(_until_stopped(self._yard.watch(stop)), stop)


def _until_stopped(items: Iterator[T]) -> Iterator[T]:
    """An iterator that just ends when its reader has left it."""
    try:
        yield from items
    except Stopped:
        return
