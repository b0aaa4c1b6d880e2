// Uses the C interface from bun:ffi.
//   bun bun_test.ts LIBMLXX CAPI_LAYOUT
// The model is MLXX_TEST_GGUF, or what `mlxx pull smollm2` put under MLXX_HOME.
// Exit code 77 (skipped) if neither is set.

import { strict as assert } from "node:assert";
import { JSCallback, ptr } from "bun:ffi";
import * as c from "./libmlxx";

const [path, layout] = process.argv.slice(2);
if (!process.env.MLXX_TEST_GGUF && !process.env.MLXX_HOME) {
  console.log("neither MLXX_TEST_GGUF nor MLXX_HOME is set");
  process.exit(77);
}
const mlxx = c.openLibrary(path);
const question = "What is the capital of France?";

function check(status: number) {
  if (status !== c.OK) throw new Error(`${status}: ${mlxx.mlxx_last_error()}`);
}

function fails(status: number, wanted: number, part: RegExp) {
  assert.equal(status, wanted);
  assert.match(mlxx.mlxx_last_error().toString(), part);
  assert.equal(mlxx.mlxx_last_error().toString(), "", "consumed once");
}

fails(mlxx.mlxx_memory_reset_peak(), c.INVALID_REQUEST, /call mlxx_init\(\) first/);
check(mlxx.mlxx_init(null));
const out = new BigUint64Array(1);
fails(mlxx.mlxx_model_open(c.text("/no/model"), null, out), c.NOT_FOUND, /\/no\/model/);
check(mlxx.mlxx_model_open(c.text(process.env.MLXX_TEST_GGUF || "smollm2"), null, out));
const model = Number(out[0]);

type Answer = { status: number; pieces: string[]; text: string; result: c.Struct };

function generate(
  prompt: string | null,
  fields: Record<string, number> = {},
  onPiece: (pieces: string[]) => unknown = () => false,
): Answer {
  const options = new c.Struct("mlxx_generate_options", {
    ...c.DEFAULTS, max_tokens: 20, ...fields,
  });
  const result = new c.Struct("mlxx_generate_result");
  const pieces: string[] = [];
  const receive = new JSCallback(
    (piece, bytes) => {
      assert(Bun.isMainThread);
      pieces.push(c.pieceOf(piece, bytes));
      return onPiece(pieces) ? 1 : 0;
    },
    { args: ["ptr", "u64", "ptr"], returns: "i32" },
  );
  const status = mlxx.mlxx_generate(
    model, prompt === null ? null : c.text(prompt), options.bytes, receive.ptr, null,
    result.bytes,
  );
  receive.close();
  return { status, pieces, text: pieces.join(""), result };
}

function tokenize(value: string): Int32Array {
  const bytes = Buffer.from(value);
  const count = new BigUint64Array(1);
  check(mlxx.mlxx_tokenize(model, bytes, bytes.length, 0, null, 0, count));
  const tokens = new Int32Array(Number(count[0]));
  check(mlxx.mlxx_tokenize(model, bytes, bytes.length, 0, tokens, tokens.length, count));
  return tokens;
}

const tests: Record<string, () => unknown> = {
  "structs are laid out as in C"() {
    const inC = new Map(
      Bun.spawnSync([layout]).stdout.toString().trim().split("\n")
        .map((line) => line.split(" ") as [string, string]),
    );
    for (const [name, fields] of Object.entries(c.STRUCTS)) {
      const struct = new c.Struct(name);
      assert.equal(String(struct.bytes.length), inC.get(name), name);
      const inHeader = [...inC.keys()].filter((key) => key.startsWith(`${name}.`));
      assert.equal(fields.length, inHeader.length, name);
      for (const [field] of fields) {
        assert.equal(String(struct.offset(field)), inC.get(`${name}.${field}`), field);
      }
    }
  },

  "information about a model"() {
    const info = new c.Struct("mlxx_model_info");
    check(mlxx.mlxx_model_get_info(model, info.bytes));
    assert.equal(info.get("layers"), 30);
    assert.equal(info.get("vocab_size"), 49152);
    const at = info.offset("architecture");
    assert.equal(Buffer.from(info.bytes.slice(at, at + 6)).toString(), "llama\0");
  },

  "tokens there and back"() {
    const value = "Hello, world! 漢字 🎉";
    const tokens = tokenize(value);
    const buffer = Buffer.alloc(100);
    const count = new BigUint64Array(1);
    check(mlxx.mlxx_detokenize(model, tokens, tokens.length, 0, buffer, 100, count));
    assert.equal(buffer.subarray(0, Number(count[0])).toString(), value);
    fails(
      mlxx.mlxx_tokenize(model, Buffer.from("a b c"), 5, 0, new Int32Array(1), 1, count),
      c.INVALID_REQUEST, /holds 1, needed are/,
    );
  },

  "chat template, and an answer to the same conversation"() {
    const messages = c.text(JSON.stringify([{ role: "user", content: question }]));
    const chat = new c.Struct("mlxx_chat", { messages: ptr(messages) });
    const buffer = Buffer.alloc(1000);
    const count = new BigUint64Array(1);
    check(mlxx.mlxx_apply_chat_template(model, chat.bytes, buffer, 1000, count));
    const prompt = buffer.subarray(0, Number(count[0])).toString();
    assert.match(prompt, /user\nWhat is the capital of France\?<\|im_end\|>/);

    const answer = generate(question);
    assert.equal(answer.status, c.OK, mlxx.mlxx_last_error().toString());
    assert.match(answer.text, /Paris/);
    assert.equal(generate(null, { chat: ptr(chat.bytes) }).text, answer.text);
    const tokens = tokenize(prompt);
    assert.equal(answer.result.get("prompt_tokens"), tokens.length);
    const again = generate(null, { tokens: ptr(tokens), token_count: tokens.length });
    assert.equal(again.text, answer.text);
    assert.equal(messages.length + buffer.length > 0, true); // alive until here
  },

  "options are honoured or refused"() {
    const stop = c.text(" Paris");
    const stops = new BigUint64Array([BigInt(ptr(stop))]);
    const stopped = generate(question, { stop: ptr(stops), stop_count: 1 });
    assert.equal(stopped.text + stop.toString().slice(0, 6), "The capital of France is Paris");
    assert.equal(stopped.result.get("finish"), c.FINISH_STOP);
    assert.equal(stopped.result.get("stop_index"), 0);
    const short = generate(question, { max_tokens: 3 });
    assert.equal(short.result.get("finish"), c.FINISH_LENGTH);
    assert.equal(short.result.get("generated_tokens"), 3);
    const sampled = { temperature: 1.5, seed: 3 };
    assert.equal(generate("Hi", sampled).text, generate("Hi", sampled).text);
    fails(generate("Hi", { temperature: NaN }).status, c.INVALID_REQUEST, /temperature/);
    fails(generate("Hi", { top_p: 2 }).status, c.INVALID_REQUEST, /top_p/);
    fails(generate("Hi", { size: 12 }).status, c.INVALID_REQUEST, /size is 12/);
  },

  "stopped by the callback, which may not ask again"() {
    const answer = generate(question, {}, (pieces) => {
      fails(generate("Hi").status, c.INVALID_REQUEST, /in a callback/);
      return pieces.length === 2;
    });
    fails(answer.status, c.CANCELLED, /by the callback/);
    assert.equal(answer.pieces.length, 2);
    assert.equal(answer.result.get("finish"), c.FINISH_CANCELLED);
  },

  async "cancelled by another thread"() {
    const signal = new SharedArrayBuffer(8);
    const raised = new Int32Array(signal);
    check(mlxx.mlxx_cancel_open(out));
    const cancel = Number(out[0]);
    const worker = new Worker(new URL("cancel_worker.ts", import.meta.url).href);
    const ready = new Promise((resolve) => (worker.onmessage = resolve));
    worker.postMessage({ path, cancel, signal });
    await ready;
    // This thread is busy in C from here on; the worker's is not.
    const answer = generate(
      "Count from 1 to 100.", { cancel, max_tokens: 4000, ignore_eos: 1 },
      () => {
        Atomics.store(raised, 0, 1);
        Atomics.notify(raised, 0);
      },
    );
    fails(answer.status, c.CANCELLED, /\] cancelled/);
    assert(answer.result.get("generated_tokens") < 3900);
    assert.equal(Atomics.load(raised, 1), 1, "the status of the request");
    worker.terminate();
    check(mlxx.mlxx_cancel_close(cancel));
    fails(mlxx.mlxx_cancel_request(cancel), c.INVALID_REQUEST, /no open handle/);
  },

  "memory comes back when the model is closed"() {
    const memory = new c.Struct("mlxx_memory");
    check(mlxx.mlxx_memory_get(memory.bytes));
    assert(memory.get("active") > 50_000_000);
    check(mlxx.mlxx_model_close(model));
    check(mlxx.mlxx_memory_get(memory.bytes));
    assert(memory.get("active") < 1_000_000);
    assert(memory.get("peak") > 50_000_000);
    check(mlxx.mlxx_memory_reset_peak());
    check(mlxx.mlxx_memory_get(memory.bytes));
    assert(memory.get("peak") < 1_000_000);
    fails(generate("Hi").status, c.INVALID_REQUEST, /no open handle/);
    fails(mlxx.mlxx_model_close(model), c.INVALID_REQUEST, /no open handle/);
  },
};

let failures = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    await test();
    console.log(`passed: ${name}`);
  } catch (error) {
    failures++;
    console.log(`FAILED: ${name}: ${error instanceof Error ? error.stack : error}`);
  }
}
process.exit(failures === 0 ? 0 : 1);
