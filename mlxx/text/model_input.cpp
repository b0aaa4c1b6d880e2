#include "mlxx/text/model_input.h"

#include "mlxx/text/text_checks.h"
#include "mlxx/text/tokenizer_impl.h"

namespace mlxx::text {

ModelInput encode_model_input(
    const Tokenizer& tokenizer,
    std::string_view first,
    std::optional<std::string_view> second,
    const ModelInputOptions& options) {
  check_text(first);
  if (second) {
    check_text(*second);
  }
  // An empty second text is a text all the same, and must not be null.
  std::string_view other = second.value_or("");
  const uint8_t* other_bytes = second ? byte_pointer(other) : nullptr;
  if (second && !other_bytes) {
    other_bytes = byte_pointer("");
  }
  MlxxBytes out{}, error{};
  int code = mlxx_tokenizer_encode_input(
      tokenizer.impl().handle,
      byte_pointer(first),
      first.size(),
      other_bytes,
      other.size(),
      options.lower_case,
      static_cast<size_t>(options.max_tokens),
      &out,
      &error);
  check_rust(code, error, ErrorKind::invalid_request, "tokenizer");
  std::vector<int32_t> numbers = take_ids(out);
  auto ids = numbers.begin() + 1;
  auto types = ids + (numbers.end() - ids) / 2;
  return {
      .ids = {ids, types},
      .types = {types, numbers.end()},
      .dropped = numbers.front()};
}

}  // namespace mlxx::text
