/* What the C tests of the C interface say and count. */

#pragma once

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

/* Consumes the error: afterwards there is none. */
static void
expect_error(mlxx_status status, mlxx_status wanted, const char* part) {
  const char* message = mlxx_last_error();
  if (status != wanted || message[0] != '[' || !strstr(message, part)) {
    ++failures;
    fprintf(
        stderr,
        "FAILED: %s '%s', expected %s with '%s'\n",
        mlxx_status_name(status),
        message,
        mlxx_status_name(wanted),
        part);
  }
  expect(mlxx_last_error()[0] == '\0', "an error is consumed once");
}
