"""The client against a real dispatcher with a worker: TOOLYARD_URL is where it is."""

import asyncio
import http.server
import json
import os
import socket
import struct
import threading
import types
import unittest
import uuid
from unittest import mock
from urllib.parse import parse_qs, urlsplit

from toolyard import AsyncToolyard, LostError, Stop, Stopped, Toolyard, ToolyardError
from toolyard import limits
from toolyard._gather import AsyncGatherer
from toolyard._http import Transport, read_events
from toolyard import anthropic, openai

# How long a test waits for what should be there at once, in seconds.
PATIENCE = 60

URL = os.environ["TOOLYARD_URL"]


def glob(id):
    return {"id": id, "tool": "glob", "input": {"pattern": "*.md"}}


class Proxy:
    """Cuts its first connections after so many bytes of the answer."""

    def __init__(self, cuts):
        self.made = 0
        self._cuts = cuts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        while True:
            try:
                down, _ = self._listener.accept()
            except OSError:
                return
            left = self._cuts[self.made] if self.made < len(self._cuts) else float("inf")
            self.made += 1
            at = urlsplit(URL)
            up = socket.create_connection((at.hostname, at.port))
            for pipe, most in (((down, up), float("inf")), ((up, down), left)):
                threading.Thread(target=self._pipe, args=(*pipe, most), daemon=True).start()

    def _pipe(self, source, target, left):
        try:
            while left > 0 and (data := source.recv(4096)):
                data = data if len(data) <= left else data[: int(left)]
                left -= len(data)
                target.sendall(data)
        except OSError:
            pass
        for s in (source, target):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            if left <= 0 or s is target:
                s.close()


class Silence:
    """A server that begins one answer after the other, and goes on when it is told to. It keeps the requests."""

    def __init__(self, *answers):
        self.begun, self.go_on = threading.Semaphore(0), threading.Event()
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.go_on.set()
        self._listener.close()

    def _accept(self):
        for answer in self._answers:
            try:
                s, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(s, answer), daemon=True).start()

    def _talk(self, s, answer):
        with s:
            while b"\r\n\r\n" not in s.recv(65536):
                pass
            s.sendall(answer)
            self.begun.release()
            self.go_on.wait()


class Answers:
    """A server that gives one answer after the other, and keeps the headers, queries and bodies of the requests."""

    def __init__(self, *answers):
        self.seen = seen = []
        self.asked, self.sent = asked, sent = [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                sent.append(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                seen.append(self.headers)
                asked.append(parse_qs(urlsplit(self.path).query))
                answer = answers[len(seen) - 1]
                if answer is None:
                    return
                status, headers, body = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body.encode())

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.yard = Toolyard(f"http://127.0.0.1:{self.server.server_port}", token="t")

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def problem(status, **headers):
    return status, {"Content-Type": "application/problem+json", **headers}, json.dumps(
        {"type": "urn:toolyard:problem:full", "title": "", "status": status, "detail": "no room"})


def sse(body):
    return 200, {"Content-Type": "text/event-stream"}, body


def result(index):
    return f'id: {index}\nevent: result\ndata: {{"index": {index}}}\n\n'


def use(i, id, input_):
    yield {"type": "content_block_start", "index": i,
           "content_block": {"type": "tool_use", "id": id, "name": "glob", "input": {}}}
    yield {"type": "content_block_delta", "index": i,
           "delta": {"type": "input_json_delta", "partial_json": json.dumps(input_)}}
    yield {"type": "content_block_stop", "index": i}


class Client(unittest.TestCase):
    def setUp(self):
        self.yard = Toolyard(URL)

    def proxy(self, cuts):
        p = Proxy(cuts)
        self.addCleanup(p.close)
        return p

    def answers(self, *answers):
        a = Answers(*answers)
        self.addCleanup(a.close)
        return a

    def test_what_is_repeated(self):
        a = self.answers(None, problem(429, **{"Retry-After": "0"}), problem(503), (202, {}, "{}"))
        self.assertEqual(len(a.yard.submit({"calls": [glob("a")]}).id), 36)
        self.assertEqual([h["Authorization"] for h in a.seen], ["Bearer t"] * 4)
        with self.assertRaisesRegex(ToolyardError, "^no room$") as e:
            self.answers(problem(403)).yard.workers()
        self.assertEqual(e.exception.status, 403)
        for what, do in {"a decision": lambda y: y.decide("x", {"decision": "deny"}),
                         "an interrupt": lambda y: y.interrupt("s"), "a resolve": lambda y: y.resolve("s")}.items():
            once = self.answers(None, (202, {}, '{"batches": 0, "calls": 0}'))
            with self.assertRaises(LostError):
                do(once.yard)
            self.assertEqual(len(once.seen), 1, what + " is not repeated")

    def test_what_was_not_sent_is_repeated(self):
        """A server that starts again is waited for, also with what is not repeated once it was sent."""
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.close()
        yard = Toolyard(f"http://127.0.0.1:{port}", max_retries=1)
        refused = []
        connect = http.client.HTTPConnection.connect
        with mock.patch("http.client.HTTPConnection.connect", lambda c: refused.append(1) or connect(c)):
            with self.assertRaises(LostError):
                yard.interrupt("s")
        self.assertEqual(len(refused), 2)

    def test_a_decision_names_the_input_that_was_shown(self):
        """A no as well as a yes: the call may ask something else by now."""
        a = self.answers(*[(200, {}, "{}")] * 5)
        shown = {"id": "x", "input_sha256": "aa"}
        for decision in ({"decision": "allow"}, {"decision": "deny"}, {"decision": "allow", "input_sha256": None},
                         {"decision": "deny", "input_sha256": "bb"}):
            a.yard.decide(shown, decision)
        a.yard.decide("x", {"decision": "deny"})
        self.assertEqual([json.loads(b).get("input_sha256") for b in a.sent], ["aa", "aa", "aa", "bb", None])

    def test_none_is_left_out(self):
        """What is None is as if it were not there: a batch has an id of its own, and the agent is the client's."""
        done = sse("event: completed\ndata: {}\n\n")
        a = self.answers(None, (202, {}, "{}"), sse(""), done, (200, {}, "[]"), (200, {}, '{"batches": []}'))
        yard = Toolyard(a.yard._http.url, agent="me")
        batch = yard.submit({"id": None, "agent": None, "calls": [glob("a")]})
        self.assertEqual((len(batch.id), batch.agent), (36, "me"))
        answer = yard.stream("anthropic", [], id=None, agent=None)
        self.assertEqual(list(answer), [])
        self.assertEqual([q["id"] for q in a.asked[2:4]], [[answer.id]] * 2, "the same batch again")
        yard.tools("anthropic", agent=None)
        self.assertEqual(list(yard.batches(agent=None)), [])
        self.assertEqual([q["agent"] for q in a.asked[2:]], [["me"]] * 4)
        a = self.answers((202, {}, "{}"), None, (200, {}, '{"first": 0}'))
        a.yard.open().append({"id": None, "tool": "glob"}, {"id": "", "tool": "glob"})
        self.assertEqual([len(c["id"]) for c in json.loads(a.sent[1])["calls"]], [41, 41])
        self.assertEqual(a.sent[1], a.sent[2], "the same calls again")

    def test_a_stream_goes_on_behind_its_last_event(self):
        a = self.answers(
            sse(result(0) + "event: behind\ndata: {}\n\n"), sse(": hello\n\n"), problem(503),
            sse(result(1) + 'event: problem\ndata: {"status": 503, "detail": ""}\n\n'), None,
            sse(result(2) + "id: 3\nevent: completed\ndata: {}\n\n"))
        self.assertEqual([r["index"] for r in a.yard.batch("b").results()], [0, 1, 2])
        self.assertEqual([h["Last-Event-ID"] for h in a.seen], [None, "0", "0", "0", "1", "1"])
        gone = self.answers(sse('event: problem\ndata: {"status": 500, "detail": "it is damaged"}\n\n'))
        with self.assertRaisesRegex(ToolyardError, "it is damaged"):
            list(gone.yard.batch("b").results())

    def test_a_quiet_stream_may_be_cut_as_often_as_it_takes(self):
        """The results of a batch that waits come at last, also through a proxy that ends each connection after a while.
        Connections that end at once are given up."""
        quiet, done = sse(": still here\n\n"), sse("event: completed\ndata: {}\n\n")
        reads = {"results": lambda y: list(y.batch("b").results()), "stream": lambda y: list(y.stream("anthropic", []))}
        for what, read in reads.items():
            with self.subTest(what):
                with mock.patch.object(limits, "LONGEST_RETRY", 0):  # so that each connection was there for a while
                    self.assertEqual(read(self.answers(*[quiet] * 12, done).yard), [])
                a = self.answers(*[quiet] * 12, done)
                with mock.patch.object(limits, "FIRST_RETRY", 0), self.assertRaises(LostError):
                    read(a.yard)
                self.assertEqual(len(a.seen), limits.MAX_RETRIES + 1)

    def test_an_answer_that_is_cut(self):
        """Half an answer is no answer, also if it is an error: the request is repeated."""
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n" + b'{"workers": []}'
        cut = b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n"
        s = Silence(cut, cut + b'{"wor', whole)
        self.addCleanup(s.close)
        s.go_on.set()
        self.assertEqual(Toolyard(s.url).workers(), [])
        told = problem(404)[2].encode()
        head = b"HTTP/1.1 404 \r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\n\r\n" % len(told)
        for cut in head, head + told[:20]:
            for what, do in {"an answer": lambda y: y.workers(), "a stream": lambda y: list(y.batch("b").results()),
                             "a model's stream": lambda y: y.stream("anthropic", ["x"]).reply()}.items():
                s = Silence(cut, head + told)
                self.addCleanup(s.close)
                s.go_on.set()
                with self.subTest(what, cut=cut), self.assertRaisesRegex(ToolyardError, "^no room$") as e:
                    do(Toolyard(s.url))
                self.assertEqual(e.exception.type, "urn:toolyard:problem:full", what)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def reset():
                for _ in range(2):
                    s, _ = listener.accept()
                    s.recv(65536)
                    s.sendall(b"HTTP/1.1 503 \r\nContent-Length: 100\r\n\r\nhalf")
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    s.close()

            threading.Thread(target=reset, daemon=True).start()
            yard = Toolyard(f"http://127.0.0.1:{listener.getsockname()[1]}", max_retries=1)
            with self.assertRaises((LostError, ToolyardError)):
                list(yard.batch("b").results())

    def test_another_server(self):
        """What answers with a page is no Toolyard server, and the error says so."""
        a = self.answers((200, {"Content-Type": "text/html"}, "<!doctype html>"))
        with self.assertRaisesRegex(ToolyardError, f"{a.yard._http.url}.*no JSON"):
            a.yard.workers()

    def test_stop(self):
        """A stream ends when it is told to, though its server says nothing."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + result(0).encode()
        for what in ("results", "stream"):
            with self.subTest(what):
                s = Silence(head)
                self.addCleanup(s.close)
                yard, stop, begun, ended = Toolyard(s.url), Stop(), threading.Event(), []
                if what == "stream":
                    answer = yard.stream("anthropic", [])
                    items, end = iter(answer), answer.close
                else:
                    items, end = yard.batch("b").results(stop), stop.set

                def read(items=items, begun=begun, ended=ended):
                    try:
                        for _ in items:
                            begun.set()
                    except Stopped as e:
                        ended.append(e)

                reading = threading.Thread(target=read, daemon=True)
                reading.start()
                self.assertTrue(begun.wait(PATIENCE))
                end()
                reading.join(PATIENCE)
                self.assertEqual(len(ended), 1)

    def test_submit(self):
        batch = self.yard.submit({"session": "py", "calls": [glob("a"), {"id": "b", "tool": "nothing"}, glob("c")]})
        results = list(batch.results())
        self.assertEqual([(r["index"], r["call_id"], r["code"]) for r in results],
                         [(0, "a", ""), (1, "b", "unknown_tool"), (2, "c", "")])
        self.assertIn("README.md", results[0]["output"])
        self.assertEqual(batch.done()["status"], "completed")
        self.assertEqual(len(batch.get()["results"]), 3)
        reply = batch.reply("anthropic")
        self.assertEqual([c["tool_use_id"] for c in reply["content"]], ["a", "b", "c"])
        self.assertEqual(next(iter(batch.events()))["type"], "dev.toolyard.batch.submitted.v1")
        while batch.id not in [b["id"] for b in self.yard.batches(session="py", limit=1)]:
            pass  # the list may lag behind for a moment

    def test_mistakes(self):
        with self.assertRaises(ToolyardError) as e:
            self.yard.submit({"calls": [glob("x"), glob("x")]})
        self.assertEqual((e.exception.status, e.exception.type, e.exception.field),
                         (400, "urn:toolyard:problem:input", "calls[1].id"))
        with self.assertRaises(ToolyardError) as e:
            list(self.yard.batch("none").results())
        self.assertEqual(e.exception.status, 404)
        with self.assertRaises(ValueError):
            Toolyard("ftp://127.0.0.1")

    def test_ports_that_are_not_given(self):
        for url, port in (("http://[::1]", 80), ("https://[::1]/base", 443), ("http://[::1]:8080", 8080)):
            connection = Transport(url, None, 0).connect(1)
            self.assertEqual((connection.host, connection.port), ("::1", port), url)

    def test_results_resume(self):
        p = self.proxy([40, 5000, 60, 9000, 120])
        calls = [glob(f"g{i}") for i in range(12)]
        batch = Toolyard(p.url).submit({"calls": calls})
        self.assertEqual([r["call_id"] for r in batch.results()], [c["id"] for c in calls])
        self.assertGreater(p.made, 5)
        self.assertEqual(len(self.yard.batch(batch.id).done()["results"]), 12)

    def test_open(self):
        batch = self.yard.open({"session": "py"})
        self.assertEqual(batch.append(glob("first")), 0)
        results = batch.results()
        self.assertEqual(next(results)["call_id"], "first")
        self.assertEqual(batch.append(glob("second"), {"tool": "glob", "input": {"pattern": "*.none"}}), 1)
        batch.close()
        self.assertEqual(len(list(results)), 2)
        with self.assertRaises(ToolyardError) as e:
            batch.append(glob("late"))
        self.assertEqual(e.exception.type, "urn:toolyard:problem:closed")

    def test_progress(self):
        batch = self.yard.open()
        reports = []
        reading = threading.Thread(target=lambda: reports.extend(batch.progress()))
        reading.start()
        batch.append({"id": "p", "tool": "bash",
                      "input": {"command": "for i in 1 2 3; do echo line $i; sleep 0.3; done"}})
        batch.close()
        reading.join()
        self.assertTrue([r for r in reports if r["event"] == "progress" and r["call_id"] == "p"], reports)

    def test_cancel(self):
        batch = self.yard.submit({"calls": [{"id": "long", "tool": "bash", "input": {"command": "sleep 60"}}]})
        self.assertEqual(batch.cancel("not needed")["id"], batch.id)
        result = next(batch.results())
        self.assertEqual(result["code"], "canceled")
        self.assertIn("not needed", result["error"])

    def test_approvals(self):
        batch = self.yard.submit({"session": str(uuid.uuid4()), "interactive": True, "calls": [glob("ask")],
                                  "options": {"ask": ["glob"]}})
        waits = []
        while not waits:
            waits = [a for a in self.yard.approvals() if a["batch"] == batch.id]
        self.yard.decide(waits[0], {"decision": "allow", "reason": "go on"})
        self.assertEqual(next(batch.results())["code"], "")
        with self.assertRaises(ToolyardError):
            self.yard.decide(waits[0], {"decision": "allow"})

    def test_sessions_tools_workers(self):
        self.assertTrue(self.yard.update_session("py-alone", {"alone": True})["alone"])
        self.assertTrue(self.yard.session("py-alone")["alone"])
        self.assertEqual(self.yard.interrupt("py-alone", "stop"), 0)
        self.assertEqual(self.yard.resolve("py-alone", "stop"), {"batches": 0, "calls": 0})
        for form in ("anthropic", "openai", "openai-chat", "mcp"):
            tools = self.yard.tools(form)
            self.assertGreater(len(tools), 5)
            self.assertEqual(self.yard.tools(form), tools, "nothing has changed, so it is the same list")
        self.assertEqual(len(self.yard.workers()), 1)

    def test_tools_are_the_callers(self):
        """Who adds tools of its own to a list, or marks one, changes nothing of the next list."""
        a = self.answers((200, {"ETag": '"1"'}, '[{"name": "glob"}]'), *[(304, {"ETag": '"1"'}, "")] * 2)
        for _ in range(3):
            tools = a.yard.tools("anthropic")
            self.assertEqual(tools, [{"name": "glob"}])
            tools[0]["cache_control"] = {"type": "ephemeral"}
            tools.append({"name": "own"})
        self.assertEqual([h["If-None-Match"] for h in a.seen], [None, '"1"', '"1"'])

    def test_names_of_dots(self):
        for name in (".", ".."):
            batch = self.yard.submit({"id": name, "session": name, "calls": [glob("a")]})
            self.assertEqual([r["call_id"] for r in batch.results()], ["a"])
            self.assertEqual(batch.get()["id"], name)
            self.assertFalse(self.yard.session(name)["alone"])

    def test_report(self):
        self.yard.submit({"calls": [{"id": "r", "tool": "no_such_tool", "input": {}}]}).done()
        report = self.yard.report(since="1h")
        self.assertGreaterEqual(report["calls"]["total"], 1)
        self.assertIn("unknown_tool", [c["code"] for c in report["codes"]])
        self.assertEqual(self.yard.report(since="2001-01-01T00:00:00Z", until="1h")["calls"]["total"], 0)

    def test_blob(self):
        batch = self.yard.submit({"calls": [{"id": "long", "tool": "bash", "input": {"command": "seq 1 100000"}}]})
        result = batch.done()["results"][0]
        self.assertTrue(result["truncated"])
        self.assertIn("99999\n100000", "".join(self.yard.blob(result["blob"])))

    def test_stream(self):
        first = threading.Event()

        def model():
            yield from use(0, "one", {"pattern": "*.md"})
            first.wait()  # the model goes on when the first result is there
            yield from use(1, "two", {"pattern": "*.none"})
            yield b'data: {"type": "message_stop"}\n\n'

        answer = self.yard.stream("anthropic", model(), session="py")
        seen = []
        for e in answer:
            if e["event"] == "result":
                seen.append(e["result"]["call_id"])
                first.set()
        self.assertEqual(seen, ["one", "two"])
        self.assertEqual([c["tool_use_id"] for c in answer.reply()["content"]], ["one", "two"])

    def test_stream_is_cut(self):
        p = self.proxy([2500, 4500])

        def model():
            for i in range(6):
                yield from use(i, f"c{i}", {"pattern": "*.md"})
            yield {"type": "message_stop"}

        answer = Toolyard(p.url).stream("anthropic", model())
        seen = [r["call_id"] for r in answer.results()]
        self.assertEqual(len(answer.reply()["content"]), 6, "each call of the response has one answer")
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual(p.made, 3)
        self.assertEqual([r["call_id"] for r in self.yard.batch(answer.id).done()["results"]], seen)

    def test_stream_of_text(self):
        self.assertIsNone(self.yard.stream("anthropic", [{"type": "message_start", "message": {"content": []}},
                                                         {"type": "message_stop"}]).reply())

    def test_a_model_that_fails(self):
        def model():
            yield from use(0, "one", {"pattern": "*.md"})
            raise RuntimeError("the model is gone")

        answer = self.yard.stream("anthropic", model())
        events = list(answer)
        self.assertEqual([e["event"] for e in events if e["event"] == "cut"], ["cut"])
        self.assertEqual(answer.reply()["content"][0]["tool_use_id"], "one")

    def test_a_reply_that_is_not_known(self):
        """That a response had no call is said only of one that was read whole."""

        def model():
            yield {"type": "message_start", "message": {"content": []}}
            raise RuntimeError("the model is gone")

        with self.assertRaisesRegex(RuntimeError, "the model is gone"):
            self.yard.stream("anthropic", model()).reply()
        answer = self.answers(problem(403)).yard.stream("anthropic", [])
        with self.assertRaises(ToolyardError):
            list(answer)
        with self.assertRaises(ToolyardError):
            answer.reply()

    def test_events_in_any_pieces(self):
        data = ": hello\r\nid: 1\r\nevent: a\r\ndata: ü\r\ndata:2\r\n\r\nevent: b\ndata: 3\n\ndata: 4\r\rid: 9\n".encode()
        for size in range(1, len(data)):
            pieces = iter([data[i:i + size] for i in range(0, len(data), size)] + [b""])
            self.assertEqual([(e.id, e.name, e.data) for e in read_events(lambda: next(pieces))],
                             [("1", "a", "ü\n2"), (None, "b", "3"), (None, "message", "4")], size)


class Endless:
    """A model's stream that goes on until it is closed."""

    closed = False

    def __iter__(self):
        while not self.closed:
            yield {"type": "ping"}

    async def __aiter__(self):
        while not self.closed:
            yield {"type": "ping"}
            await asyncio.sleep(0)

    def close(self):
        self.closed = True


class AsyncEndless(Endless):
    async def close(self):
        self.closed = True


class Refused(unittest.TestCase):
    def test_the_models_stream_is_ended(self):
        """Who converses does not see the model's stream, so nobody else could end it."""
        for name, turn, aturn, field in (("anthropic", anthropic.converse, anthropic.aconverse, "messages"),
                                         ("openai", openai.converse, openai.aconverse, "input"),
                                         ("openai-chat", openai.converse_chat, openai.aconverse_chat, "messages")):
            with self.subTest(name):
                streams = [Endless(), AsyncEndless()]

                async def acreate(**_):
                    return streams[1]

                def client(create):
                    made = types.SimpleNamespace(create=create)
                    return types.SimpleNamespace(messages=made, responses=made,
                                                 chat=types.SimpleNamespace(completions=made))

                a = Answers((200, {}, "[]"), problem(403), (200, {}, "[]"), problem(403))
                self.addCleanup(a.close)
                with self.assertRaises(ToolyardError):
                    turn(a.yard, client(lambda **_: streams[0]), **{field: []})

                async def main():
                    async with AsyncToolyard(a.yard._http.url) as yard:
                        await aturn(yard, client(acreate), **{field: []})

                with self.assertRaises(ToolyardError):
                    asyncio.run(main())
                self.assertEqual([s.closed for s in streams], [True, True])


class Gathered(unittest.TestCase):
    def test_calls_in_the_loop_after_one_that_ended(self):
        async def given_up(gatherer):
            call = asyncio.ensure_future(gatherer.call("glob", {"pattern": "*.none"}))
            await asyncio.sleep(0)
            call.cancel()

        async def answered(gatherer):
            return await asyncio.wait_for(gatherer.call("glob", {"pattern": "*.md"}), PATIENCE)

        gatherer = AsyncGatherer(AsyncToolyard(URL), {})
        asyncio.run(given_up(gatherer))
        self.assertIn("README.md", asyncio.run(answered(gatherer))["output"])

    def test_calls_that_were_given_up_are_not_submitted(self):
        async def calls(gatherer):
            given_up = asyncio.ensure_future(gatherer.call("write_file", {"file_path": "no.txt", "content": ""}))
            await asyncio.sleep(0)
            given_up.cancel()
            with mock.patch.object(gatherer._yard, "submit", wraps=gatherer._yard.submit) as submit:
                await asyncio.wait_for(gatherer.call("glob", {"pattern": "*.md"}), PATIENCE)
            return [[c["tool"] for c in submission["calls"]] for (submission,), _ in submit.call_args_list]

        self.assertEqual(asyncio.run(calls(AsyncGatherer(AsyncToolyard(URL), {}))), [["glob"]])


class Asynchronous(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.yard = AsyncToolyard(URL)
        self.addCleanup(self.yard.close)

    async def test_batches(self):
        batches = await asyncio.gather(*(self.yard.submit({"calls": [glob("a"), glob("b")]}) for _ in range(10)))

        async def ids(b):
            return [r["call_id"] async for r in b.results()]

        self.assertEqual(await asyncio.gather(*map(ids, batches)), [["a", "b"]] * 10)
        self.assertEqual((await batches[0].reply("openai"))[1]["call_id"], "b")

    async def test_open_and_progress(self):
        batch = await self.yard.open()
        results = batch.results()
        await batch.append({"id": "p", "tool": "bash", "input": {"command": "sleep 60"}})
        waiting = asyncio.ensure_future(anext(results))
        await batch.cancel("enough")
        self.assertEqual((await waiting)["code"], "canceled")
        await batch.close()
        await results.aclose()

    async def test_stream(self):
        first = asyncio.Event()

        async def model():
            for e in use(0, "one", {"pattern": "*.md"}):
                yield e
            await first.wait()
            for e in use(1, "two", {"pattern": "*.none"}):
                yield e
            yield {"type": "message_stop"}

        answer = self.yard.stream("anthropic", model())
        seen = []
        async for e in answer:
            if e["event"] == "result":
                seen.append(e["result"]["call_id"])
                first.set()
        self.assertEqual(seen, ["one", "two"])
        self.assertEqual(len((await answer.reply())["content"]), 2)

    async def test_streams_in_all_threads(self):
        """A model that is faster than its stream is sent goes on when each thread reads an answer."""

        async def model():
            text = "".join(f"data: {json.dumps(e)}\n\n" for e in use(0, "one", {"pattern": "*.md"}))
            for letter in text:
                yield letter
            yield {"type": "message_stop"}

        with mock.patch.object(limits, "MAX_THREADS", 1), mock.patch.object(limits, "MAX_AHEAD", 1):
            yard = AsyncToolyard(URL)
            self.addCleanup(yard.close)
            reply = await asyncio.wait_for(yard.stream("anthropic", model()).reply(), PATIENCE)
        self.assertEqual([c["tool_use_id"] for c in reply["content"]], ["one"])

    async def test_leaving(self):
        """Whoever leaves a stream ends it, and other streams go on."""
        batch = await self.yard.open()
        await batch.append(glob("one"))
        results = batch.results()
        await anext(results)
        waiting = asyncio.ensure_future(anext(results))
        await asyncio.sleep(0)
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        again = batch.results()
        self.assertEqual((await anext(again))["call_id"], "one")
        await batch.close()
        with self.assertRaises(StopAsyncIteration):
            await anext(again)

    async def test_giving_up(self):
        """Whoever gives up a wait or leaves a stream frees its thread."""
        s = Silence(b"", b"HTTP/1.1 200 OK\r\n\r\n" + result(0).encode())
        self.addCleanup(s.close)
        with mock.patch.object(limits, "MAX_THREADS", 1):
            yard = AsyncToolyard(s.url)
        self.addCleanup(yard.close)
        waiting = asyncio.ensure_future(yard.batch("b").done())
        self.assertTrue(await asyncio.to_thread(s.begun.acquire, timeout=PATIENCE))
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        results = yard.batch("b").results()
        await anext(results)
        waiting = asyncio.ensure_future(anext(results))
        await asyncio.sleep(0)  # it begins
        waiting.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await waiting
        await asyncio.wait_for(yard._threads.run(int), PATIENCE)  # there is one thread, and nothing has it

    async def test_watch(self):
        happenings = self.yard.watch()
        watching = asyncio.ensure_future(anext(happenings))
        while not watching.done():  # what happens before the stream has begun is not told
            await (await self.yard.submit({"calls": [glob("w")]})).done()
        self.assertTrue((await watching)["event"]["type"].startswith("dev.toolyard."))
        await happenings.aclose()


if __name__ == "__main__":
    unittest.main()
