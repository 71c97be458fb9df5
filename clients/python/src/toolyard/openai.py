"""For OpenAI's SDK (openai). Nothing of it is imported: its objects are the caller's."""

from __future__ import annotations

from typing import Any

from ._aio import AsyncToolyard
from ._client import Toolyard
from ._stream import Reader, aclosing, closing, tools_of


def converse(yard: Toolyard, client: Any, *, input: list[Any], tools: list[Any] | None = None,
             options: dict[str, Any] | None = None, **params: Any) -> list[Any]:
    """Asks the model on the Responses API until it makes no more calls, and returns the input with all output.

    client is an openai.OpenAI; params are those of its responses.create; options are those of Toolyard.stream. Calls
    start while the model still writes, and each response is one batch.
    """
    input, options = list(input), options or {}
    while True:
        offered = [*(tools or []), *yard.tools("openai", **tools_of(options))]
        said = Output()
        with closing(client.responses.create(**params, input=input, tools=offered, stream=True)) as events:
            answer = yard.stream("openai", said.read(events), **options)
            reply = answer.reply()
        said.check(answer.cut)
        input += said.items
        if reply is None:
            return input
        input += reply


async def aconverse(yard: AsyncToolyard, client: Any, *, input: list[Any], tools: list[Any] | None = None,
                    options: dict[str, Any] | None = None, **params: Any) -> list[Any]:
    """converse with an openai.AsyncOpenAI."""
    input, options = list(input), options or {}
    while True:
        offered = [*(tools or []), *await yard.tools("openai", **tools_of(options))]
        said = Output()
        async with aclosing(await client.responses.create(**params, input=input, tools=offered, stream=True)) as events:
            answer = yard.stream("openai", said.aread(events), **options)
            reply = await answer.reply()
        said.check(answer.cut)
        input += said.items
        if reply is None:
            return input
        input += reply


def converse_chat(yard: Toolyard, client: Any, *, messages: list[Any], tools: list[Any] | None = None,
                  options: dict[str, Any] | None = None, **params: Any) -> list[Any]:
    """converse on Chat Completions, which many other servers implement too."""
    messages, options = list(messages), options or {}
    while True:
        offered = [*(tools or []), *yard.tools("openai-chat", **tools_of(options))]
        message = ChatMessage()
        with closing(client.chat.completions.create(**params, messages=messages, tools=offered, stream=True)) as events:
            answer = yard.stream("openai-chat", message.read(events), **options)
            reply = answer.reply()
        message.check(answer.cut)
        messages.append(message.as_param())
        if reply is None:
            return messages
        messages += reply


async def aconverse_chat(yard: AsyncToolyard, client: Any, *, messages: list[Any], tools: list[Any] | None = None,
                         options: dict[str, Any] | None = None, **params: Any) -> list[Any]:
    """converse_chat with an openai.AsyncOpenAI."""
    messages, options = list(messages), options or {}
    while True:
        offered = [*(tools or []), *await yard.tools("openai-chat", **tools_of(options))]
        message = ChatMessage()
        async with aclosing(await client.chat.completions.create(**params, messages=messages, tools=offered, stream=True)) as events:
            answer = yard.stream("openai-chat", message.aread(events), **options)
            reply = await answer.reply()
        message.check(answer.cut)
        messages.append(message.as_param())
        if reply is None:
            return messages
        messages += reply


class Output(Reader):
    """The output of a response, as its last event has it."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def take(self, event: dict[str, Any]) -> None:
        if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
            self.items = event["response"].get("output", [])


class ChatMessage(Reader):
    """Puts an assistant message together from the chunks of a completion."""

    def __init__(self) -> None:
        self._content: str | None = None
        self._refusal: str | None = None
        self._calls: list[dict[str, Any]] = []
        self._latest: dict[int, dict[str, Any]] = {}  # the latest call of each index

    def as_param(self) -> dict[str, Any]:
        """The message as the API takes it back: with a content, if it has neither calls nor a refusal."""
        content = self._content
        if content is None and self._refusal is None and not self._calls:
            content = ""
        out: dict[str, Any] = {"role": "assistant", "content": content}
        if self._refusal is not None:
            out["refusal"] = self._refusal
        if self._calls:
            out["tool_calls"] = self._calls
        return out

    def take(self, event: dict[str, Any]) -> None:
        for choice in event.get("choices") or []:
            delta = choice.get("delta") or {}
            if delta.get("content") is not None:
                self._content = (self._content or "") + delta["content"]
            if delta.get("refusal") is not None:
                self._refusal = (self._refusal or "") + delta["refusal"]
            for part in delta.get("tool_calls") or []:
                self._grow(part)

    def _grow(self, part: dict[str, Any]) -> None:
        """Adds a part of a call. Some servers give all calls one index, or none: then their ids tell them apart."""
        index, id = part.get("index") or 0, part.get("id")
        call = self._latest.get(index)
        if call is None or id and id != call["id"]:
            call = {"id": id or "", "type": "function"}
            self._latest[index] = call
            self._calls.append(call)
        for field, value in part.items():  # some servers want others back than those that are known here
            if field in ("function", "custom"):
                own = call.setdefault(field, {"name": "", "arguments" if field == "function" else "input": ""})
                for name, text in (value or {}).items():
                    if name == "name":  # whole in the first part, and in some servers' others too
                        own[name] = own[name] or text
                    elif text is not None:
                        own[name] = own.get(name, "") + text if isinstance(text, str) else text
            elif field != "index" and value is not None and value != "":  # some servers empty the id in later parts
                call[field] = value
