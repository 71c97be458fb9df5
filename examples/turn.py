#!/usr/bin/env python3
"""An agent with Anthropic's SDK whose tools run on a Toolyard pool.

    pip install anthropic toolyard
    dispatcher serve --with-worker --workspace default=.
    python3 turn.py "What is in this directory?"

TOOLYARD_URL (default http://127.0.0.1:8080) says where the server is, TOOLYARD_TOKEN is a token if it wants one.
"""

import os
import sys

from anthropic import Anthropic
from toolyard import Toolyard
from toolyard.anthropic import converse

yard = Toolyard(os.environ.get("TOOLYARD_URL", "http://127.0.0.1:8080"), token=os.environ.get("TOOLYARD_TOKEN"))
messages = [{"role": "user", "content": sys.argv[1] if len(sys.argv) > 1 else "What is in this directory?"}]
model = os.environ.get("ANTHROPIC_MODEL", "claude-sonnet-5-5")
said = converse(yard, Anthropic(), model=model, max_tokens=4096, messages=messages, options={"session": "s-1"})
print(said[-1]["content"])
