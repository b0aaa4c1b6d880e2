#ifndef MLXX_CAPI_MLXX_H
#define MLXX_CAPI_MLXX_H

/* mlxx for C and every language that can call C. Link libmlxx (it needs no MLX
 * at link time) or load it at run time; mlxx_init() finds and loads the rest.
 *
 * All text is UTF-8. Structs start with their size, so that later versions can
 * add fields at the end: use the MLXX_..._INIT values. Functions never print,
 * never abort and never throw. Any thread may call them; what runs a model runs
 * one call at a time. */

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
  MLXX_CANCELLED = 6, /* a callback asked to stop */
  MLXX_INTERNAL = 7   /* a bug of mlxx or of a library below it */
} mlxx_status;

/* "ok", "invalid_request" and so on; "unknown" for another number. */
MLXX_API const char* mlxx_status_name(mlxx_status status);

/* What the last failed call of this thread said, one line; "" if none failed.
 * Valid until the thread's next failing call. */
MLXX_API const char* mlxx_last_error(void);

/* The version of mlxx, such as "0.1.0". Works before mlxx_init(). */
MLXX_API const char* mlxx_version(void);

typedef struct mlxx_options {
  size_t size;
  const char* libmlx; /* a libmlx to use and no other; NULL: search for one */
  const char* blas;   /* "mlx", "openblas" or a path; NULL: MLXX_BLAS */
} mlxx_options;
#define MLXX_OPTIONS_INIT {sizeof(mlxx_options), NULL, NULL}

/* Finds a libmlx, checks its version and loads it, as the mlxx program does
 * (MLXX_LIBMLX and MLXX_BLAS are honoured). `options` may be NULL. Once per
 * process, best before it starts threads; a later call changes nothing and
 * succeeds if the first did. */
MLXX_API mlxx_status mlxx_init(const mlxx_options* options);

/* After mlxx_init(): MLX's version and the file it came from; else "". */
MLXX_API const char* mlxx_mlx_version(void);
MLXX_API const char* mlxx_libmlx_path(void);

typedef struct mlxx_model mlxx_model;

/* Loads a model: a catalogue name, a folder in Hugging Face layout, a .gguf
 * file, or org/repo that was pulled before. Never downloads. */
MLXX_API mlxx_status mlxx_model_open(const char* model, mlxx_model** out);
/* NULL is allowed. No call on the model may be running. */
MLXX_API void mlxx_model_close(mlxx_model* model);

typedef struct mlxx_generate_options {
  size_t size;
  const char* system_prompt; /* NULL: none */
  int raw;                   /* nonzero: no chat template */
  int max_tokens;
  float temperature; /* 0: always the likeliest token */
  float top_p;
  int top_k; /* 0: off */
  float min_p;
  int64_t seed; /* -1: a fresh one */
} mlxx_generate_options;
#define MLXX_GENERATE_OPTIONS_INIT \
  {sizeof(mlxx_generate_options), NULL, 0, 256, 0.0f, 1.0f, 0, 0.0f, -1}

/* Receives the answer piece by piece, on the thread that called
 * mlxx_generate(). `text` is whole characters and ends in a zero byte, which
 * `bytes` does not count. Return nonzero to stop. */
typedef int (*mlxx_text_callback)(const char* text, size_t bytes, void* user);

/* Answers `prompt`. `options` NULL: the defaults above. MLXX_CANCELLED if the
 * callback stopped it. */
MLXX_API mlxx_status mlxx_generate(
    mlxx_model* model,
    const char* prompt,
    const mlxx_generate_options* options,
    mlxx_text_callback callback,
    void* user);

#ifdef __cplusplus
}
#endif

#endif
