#!/usr/bin/env python3
"""An agent with OpenAI's SDK, on the Responses API, whose tools run on a Toolyard pool.

    pip install openai toolyard
    dispatcher serve --with-worker --workspace default=.
    python3 turn_openai.py "What is in this directory?"

TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.
"""

import os
import sys

from openai import OpenAI
from toolyard import Toolyard
from toolyard.openai import converse

yard = Toolyard(os.environ.get("TOOLYARD_URL", "http://127.0.0.1:8080"), token=os.environ.get("TOOLYARD_TOKEN"))
asked = [{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "What is in this directory?"}]
model = os.environ.get("OPENAI_MODEL", "gpt-5.2")
said = converse(yard, OpenAI(), model=model, input=asked, options={"session": "s-1"})
print(said[-1])
