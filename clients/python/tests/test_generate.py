"""What writes the types."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import generate


class Generate(unittest.TestCase):
    def test_names_that_python_does_not_take(self):
        text = {"type": "string"}
        self.assertIn("    class_: NotRequired[str]", generate.generate({"T": {"properties": {"class_": text}}}))
        for schemas in ({"T": {"properties": {"from": text}}}, {"T": {"properties": {"a-b": text}}},
                        {"None": text}, {"class": {"properties": {"a": text}}}):
            with self.subTest(schemas), self.assertRaisesRegex(ValueError, "no name in Python"):
                generate.generate(schemas)
