"""Lets the official packages `anthropic` and `openai` read what /v1/messages and
/v1/responses answer, and checks every body and event with their models.

python block_streams_test.py BLOCK_TRANSCRIPTS"""

import json
import subprocess
import sys
import unittest

import anthropic
import httpx2
import openai
import pydantic
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from openai.types.responses import (Response, ResponseItemList, ResponseStreamEvent)
from openai.types.responses.input_token_count_response import InputTokenCountResponse

PROGRAM = sys.argv.pop(1)
RAW_EVENT = pydantic.TypeAdapter(RawMessageStreamEvent)
RESPONSE_EVENT = pydantic.TypeAdapter(ResponseStreamEvent)
# What is sent beyond the models: whether a response is stored; the name of the
# function and the bytes of tokens also in the events where only other versions
# of the package know them.
EXTRAS = {"store", "name", "bytes"}


def validated(adapter, value):
    """The model of `value`; fails if it drops, changes or does not know a part."""
    model = adapter.validate_python(value, strict=False)
    extras = set()

    def collect(part):
        if isinstance(part, pydantic.BaseModel):
            extras.update(part.model_extra or {})
            for name in type(part).model_fields:
                collect(getattr(part, name))
        elif isinstance(part, (list, tuple)):
            for item in part:
                collect(item)
        elif isinstance(part, dict):
            for item in part.values():
                collect(item)

    collect(model)
    assert extras <= EXTRAS, f"{extras} of {json.dumps(value)}"
    dumped = model.model_dump(mode="json", exclude_unset=True, by_alias=True)
    assert dumped == value, f"{json.dumps(dumped)} is not {json.dumps(value)}"
    return model


def events(stream):
    for frame in stream.split("\n\n"):
        if frame:
            name, data = frame.split("\n")
            value = json.loads(data.removeprefix("data: "))
            assert name == "event: " + value["type"]
            yield value


def answering(text, kind):
    """An HTTP client to which every request is answered like this."""
    return httpx2.Client(transport=httpx2.MockTransport(
        lambda request: httpx2.Response(200, headers={"content-type": kind}, text=text)))


class BlockStreamsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        run = subprocess.run([PROGRAM, "answers"], capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        cls.lines = {}
        for line in lines:
            cls.lines.setdefault(line["kind"], []).append(line)

    def test_messages(self):
        self.assertGreater(len(self.lines["message"]), 15)
        for line in self.lines["message"]:
            with self.subTest(line["about"]):
                validated(pydantic.TypeAdapter(Message), line["body"])
                for event in events(line["stream"]):
                    if event["type"] != "ping":
                        validated(RAW_EVENT, event)
                client = anthropic.Anthropic(
                    api_key="k", http_client=answering(line["stream"], "text/event-stream"))
                with client.messages.stream(model="tiny", max_tokens=9, messages=[]) as stream:
                    final = stream.get_final_message()
                message = Message.model_validate(line["body"])
                self.assertEqual(
                    [block.model_dump(exclude={"parsed_output"}) for block in final.content],
                    [block.model_dump() for block in message.content])
                self.assertEqual((final.id, final.stop_reason, final.stop_sequence),
                                 (message.id, message.stop_reason, message.stop_sequence))
                self.assertEqual(final.usage.output_tokens, message.usage.output_tokens)

    def test_messages_that_fail(self):
        for line in self.lines["message"]:
            client = anthropic.Anthropic(
                api_key="k", max_retries=0,
                http_client=answering(line["failed_stream"], "text/event-stream"))
            with self.assertRaises(anthropic.APIError) as caught:
                for _ in client.messages.create(model="tiny", max_tokens=9, messages=[],
                                                stream=True):
                    pass
            self.assertIn("it broke", str(caught.exception))
            self.assertIsInstance(caught.exception.body, dict)

    def test_responses(self):
        self.assertGreater(len(self.lines["response"]), 15)
        for line in self.lines["response"]:
            with self.subTest(line["about"]):
                response = validated(pydantic.TypeAdapter(Response), line["body"])
                self.assertEqual(line["stored"], line["body"])
                for event in events(line["stream"]):
                    model = validated(RESPONSE_EVENT, event)
                    self.assertEqual(model.type, event["type"])
                validated(pydantic.TypeAdapter(ResponseItemList), line["items"])
                client = openai.OpenAI(
                    api_key="k", http_client=answering(line["stream"], "text/event-stream"))
                with client.responses.stream(model="tiny", input="hi") as stream:
                    kinds = [event.type for event in stream]
                    final = stream.get_final_response() if (
                        "response.completed" in kinds) else None
                self.assertEqual(kinds[:2], ["response.created", "response.in_progress"])
                if response.status == "completed":
                    self.assertEqual(final.output_text, response.output_text)
                    self.assertEqual(len(final.output), len(response.output))
                else:
                    self.assertEqual(kinds[-1], "response.incomplete")

    def test_responses_that_fail(self):
        for line in self.lines["response"]:
            frames = list(events(line["failed_stream"]))
            last = validated(RESPONSE_EVENT, frames[-1])
            self.assertEqual((last.type, last.response.status), ("response.failed", "failed"))
            self.assertEqual(last.response.error.code, "server_error")

    def test_counts(self):
        validated(pydantic.TypeAdapter(MessageTokensCount), self.lines["count"][0]["body"])
        validated(pydantic.TypeAdapter(InputTokenCountResponse),
                  self.lines["input_tokens"][0]["body"])

    def test_errors(self):
        for line in self.lines["error"]:
            with self.subTest(line["status"]):
                if line["status"] == 413:  # documented, and not in the package's union
                    self.assertEqual(line["body"]["error"]["type"], "request_too_large")
                else:
                    validated(pydantic.TypeAdapter(ErrorResponse), line["body"])


if __name__ == "__main__":
    unittest.main()
