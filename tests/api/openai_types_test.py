"""Compares OpenAI's endpoints with the types of the official package: each
documented field is in the tables, each documented value is taken with nothing
ignored or refused by name, and each answer and chunk is what the package's
models expect.

python openai_types_test.py OPENAI_TRANSCRIPTS"""

import base64
import json
import struct
import subprocess
import unittest

from block_types_test import PROGRAM, Sampler, ask, fields_of, top
from openai.types import (Completion, CreateEmbeddingResponse, Model, completion_create_params,
                          embedding_create_params)
from openai.types.chat import ChatCompletion, ChatCompletionChunk, completion_create_params as chat

ENDPOINTS = {
    "POST /v1/chat/completions": [chat.CompletionCreateParamsNonStreaming,
                                  chat.CompletionCreateParamsStreaming],
    "POST /v1/completions": [completion_create_params.CompletionCreateParamsNonStreaming,
                             completion_create_params.CompletionCreateParamsStreaming],
    "POST /v1/embeddings": [embedding_create_params.EmbeddingCreateParams],
}
# How many bodies at least, and how many of them are taken.
COUNTS = {
    "POST /v1/chat/completions": (150, 60),
    "POST /v1/completions": (20, 15),
    "POST /v1/embeddings": (6, 5),
}
# What answers have beyond OpenAI's.
EXTENSIONS = {"reasoning_content"}


def extras(model, path=""):
    """Names that the package's models do not know, in all of their depth."""
    for name in model.model_extra or {}:
        yield f"{path}{name}"
    for name in type(model).model_fields:
        value = getattr(model, name)
        for item in value if isinstance(value, list) else [value]:
            if hasattr(item, "model_fields_set"):
                yield from extras(item, f"{path}{name}.")


def frames(stream):
    lines = [line for line in stream.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines), stream
    return [line[len("data: "):] for line in lines]


class OpenaiTypesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run = subprocess.run([PROGRAM, "tables"], capture_output=True, text=True, check=True)
        cls.tables = json.loads(run.stdout)
        run = subprocess.run([PROGRAM, "answers"], capture_output=True, text=True, check=True)
        cls.answers = [json.loads(line) for line in run.stdout.splitlines()]

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
                    for value in sampler.of(hint, name):
                        lines.append({"endpoint": endpoint, "body": {**minimal, name: value}})
                        names.append(name)
            taken = 0
            for line, name, answer in zip(lines, names, ask(lines)):
                about = f"{endpoint} {name}: {json.dumps(line['body'])} -> {answer}"
                if answer["status"] == 200:
                    taken += 1
                    self.assertEqual(answer["ignored"], [], about)
                else:
                    self.assertEqual(answer["status"], 400, about)
                    self.assertEqual(top(answer["param"]), name, about)
            print(f"{endpoint}: {len(lines)} bodies, {taken} taken")
            self.assertGreaterEqual(len(lines), COUNTS[endpoint][0])
            self.assertGreaterEqual(taken, COUNTS[endpoint][1])

    def check(self, model, value, about):
        parsed = model.model_validate_json(json.dumps(value), strict=True)
        unknown = {name.rsplit(".", 1)[-1] for name in extras(parsed)}
        self.assertEqual(unknown - EXTENSIONS, set(), about)
        return parsed

    def test_answers_are_what_the_package_expects(self):
        kinds = {"chat": (ChatCompletion, ChatCompletionChunk),
                 "completion": (Completion, Completion)}
        seen = 0
        for answer in self.answers:
            if answer["kind"] not in kinds:
                continue
            seen += 1
            whole, chunk = kinds[answer["kind"]]
            self.check(whole, answer["body"], answer["about"])
            parts = frames(answer["stream"])
            self.assertEqual(parts.pop(), "[DONE]")
            for part in map(json.loads, parts):
                for choice in part["choices"]:
                    if chunk is Completion:
                        # Null until the end; the package's type forgets that.
                        choice["finish_reason"] = choice["finish_reason"] or "stop"
                self.check(chunk, part, answer["about"])
        self.assertGreater(seen, 15)

    def test_vectors_and_models(self):
        by_kind = {answer["kind"]: answer["body"] for answer in self.answers}
        parsed = self.check(CreateEmbeddingResponse, by_kind["embeddings"], "embeddings")
        texts = [item["embedding"] for item in by_kind["embeddings_base64"]["data"]]
        for item, text in zip(parsed.data, texts, strict=True):
            numbers = struct.unpack(f"<{len(item.embedding)}f", base64.b64decode(text))
            packed = struct.pack(f"<{len(numbers)}f", *item.embedding)
            self.assertEqual(struct.unpack(f"<{len(numbers)}f", packed), numbers)
        Model.model_validate(by_kind["model"], strict=True)
        self.assertEqual(by_kind["models"]["object"], "list")
        for model in by_kind["models"]["data"]:
            Model.model_validate(model, strict=True)


if __name__ == "__main__":
    unittest.main()
