// Loads a model and streams its answer.
//   generate MODEL "What is the capital of France?"
// MODEL is a catalogue name, a folder in Hugging Face layout or a .gguf file.

#include <cstdio>
#include <exception>

#include <mlxx/generate/generate.h>
#include <mlxx/hub/resolve.h>
#include <nlohmann/json.hpp>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "use: %s MODEL PROMPT\n", argv[0]);
    return 2;
  }
  try {
    auto path = mlxx::hub::resolve_model(argv[1]);
    auto pipeline =
        mlxx::generate::load_pipeline(mlxx::hub::open_checkpoint(path));

    mlxx::OrderedJson messages = mlxx::OrderedJson::array();
    messages.push_back({{"role", "user"}, {"content", argv[2]}});
    auto prompt = mlxx::generate::encode_chat_prompt(pipeline, messages);

    mlxx::generate::GenerateOptions options;
    options.max_tokens = 200;
    auto result = mlxx::generate::generate(
        pipeline,
        prompt,
        options,
        [](const mlxx::generate::Delta& delta) {
          std::fputs(delta.text.c_str(), stdout);
          std::fflush(stdout);
          return true;
        });
    std::printf("\n");
    std::fprintf(
        stderr,
        "%d tokens, %.1f per second\n",
        result.generated_tokens,
        result.decode_tokens_per_second());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
