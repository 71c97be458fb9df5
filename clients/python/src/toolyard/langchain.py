"""For LangChain (langchain-core). Nothing of it is imported: StructuredTool is the caller's."""

from __future__ import annotations

from typing import Any

from . import types
from ._aio import AsyncToolyard
from ._client import Toolyard
from ._gather import AsyncGatherer, Gatherer, output_of
from ._stream import tools_of


def langchain_tools(yard: Toolyard, structured_tool: Any, settings: types.Submission | None = None) -> list[Any]:
    """The pool's tools for LangChain and LangGraph.

    structured_tool is langchain_core.tools.StructuredTool; settings are those of the batches: session, workspace and so
    on. Calls that are started at once, as a ToolNode does, are one batch. A call that fails raises ToolFailed. What
    they lose against a whole turn: calls start when the response is complete, a tool that is not in the list is
    answered by LangChain, images become a line of text, and the list is that of the beginning.
    """
    gatherer = Gatherer(yard, settings or {})

    def make(name: str) -> Any:
        def run(**input: Any) -> str:
            return output_of(gatherer.call(name, input))

        return {"func": run}

    return _tools(structured_tool, yard.tools("openai-chat", **_offered(settings or {})), make)


async def alangchain_tools(yard: AsyncToolyard, structured_tool: Any,
                           settings: types.Submission | None = None) -> list[Any]:
    """langchain_tools for agents that run with asyncio."""
    gatherer = AsyncGatherer(yard, settings or {})

    def make(name: str) -> Any:
        async def run(**input: Any) -> str:
            return output_of(await gatherer.call(name, input))

        return {"coroutine": run}

    return _tools(structured_tool, await yard.tools("openai-chat", **_offered(settings or {})), make)


def _offered(settings: types.Submission) -> dict[str, Any]:
    """What the list of tools takes of the settings of batches."""
    deny = settings.get("options", {}).get("deny")
    return tools_of({**settings, **({"deny": deny} if deny else {})})


def _tools(structured_tool: Any, offered: list[Any], make: Any) -> list[Any]:
    out = []
    for function in (t["function"] for t in offered):
        schema = function.get("parameters") or {"type": "object", "properties": {}}
        out.append(structured_tool.from_function(
            **make(function["name"]), name=function["name"], description=function.get("description", ""),
            args_schema=schema, infer_schema=False))
    return out
