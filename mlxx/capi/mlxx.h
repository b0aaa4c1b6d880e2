#ifndef MLXX_CAPI_MLXX_H
#define MLXX_CAPI_MLXX_H

/* mlxx for C and every language that can call C. Link libmlxx (it needs no MLX
 * at link time) or load it at run time; mlxx_init() finds and loads the rest.
 * docs/c-abi.md has the contract at length.
 *
 * All text is UTF-8 and ends in a zero byte unless a count stands beside it.
 * Functions never print, never abort and never throw. Any thread may call
 * them. Handles are numbers in the form of pointers: one that was closed, or
 * never was one, is refused with MLXX_INVALID_REQUEST. */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MLXX_API __attribute__((visibility("default")))
#else
#define MLXX_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mlxx_status {
  MLXX_OK = 0,
  MLXX_INVALID_REQUEST = 1, /* the caller asked for something impossible */
  MLXX_UNSUPPORTED = 2,     /* understood, and not implemented */
  MLXX_NOT_FOUND = 3,       /* a model, file or library that is not there */
  MLXX_BAD_FILE = 4,        /* a damaged or hostile file */
  MLXX_OUT_OF_MEMORY = 5,
  MLXX_CANCELLED = 6, /* a callback or mlxx_cancel_request() asked to stop */
  MLXX_INTERNAL = 7   /* a bug of mlxx or of a library below it */
} mlxx_status;

/* "ok", "invalid_request" and so on; "unknown" for another number. */
MLXX_API const char* mlxx_status_name(mlxx_status status);

/* What the last failed call of this thread said, one line, and forgets it: the
 * next call returns "" until something fails again. A call that succeeds
 * changes nothing. Never NULL; valid until the thread's next mlxx_last_error().
 */
MLXX_API const char* mlxx_last_error(void);

/* The version of mlxx, such as "0.1.0". Works before mlxx_init(). */
MLXX_API const char* mlxx_version(void);

/* Structs start with their size in bytes, so that later versions can add
 * fields at the end: start from the MLXX_..._INIT values. What a caller reads
 * or writes is never more than that size. A smaller size is an older caller's:
 * the fields it lacks have their defaults. A larger one is a newer caller's:
 * what this library does not know must be zero. The size must be a multiple of
 * 8 and at most 4096. */

typedef struct mlxx_options {
  size_t size;
  const char* libmlx; /* a libmlx to use and no other; NULL: search for one */
  const char* blas;   /* "mlx", "openblas" or a path; NULL: MLXX_BLAS */
} mlxx_options;
#define MLXX_OPTIONS_INIT {sizeof(mlxx_options), NULL, NULL}

/* Finds a libmlx, checks its version and loads it, as the mlxx program does
 * (MLXX_LIBMLX and MLXX_BLAS are honoured). `options` may be NULL. Once per
 * process, best before it starts threads; a later call changes nothing and
 * succeeds if the first did. Everything below needs it. */
MLXX_API mlxx_status mlxx_init(const mlxx_options* options);

/* After mlxx_init(): MLX's version and the file it came from; else "". */
MLXX_API const char* mlxx_mlx_version(void);
MLXX_API const char* mlxx_libmlx_path(void);

/* ---- Models ---- */

typedef struct mlxx_model mlxx_model;

typedef struct mlxx_model_options {
  size_t size;
  const char* chat_template; /* Jinja, instead of the model's; NULL: its own */
  int32_t context_length;    /* tokens, instead of the model's; 0: its own */
  int32_t reserved;          /* 0 */
} mlxx_model_options;
#define MLXX_MODEL_OPTIONS_INIT {sizeof(mlxx_model_options), NULL, 0, 0}

/* Loads a model: a catalogue name, a folder in Hugging Face layout, a .gguf
 * file, or org/repo that was pulled before. Never downloads. `options` may be
 * NULL. *out is NULL after a failure. */
MLXX_API mlxx_status mlxx_model_open(
    const char* model,
    const mlxx_model_options* options,
    mlxx_model** out);

/* NULL is allowed. Calls that run on the model go on to their end; its memory
 * is given back after the last of them. */
MLXX_API mlxx_status mlxx_model_close(mlxx_model* model);

typedef struct mlxx_model_info {
  size_t size;
  uint64_t parameters;    /* logical count, quantized or not */
  uint64_t weight_bytes;  /* resident */
  uint64_t file_bytes;    /* of all weight files */
  int32_t context_length; /* tokens, prompt and answer; 0: unknown */
  int32_t vocab_size;     /* ids that the model computes */
  int32_t tokenizer_size; /* largest id that the tokenizer knows, plus 1 */
  int32_t layers;
  int32_t hidden_size;
  int32_t bos_token;         /* -1: none */
  int32_t has_chat_template; /* 1 if it can be used */
  int32_t reserved;
  char architecture[64]; /* "llama" */
  char format[16];       /* "safetensors" or "gguf" */
} mlxx_model_info;

/* Fills in *info, whose size must be set. */
MLXX_API mlxx_status
mlxx_model_get_info(mlxx_model* model, mlxx_model_info* info);

/* ---- Text and tokens ----
 * Results go to the caller's memory. Each function stores how much there is in
 * *count, also where `capacity` is too small; then it writes nothing else and
 * returns MLXX_INVALID_REQUEST. Asking with a NULL buffer and capacity 0 is
 * MLXX_OK. None of them waits for a running answer, so that they may be called
 * in a callback. */

/* MLXX_ADD_SPECIAL adds what a prompt of this model starts with (BOS), never
 * twice. MLXX_PLAIN_TEXT keeps control tokens that are spelled out in the text,
 * such as <|im_end|>, ordinary characters: for text that a user wrote. */
enum { MLXX_ADD_SPECIAL = 1, MLXX_PLAIN_TEXT = 2 };

MLXX_API mlxx_status mlxx_tokenize(
    mlxx_model* model,
    const char* text,
    size_t bytes,
    int flags,
    int32_t* tokens,
    size_t capacity,
    size_t* count);

/* `skip_special` 1 leaves control tokens out. *count does not include the zero
 * byte that follows the text, `capacity` does. Bytes that are no UTF-8 come as
 * U+FFFD. */
MLXX_API mlxx_status mlxx_detokenize(
    mlxx_model* model,
    const int32_t* tokens,
    size_t token_count,
    int skip_special,
    char* text,
    size_t capacity,
    size_t* count);

/* A conversation. `messages` is a JSON list as in OpenAI's interface:
 * [{"role": "user", "content": "Hello"}]. */
typedef struct mlxx_chat {
  size_t size;
  const char* messages;
  const char* tools;              /* JSON list; NULL: none */
  const char* variables;          /* JSON object, for the template; or NULL */
  int32_t continue_final_message; /* 1: go on with the last message */
  int32_t no_generation_prompt;   /* 1: do not open an answer */
} mlxx_chat;
#define MLXX_CHAT_INIT {sizeof(mlxx_chat), NULL, NULL, NULL, 0, 0}

/* The prompt that the model's chat template makes of a conversation. The zero
 * byte as in mlxx_detokenize(). Tokens of this text may differ from those that
 * mlxx_generate() uses, which never reads control tokens out of messages. */
MLXX_API mlxx_status mlxx_apply_chat_template(
    mlxx_model* model,
    const mlxx_chat* chat,
    char* text,
    size_t capacity,
    size_t* count);

/* ---- Cancelling ----
 * Made before the call that it is for, given to it in its options. A request
 * stays: every call that has it ends with MLXX_CANCELLED, the ones that begin
 * later too. */

typedef struct mlxx_cancel mlxx_cancel;

MLXX_API mlxx_status mlxx_cancel_open(mlxx_cancel** out);
/* From any thread, at any time, as often as you like. Does not wait. */
MLXX_API mlxx_status mlxx_cancel_request(mlxx_cancel* cancel);
/* NULL is allowed. Calls that have it go on. */
MLXX_API mlxx_status mlxx_cancel_close(mlxx_cancel* cancel);

/* ---- Answers ---- */

/* What is NULL, 0 or -1 in MLXX_GENERATE_OPTIONS_INIT is off. Names and
 * meanings are those of docs/sampling.md. A value out of its range is refused.
 */
typedef struct mlxx_generate_options {
  size_t size;
  /* The prompt, if mlxx_generate() gets NULL for it: one of these two. */
  const mlxx_chat* chat;
  const int32_t* tokens;
  size_t token_count;
  const char* system_prompt; /* goes before a prompt that is a text */
  mlxx_cancel* cancel;
  const char* const* stop; /* texts; the answer ends just before one */
  size_t stop_count;
  const int32_t* logit_bias_tokens; /* added to the scores of these tokens */
  const float* logit_bias_values;
  size_t logit_bias_count;
  int64_t seed;       /* -1: a fresh one */
  int32_t raw;        /* 1: the prompt is no message but the text itself */
  int32_t max_tokens; /* 0 gives none */
  float temperature;  /* 0: always the likeliest token */
  float top_p;        /* 1: off */
  int32_t top_k;      /* 0: off */
  float min_p;        /* 0: off */
  int32_t min_tokens_to_keep; /* that min_p may not remove */
  float xtc_probability;      /* 0: off */
  float xtc_threshold;
  float repetition_penalty; /* 0 or 1: off */
  int32_t repetition_context_size;
  float presence_penalty;
  float frequency_penalty;
  int32_t penalty_context_size; /* of presence and frequency */
  int32_t max_kv_size;          /* tokens kept per layer; 0: all */
  int32_t prefill_step_size;    /* tokens of the prompt computed at once */
  int32_t ignore_eos;           /* 1: run on to max_tokens */
  /* Whether decode steps run as a graph that is recorded once, which gives the
   * same answer: 0 where that is faster, 1 yes, 2 no. */
  int32_t compile_decode;
} mlxx_generate_options;
#define MLXX_GENERATE_OPTIONS_INIT \
  {sizeof(mlxx_generate_options),  \
   NULL,                           \
   NULL,                           \
   0,                              \
   NULL,                           \
   NULL,                           \
   NULL,                           \
   0,                              \
   NULL,                           \
   NULL,                           \
   0,                              \
   -1,                             \
   0,                              \
   256,                            \
   0.0f,                           \
   1.0f,                           \
   0,                              \
   0.0f,                           \
   1,                              \
   0.0f,                           \
   0.1f,                           \
   0.0f,                           \
   20,                             \
   0.0f,                           \
   0.0f,                           \
   20,                             \
   0,                              \
   2048,                           \
   0,                              \
   0}

typedef enum mlxx_finish {
  MLXX_FINISH_NONE = 0,     /* failed */
  MLXX_FINISH_STOP = 1,     /* an end token or a stop text */
  MLXX_FINISH_LENGTH = 2,   /* max_tokens, or the context is full */
  MLXX_FINISH_CANCELLED = 3 /* the callback or mlxx_cancel_request() */
} mlxx_finish;

typedef struct mlxx_generate_result {
  size_t size;
  int64_t seed;           /* the one used, given or fresh */
  double prefill_seconds; /* to the first token */
  double decode_seconds;  /* from the first token to the last */
  uint64_t peak_memory_bytes;
  int32_t prompt_tokens;
  int32_t generated_tokens; /* the end token included */
  int32_t finish;           /* an mlxx_finish */
  int32_t stop_index;       /* which text of `stop` matched; -1: none */
} mlxx_generate_result;
#define MLXX_GENERATE_RESULT_INIT \
  {sizeof(mlxx_generate_result), 0, 0.0, 0.0, 0, 0, 0, 0, -1}

/* Receives the answer piece by piece, on the thread that called
 * mlxx_generate(), before that call returns. `text` is whole characters and
 * ends in a zero byte, which `bytes` does not count. Return nonzero to stop.
 * In it mlxx_generate() and mlxx_model_open() are refused; it must return, not
 * jump out or end its thread. */
typedef int (*mlxx_text_callback)(const char* text, size_t bytes, void* user);

/* Answers `prompt`, as the user's message unless options say otherwise.
 * `options` NULL: the values of MLXX_GENERATE_OPTIONS_INIT. `result` may be
 * NULL; it is filled in where the call succeeds or is cancelled. Calls on all
 * models run one after the other, in the order in which they came. */
MLXX_API mlxx_status mlxx_generate(
    mlxx_model* model,
    const char* prompt,
    const mlxx_generate_options* options,
    mlxx_text_callback callback,
    void* user,
    mlxx_generate_result* result);

/* ---- Embeddings ----
 * Calls run one after the other with those on models, and wait for their turn:
 * in a callback they are refused. */

typedef struct mlxx_embedder mlxx_embedder;

/* Loads an embedding model, named as for mlxx_model_open(). *out is NULL after
 * a failure. */
MLXX_API mlxx_status mlxx_embedder_open(const char* model, mlxx_embedder** out);
/* NULL is allowed. Calls that run go on to their end. */
MLXX_API mlxx_status mlxx_embedder_close(mlxx_embedder* embedder);

typedef struct mlxx_embedder_info {
  size_t size;
  int32_t dimensions; /* numbers of a vector */
  int32_t max_tokens; /* of a text; 0: unknown */
  int32_t layers;
  int32_t hidden_size;
  int32_t normalizes; /* 1: vectors have length 1 unless asked otherwise */
  int32_t reserved;
  char architecture[64]; /* "bert" */
  char pooling[16];      /* "mean", "cls" or "lasttoken" */
} mlxx_embedder_info;

/* Fills in *info, whose size must be set. */
MLXX_API mlxx_status
mlxx_embedder_get_info(mlxx_embedder* embedder, mlxx_embedder_info* info);

typedef struct mlxx_embed_options {
  size_t size;
  const char* prompt;      /* goes before every text, as it is */
  const char* prompt_name; /* one of the model's prompts instead; both NULL:
                              the model's default, if it has one */
  int32_t normalize;       /* 1 yes, 0 no, -1 as the model says */
  int32_t max_tokens;      /* texts are cut off here; 0: the model's limit */
  int32_t dimensions;      /* only the first numbers; 0: all */
  int32_t reserved;        /* 0 */
} mlxx_embed_options;
#define MLXX_EMBED_OPTIONS_INIT \
  {sizeof(mlxx_embed_options), NULL, NULL, -1, 0, 0, 0}

typedef struct mlxx_embed_result {
  size_t size;
  int64_t tokens;    /* of all texts */
  int64_t dropped;   /* tokens that were cut off */
  int32_t texts_cut; /* how many texts that were */
  int32_t reserved;
} mlxx_embed_result;
#define MLXX_EMBED_RESULT_INIT {sizeof(mlxx_embed_result), 0, 0, 0, 0}

/* The vectors of `text_count` texts, one after the other, as floats. *count is
 * how many floats those are and is known before anything is computed: ask with
 * a NULL buffer and capacity 0. A vector does not depend on the other texts.
 * `options` and `result` may be NULL. */
MLXX_API mlxx_status mlxx_embed(
    mlxx_embedder* embedder,
    const char* const* texts,
    size_t text_count,
    const mlxx_embed_options* options,
    float* vectors,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result);

typedef struct mlxx_reranker mlxx_reranker;

/* The same for a cross-encoder, which scores documents for a query. */
MLXX_API mlxx_status mlxx_reranker_open(const char* model, mlxx_reranker** out);
MLXX_API mlxx_status mlxx_reranker_close(mlxx_reranker* reranker);

typedef struct mlxx_rerank_options {
  size_t size;
  int32_t max_tokens; /* of a query with a document; 0: the model's limit */
  int32_t raw_scores; /* 1: the model's numbers as they are */
} mlxx_rerank_options;
#define MLXX_RERANK_OPTIONS_INIT {sizeof(mlxx_rerank_options), 0, 0}

/* The scores of each document, one after the other: one float each, or as many
 * as the model has labels. *count and the results as in mlxx_embed(). */
MLXX_API mlxx_status mlxx_rerank(
    mlxx_reranker* reranker,
    const char* query,
    const char* const* documents,
    size_t document_count,
    const mlxx_rerank_options* options,
    float* scores,
    size_t capacity,
    size_t* count,
    mlxx_embed_result* result);

/* ---- Memory of arrays ---- */

typedef struct mlxx_memory {
  size_t size;
  uint64_t active; /* bytes in arrays that are alive */
  uint64_t cache;  /* freed, kept for reuse */
  uint64_t peak;   /* highest `active` since the start or the last reset */
} mlxx_memory;
#define MLXX_MEMORY_INIT {sizeof(mlxx_memory), 0, 0, 0}

MLXX_API mlxx_status mlxx_memory_get(mlxx_memory* memory);
MLXX_API mlxx_status mlxx_memory_reset_peak(void);
/* Gives what is kept for reuse back to the system. */
MLXX_API mlxx_status mlxx_memory_clear_cache(void);

#ifdef __cplusplus
}
#endif

#endif
