"""Calls the tools of the batch. Each call is checked, permitted and logged like one of the model."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

_ADDRESS = ("127.0.0.1", @PORT@)
_AT_ONCE = @AT_ONCE@
_NO_ANSWER = "no answer: too many connections at a time, or the script is ending"


class ToolError(Exception):
    """A call failed. code is the failure's code, and the text what a model would read."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def call(*tool, **input):
    """Calls a tool, the only argument without a name, and returns its output as a text. It raises ToolError."""
    if not tool and "name" in input:
        tool = (input.pop("name"),)
    if len(tool) != 1:
        raise TypeError("call takes the tool's name, and each field of its input by name")
    return call_with(tool[0], input)


def call_with(name, input):
    """As call, with the input as a dictionary."""
    data = json.dumps(input).encode()
    try:
        return _exchange(name, data)
    except OSError as error:
        raise ToolError("internal_error", _NO_ANSWER) from error


def _exchange(name, data):
    with socket.create_connection(_ADDRESS) as conn:
        conn.sendall(name.encode() + b" " + str(len(data)).encode() + b"\n" + data)
        with conn.makefile("rb") as answer:
            head = answer.readline().decode().split()
            if len(head) != 2:
                raise ToolError("internal_error", _NO_ANSWER)
            text = answer.read(int(head[1])).decode(errors="replace")
    if head[0] != "ok":
        raise ToolError(head[0], text)
    return text


def parallel(*calls):
    """Makes several calls at a time, each a name and a dictionary, and returns their outputs in order.

    What failed is in its place as a ToolError, and not raised.
    """

    def one(pair):
        try:
            return call_with(*pair)
        except ToolError as error:
            return error

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        return list(pool.map(one, calls))
