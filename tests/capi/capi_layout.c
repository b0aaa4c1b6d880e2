/* Prints where the fields of the structs are, for the bindings of the tests
 * that write them by hand: "mlxx_memory 32", then "mlxx_memory.size 0". */

#include <stddef.h>
#include <stdio.h>

#include "mlxx/capi/mlxx.h"

#define STRUCT(type) printf(#type " %zu\n", sizeof(type))
#define FIELD(type, name) printf(#type "." #name " %zu\n", offsetof(type, name))

int main(void) {
  STRUCT(mlxx_options);
  FIELD(mlxx_options, size);
  FIELD(mlxx_options, libmlx);
  FIELD(mlxx_options, blas);
  STRUCT(mlxx_model_options);
  FIELD(mlxx_model_options, size);
  FIELD(mlxx_model_options, chat_template);
  FIELD(mlxx_model_options, context_length);
  FIELD(mlxx_model_options, reserved);
  STRUCT(mlxx_model_info);
  FIELD(mlxx_model_info, size);
  FIELD(mlxx_model_info, parameters);
  FIELD(mlxx_model_info, weight_bytes);
  FIELD(mlxx_model_info, file_bytes);
  FIELD(mlxx_model_info, context_length);
  FIELD(mlxx_model_info, vocab_size);
  FIELD(mlxx_model_info, tokenizer_size);
  FIELD(mlxx_model_info, layers);
  FIELD(mlxx_model_info, hidden_size);
  FIELD(mlxx_model_info, bos_token);
  FIELD(mlxx_model_info, has_chat_template);
  FIELD(mlxx_model_info, reserved);
  FIELD(mlxx_model_info, architecture);
  FIELD(mlxx_model_info, format);
  STRUCT(mlxx_chat);
  FIELD(mlxx_chat, size);
  FIELD(mlxx_chat, messages);
  FIELD(mlxx_chat, tools);
  FIELD(mlxx_chat, variables);
  FIELD(mlxx_chat, continue_final_message);
  FIELD(mlxx_chat, no_generation_prompt);
  STRUCT(mlxx_generate_options);
  FIELD(mlxx_generate_options, size);
  FIELD(mlxx_generate_options, chat);
  FIELD(mlxx_generate_options, tokens);
  FIELD(mlxx_generate_options, token_count);
  FIELD(mlxx_generate_options, system_prompt);
  FIELD(mlxx_generate_options, cancel);
  FIELD(mlxx_generate_options, stop);
  FIELD(mlxx_generate_options, stop_count);
  FIELD(mlxx_generate_options, logit_bias_tokens);
  FIELD(mlxx_generate_options, logit_bias_values);
  FIELD(mlxx_generate_options, logit_bias_count);
  FIELD(mlxx_generate_options, seed);
  FIELD(mlxx_generate_options, raw);
  FIELD(mlxx_generate_options, max_tokens);
  FIELD(mlxx_generate_options, temperature);
  FIELD(mlxx_generate_options, top_p);
  FIELD(mlxx_generate_options, top_k);
  FIELD(mlxx_generate_options, min_p);
  FIELD(mlxx_generate_options, min_tokens_to_keep);
  FIELD(mlxx_generate_options, xtc_probability);
  FIELD(mlxx_generate_options, xtc_threshold);
  FIELD(mlxx_generate_options, repetition_penalty);
  FIELD(mlxx_generate_options, repetition_context_size);
  FIELD(mlxx_generate_options, presence_penalty);
  FIELD(mlxx_generate_options, frequency_penalty);
  FIELD(mlxx_generate_options, penalty_context_size);
  FIELD(mlxx_generate_options, max_kv_size);
  FIELD(mlxx_generate_options, prefill_step_size);
  FIELD(mlxx_generate_options, ignore_eos);
  FIELD(mlxx_generate_options, compile_decode);
  STRUCT(mlxx_generate_result);
  FIELD(mlxx_generate_result, size);
  FIELD(mlxx_generate_result, seed);
  FIELD(mlxx_generate_result, prefill_seconds);
  FIELD(mlxx_generate_result, decode_seconds);
  FIELD(mlxx_generate_result, peak_memory_bytes);
  FIELD(mlxx_generate_result, prompt_tokens);
  FIELD(mlxx_generate_result, generated_tokens);
  FIELD(mlxx_generate_result, finish);
  FIELD(mlxx_generate_result, stop_index);
  STRUCT(mlxx_embedder_info);
  FIELD(mlxx_embedder_info, size);
  FIELD(mlxx_embedder_info, dimensions);
  FIELD(mlxx_embedder_info, max_tokens);
  FIELD(mlxx_embedder_info, layers);
  FIELD(mlxx_embedder_info, hidden_size);
  FIELD(mlxx_embedder_info, normalizes);
  FIELD(mlxx_embedder_info, reserved);
  FIELD(mlxx_embedder_info, architecture);
  FIELD(mlxx_embedder_info, pooling);
  STRUCT(mlxx_embed_options);
  FIELD(mlxx_embed_options, size);
  FIELD(mlxx_embed_options, prompt);
  FIELD(mlxx_embed_options, prompt_name);
  FIELD(mlxx_embed_options, normalize);
  FIELD(mlxx_embed_options, max_tokens);
  FIELD(mlxx_embed_options, dimensions);
  FIELD(mlxx_embed_options, reserved);
  STRUCT(mlxx_embed_result);
  FIELD(mlxx_embed_result, size);
  FIELD(mlxx_embed_result, tokens);
  FIELD(mlxx_embed_result, dropped);
  FIELD(mlxx_embed_result, texts_cut);
  FIELD(mlxx_embed_result, reserved);
  STRUCT(mlxx_rerank_options);
  FIELD(mlxx_rerank_options, size);
  FIELD(mlxx_rerank_options, max_tokens);
  FIELD(mlxx_rerank_options, raw_scores);
  STRUCT(mlxx_memory);
  FIELD(mlxx_memory, size);
  FIELD(mlxx_memory, active);
  FIELD(mlxx_memory, cache);
  FIELD(mlxx_memory, peak);
  return 0;
}
