/* Uses the C interface as C. model_test.py has what needs a model. */

#include <stdio.h>
#include <string.h>

#include "mlxx/capi/mlxx.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (!condition) {
    ++failures;
    fprintf(stderr, "FAILED: %s (last error: %s)\n", what, mlxx_last_error());
  }
}

static void
expect_error(mlxx_status status, mlxx_status wanted, const char* part) {
  if (status != wanted || !strstr(mlxx_last_error(), part)) {
    ++failures;
    fprintf(
        stderr,
        "FAILED: %s '%s', expected %s with '%s'\n",
        mlxx_status_name(status),
        mlxx_last_error(),
        mlxx_status_name(wanted),
        part);
  }
}

static int ignore_text(const char* text, size_t bytes, void* user) {
  (void)text;
  (void)bytes;
  (void)user;
  return 0;
}

static void before_init(void) {
  mlxx_model* model = (mlxx_model*)&failures;
  expect(mlxx_last_error()[0] == '\0', "no error at first");
  expect(strlen(mlxx_version()) >= 5, "a version");
  expect(strcmp(mlxx_mlx_version(), "") == 0, "no MLX yet");
  expect(strcmp(mlxx_libmlx_path(), "") == 0, "no libmlx yet");
  expect_error(
      mlxx_model_open("smollm2", &model),
      MLXX_INVALID_REQUEST,
      "call mlxx_init() first");
  expect(model == NULL, "out is NULL after a failure");
  mlxx_model_close(NULL);
}

static void failing_init(void) {
  mlxx_options options = MLXX_OPTIONS_INIT;
  options.size = 3;
  expect_error(mlxx_init(&options), MLXX_INVALID_REQUEST, "options.size is 3");
  options.size = sizeof options;
  options.libmlx = "/nonexistent/libmlx.so";
  expect_error(mlxx_init(&options), MLXX_NOT_FOUND, "/nonexistent/libmlx.so");
  options.libmlx = "/";
  expect_error(mlxx_init(&options), MLXX_BAD_FILE, "is a folder");
  options.libmlx = NULL;
  options.blas = "fastest";
  expect_error(mlxx_init(&options), MLXX_INVALID_REQUEST, "'fastest'");
}

static void after_init(void) {
  mlxx_model* model = NULL;
  /* A failed start may be tried again, and a second start changes nothing. */
  expect(mlxx_init(NULL) == MLXX_OK, "init");
  expect(mlxx_init(NULL) == MLXX_OK, "init again");
  expect(strlen(mlxx_mlx_version()) >= 5, "MLX's version");
  expect(strstr(mlxx_libmlx_path(), "libmlx") != NULL, "libmlx's path");
  expect_error(
      mlxx_model_open("/nonexistent/model", &model),
      MLXX_NOT_FOUND,
      "/nonexistent/model");
  expect(model == NULL, "no model");
  expect_error(mlxx_model_open(NULL, &model), MLXX_INVALID_REQUEST, "NULL");
  expect_error(mlxx_model_open("a", NULL), MLXX_INVALID_REQUEST, "NULL");
  expect_error(
      mlxx_generate(NULL, "hi", NULL, ignore_text, NULL),
      MLXX_INVALID_REQUEST,
      "model is NULL");
}

int main(void) {
  before_init();
  failing_init();
  after_init();
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
