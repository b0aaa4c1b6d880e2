"""The official Python client of OpenAI against a live server."""

import json
import unittest

import openai
from live_server import LiveServer
from pydantic import BaseModel

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}


class City(BaseModel):
    continent: str
    capital: bool


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(LiveServer())
        cls.client = openai.OpenAI(
            base_url=cls.server.url + "/v1", api_key="unused", max_retries=0
        )

    def chat(self, **more):
        options = {"model": self.server.chat_model, "messages": QUESTION,
                   "temperature": 0, "max_tokens": 24} | more
        return self.client.chat.completions.create(**options)

    def test_models(self):
        names = [model.id for model in self.client.models.list()]
        self.assertIn(self.server.chat_model, names)
        self.assertEqual(
            self.client.models.retrieve(self.server.chat_model).id, self.server.chat_model
        )
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("no-such-model")

    def test_chat(self):
        answer = self.chat()
        choice = answer.choices[0]
        self.assertIn("Paris", choice.message.content)
        self.assertEqual((choice.message.role, choice.finish_reason), ("assistant", "stop"))
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertGreater(usage.prompt_tokens, 10)

    def test_a_stream_is_the_same_answer(self):
        whole = self.chat()
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)
        self.assertEqual(
            [c.choices[0].finish_reason for c in chunks[:-1] if c.choices[0].finish_reason],
            ["stop"],
        )
        self.assertTrue(all(c.usage is None for c in self.chat(stream=True)))

    def test_choices_are_seeded(self):
        def texts():
            answer = self.chat(n=3, seed=5, temperature=1.2)
            self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
            return [c.message.content for c in answer.choices]

        first = texts()
        self.assertEqual(first, texts())
        self.assertGreater(len(set(first)), 1)

    def test_length_and_stop(self):
        cut = self.chat(max_completion_tokens=2, max_tokens=openai.omit)
        self.assertEqual(cut.choices[0].finish_reason, "length")
        self.assertEqual(cut.usage.completion_tokens, 2)
        stopped = self.chat(stop=["Paris"])
        self.assertEqual(stopped.choices[0].finish_reason, "stop")
        self.assertNotIn("Paris", stopped.choices[0].message.content)

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=3)
        entries = answer.choices[0].logprobs.content
        text = b"".join(bytes(entry.bytes) for entry in entries).decode()
        self.assertEqual(text, answer.choices[0].message.content)
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(entry.top_logprobs[0].token, entry.token)
        streamed = [
            entry
            for chunk in self.chat(logprobs=True, stream=True)
            if chunk.choices and chunk.choices[0].logprobs
            for entry in chunk.choices[0].logprobs.content
        ]
        self.assertEqual([e.token for e in streamed], [e.token for e in entries])

    def test_tools(self):
        asked = [{"role": "user", "content": "How warm is it in Oslo?"}]
        first = self.chat(messages=asked, tools=[WEATHER], tool_choice="required",
                          parallel_tool_calls=False, max_tokens=96)
        self.assertEqual(first.choices[0].finish_reason, "tool_calls")
        (call,) = first.choices[0].message.tool_calls
        self.assertEqual(call.function.name, "get_weather")
        arguments = json.loads(call.function.arguments)
        self.assertEqual(set(arguments), {"city", "unit"})
        self.assertIn(arguments["unit"], ("celsius", "fahrenheit"))
        conversation = [*asked, first.choices[0].message,
                        {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"}]
        second = self.chat(messages=conversation, tools=[WEATHER], tool_choice="none")
        self.assertIsNone(second.choices[0].message.tool_calls)
        self.assertTrue(second.choices[0].message.content)

    def test_streamed_tools(self):
        options = {"model": self.server.chat_model, "temperature": 0, "max_tokens": 96,
                   "messages": [{"role": "user", "content": "How warm is it in Oslo?"}],
                   "tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False}
        with self.client.chat.completions.stream(**options) as stream:
            streamed = stream.get_final_completion().choices[0]
        whole = self.client.chat.completions.create(**options).choices[0]
        self.assertEqual(
            [c.function.arguments for c in streamed.message.tool_calls],
            [c.function.arguments for c in whole.message.tool_calls],
        )
        self.assertEqual(streamed.finish_reason, "tool_calls")

    def test_structured_output(self):
        answer = self.client.chat.completions.parse(
            model=self.server.chat_model,
            messages=[{"role": "user", "content": "Describe Paris as JSON."}],
            response_format=City, temperature=0, max_tokens=64,
        )
        self.assertIsInstance(answer.choices[0].message.parsed, City)
        free = self.chat(response_format={"type": "json_object"}, max_tokens=200)
        if free.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(free.choices[0].message.content), dict)
        with self.assertRaises(openai.BadRequestError):
            self.chat(response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"type": "wat"}},
            })

    def test_completions(self):
        answer = self.client.completions.create(
            model=self.server.chat_model, prompt=["1, 2, 3,", "Once upon a"],
            max_tokens=6, temperature=0, logprobs=2, echo=True,
        )
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        self.assertTrue(answer.choices[0].text.startswith("1, 2, 3, 4"))
        logprobs = answer.choices[0].logprobs
        self.assertEqual("".join(logprobs.tokens), answer.choices[0].text)
        self.assertIsNone(logprobs.token_logprobs[0])
        streamed = self.client.completions.create(
            model=self.server.chat_model, prompt="1, 2, 3,", max_tokens=6, temperature=0,
            stream=True,
        )
        self.assertTrue("".join(c.choices[0].text for c in streamed).startswith(" 4"))

    def test_embeddings(self):
        texts = ["A cat sits on the mat.", "A kitten is on the rug.", "Stocks fell today."]
        answer = self.client.embeddings.create(model=self.server.embedding_model, input=texts)
        cat, kitten, stocks = (entry.embedding for entry in answer.data)
        floats = self.client.embeddings.create(
            model=self.server.embedding_model, input=texts, encoding_format="float"
        )
        for a, b in zip(cat, floats.data[0].embedding):
            self.assertAlmostEqual(a, b, places=6)

        def likeness(a, b):
            return sum(x * y for x, y in zip(a, b))

        self.assertAlmostEqual(likeness(cat, cat), 1, places=4)
        self.assertGreater(likeness(cat, kitten), likeness(cat, stocks) + 0.3)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(temperature=9)
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError):
            self.chat(model="no-such-model")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat(messages=[{"role": "user", "content": "word " * 20000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_a_client_that_goes_away(self):
        stream = self.chat(stream=True, max_tokens=4000, extra_body={"ignore_eos": True})
        for _, _ in zip(range(3), stream):
            pass
        stream.close()
        self.server.wait_until_idle()


class ResponsesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(LiveServer())
        cls.client = openai.OpenAI(
            base_url=cls.server.url + "/v1", api_key="unused", max_retries=0
        )

    def respond(self, **more):
        options = {"model": self.server.chat_model, "temperature": 0, "max_output_tokens": 32,
                   "input": "What is the capital of France?"} | more
        return self.client.responses.create(**options)

    def test_text(self):
        answer = self.respond()
        self.assertIn("Paris", answer.output_text)
        self.assertEqual(answer.status, "completed")
        self.assertGreater(answer.usage.input_tokens, 10)
        self.assertEqual(self.client.responses.retrieve(answer.id).output_text,
                         answer.output_text)
        follow = self.respond(input="And which country is that in?",
                              previous_response_id=answer.id)
        self.assertGreater(follow.usage.input_tokens, answer.usage.input_tokens)
        self.client.responses.delete(answer.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(answer.id)

    def test_events(self):
        events = list(self.respond(stream=True))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.assertEqual((events[0].type, events[-1].type),
                         ("response.created", "response.completed"))
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(text, events[-1].response.output_text)
        self.assertEqual(text, self.respond().output_text)

    def test_functions(self):
        tool = {"type": "function", **WEATHER["function"]}
        first = self.respond(input="How warm is it in Oslo?", tools=[tool],
                             tool_choice="required", parallel_tool_calls=False,
                             max_output_tokens=96)
        (call,) = [item for item in first.output if item.type == "function_call"]
        self.assertEqual(set(json.loads(call.arguments)), {"city", "unit"})
        second = self.respond(
            previous_response_id=first.id, tools=[tool], tool_choice="none",
            input=[{"type": "function_call_output", "call_id": call.call_id,
                    "output": "21 degrees"}],
        )
        self.assertTrue(second.output_text)

    def test_structured_output(self):
        answer = self.client.responses.parse(
            model=self.server.chat_model, input="Describe Paris as JSON.", text_format=City,
            temperature=0, max_output_tokens=64,
        )
        self.assertIsInstance(answer.output_parsed, City)

    def test_length(self):
        answer = self.respond(max_output_tokens=2)
        self.assertEqual(answer.status, "incomplete")
        self.assertEqual(answer.incomplete_details.reason, "max_output_tokens")


class KeyTest(unittest.TestCase):
    def test_keys(self):
        with LiveServer("--api-key", "right-key", key="right-key") as server:
            for key, good in (("right-key", True), ("wrong-key", False)):
                client = openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0)
                if good:
                    self.assertTrue(list(client.models.list()))
                else:
                    with self.assertRaises(openai.AuthenticationError):
                        list(client.models.list())


if __name__ == "__main__":
    unittest.main()
