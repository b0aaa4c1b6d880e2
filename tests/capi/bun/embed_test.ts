// Vectors through the C interface from bun:ffi.
//   bun embed_test.ts LIBMLXX MINILM

import { strict as assert } from "node:assert";
import { ptr } from "bun:ffi";
import * as c from "./libmlxx";

const [path, minilm] = process.argv.slice(2);
const mlxx = c.openLibrary(path);

function check(status: number) {
  if (status !== c.OK) throw new Error(`${status}: ${mlxx.mlxx_last_error()}`);
}

check(mlxx.mlxx_init(null));
const out = new BigUint64Array(1);
check(mlxx.mlxx_embedder_open(c.text(minilm), out));
const embedder = Number(out[0]);

const texts = ["The capital of France is Paris.", "Paris is the capital of France.", "A cat."];
const bytes = texts.map(c.text);
const list = new BigUint64Array(bytes.map((b) => BigInt(ptr(b))));
const count = new BigUint64Array(1);
const options = new c.Struct("mlxx_embed_options", { normalize: -1 });
check(mlxx.mlxx_embed(embedder, list, 3, options.bytes, null, 0, count, null));
assert.equal(Number(count[0]), 3 * 384);

const vectors = new Float32Array(Number(count[0]));
const result = new c.Struct("mlxx_embed_result");
check(
  mlxx.mlxx_embed(
    embedder, list, 3, options.bytes, vectors, vectors.length, count, result.bytes,
  ),
);
assert.equal(result.get("texts_cut"), 0);
const cosine = (a: number, b: number) => {
  let sum = 0;
  for (let i = 0; i < 384; ++i) sum += vectors[a * 384 + i] * vectors[b * 384 + i];
  return sum;
};
assert(Math.abs(cosine(0, 0) - 1) < 1e-5);
assert(cosine(0, 1) > 0.9 && cosine(0, 2) < 0.3);

options.set({ normalize: 7 });
const status = mlxx.mlxx_embed(embedder, list, 3, options.bytes, vectors, 1152, count, null);
assert.equal(status, c.INVALID_REQUEST);
assert.match(mlxx.mlxx_last_error().toString(), /normalize/);
check(mlxx.mlxx_embedder_close(embedder));
console.log("3 vectors, as close as their texts");
