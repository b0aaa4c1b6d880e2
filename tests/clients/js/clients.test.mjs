// The JavaScript clients that most programs use, against a live server. Its
// address and the names of its models come from js_test.py.
import { expect, test } from "bun:test";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { embed, generateText, Output, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const url = process.env.MLXX_TEST_URL;
const model = process.env.MLXX_TEST_CHAT_MODEL;
const embedding = process.env.MLXX_TEST_VECTOR_MODEL;

const openai = new OpenAI({ baseURL: url + "/v1", apiKey: "unused", maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: url, apiKey: "unused", maxRetries: 0 });
const provider = createOpenAICompatible({
  name: "mlxx",
  baseURL: url + "/v1",
  includeUsage: true,
  supportsStructuredOutputs: true,
});

const question = "What is the capital of France?";
const messages = [{ role: "user", content: question }];
const city = z.object({ continent: z.string().max(20), capital: z.boolean() });
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "The weather in a city",
    strict: true,
    parameters: {
      type: "object",
      properties: { city: { type: "string", maxLength: 20 } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};

test("openai: chat and its stream give the same answer", async () => {
  const options = { model, messages, temperature: 0, max_tokens: 24 };
  const whole = await openai.chat.completions.create(options);
  expect(whole.choices[0].message.content).toContain("Paris");
  let text = "";
  let usage;
  const stream = await openai.chat.completions.create({
    ...options,
    stream: true,
    stream_options: { include_usage: true },
  });
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  expect(text).toBe(whole.choices[0].message.content);
  expect(usage.completion_tokens).toBe(whole.usage.completion_tokens);
});

test("openai: tools, whole and streamed", async () => {
  const options = {
    model,
    messages: [{ role: "user", content: "How warm is it in Oslo?" }],
    tools: [weather],
    tool_choice: { type: "function", function: { name: "get_weather" } },
    // The default model would go on calling until the limit.
    parallel_tool_calls: false,
    temperature: 0,
    max_tokens: 96,
  };
  const whole = await openai.chat.completions.create(options);
  const calls = whole.choices[0].message.tool_calls;
  expect(Object.keys(JSON.parse(calls[0].function.arguments))).toEqual(["city"]);
  const final = await openai.chat.completions.stream(options).finalChatCompletion();
  expect(final.choices[0].message.tool_calls.map((c) => c.function.arguments)).toEqual(
    calls.map((c) => c.function.arguments),
  );
});

test("openai: structured output", async () => {
  const answer = await openai.chat.completions.parse({
    model,
    messages: [{ role: "user", content: "Describe Paris as JSON." }],
    response_format: zodResponseFormat(city, "city"),
    temperature: 0,
    max_tokens: 64,
  });
  expect(typeof answer.choices[0].message.parsed.capital).toBe("boolean");
});

test("openai: responses, their events and embeddings", async () => {
  const options = { model, input: question, temperature: 0, max_output_tokens: 32 };
  const whole = await openai.responses.create(options);
  expect(whole.output_text).toContain("Paris");
  const final = await openai.responses.stream(options).finalResponse();
  expect(final.output_text).toBe(whole.output_text);
  const vectors = await openai.embeddings.create({ model: embedding, input: ["one", "two"] });
  expect(vectors.data.map((entry) => entry.embedding.length)).toEqual([384, 384]);
});

test("openai: a refused value and an aborted stream", async () => {
  const failed = await openai.chat.completions
    .create({ model, messages, temperature: 9 })
    .catch((error) => error);
  expect(failed.status).toBe(400);
  expect(failed.param).toBe("temperature");
  const stream = await openai.chat.completions.create({ model, messages, stream: true });
  for await (const _ of stream) {
    stream.controller.abort();
  }
});

test("anthropic: messages, stream and tools", async () => {
  const options = { model, messages, temperature: 0, max_tokens: 24 };
  const whole = await anthropic.messages.create(options);
  expect(whole.content[0].text).toContain("Paris");
  const final = await anthropic.messages.stream(options).finalMessage();
  expect(final.content[0].text).toBe(whole.content[0].text);
  const used = await anthropic.messages.create({
    ...options,
    max_tokens: 96,
    tools: [{ name: "get_weather", input_schema: weather.function.parameters }],
    tool_choice: { type: "tool", name: "get_weather", disable_parallel_tool_use: true },
  });
  expect(used.stop_reason).toBe("tool_use");
  expect(used.content.find((block) => block.type === "tool_use").name).toBe("get_weather");
});

test("ai: text, stream and usage", async () => {
  const options = { model: provider(model), prompt: question, temperature: 0, maxOutputTokens: 24 };
  const whole = await generateText(options);
  expect(whole.text).toContain("Paris");
  const stream = streamText(options);
  let text = "";
  for await (const piece of stream.textStream) {
    text += piece;
  }
  expect(text).toBe(whole.text);
  expect((await stream.usage).outputTokens).toBe(whole.usage.outputTokens);
});

test("ai: structured output", async () => {
  const { output } = await generateText({
    model: provider(model),
    prompt: "Describe Paris as JSON.",
    output: Output.object({ schema: city }),
    temperature: 0,
    maxOutputTokens: 64,
  });
  expect(typeof output.capital).toBe("boolean");
});

test("ai: a tool that is called", async () => {
  let asked;
  const answer = await generateText({
    model: provider(model),
    prompt: "How warm is it in Oslo?",
    tools: {
      get_weather: tool({
        description: "The weather in a city",
        inputSchema: z.object({ city: z.string().max(20) }),
        execute: async (input) => {
          asked = input.city;
          return { degrees: 21 };
        },
      }),
    },
    toolChoice: "required",
    providerOptions: { mlxx: { parallel_tool_calls: false } },
    stopWhen: stepCountIs(1),
    temperature: 0,
    maxOutputTokens: 96,
  });
  expect(answer.toolCalls[0].toolName).toBe("get_weather");
  expect(typeof asked).toBe("string");
});

test("ai: vectors", async () => {
  const { embedding: vector } = await embed({
    model: provider.textEmbeddingModel(embedding),
    value: "one",
  });
  expect(vector.length).toBe(384);
});
