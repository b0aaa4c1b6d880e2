// mlxx.h for bun:ffi: the functions, and structs written field by field.

import { CString, type Pointer, dlopen } from "bun:ffi";

export const OK = 0;
export const INVALID_REQUEST = 1;
export const NOT_FOUND = 3;
export const CANCELLED = 6;
export const FINISH_STOP = 1;
export const FINISH_LENGTH = 2;
export const FINISH_CANCELLED = 3;

const SYMBOLS = {
  mlxx_init: { args: ["ptr"], returns: "i32" },
  mlxx_last_error: { args: [], returns: "cstring" },
  mlxx_model_open: { args: ["ptr", "ptr", "ptr"], returns: "i32" },
  mlxx_model_close: { args: ["ptr"], returns: "i32" },
  mlxx_model_get_info: { args: ["ptr", "ptr"], returns: "i32" },
  mlxx_tokenize: {
    args: ["ptr", "ptr", "u64", "i32", "ptr", "u64", "ptr"],
    returns: "i32",
  },
  mlxx_detokenize: {
    args: ["ptr", "ptr", "u64", "i32", "ptr", "u64", "ptr"],
    returns: "i32",
  },
  mlxx_apply_chat_template: {
    args: ["ptr", "ptr", "ptr", "u64", "ptr"],
    returns: "i32",
  },
  mlxx_cancel_open: { args: ["ptr"], returns: "i32" },
  mlxx_cancel_request: { args: ["ptr"], returns: "i32" },
  mlxx_cancel_close: { args: ["ptr"], returns: "i32" },
  mlxx_generate: {
    args: ["ptr", "ptr", "ptr", "function", "ptr", "ptr"],
    returns: "i32",
  },
  mlxx_embedder_open: { args: ["ptr", "ptr"], returns: "i32" },
  mlxx_embedder_close: { args: ["ptr"], returns: "i32" },
  mlxx_embedder_get_info: { args: ["ptr", "ptr"], returns: "i32" },
  mlxx_embed: {
    args: ["ptr", "ptr", "u64", "ptr", "ptr", "u64", "ptr", "ptr"],
    returns: "i32",
  },
  mlxx_reranker_open: { args: ["ptr", "ptr"], returns: "i32" },
  mlxx_reranker_close: { args: ["ptr"], returns: "i32" },
  mlxx_rerank: {
    args: ["ptr", "ptr", "ptr", "u64", "ptr", "ptr", "u64", "ptr", "ptr"],
    returns: "i32",
  },
  mlxx_memory_get: { args: ["ptr"], returns: "i32" },
  mlxx_memory_reset_peak: { args: [], returns: "i32" },
  mlxx_memory_clear_cache: { args: [], returns: "i32" },
} as const;

export const openLibrary = (path: string) => dlopen(path, SYMBOLS).symbols;
export const text = (value: string) => Buffer.from(value + "\0");
export const pieceOf = (piece: Pointer, bytes: number | bigint) =>
  new CString(piece, 0, Number(bytes)).toString();

type Kind = "u64" | "i64" | "f64" | "i32" | "f32" | "c64" | "c16";
const BYTES = { u64: 8, i64: 8, f64: 8, i32: 4, f32: 4, c64: 64, c16: 16 };

// Fields in the order of mlxx.h, pointers as u64.
export const STRUCTS: Record<string, [string, Kind][]> = {
  mlxx_model_info: [
    ["size", "u64"], ["parameters", "u64"], ["weight_bytes", "u64"], ["file_bytes", "u64"],
    ["context_length", "i32"], ["vocab_size", "i32"], ["tokenizer_size", "i32"],
    ["layers", "i32"], ["hidden_size", "i32"], ["bos_token", "i32"],
    ["has_chat_template", "i32"], ["reserved", "i32"], ["architecture", "c64"],
    ["format", "c16"],
  ],
  mlxx_chat: [
    ["size", "u64"], ["messages", "u64"], ["tools", "u64"], ["variables", "u64"],
    ["continue_final_message", "i32"], ["no_generation_prompt", "i32"],
  ],
  mlxx_generate_options: [
    ["size", "u64"], ["chat", "u64"], ["tokens", "u64"], ["token_count", "u64"],
    ["system_prompt", "u64"], ["cancel", "u64"], ["stop", "u64"], ["stop_count", "u64"],
    ["logit_bias_tokens", "u64"], ["logit_bias_values", "u64"], ["logit_bias_count", "u64"],
    ["seed", "i64"], ["raw", "i32"], ["max_tokens", "i32"], ["temperature", "f32"],
    ["top_p", "f32"], ["top_k", "i32"], ["min_p", "f32"], ["min_tokens_to_keep", "i32"],
    ["xtc_probability", "f32"], ["xtc_threshold", "f32"], ["repetition_penalty", "f32"],
    ["repetition_context_size", "i32"], ["presence_penalty", "f32"],
    ["frequency_penalty", "f32"], ["penalty_context_size", "i32"], ["max_kv_size", "i32"],
    ["prefill_step_size", "i32"], ["ignore_eos", "i32"], ["compile_decode", "i32"],
  ],
  mlxx_generate_result: [
    ["size", "u64"], ["seed", "i64"], ["prefill_seconds", "f64"], ["decode_seconds", "f64"],
    ["peak_memory_bytes", "u64"], ["prompt_tokens", "i32"], ["generated_tokens", "i32"],
    ["finish", "i32"], ["stop_index", "i32"],
  ],
  mlxx_embedder_info: [
    ["size", "u64"], ["dimensions", "i32"], ["max_tokens", "i32"], ["layers", "i32"],
    ["hidden_size", "i32"], ["normalizes", "i32"], ["reserved", "i32"], ["architecture", "c64"],
    ["pooling", "c16"],
  ],
  mlxx_embed_options: [
    ["size", "u64"], ["prompt", "u64"], ["prompt_name", "u64"], ["normalize", "i32"],
    ["max_tokens", "i32"], ["dimensions", "i32"], ["reserved", "i32"],
  ],
  mlxx_embed_result: [
    ["size", "u64"], ["tokens", "i64"], ["dropped", "i64"], ["texts_cut", "i32"],
    ["reserved", "i32"],
  ],
  mlxx_rerank_options: [["size", "u64"], ["max_tokens", "i32"], ["raw_scores", "i32"]],
  mlxx_memory: [["size", "u64"], ["active", "u64"], ["cache", "u64"], ["peak", "u64"]],
};

export const DEFAULTS = {
  seed: -1, max_tokens: 256, top_p: 1, min_tokens_to_keep: 1, xtc_threshold: 0.1,
  repetition_context_size: 20, penalty_context_size: 20, prefill_step_size: 2048,
};

export class Struct {
  readonly bytes: Uint8Array;
  private readonly view: DataView;

  constructor(private readonly name: string, fields: Record<string, number> = {}) {
    this.view = new DataView(new ArrayBuffer(this.offset(null)));
    this.bytes = new Uint8Array(this.view.buffer);
    this.set({ size: this.bytes.length, ...fields });
  }

  // Of a field, or the whole size for null.
  offset(field: string | null): number {
    let offset = 0;
    for (const [name, kind] of STRUCTS[this.name]) {
      if (name === field) return offset;
      offset += BYTES[kind];
    }
    if (field !== null) throw new Error(`${this.name} has no ${field}`);
    return offset;
  }

  set(fields: Record<string, number>) {
    for (const [name, value] of Object.entries(fields)) {
      const at = this.offset(name);
      const kind = STRUCTS[this.name].find(([field]) => field === name)![1];
      if (kind === "u64") this.view.setBigUint64(at, BigInt(value), true);
      else if (kind === "i64") this.view.setBigInt64(at, BigInt(value), true);
      else if (kind === "f32") this.view.setFloat32(at, value, true);
      else if (kind === "i32") this.view.setInt32(at, value, true);
      else throw new Error(`${name} is not for writing`);
    }
  }

  get(field: string): number {
    const at = this.offset(field);
    const kind = STRUCTS[this.name].find(([name]) => name === field)![1];
    if (kind === "u64") return Number(this.view.getBigUint64(at, true));
    if (kind === "i64") return Number(this.view.getBigInt64(at, true));
    if (kind === "f64") return this.view.getFloat64(at, true);
    return this.view.getInt32(at, true);
  }
}
