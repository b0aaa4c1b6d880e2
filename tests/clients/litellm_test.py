"""litellm, which many programs reach servers through, against a live server."""

import os
import unittest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no download

import litellm  # noqa: E402
from live_server import LiveServer  # noqa: E402

litellm.suppress_debug_info = True
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


class LitellmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(LiveServer())

    def openai(self, **more):
        return litellm.completion(
            model="openai/" + self.server.chat_model, api_base=self.server.url + "/v1",
            api_key="unused", messages=QUESTION, temperature=0, max_tokens=24,
            num_retries=0, **more,
        )

    def test_chat(self):
        answer = self.openai()
        text = answer.choices[0].message.content
        self.assertIn("Paris", text)
        chunks = list(self.openai(stream=True, stream_options={"include_usage": True}))
        self.assertEqual(
            "".join(c.choices[0].delta.content or "" for c in chunks if c.choices), text
        )
        built = litellm.stream_chunk_builder(chunks)
        self.assertEqual(built.usage.completion_tokens, answer.usage.completion_tokens)

    def test_messages(self):
        answer = litellm.completion(
            model="anthropic/" + self.server.chat_model, api_base=self.server.url,
            api_key="unused", messages=QUESTION, temperature=0, max_tokens=24, num_retries=0,
        )
        self.assertEqual(answer.choices[0].message.content,
                         self.openai().choices[0].message.content)

    def test_embeddings(self):
        answer = litellm.embedding(
            model="openai/" + self.server.embedding_model, api_base=self.server.url + "/v1",
            api_key="unused", input=["one", "two"], encoding_format="float",
        )
        self.assertEqual([len(entry["embedding"]) for entry in answer.data], [384, 384])

    def test_errors(self):
        with self.assertRaises(litellm.BadRequestError):
            self.openai(top_logprobs=50, logprobs=True)


if __name__ == "__main__":
    unittest.main()
