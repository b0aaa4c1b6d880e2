/* Uses the C interface as C, without a model: statuses, the record of errors,
 * handles that are none, sizes of structs. */

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "mlxx/capi/mlxx.h"
#include "tests/capi/expectations.h"

static int ignore_text(const char* text, size_t bytes, void* user) {
  (void)text;
  (void)bytes;
  (void)user;
  return 0;
}

static void before_init(void) {
  mlxx_model* model = (mlxx_model*)&failures;
  mlxx_cancel* cancel = (mlxx_cancel*)&failures;
  expect(mlxx_last_error()[0] == '\0', "no error at first");
  expect(strlen(mlxx_version()) >= 5, "a version");
  expect(strcmp(mlxx_mlx_version(), "") == 0, "no MLX yet");
  expect(strcmp(mlxx_libmlx_path(), "") == 0, "no libmlx yet");
  expect_error(
      mlxx_model_open("smollm2", NULL, &model),
      MLXX_INVALID_REQUEST,
      "call mlxx_init() first");
  expect(model == NULL, "out is NULL after a failure");
  expect_error(
      mlxx_cancel_open(&cancel),
      MLXX_INVALID_REQUEST,
      "call mlxx_init() first");
  expect(cancel == NULL, "out is NULL after a failure");
  expect_error(
      mlxx_memory_clear_cache(),
      MLXX_INVALID_REQUEST,
      "call mlxx_init() first");
}

static void failing_init(void) {
  mlxx_options options = MLXX_OPTIONS_INIT;
  options.size = 3;
  expect_error(mlxx_init(&options), MLXX_INVALID_REQUEST, "size is 3");
  options.size = sizeof options;
  options.libmlx = "/nonexistent/libmlx.so";
  expect_error(mlxx_init(&options), MLXX_NOT_FOUND, "/nonexistent/libmlx.so");
  options.libmlx = "/";
  expect_error(mlxx_init(&options), MLXX_BAD_FILE, "is a folder");
  options.libmlx = NULL;
  options.blas = "fastest";
  expect_error(mlxx_init(&options), MLXX_INVALID_REQUEST, "'fastest'");
}

/* A later header has one field more, an earlier one has none of ours. */
static void sizes_of_structs(void) {
  struct {
    mlxx_options known;
    void* later;
  } options = {MLXX_OPTIONS_INIT, NULL};
  struct {
    mlxx_memory known;
    uint64_t later;
  } memory = {MLXX_MEMORY_INIT, 77};
  options.known.size = sizeof options;
  options.later = &options;
  expect_error(mlxx_init(&options.known), MLXX_INVALID_REQUEST, "at byte 2");
  options.later = NULL;
  expect(mlxx_init(&options.known) == MLXX_OK, "zero in a later field");
  options.known.size = 8;
  options.known.blas = "not read";
  expect(mlxx_init(&options.known) == MLXX_OK, "no field but the size");

  memory.known.size = sizeof memory;
  expect(mlxx_memory_get(&memory.known) == MLXX_OK, "a later struct");
  expect(memory.later == 0, "the later field is zeroed");
  expect(memory.known.size == sizeof memory, "the size stays");
  expect(memory.known.peak >= memory.known.active, "peak and active");
  memory.known.size = 16;
  memory.known.peak = 77;
  expect(mlxx_memory_get(&memory.known) == MLXX_OK, "an earlier struct");
  expect(memory.known.peak == 77, "nothing is written past the size");
  memory.known.size = 0;
  expect_error(mlxx_memory_get(&memory.known), MLXX_INVALID_REQUEST, "is 0");
  memory.known.size = 20;
  expect_error(mlxx_memory_get(&memory.known), MLXX_INVALID_REQUEST, "is 20");
  memory.known.size = (size_t)-8;
  expect_error(mlxx_memory_get(&memory.known), MLXX_INVALID_REQUEST, "size");
  expect_error(mlxx_memory_get(NULL), MLXX_INVALID_REQUEST, "NULL");
}

static void handles_that_are_none(mlxx_model* model, const char* part) {
  int32_t tokens[4] = {1, 2, 3, 4};
  char text[16];
  size_t count = 99;
  mlxx_model_info info;
  mlxx_chat chat = MLXX_CHAT_INIT;
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  chat.messages = "[]";
  expect_error(mlxx_model_get_info(model, &info), MLXX_INVALID_REQUEST, part);
  expect_error(
      mlxx_tokenize(model, "a", 1, 0, tokens, 4, &count),
      MLXX_INVALID_REQUEST,
      part);
  expect_error(
      mlxx_detokenize(model, tokens, 1, 0, text, sizeof text, &count),
      MLXX_INVALID_REQUEST,
      part);
  expect_error(
      mlxx_apply_chat_template(model, &chat, text, sizeof text, &count),
      MLXX_INVALID_REQUEST,
      part);
  expect_error(
      mlxx_generate(model, "hi", NULL, ignore_text, NULL, NULL),
      MLXX_INVALID_REQUEST,
      part);
}

static void models(void) {
  mlxx_model* model = (mlxx_model*)&failures;
  mlxx_cancel* cancel = NULL;
  mlxx_cancel* closed;
  mlxx_model_options options = MLXX_MODEL_OPTIONS_INIT;
  expect_error(
      mlxx_model_open("/nonexistent/model", NULL, &model),
      MLXX_NOT_FOUND,
      "/nonexistent/model");
  expect(model == NULL, "no model");
  expect_error(
      mlxx_model_open(NULL, NULL, &model),
      MLXX_INVALID_REQUEST,
      "NULL");
  expect_error(mlxx_model_open("a", NULL, NULL), MLXX_INVALID_REQUEST, "NULL");
  expect_error(
      mlxx_model_open("\xff\xfe/no", NULL, &model),
      MLXX_NOT_FOUND,
      "xff");
  options.reserved = 1;
  expect_error(
      mlxx_model_open("a", &options, &model),
      MLXX_INVALID_REQUEST,
      "reserved");
  options.reserved = 0;
  options.chat_template = "\xc3(";
  expect_error(
      mlxx_model_open("a", &options, &model),
      MLXX_INVALID_REQUEST,
      "UTF-8");

  expect(mlxx_model_close(NULL) == MLXX_OK, "closing no model");
  expect(mlxx_cancel_close(NULL) == MLXX_OK, "closing no cancel");
  handles_that_are_none(NULL, "model is NULL");
  handles_that_are_none((mlxx_model*)&failures, "no open handle");
  expect_error(
      mlxx_model_close((mlxx_model*)&failures),
      MLXX_INVALID_REQUEST,
      "no open handle");

  expect_error(mlxx_cancel_open(NULL), MLXX_INVALID_REQUEST, "NULL");
  expect_error(mlxx_cancel_request(NULL), MLXX_INVALID_REQUEST, "NULL");
  expect(mlxx_cancel_open(&cancel) == MLXX_OK, "a cancel");
  /* A handle of one kind is none of another. */
  handles_that_are_none((mlxx_model*)cancel, "no open handle");
  expect(mlxx_cancel_request(cancel) == MLXX_OK, "a request");
  expect(mlxx_cancel_request(cancel) == MLXX_OK, "another request");
  closed = cancel;
  expect(mlxx_cancel_close(cancel) == MLXX_OK, "closing it");
  expect(mlxx_cancel_open(&cancel) == MLXX_OK, "another cancel");
  expect(cancel != closed, "handles are not used again");
  expect_error(
      mlxx_cancel_request(closed),
      MLXX_INVALID_REQUEST,
      "cancel is no open handle");
  expect_error(
      mlxx_cancel_close(closed),
      MLXX_INVALID_REQUEST,
      "no open handle");
  expect(mlxx_cancel_close(cancel) == MLXX_OK, "closing the other");
}

static void embedders(void) {
  mlxx_embedder* embedder = (mlxx_embedder*)&failures;
  mlxx_reranker* reranker = (mlxx_reranker*)&failures;
  mlxx_cancel* cancel = NULL;
  mlxx_embedder_info info;
  const char* texts[] = {"a"};
  float numbers[4];
  size_t count = 99;
  expect_error(
      mlxx_embedder_open("/nonexistent/model", &embedder),
      MLXX_NOT_FOUND,
      "/nonexistent/model");
  expect(embedder == NULL, "no embedder");
  expect_error(
      mlxx_embedder_open(NULL, &embedder),
      MLXX_INVALID_REQUEST,
      "NULL");
  expect_error(mlxx_embedder_open("a", NULL), MLXX_INVALID_REQUEST, "NULL");
  expect_error(
      mlxx_reranker_open("/nonexistent/model", &reranker),
      MLXX_NOT_FOUND,
      "/nonexistent/model");
  expect(reranker == NULL, "no reranker");
  expect(mlxx_embedder_close(NULL) == MLXX_OK, "closing no embedder");
  expect(mlxx_reranker_close(NULL) == MLXX_OK, "closing no reranker");
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  expect_error(
      mlxx_embedder_get_info(NULL, &info),
      MLXX_INVALID_REQUEST,
      "embedder is NULL");
  expect_error(
      mlxx_embed(NULL, texts, 1, NULL, numbers, 4, &count, NULL),
      MLXX_INVALID_REQUEST,
      "embedder is NULL");
  expect_error(
      mlxx_rerank(NULL, "q", texts, 1, NULL, numbers, 4, &count, NULL),
      MLXX_INVALID_REQUEST,
      "reranker is NULL");
  /* A handle of one kind is none of another. */
  expect(mlxx_cancel_open(&cancel) == MLXX_OK, "a cancel");
  expect_error(
      mlxx_embedder_close((mlxx_embedder*)cancel),
      MLXX_INVALID_REQUEST,
      "no open handle");
  expect_error(
      mlxx_reranker_close((mlxx_reranker*)cancel),
      MLXX_INVALID_REQUEST,
      "no open handle");
  expect(mlxx_cancel_close(cancel) == MLXX_OK, "closing it");
}

static void* fail_elsewhere(void* user) {
  (void)user;
  expect(mlxx_last_error()[0] == '\0', "no error of another thread");
  expect_error(mlxx_cancel_request(NULL), MLXX_INVALID_REQUEST, "cancel");
  mlxx_memory_get(NULL);
  return NULL;
}

static void errors_of_threads(void) {
  pthread_t thread;
  const char* message;
  mlxx_memory memory = MLXX_MEMORY_INIT;
  expect(mlxx_model_close((mlxx_model*)1000) != MLXX_OK, "an error here");
  expect(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0, "a thread");
  pthread_join(thread, NULL);
  expect(mlxx_memory_get(&memory) == MLXX_OK, "a call that succeeds");
  expect(mlxx_memory_reset_peak() == MLXX_OK, "peak");
  expect(mlxx_memory_clear_cache() == MLXX_OK, "cache");
  message = mlxx_last_error();
  expect(strstr(message, "mlxx_model_close") != NULL, "the error of here");
  /* A later failure must not change what was handed out. */
  expect(mlxx_memory_get(NULL) == MLXX_INVALID_REQUEST, "another error");
  expect(
      strstr(message, "mlxx_model_close") != NULL,
      "valid until asked again");
  expect_error(MLXX_INVALID_REQUEST, MLXX_INVALID_REQUEST, "mlxx_memory_get");
}

int main(void) {
  before_init();
  failing_init();
  /* A failed start may be tried again, and a second start changes nothing. */
  expect(mlxx_init(NULL) == MLXX_OK, "init");
  expect(mlxx_init(NULL) == MLXX_OK, "init again");
  expect(strlen(mlxx_mlx_version()) >= 5, "MLX's version");
  expect(strstr(mlxx_libmlx_path(), "libmlx") != NULL, "libmlx's path");
  sizes_of_structs();
  models();
  embedders();
  errors_of_threads();
  expect(
      strcmp(mlxx_status_name(MLXX_CANCELLED), "cancelled") == 0,
      "name of a status");
  expect(
      strcmp(mlxx_status_name((mlxx_status)99), "unknown") == 0,
      "name of no status");
  if (failures == 0) {
    printf("the C interface works with MLX %s\n", mlxx_mlx_version());
  }
  return failures != 0;
}
