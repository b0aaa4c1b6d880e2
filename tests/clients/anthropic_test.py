"""The official Python client of Anthropic against a live server."""

import unittest

import anthropic
from live_server import LiveServer

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}
# The default model would go on calling until the limit.
ONE_CALL = {"type": "any", "disable_parallel_tool_use": True}


class AnthropicTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(LiveServer())
        cls.client = anthropic.Anthropic(
            base_url=cls.server.url, api_key="unused", max_retries=0
        )

    def options(self, **more):
        # The package does not name the temperature any more.
        return {"model": self.server.chat_model, "messages": QUESTION,
                "extra_body": {"temperature": 0}, "max_tokens": 24} | more

    def create(self, **more):
        return self.client.messages.create(**self.options(**more))

    def test_message(self):
        answer = self.create()
        self.assertIn("Paris", answer.content[0].text)
        self.assertEqual((answer.role, answer.stop_reason), ("assistant", "end_turn"))
        counted = self.client.messages.count_tokens(
            model=self.server.chat_model, messages=QUESTION
        )
        usage = answer.usage
        cached = (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)
        self.assertEqual(counted.input_tokens, usage.input_tokens + cached)

    def test_a_stream_is_the_same_answer(self):
        whole = self.create()
        with self.client.messages.stream(**self.options()) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, whole.content[0].text)
        self.assertEqual(final.content[0].text, text)
        self.assertEqual(final.stop_reason, "end_turn")
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        kinds = [event.type for event in self.create(stream=True)]
        self.assertEqual((kinds[0], kinds[-2], kinds[-1]),
                         ("message_start", "message_delta", "message_stop"))

    def test_why_it_stopped(self):
        self.assertEqual(self.create(max_tokens=2).stop_reason, "max_tokens")
        stopped = self.create(stop_sequences=["Paris"])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence),
                         ("stop_sequence", "Paris"))
        self.assertNotIn("Paris", stopped.content[0].text)

    def test_system_and_blocks(self):
        plain = self.create(system="Answer in one word.")
        blocks = self.create(
            system=[{"type": "text", "text": "Answer in one word.",
                     "cache_control": {"type": "ephemeral"}}],
            messages=[{"role": "user", "content": [
                {"type": "text", "text": "What is the capital of France?"}]}],
        )
        self.assertEqual(plain.content[0].text, blocks.content[0].text)

    def test_tools(self):
        asked = [{"role": "user", "content": "How warm is it in Oslo?"}]
        first = self.create(messages=asked, tools=[WEATHER], tool_choice=ONE_CALL,
                            max_tokens=96)
        self.assertEqual(first.stop_reason, "tool_use")
        use = [block for block in first.content if block.type == "tool_use"][0]
        self.assertEqual(use.name, "get_weather")
        self.assertEqual(set(use.input), {"city", "unit"})
        with self.client.messages.stream(**self.options(
                messages=asked, tools=[WEATHER], tool_choice=ONE_CALL,
                max_tokens=96)) as stream:
            final = stream.get_final_message()
        self.assertEqual(
            [block.input for block in final.content if block.type == "tool_use"],
            [block.input for block in first.content if block.type == "tool_use"],
        )
        second = self.create(
            messages=[*asked, {"role": "assistant", "content": first.content},
                      {"role": "user", "content": [
                          {"type": "tool_result", "tool_use_id": block.id,
                           "content": "21 degrees"}
                          for block in first.content if block.type == "tool_use"]}],
            tools=[WEATHER], tool_choice={"type": "none"},
        )
        self.assertTrue(second.content[0].text)

    def test_errors(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.create(extra_body={"temperature": 5})
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.NotFoundError):
            self.create(model="no-such-model")
        with self.assertRaises(anthropic.BadRequestError):
            self.create(messages=[{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                             "data": "aGk="}}]}])

    def test_a_client_that_goes_away(self):
        with self.client.messages.stream(**self.options(max_tokens=4000)) as stream:
            next(iter(stream))
        self.server.wait_until_idle()


if __name__ == "__main__":
    unittest.main()
