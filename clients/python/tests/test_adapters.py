"""The adapters, against a fake of the providers' servers that speaks their wire forms. The SDKs themselves are not
here: stand-ins of the few calls that the adapters make send real requests and read real event streams."""

import asyncio
import contextlib
import http.client
import http.server
import io
import json
import os
import pathlib
import runpy
import sys
import threading
import types
import unittest
import uuid
from concurrent.futures import ThreadPoolExecutor
from unittest import mock
from urllib.parse import urlsplit

from toolyard import AsyncToolyard, Toolyard, ToolyardError
from toolyard._gather import ToolFailed
from toolyard.anthropic import aconverse, converse
from toolyard.langchain import alangchain_tools, langchain_tools
from toolyard import openai

URL = os.environ["TOOLYARD_URL"]
RUN = str(uuid.uuid4())  # part of the names of sessions
CALLS = [("one", "glob", {"pattern": "*.md"}), ("two", "nothing", {"a": 1}), ("three", "glob", {"pattern": "N*"})]


def anthropic_turn(body):
    """What Anthropic answers: calls at first, then a text. It accepts no mistake in what came back."""
    assert [t for t in body["tools"] if t["name"] == "glob" and t["input_schema"]["type"] == "object"], body["tools"]
    yield {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}}
    if len(body["messages"]) == 1:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for part in ("I look ", "around."):
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}
        yield {"type": "content_block_stop", "index": 0}
        for i, (id, name, input) in enumerate(CALLS, 1):
            yield {"type": "content_block_start", "index": i,
                   "content_block": {"type": "tool_use", "id": id, "name": name, "input": {}}}
            text = json.dumps(input)
            for part in (text[:5], text[5:]):
                yield {"type": "content_block_delta", "index": i,
                       "delta": {"type": "input_json_delta", "partial_json": part}}
            yield {"type": "content_block_stop", "index": i}
        yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}
    else:
        said, answered = body["messages"][1], body["messages"][2]
        assert said["content"][0] == {"type": "text", "text": "I look around."}, said
        assert [(c["id"], c["name"], c["input"]) for c in said["content"][1:]] == CALLS, said
        assert [c["tool_use_id"] for c in answered["content"]] == [c[0] for c in CALLS], answered
        assert [c.get("is_error", False) for c in answered["content"]] == [False, True, False], answered
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Done."}}
        yield {"type": "content_block_stop", "index": 0}
        yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}}
    yield {"type": "message_stop"}


def responses_turn(body):
    assert [t for t in body["tools"] if t.get("name") == "glob" and t["type"] == "function"], body["tools"]
    yield {"type": "response.created", "response": {"id": "r", "output": []}}
    output = [{"type": "message", "id": "msg", "role": "assistant", "status": "completed",
               "content": [{"type": "output_text", "text": "Done.", "annotations": []}]}]
    if len(body["input"]) == 1:
        output = [{"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "status": "completed",
                   "arguments": json.dumps(input)} for id, name, input in CALLS]
        for i, item in enumerate(output):
            yield {"type": "response.output_item.added", "output_index": i, "item": {**item, "arguments": ""}}
            yield {"type": "response.function_call_arguments.delta", "output_index": i, "item_id": item["id"],
                   "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", "output_index": i, "item_id": item["id"],
                   "arguments": item["arguments"]}
            yield {"type": "response.output_item.done", "output_index": i, "item": item}
    else:
        assert [i["type"] for i in body["input"][1:]] == ["function_call"] * 3 + ["function_call_output"] * 3, body
        assert [i["call_id"] for i in body["input"][4:]] == [c[0] for c in CALLS], body
    yield {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": output}}


def chat_turn(body):
    assert [t for t in body["tools"] if t["function"]["name"] == "glob"], body["tools"]

    def chunk(delta, finish=None):
        return {"id": "c", "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": None})
    if len(body["messages"]) == 1:
        for i, (id, name, input) in enumerate(CALLS):
            text = json.dumps(input)
            yield chunk({"tool_calls": [{"index": i, "id": id, "type": "function",
                                         "function": {"name": name, "arguments": ""}}]})
            yield chunk({"tool_calls": [{"index": i, "function": {"arguments": text}}]})
        yield chunk({}, "tool_calls")
    else:
        calls = body["messages"][1]["tool_calls"]
        assert [(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == CALLS, calls
        assert [m["tool_call_id"] for m in body["messages"][2:]] == [c[0] for c in CALLS], body
        yield chunk({"content": "Done."})
        yield chunk({}, "stop")


TURNS = {"/v1/messages": anthropic_turn, "/v1/responses": responses_turn, "/v1/chat/completions": chat_turn}


class Provider(http.server.BaseHTTPRequestHandler):
    """A fake of the providers' servers. A request that is wrong is answered with 400."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            assert body["stream"] is True
            events = list(TURNS[self.path](body))
        except (AssertionError, KeyError, IndexError) as e:
            self.send_error(400, repr(e)[:200].replace("\n", " "))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for e in events:
            self.wfile.write(b"data: %b\n\n" % json.dumps(e).encode())
            self.wfile.flush()

    def log_message(self, *_):
        pass


class Model:
    """An object of an SDK: what it has besides what pydantic's have is not used."""

    def __init__(self, data):
        self._data = data

    def model_dump_json(self, *, by_alias, exclude_unset):
        assert by_alias and exclude_unset
        return json.dumps(self._data)


def stand_in(url, asynchronous=False):
    """An SDK's client, as far as the adapters know it."""

    def create(path):
        def send(**body):
            at = urlsplit(url)
            conn = http.client.HTTPConnection(at.hostname, at.port)
            conn.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = conn.getresponse()
            if response.status != 200:
                raise RuntimeError(response.reason)
            try:
                for line in response:
                    if line.startswith(b"data: "):
                        yield Model(json.loads(line[6:]))
            finally:
                conn.close()

        async def asend(**body):
            async def events():
                for e in send(**body):
                    yield e
                    await asyncio.sleep(0)

            return events()

        return types.SimpleNamespace(create=asend if asynchronous else send)

    return types.SimpleNamespace(
        messages=create("/v1/messages"), responses=create("/v1/responses"),
        chat=types.SimpleNamespace(completions=create("/v1/chat/completions")))


def client_of(create):
    """An SDK's client that makes every response so."""
    made = types.SimpleNamespace(create=create)
    return types.SimpleNamespace(messages=made, responses=made, chat=types.SimpleNamespace(completions=made))


def anthropic_turn_of(said):
    return anthropic_turn({"messages": said, "tools": [{"name": "glob", "input_schema": {"type": "object"}}]})


def responses_turn_of(said):
    return responses_turn({"input": said, "tools": [{"type": "function", "name": "glob"}]})


def chat_turn_of(said):
    return chat_turn({"messages": said, "tools": [{"function": {"name": "glob"}}]})


class Adapters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider)
        cls.addClassCleanup(cls.server.server_close)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.shutdown)
        cls.url = f"http://127.0.0.1:{cls.server.server_port}"
        cls.yard = Toolyard(URL)
        cls.client = stand_in(cls.url)

    def sizes(self, session, calls):
        """The sizes of a session's batches, once so many calls are listed: the list may lag behind for a moment."""
        while sum(out := [b["calls"] for b in self.yard.batches(session=session)]) < calls:
            pass
        return out

    def test_anthropic(self):
        messages = converse(self.yard, self.client, model="m", max_tokens=100, options={"session": "py-anthropic-" + RUN},
                            messages=[{"role": "user", "content": "Look around."}])
        self.assertEqual(messages[-1]["content"], [{"type": "text", "text": "Done."}])
        self.assertEqual(len(messages), 4)
        self.assertEqual(self.sizes("py-anthropic-" + RUN, 3), [3], "a response is one batch")

    def test_examples(self):
        """examples/turn.py and turn_openai.py, with the stand-in in the place of the SDK."""
        for program, sdk in {"turn.py": "Anthropic", "turn_openai.py": "OpenAI"}.items():
            example = pathlib.Path(__file__).parents[3] / "examples" / program
            module = types.SimpleNamespace(**{sdk: lambda: self.client})
            said = io.StringIO()
            with self.subTest(program), mock.patch.dict(sys.modules, {sdk.lower(): module}), \
                    mock.patch.object(sys, "argv", [program]), \
                    mock.patch.dict(os.environ, {"TOOLYARD_URL": URL}), contextlib.redirect_stdout(said):
                runpy.run_path(str(example))
                self.assertIn("Done.", said.getvalue())

    def test_what_anthropic_does_not_take_back(self):
        """A response may have an empty text, and an input that is no object. A request with either is refused."""
        parts = [("text", {"type": "text", "text": ""}, []), ("one", None, ['["*.md"]']), ("two", None, ["null"]),
                 ("three", None, ['{"pattern": ', '"N*"}'])]

        def model(messages, **_):
            yield {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}}
            if len(messages) == 1:
                for i, (id, block, texts) in enumerate(parts):
                    block = block or {"type": "tool_use", "id": id, "name": "glob", "input": {}}
                    yield {"type": "content_block_start", "index": i, "content_block": block}
                    for text in texts:
                        yield {"type": "content_block_delta", "index": i,
                               "delta": {"type": "input_json_delta", "partial_json": text}}
                    yield {"type": "content_block_stop", "index": i}
            else:
                yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Done."}}
                yield {"type": "content_block_stop", "index": 0}
            yield {"type": "message_stop"}

        messages = converse(self.yard, client_of(model), messages=[{"role": "user", "content": "Look around."}])
        self.assertEqual([(b["type"], b["id"], b["input"]) for b in messages[1]["content"]],
                         [("tool_use", "one", {}), ("tool_use", "two", {}), ("tool_use", "three", {"pattern": "N*"})])
        self.assertEqual([r["tool_use_id"] for r in messages[2]["content"]], ["one", "two", "three"])

    def test_options_of_one_batch(self):
        with self.assertRaises(TypeError):
            converse(self.yard, self.client, model="m", max_tokens=100, options={"id": "b"}, messages=[])

    def test_openai(self):
        items = openai.converse(self.yard, self.client, model="m", input=[{"role": "user", "content": "Look around."}])
        self.assertEqual(items[-1]["content"][0]["text"], "Done.")
        self.assertEqual(len(items), 8)

    def test_openai_chat(self):
        messages = openai.converse_chat(self.yard, self.client, model="m",
                                        messages=[{"role": "user", "content": "Look around."}])
        self.assertEqual(messages[-1], {"role": "assistant", "content": "Done."})
        self.assertEqual(len(messages), 6)

    def test_a_chat_message_that_says_nothing(self):
        """A model may end with neither words nor calls. The API refuses a message without content where it has no
        calls, and with it each further request of the conversation."""
        def model(**_):
            yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}]}
            yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}

        said = [{"role": "user", "content": "Look around."}]
        messages = openai.converse_chat(self.yard, client_of(model), model="m", messages=said)
        self.assertEqual(messages, [*said, {"role": "assistant", "content": ""}])
        with_calls = openai.ChatMessage()
        with_calls.take({"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a"}]}}]})
        self.assertIsNone(with_calls.as_param()["content"])  # which is as the API writes it

    def test_calls_of_other_servers(self):
        """Some servers of Chat Completions give all calls one index, or none, and add fields that they want back.
        Others have the id and the type in each part of a call, empty in all but the first."""
        signed = {"google": {"thought_signature": "s"}}
        for index, empty in (({"index": 0}, {}), ({}, {}), ({"index": 0}, {"id": "", "type": ""})):
            def model(messages, index=index, empty=empty, **_):
                if len(messages) > 1:
                    yield {"choices": [{"index": 0, "delta": {"content": "Done."}, "finish_reason": "stop"}]}
                    return
                for id, name, input in CALLS:
                    call = {**index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                    yield {"choices": [{"index": 0, "delta": {"tool_calls": [{**call, "extra_content": signed}]}}]}
                    rest = {**index, **empty, "function": {"arguments": json.dumps(input)}}
                    yield {"choices": [{"index": 0, "delta": {"tool_calls": [rest]}}]}
                yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}

            with self.subTest(index, empty=empty):
                messages = openai.converse_chat(self.yard, client_of(model), model="m",
                                                messages=[{"role": "user", "content": "Look around."}])
                calls = messages[1]["tool_calls"]
                self.assertEqual([(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
                                  for c in calls], CALLS)
                self.assertEqual([m["tool_call_id"] for m in messages[2:5]], [c["id"] for c in calls])
                self.assertEqual([(c["type"], c["extra_content"]) for c in calls], [("function", signed)] * 3)

    def test_asynchronous(self):
        async def main():
            client = stand_in(self.url, asynchronous=True)
            said = [{"role": "user", "content": "Look around."}]
            async with AsyncToolyard(URL) as yard:
                a, o, c = await asyncio.gather(
                    aconverse(yard, client, model="m", max_tokens=100, messages=said),
                    openai.aconverse(yard, client, model="m", input=said),
                    openai.aconverse_chat(yard, client, model="m", messages=said))
            self.assertEqual((len(a), len(o), len(c)), (4, 8, 6))

        asyncio.run(main())

    def test_a_model_that_fails(self):
        """Half a response is an error: it is no end of a conversation, and nothing to send back to a model."""
        text = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "I lo"}}
        failed = {"type": "response.failed", "response": {"id": "r", "output": [], "error": {"message": "overloaded"}}}
        message = {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": {}}}
        said = [{"role": "user", "content": "Look around."}]
        for name, adapter, aadapter, field, events in (
                ("anthropic", converse, aconverse, "messages", [message, text]),
                ("anthropic", converse, aconverse, "messages", list(anthropic_turn_of(said))[:-2]),
                ("openai", openai.converse, openai.aconverse, "input", list(responses_turn_of(said))[:-1]),
                ("openai", openai.converse, openai.aconverse, "input", [failed]),
                ("openai-chat", openai.converse_chat, openai.aconverse_chat, "messages", list(chat_turn_of(said))[:-1])):
            for ends in (True, False):  # by itself, or with an error
                def model(events=events, ends=ends, **asked):
                    assert asked.get("messages", asked.get("input", said)) == said, "half a response is sent back"
                    yield from events
                    if not ends:
                        raise RuntimeError("the model is gone")

                async def amodel(events=events, ends=ends, **asked):
                    async def again():
                        for e in model(events, ends, **asked):
                            yield e
                    return again()

                # The server answers a model that says that it failed at once: nobody may read what it raises after that.
                either = (ToolyardError, RuntimeError) if events == [failed] else RuntimeError
                raises = ToolyardError if ends else either
                with self.subTest(name, n=len(events), ends=ends):
                    with self.assertRaises(raises):
                        adapter(self.yard, client_of(model), model="m", **{field: said})

                    async def main():
                        async with AsyncToolyard(URL) as yard:
                            await aadapter(yard, client_of(amodel), model="m", **{field: said})

                    with self.assertRaises(raises):
                        asyncio.run(main())

    def test_langchain(self):
        class StructuredTool:
            @classmethod
            def from_function(cls, func=None, coroutine=None, *, name, description, args_schema, infer_schema):
                assert args_schema["type"] == "object" and description and not infer_schema
                return types.SimpleNamespace(name=name, func=func, coroutine=coroutine)

        tools = {t.name: t for t in langchain_tools(self.yard, StructuredTool, {"session": "py-langchain-" + RUN})}
        with ThreadPoolExecutor(3) as pool:
            outputs = list(pool.map(lambda p: tools["glob"].func(pattern=p), ["*.md", "R*", "N*"]))
        self.assertIn("NOTES.md", outputs[0])
        self.assertEqual(sum(self.sizes("py-langchain-" + RUN, 3)), 3)
        denied = langchain_tools(self.yard, StructuredTool, {"options": {"deny": ["glob"]}})
        self.assertNotIn("glob", [t.name for t in denied], "what the batches deny is not offered")
        with self.assertRaisesRegex(ToolFailed, "pattern"):
            tools["glob"].func(nothing=1)

        async def main():
            async with AsyncToolyard(URL) as yard:
                tools = await alangchain_tools(yard, StructuredTool, {"session": "py-alangchain-" + RUN})
                [tool] = [t for t in tools if t.name == "glob"]
                return await asyncio.gather(*(tool.coroutine(pattern=p) for p in ["*.md", "R*", "N*"]))

        self.assertIn("README.md", asyncio.run(main())[1])
        self.assertEqual(self.sizes("py-alangchain-" + RUN, 3), [3], "calls that are started at once are one batch")


if __name__ == "__main__":
    unittest.main()
