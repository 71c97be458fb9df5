"""One batch of the calls that an SDK starts at once, so that the pool sees them together and makes groups of them."""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import Future
from typing import Any

from . import limits, types
from ._aio import AsyncToolyard
from ._client import Toolyard


class ToolFailed(Exception):
    """A call ended with an error. Its text is what the model reads."""


def text(result: types.Result) -> str:
    """What a model reads of a result: its output, or on failure its error and what the tool left."""
    if not result["is_error"]:
        return result["output"]
    message = result["error"] or f"the call failed: {result['code']}"
    output = result["output"].rstrip("\n")
    if not output or message.startswith(output) or "\n" + output in message:
        return message
    return f"{message}\n\n{output}"


def output_of(result: types.Result) -> str:
    if result["is_error"]:
        raise ToolFailed(text(result))
    return result["output"]


def _call(tool: str, input: Any) -> types.Call:
    return {"id": f"call_{uuid.uuid4()}", "tool": tool, "input": input}


class Gatherer:
    """For SDKs that start calls in threads."""

    def __init__(self, yard: Toolyard, settings: types.Submission) -> None:
        self._yard, self._settings = yard, settings
        self._lock = threading.Lock()
        self._waiting: list[tuple[types.Call, Future[types.Result]]] = []

    def call(self, tool: str, input: Any) -> types.Result:
        """Runs a call with those that others start within limits.GATHER_SECONDS."""
        future: Future[types.Result] = Future()
        with self._lock:
            self._waiting.append((_call(tool, input), future))
            if len(self._waiting) == 1:
                timer = threading.Timer(limits.GATHER_SECONDS, self._flush)
                timer.daemon = True
                timer.start()
        return future.result()

    def _flush(self) -> None:
        with self._lock:
            gathered, self._waiting = self._waiting, []
        try:
            batch = self._yard.submit({**self._settings, "calls": [c for c, _ in gathered]})
            for result in batch.results():
                gathered[result["index"]][1].set_result(result)
        except Exception as e:
            for _, future in gathered:
                if not future.done():
                    future.set_exception(e)


class AsyncGatherer:
    """For SDKs that start calls in one turn of the event loop."""

    def __init__(self, yard: AsyncToolyard, settings: types.Submission) -> None:
        self._yard, self._settings = yard, settings
        self._waiting: dict[asyncio.AbstractEventLoop, list[tuple[types.Call, asyncio.Future[types.Result]]]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def call(self, tool: str, input: Any) -> types.Result:
        loop = asyncio.get_running_loop()
        # A loop that ended in the meantime runs no timer any more, and what waited in it waits no longer.
        for ended in [other for other in list(self._waiting) if other.is_closed()]:
            self._waiting.pop(ended, None)
        if loop not in self._waiting:
            self._waiting[loop] = []
            loop.call_later(limits.GATHER_SECONDS, self._flush, loop)
        future: asyncio.Future[types.Result] = loop.create_future()
        self._waiting[loop].append((_call(tool, input), future))
        return await future

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        # A call whose caller has given up before it was submitted is not run.
        gathered = [(call, future) for call, future in self._waiting.pop(loop, []) if not future.done()]
        if not gathered:
            return
        task = asyncio.ensure_future(self._run(gathered))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, gathered: list[tuple[types.Call, asyncio.Future[types.Result]]]) -> None:
        try:
            batch = await self._yard.submit({**self._settings, "calls": [c for c, _ in gathered]})
            left = {i: f for i, (_, f) in enumerate(gathered)}
            async for result in batch.results():
                future = left.pop(result["index"])
                if not future.done():  # whoever waited may have given up
                    future.set_result(result)
        except Exception as e:
            for _, future in gathered:
                if not future.done():
                    future.set_exception(e)
