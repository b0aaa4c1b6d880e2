#include "mlxx/text/tokenizer.h"

#include <cstring>

#include "mlxx/base/utf8.h"
#include "mlxx/text/text_checks.h"
#include "mlxx/text/tokenizer_impl.h"

namespace mlxx::text {

namespace {

constexpr size_t kLongestText = size_t{16}
    << 20;  // some 200 bytes of memory for each byte

uint32_t checked_id(int32_t id) {
  if (id < 0) {
    fail(ErrorKind::invalid_request, "tokenizer", "no token has the id {}", id);
  }
  return static_cast<uint32_t>(id);
}

}  // namespace

void check_text(std::string_view text) {
  if (text.size() > kLongestText) {
    fail(
        ErrorKind::invalid_request,
        "tokenizer",
        "the text has {} bytes, the limit is {}",
        text.size(),
        kLongestText);
  }
  if (!is_valid_utf8(text)) {
    fail(
        ErrorKind::invalid_request,
        "tokenizer",
        "the text is not valid UTF-8");
  }
}

std::vector<int32_t> take_ids(MlxxBytes bytes) {
  std::vector<int32_t> ids(bytes.length / sizeof(int32_t));
  if (!ids.empty()) {
    std::memcpy(ids.data(), bytes.data, ids.size() * sizeof(int32_t));
  }
  mlxx_text_free(bytes);
  return ids;
}

std::shared_ptr<const Tokenizer> Tokenizer::from_json(std::string_view json) {
  auto impl = std::make_unique<Impl>();
  MlxxBytes error{};
  int code = mlxx_tokenizer_new(
      byte_pointer(json),
      json.size(),
      &impl->handle,
      &error);
  check_rust(code, error, ErrorKind::bad_file, "tokenizer.json");
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

std::shared_ptr<const Tokenizer> Tokenizer::from_packed(
    std::string_view packed) {
  auto impl = std::make_unique<Impl>();
  MlxxBytes error{};
  int code = mlxx_tokenizer_from_packed(
      byte_pointer(packed),
      packed.size(),
      &impl->handle,
      &error);
  check_rust(code, error, ErrorKind::bad_file, "packed tokenizer");
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

std::string Tokenizer::packed_format() {
  return take_string(mlxx_tokenizer_packed_format());
}

std::string_view Tokenizer::packed() const {
  size_t length = 0;
  const uint8_t* data = mlxx_tokenizer_packed(impl_->handle, &length);
  return {reinterpret_cast<const char*>(data), length};
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(
    std::string_view text,
    const EncodeOptions& options) const {
  check_text(text);
  MlxxBytes ids{}, error{};
  int code = mlxx_tokenizer_encode(
      impl_->handle,
      byte_pointer(text),
      text.size(),
      options.add_special_tokens,
      options.parse_special,
      &ids,
      &error);
  check_rust(code, error, ErrorKind::invalid_request, "tokenizer");
  return take_ids(ids);
}

std::string Tokenizer::decode(
    std::span<const int32_t> tokens,
    bool skip_special_tokens) const {
  std::vector<uint32_t> ids;
  ids.reserve(tokens.size());
  for (int32_t token : tokens) {
    ids.push_back(checked_id(token));
  }
  MlxxBytes text{}, error{};
  int code = mlxx_tokenizer_decode(
      impl_->handle,
      ids.data(),
      ids.size(),
      skip_special_tokens,
      &text,
      &error);
  check_rust(code, error, ErrorKind::invalid_request, "tokenizer");
  return take_string(text);
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  int64_t id = mlxx_tokenizer_token_to_id(
      impl_->handle,
      byte_pointer(token),
      token.size());
  if (id < 0) {
    return std::nullopt;
  }
  return static_cast<int32_t>(id);
}

std::string Tokenizer::id_to_token(int32_t id) const {
  MlxxBytes token{}, error{};
  int code =
      mlxx_tokenizer_id_to_token(impl_->handle, checked_id(id), &token, &error);
  check_rust(code, error, ErrorKind::invalid_request, "tokenizer");
  return take_string(token);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  MlxxBytes bytes{}, error{};
  int code =
      mlxx_tokenizer_token_bytes(impl_->handle, checked_id(id), &bytes, &error);
  check_rust(code, error, ErrorKind::invalid_request, "tokenizer");
  return take_string(bytes);
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 &&
      mlxx_tokenizer_is_special(impl_->handle, static_cast<uint32_t>(id));
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(mlxx_tokenizer_vocab_size(impl_->handle));
}

}  // namespace mlxx::text
