"""Sends what the request types of the official packages `anthropic` and `openai`
document, field by field and value by value, to the readers of /v1/messages and
/v1/responses: each is taken, with nothing ignored, or refused by its name.

python block_types_test.py BLOCK_TRANSCRIPTS"""

import collections.abc
import inspect
import json
import os
import re
import subprocess
import sys
import types
import typing
import unittest

import typing_extensions as te
from anthropic.types import message_count_tokens_params, message_create_params
from openai.types.responses import input_token_count_params, response_create_params

PROGRAM = sys.argv.pop(1)
DEPTH = 9
ENDPOINTS = {
    "POST /v1/messages": [message_create_params.MessageCreateParamsNonStreaming,
                          message_create_params.MessageCreateParamsStreaming],
    "POST /v1/messages/count_tokens": [message_count_tokens_params.MessageCountTokensParams],
    "POST /v1/responses": [response_create_params.ResponseCreateParamsNonStreaming,
                           response_create_params.ResponseCreateParamsStreaming],
}
# Where a value must be more than its type says.
SAMPLES = {
    "model": ["tiny"],
    "max_tokens": [16],
    "budget_tokens": [8],
    "max_output_tokens": [16],
    "previous_response_id": ["resp_unknown"],
    "top_logprobs": [2],
    "temperature": [0.5],
    "top_p": [0.5],
    # Any JSON schema.
    "input_schema": [{"type": "object"}],
    "schema": [{"type": "object"}],
    "parameters": [{"type": "object"}, None],
    "name": ["f"],
    "arguments": ["{}"],
}
# What else is in a body that tries a field.
TOOLS = {
    "POST /v1/messages": [{"name": "f", "input_schema": {"type": "object"}}],
    "POST /v1/messages/count_tokens": [{"name": "f", "input_schema": {"type": "object"}}],
    "POST /v1/responses": [{"type": "function", "name": "f",
                            "parameters": {"type": "object"}, "strict": None}],
}


def strip(hint):
    while te.get_origin(hint) in (te.Required, te.NotRequired, te.Annotated,
                                  typing.Annotated, te.ReadOnly):
        hint = te.get_args(hint)[0]
    return hint


def is_record(hint):
    return inspect.isclass(hint) and te.is_typeddict(hint)


def fields_of(record):
    hints = te.get_type_hints(record, include_extras=True)
    for name, hint in hints.items():
        # __required_keys__ does not see through annotations that are strings.
        yield name, hint, te.get_origin(hint) in (te.Required, typing.Required)


def is_model(hint):
    return inspect.isclass(hint) and hasattr(hint, "model_fields")


class Sampler:
    """Values of a type, one difference at a time from the first, which has what is
    required and nothing else."""

    def __init__(self):
        self.known = {}

    def of(self, hint, name="", depth=DEPTH):
        hint = strip(hint)
        if name in SAMPLES:
            return SAMPLES[name]
        try:
            key = (hint, depth)
            if key not in self.known:
                self.known[key] = self.make(hint, depth)
            return self.known[key]
        except TypeError:  # an unhashable hint
            return self.make(hint, depth)

    def make(self, hint, depth):
        origin, arguments = te.get_origin(hint), te.get_args(hint)
        if depth <= 0:
            return []
        if hint is type(None):
            return [None]
        if hint is str or hint is typing.AnyStr:
            return ["x"]
        if hint is bool:
            return [False, True]
        if hint is int:
            return [1]
        if hint is float:
            return [0.5]
        if hint in (object, typing.Any):
            return [{"a": 1}]
        if origin in (typing.Literal, te.Literal):
            return list(arguments)
        if origin in (typing.Union, types.UnionType):
            values = [self.of(argument, "", depth) for argument in arguments]
            return [value for of_one in values for value in of_one]
        if is_record(hint):
            return self.records(hint, depth)
        if is_model(hint):
            return []  # of answers; their parameter types are in the union too
        if origin in (dict, collections.abc.Mapping):
            return [{}, {"a": "b"}]
        if origin in (list, collections.abc.Iterable, collections.abc.Sequence) or (
                inspect.isclass(origin) and origin.__name__ == "SequenceNotStr"):
            return [[value] for value in self.of(arguments[0], "", depth - 1)]
        if origin in (typing.IO, os.PathLike) or hint in (bytes, os.PathLike):
            return []  # files, which the packages turn into text
        if hasattr(hint, "__supertype__"):
            return self.of(hint.__supertype__, "", depth)
        raise AssertionError(f"no samples of {hint!r}")

    def records(self, record, depth):
        fields = list(fields_of(record))
        smallest = {}
        for name, hint, required in fields:
            if required:
                values = self.of(hint, name, depth - 1)
                if not values:
                    return []
                smallest[name] = values[0]
        out = [smallest]
        for name, hint, required in fields:
            for value in self.of(hint, name, depth - 1)[1 if required else 0:]:
                out.append({**smallest, name: value})
        return out


def ask(lines):
    """What the readers say of each line."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    run = subprocess.run([PROGRAM, "read"], input=text, capture_output=True, text=True,
                         check=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(answers) == len(lines), run.stderr
    return answers


def top(path):
    return re.split(r"[.\[]", path)[0]


class BlockTypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run = subprocess.run([PROGRAM, "tables"], capture_output=True, text=True, check=True)
        cls.tables = json.loads(run.stdout)

    def test_every_documented_field_is_in_the_table(self):
        for endpoint, records in ENDPOINTS.items():
            known = {top(field["path"]) for field in self.tables[endpoint]["fields"]}
            documented = {name for record in records for name, _, _ in fields_of(record)}
            self.assertEqual(documented - known, set(), endpoint)

    def test_every_documented_value_is_taken_or_refused_by_name(self):
        sampler = Sampler()
        for endpoint, records in ENDPOINTS.items():
            minimal = self.tables[endpoint]["minimal"]
            lines, names = [], []
            for record in records:
                for name, hint, _ in fields_of(record):
                    more = {"tools": TOOLS[endpoint]} if name == "tool_choice" else {}
                    for value in sampler.of(hint, name):
                        body = {**minimal, **more, name: value}
                        lines.append({"endpoint": endpoint, "body": body})
                        names.append(name)
            taken = 0
            for line, name, answer in zip(lines, names, ask(lines)):
                about = f"{endpoint} {name}: {json.dumps(line['body'])} -> {answer}"
                if answer["status"] == 200:
                    taken += 1
                    self.assertEqual(answer["ignored"], [], about)
                else:
                    self.assertIn(answer["status"], (400, 404), about)
                    self.assertEqual(top(answer["param"]), name, about)
            print(f"{endpoint}: {len(lines)} bodies, {taken} taken")
            self.assertGreater(len(lines), 500)
            self.assertGreater(taken, 20)


if __name__ == "__main__":
    unittest.main()
