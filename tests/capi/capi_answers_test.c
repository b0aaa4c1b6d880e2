/* Answers through the C interface, from several threads at once. The model is
 * MLXX_TEST_GGUF, or what `mlxx pull smollm2` put under MLXX_HOME; exit code 77
 * (skipped) if neither is set. */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mlxx/capi/mlxx.h"
#include "tests/capi/expectations.h"

enum { TEXT_BYTES = 8192 };

/* One call of mlxx_generate() and what came of it. */
typedef struct answer {
  mlxx_model* model;
  const char* prompt;
  mlxx_generate_options options;
  mlxx_generate_result result;
  mlxx_status status;
  char error[512];
  char text[TEXT_BYTES];
  size_t bytes;
  int pieces;
  int stop_after; /* pieces; 0: never */
  pthread_t caller;
  mlxx_cancel* cancels; /* requested after two pieces */
  mlxx_model* closes;   /* closed after one */
  int order;            /* of the first piece among all answers */
  int* started;
} answer;

static int receive(const char* text, size_t bytes, void* user) {
  answer* self = user;
  expect(
      pthread_equal(self->caller, pthread_self()),
      "callbacks come on the thread that asked");
  expect(strlen(text) == bytes, "the bytes of a piece");
  if (self->bytes + bytes < TEXT_BYTES) {
    memcpy(self->text + self->bytes, text, bytes);
    self->bytes += bytes;
  }
  ++self->pieces;
  if (self->pieces == 1 && self->started) {
    self->order = __atomic_fetch_add(self->started, 1, __ATOMIC_SEQ_CST);
  }
  if (self->pieces == 1 && self->closes) {
    expect(mlxx_model_close(self->closes) == MLXX_OK, "closing in a callback");
  }
  if (self->pieces == 2 && self->cancels) {
    expect(mlxx_cancel_request(self->cancels) == MLXX_OK, "a request");
  }
  return self->stop_after > 0 && self->pieces >= self->stop_after;
}

static answer* new_answer(mlxx_model* model, const char* prompt) {
  static const mlxx_generate_options options = MLXX_GENERATE_OPTIONS_INIT;
  static const mlxx_generate_result result = MLXX_GENERATE_RESULT_INIT;
  answer* made = calloc(1, sizeof *made);
  made->model = model;
  made->prompt = prompt;
  made->options = options;
  made->options.max_tokens = 16;
  made->result = result;
  return made;
}

/* Also a thread's function. */
static void* run(void* user) {
  answer* self = user;
  self->caller = pthread_self();
  self->status = mlxx_generate(
      self->model,
      self->prompt,
      &self->options,
      receive,
      self,
      &self->result);
  snprintf(self->error, sizeof self->error, "%s", mlxx_last_error());
  return NULL;
}

static void* request_cancel(void* user) {
  expect(mlxx_cancel_request(user) == MLXX_OK, "a request of another thread");
  return NULL;
}

static const char* const question = "What is the capital of France?";

static void check_result(mlxx_model* model) {
  answer* first = new_answer(model, question);
  answer* stopped = new_answer(model, question);
  answer* sampled[2];
  const char* const stops[] = {"no such text", " Paris"};
  int i;
  run(first);
  expect(first->status == MLXX_OK, "an answer");
  expect(strstr(first->text, "Paris") != NULL, "Paris");
  expect(
      first->result.prompt_tokens > 20 && first->result.prompt_tokens < 60,
      "tokens of the prompt");
  expect(
      first->result.generated_tokens > 3 &&
          first->result.generated_tokens <= 16,
      "tokens of the answer");
  expect(
      first->result.finish == MLXX_FINISH_STOP ||
          first->result.finish == MLXX_FINISH_LENGTH,
      "why it finished");
  expect(first->result.prefill_seconds > 0, "seconds of the prompt");
  expect(first->result.decode_seconds > 0, "seconds of the answer");
  expect(first->result.peak_memory_bytes > 1000000, "bytes of memory");
  expect(first->result.seed >= 0, "a seed");

  stopped->options.stop = stops;
  stopped->options.stop_count = 2;
  run(stopped);
  expect(stopped->status == MLXX_OK, "an answer with stop texts");
  expect(stopped->result.finish == MLXX_FINISH_STOP, "stopped by a text");
  expect(stopped->result.stop_index == 1, "which text");
  expect(strstr(stopped->text, "Paris") == NULL, "nothing of the stop text");
  expect(
      strncmp(first->text, stopped->text, stopped->bytes) == 0,
      "the same until there");

  for (i = 0; i < 2; ++i) {
    sampled[i] = new_answer(model, "Tell me a story.");
    sampled[i]->options.temperature = 1.0f;
    sampled[i]->options.top_p = 0.9f;
    sampled[i]->options.top_k = 50;
    sampled[i]->options.min_p = 0.01f;
    sampled[i]->options.repetition_penalty = 1.1f;
    sampled[i]->options.seed = i == 0 ? -1 : sampled[0]->result.seed;
    run(sampled[i]);
    expect(sampled[i]->status == MLXX_OK, "a sampled answer");
  }
  expect(
      strcmp(sampled[0]->text, sampled[1]->text) == 0,
      "the seed of the result gives the answer again");
  expect(sampled[0]->result.seed == sampled[1]->result.seed, "the same seed");
  free(first);
  free(stopped);
  free(sampled[0]);
  free(sampled[1]);
}

static void check_threads(mlxx_model* model) {
  enum { COUNT = 3 };
  answer* alone = new_answer(model, question);
  answer* together[COUNT];
  pthread_t threads[COUNT];
  int started = 0;
  int seen = 0;
  int i;
  run(alone);
  for (i = 0; i < COUNT; ++i) {
    together[i] = new_answer(model, question);
    together[i]->started = &started;
    pthread_create(&threads[i], NULL, run, together[i]);
  }
  for (i = 0; i < COUNT; ++i) {
    pthread_join(threads[i], NULL);
    expect(together[i]->status == MLXX_OK, "an answer beside others");
    expect(
        strcmp(together[i]->text, alone->text) == 0,
        "the same as alone, piece by piece");
    seen |= 1 << together[i]->order;
    free(together[i]);
  }
  expect(seen == (1 << COUNT) - 1, "every answer had its turn");
  free(alone);
}

static void check_cancel(mlxx_model* model) {
  answer* stopped = new_answer(model, "Count from 1 to 100.");
  answer* cancelled = new_answer(model, "Count from 1 to 100.");
  answer* late = new_answer(model, "Count from 1 to 100.");
  mlxx_cancel* cancel = NULL;
  stopped->stop_after = 2;
  run(stopped);
  expect(stopped->status == MLXX_CANCELLED, "stopped by the callback");
  expect(stopped->pieces == 2, "no piece after that");
  expect(strstr(stopped->error, "by the callback") != NULL, "its message");
  expect(stopped->result.finish == MLXX_FINISH_CANCELLED, "why it finished");
  expect(stopped->result.prompt_tokens > 0, "counted nevertheless");

  expect(mlxx_cancel_open(&cancel) == MLXX_OK, "a cancel");
  cancelled->options.cancel = cancel;
  cancelled->options.max_tokens = 2000;
  cancelled->options.ignore_eos = 1;
  cancelled->cancels = cancel;
  run(cancelled);
  expect(cancelled->status == MLXX_CANCELLED, "cancelled");
  expect(cancelled->pieces == 2, "no piece after the request");
  expect(strstr(cancelled->error, "] cancelled") != NULL, "its message");
  expect(cancelled->result.finish == MLXX_FINISH_CANCELLED, "why it finished");
  expect(cancelled->result.generated_tokens < 2000, "cut off");

  late->options.cancel = cancel;
  run(late);
  expect(late->status == MLXX_CANCELLED, "a request stays");
  expect(late->pieces == 0, "nothing came of it");
  expect(mlxx_cancel_close(cancel) == MLXX_OK, "closing it");
  run(late);
  expect(late->status == MLXX_INVALID_REQUEST, "closed");
  expect(strstr(late->error, "cancel is no open handle") != NULL, "which");
  free(stopped);
  free(cancelled);
  free(late);
}

/* Two endless answers: the second waits for its turn. */
static void check_cancel_of_other_threads(mlxx_model* model) {
  answer* endless[2];
  mlxx_cancel* cancels[2];
  pthread_t threads[2];
  pthread_t third;
  int i;
  for (i = 0; i < 2; ++i) {
    expect(mlxx_cancel_open(&cancels[i]) == MLXX_OK, "a cancel");
    endless[i] = new_answer(model, "Count from 1 to 100.");
    endless[i]->options.max_tokens = 4000;
    endless[i]->options.ignore_eos = 1;
    endless[i]->options.cancel = cancels[i];
    pthread_create(&threads[i], NULL, run, endless[i]);
  }
  /* Whichever has begun, the other returns without having waited for it. */
  for (i = 1; i >= 0; --i) {
    pthread_create(&third, NULL, request_cancel, cancels[i]);
    pthread_join(third, NULL);
    pthread_join(threads[i], NULL);
    expect(endless[i]->status == MLXX_CANCELLED, "cancelled by a thread");
    expect(endless[i]->result.generated_tokens < 3900, "long before its end");
    expect(mlxx_cancel_close(cancels[i]) == MLXX_OK, "closing it");
    free(endless[i]);
  }
}

typedef struct inside {
  mlxx_model* model;
  int calls;
} inside;

static int call_from_callback(const char* text, size_t bytes, void* user) {
  inside* self = user;
  mlxx_model* other = NULL;
  mlxx_memory memory = MLXX_MEMORY_INIT;
  int32_t tokens[64];
  size_t count = 0;
  ++self->calls;
  expect_error(
      mlxx_generate(self->model, "hi", NULL, call_from_callback, user, NULL),
      MLXX_INVALID_REQUEST,
      "in a callback");
  expect_error(
      mlxx_model_open("smollm2", NULL, &other),
      MLXX_INVALID_REQUEST,
      "in a callback");
  expect(
      mlxx_tokenize(self->model, text, bytes, 0, tokens, 64, &count) ==
          MLXX_OK,
      "tokenizing in a callback");
  expect(mlxx_memory_get(&memory) == MLXX_OK, "telemetry in a callback");
  expect(memory.active > 0, "bytes in use");
  return self->calls == 2;
}

static void check_calls_from_callbacks(mlxx_model* model) {
  inside self = {NULL, 0};
  answer* after = new_answer(model, question);
  self.model = model;
  expect_error(
      mlxx_generate(model, question, NULL, call_from_callback, &self, NULL),
      MLXX_CANCELLED,
      "by the callback");
  expect(self.calls == 2, "two callbacks");
  run(after);
  expect(after->status == MLXX_OK, "outside it may be called again");
  free(after);
}

/* An answer goes on although its model was closed in its first callback; then
 * the memory comes back. */
static void check_close(mlxx_model* model) {
  answer* last = new_answer(model, question);
  mlxx_memory before = MLXX_MEMORY_INIT;
  mlxx_memory after = MLXX_MEMORY_INIT;
  expect(mlxx_memory_get(&before) == MLXX_OK, "memory before");
  last->closes = model;
  run(last);
  expect(last->status == MLXX_OK, "the answer of a closed model");
  expect(strstr(last->text, "Paris") != NULL, "all of it");
  expect(mlxx_memory_get(&after) == MLXX_OK, "memory after");
  expect(before.active > 50000000, "weights were in memory");
  expect(after.active < 1000000, "weights are not in memory");
  run(last);
  expect(last->status == MLXX_INVALID_REQUEST, "use after closing");
  expect(strstr(last->error, "model is no open handle") != NULL, "says so");
  expect_error(mlxx_model_close(model), MLXX_INVALID_REQUEST, "no open handle");
  free(last);
}

int main(void) {
  const char* name = getenv("MLXX_TEST_GGUF");
  mlxx_model* model = NULL;
  if (!name || !*name) {
    name = "smollm2";
    if (!getenv("MLXX_HOME")) {
      printf("neither MLXX_TEST_GGUF nor MLXX_HOME is set\n");
      return 77;
    }
  }
  expect(mlxx_init(NULL) == MLXX_OK, "init");
  expect(mlxx_model_open(name, NULL, &model) == MLXX_OK, "opening");
  if (failures == 0) {
    check_result(model);
    check_threads(model);
    check_cancel(model);
    check_cancel_of_other_threads(model);
    check_calls_from_callbacks(model);
    check_close(model);
  }
  return failures != 0;
}
