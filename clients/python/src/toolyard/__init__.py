"""Hands the tool calls of AI agents to a Toolyard pool, and gets one result for each."""

from . import types
from ._aio import AsyncAnswerStream, AsyncBatch, AsyncOpenBatch, AsyncToolyard
from ._client import Batch, OpenBatch, Toolyard
from ._http import LostError, Stop, Stopped, ToolyardError
from ._stream import AnswerStream

__all__ = [
    "AnswerStream", "AsyncAnswerStream", "AsyncBatch", "AsyncOpenBatch", "AsyncToolyard", "Batch", "LostError",
    "OpenBatch", "Stop", "Stopped", "Toolyard", "ToolyardError", "types",
]
