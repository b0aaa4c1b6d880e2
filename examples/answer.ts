// Streams an answer, from Bun: no package is needed.
//   bun answer.ts LIBMLXX MODEL "What is the capital of France?"
// LIBMLXX is libmlxx.so, or libmlxx.dylib on macOS.

import { CString, JSCallback, dlopen } from "bun:ffi";

const [path, modelName, prompt] = process.argv.slice(2);
if (prompt === undefined) {
  console.error("use: bun answer.ts LIBMLXX MODEL PROMPT");
  process.exit(2);
}

const { symbols: mlxx } = dlopen(path, {
  mlxx_init: { args: ["ptr"], returns: "i32" },
  mlxx_last_error: { args: [], returns: "cstring" },
  mlxx_status_name: { args: ["i32"], returns: "cstring" },
  mlxx_model_open: { args: ["ptr", "ptr", "ptr"], returns: "i32" },
  mlxx_model_close: { args: ["ptr"], returns: "i32" },
  mlxx_generate: {
    args: ["ptr", "ptr", "ptr", "function", "ptr", "ptr"],
    returns: "i32",
  },
});

function check(status: number) {
  if (status !== 0) {
    console.error(`${mlxx.mlxx_status_name(status)}: ${mlxx.mlxx_last_error()}`);
    process.exit(1);
  }
}

// Buffers are given as they are: what ptr() makes of one does not keep it alive.
const text = (value: string) => Buffer.from(value + "\0");

check(mlxx.mlxx_init(null));
const out = new BigUint64Array(1);
check(mlxx.mlxx_model_open(text(modelName), null, out));
const model = Number(out[0]);

// Bun runs a callback only on its own thread, which is where mlxx calls it.
const printText = new JSCallback(
  (piece, length) => {
    process.stdout.write(new CString(piece, 0, Number(length)).toString());
    return 0; // 1 stops
  },
  { args: ["ptr", "u64", "ptr"], returns: "i32" },
);

// mlxx_generate_result: size, seed, two doubles, peak memory, four int32.
const result = new DataView(new ArrayBuffer(56));
result.setBigUint64(0, 56n, true);
const bytes = new Uint8Array(result.buffer);
check(mlxx.mlxx_generate(model, text(prompt), null, printText.ptr, null, bytes));
const seconds = result.getFloat64(16, true) + result.getFloat64(24, true);
const tokens = result.getInt32(44, true);
process.stdout.write("\n");
console.error(`${tokens} tokens in ${seconds.toFixed(2)} s`);
printText.close();
check(mlxx.mlxx_model_close(model));
