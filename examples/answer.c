/* Streams an answer, from C: no C++, and MLX is found at run time.
 *   answer MODEL "What is the capital of France?" */

#include <stdio.h>

#include <mlxx/capi/mlxx.h>

static int print_text(const char* text, size_t bytes, void* user) {
  (void)user;
  fwrite(text, 1, bytes, stdout);
  return fflush(stdout) != 0;
}

static int report(mlxx_status status) {
  fprintf(stderr, "%s: %s\n", mlxx_status_name(status), mlxx_last_error());
  return 1;
}

int main(int argc, char** argv) {
  mlxx_model* model = NULL;
  mlxx_generate_options options = MLXX_GENERATE_OPTIONS_INIT;
  mlxx_generate_result result = MLXX_GENERATE_RESULT_INIT;
  mlxx_status status;
  if (argc != 3) {
    fprintf(stderr, "use: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }
  status = mlxx_init(NULL);
  if (status != MLXX_OK) {
    return report(status);
  }
  status = mlxx_model_open(argv[1], NULL, &model);
  if (status != MLXX_OK) {
    return report(status);
  }
  options.max_tokens = 100;
  status =
      mlxx_generate(model, argv[2], &options, print_text, NULL, &result);
  printf("\n");
  mlxx_model_close(model);
  if (status != MLXX_OK) {
    return report(status);
  }
  fprintf(
      stderr,
      "%d tokens in %.2f s, MLX %s\n",
      (int)result.generated_tokens,
      result.prefill_seconds + result.decode_seconds,
      mlxx_mlx_version());
  return 0;
}
