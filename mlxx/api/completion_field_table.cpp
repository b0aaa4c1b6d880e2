#include "mlxx/api/fields.h"
#include "mlxx/api/sampling_fields.h"

namespace mlxx::api {

namespace {

constexpr auto kFields = std::to_array<Field>({
    {"prompt",
     FieldStatus::honoured,
     "\"hi\"",
     "A string, a list of strings, a list of token ids, or a list of such "
     "lists. Special tokens in strings are recognised.",
     "[[1], \"x\"]"},
    {"echo",
     FieldStatus::honoured,
     "true",
     "The prompt stands before the answer.",
     "1"},
    {"logprobs",
     FieldStatus::honoured,
     "2",
     "0 to 20 alternatives, in the legacy shape; of the model, before "
     "penalties and filters.",
     "21"},
    {"suffix", FieldStatus::refused, "\"x\"", "is not supported"},
    {"skip_special_tokens", FieldStatus::refused, "false", "is not supported"},
    {"add_special_tokens",
     FieldStatus::honoured,
     "false",
     "false: the prompt gets no BOS. An extension.",
     "0"},
});

constexpr auto kAll =
    joined_fields(kFields, kGenerationFields, kSamplingFields);

constexpr FieldTable kTable = {
    "POST /v1/completions",
    R"({"prompt": "hi"})",
    kAll,
};

}  // namespace

const FieldTable& completion_fields() {
  return kTable;
}

}  // namespace mlxx::api
