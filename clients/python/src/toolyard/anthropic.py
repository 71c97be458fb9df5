"""For Anthropic's SDK (anthropic). Nothing of it is imported: its objects are the caller's."""

from __future__ import annotations

import json
from typing import Any

from ._aio import AsyncToolyard
from ._client import Toolyard
from ._stream import Reader, aclosing, closing, tools_of


def converse(yard: Toolyard, client: Any, *, messages: list[Any], tools: list[Any] | None = None,
             options: dict[str, Any] | None = None, **params: Any) -> list[Any]:
    """Asks the model again and again until it makes no more calls, and returns the whole conversation.

    client is an anthropic.Anthropic; params are those of its messages.create; options are those of Toolyard.stream
    without id and format. Calls start while the model still writes, and each response is one batch: groups are kept,
    and unknown tools are answered.
    """
    messages, options = list(messages), options or {}
    while True:
        offered = [*(tools or []), *yard.tools("anthropic", **tools_of(options))]
        message = Message()
        with closing(client.messages.create(**params, messages=messages, tools=offered, stream=True)) as events:
            answer = yard.stream("anthropic", message.read(events), **options)
            reply = answer.reply()
        message.check(answer.cut)
        if said := message.as_param():
            messages.append(said)
        if reply is None:
            return messages
        messages.append(reply)


async def aconverse(yard: AsyncToolyard, client: Any, *, messages: list[Any], tools: list[Any] | None = None,
                    options: dict[str, Any] | None = None, **params: Any) -> list[Any]:
    """converse with an anthropic.AsyncAnthropic."""
    messages, options = list(messages), options or {}
    while True:
        offered = [*(tools or []), *await yard.tools("anthropic", **tools_of(options))]
        message = Message()
        async with aclosing(await client.messages.create(**params, messages=messages, tools=offered, stream=True)) as events:
            answer = yard.stream("anthropic", message.aread(events), **options)
            reply = await answer.reply()
        message.check(answer.cut)
        if said := message.as_param():
            messages.append(said)
        if reply is None:
            return messages
        messages.append(reply)


class Message(Reader):
    """Puts an assistant message together from the events of a stream."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    def as_param(self) -> dict[str, Any] | None:
        """The message without what the API gives and does not take back: texts of white space alone. None if there is
        nothing else in it."""
        blocks = [self._blocks[i] for i in sorted(self._blocks)]
        content = [b for b in blocks if b.get("type") != "text" or b.get("text", "").strip()]
        return {"role": "assistant", "content": content} if content else None

    def take(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "message_start":  # a proxy that has asked again sends a second one
                self._blocks, self._inputs = {}, {}
            case "content_block_start":
                self._blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                block, delta = self._blocks[event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] = block.get("text", "") + delta["text"]
                    case "thinking_delta":
                        block["thinking"] = block.get("thinking", "") + delta["thinking"]
                    case "signature_delta":
                        block["signature"] = block.get("signature", "") + delta["signature"]
                    case "citations_delta":
                        block["citations"] = [*(block.get("citations") or []), delta["citation"]]
                    case "input_json_delta":
                        self._inputs[event["index"]] = self._inputs.get(event["index"], "") + delta["partial_json"]
            case "content_block_stop":
                if written := self._inputs.pop(event["index"], ""):
                    self._blocks[event["index"]]["input"] = input_of(written)


def input_of(written: str) -> dict[str, Any]:
    """A call's input as the API takes it back: an object. What is none is not; the call's result says so."""
    try:
        value = json.loads(written)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
