#include "mlxx/text/stream_decoder.h"

#include "mlxx/text/tokenizer_impl.h"

namespace mlxx::text {

struct StreamDecoder::Impl {
  std::shared_ptr<const Tokenizer> tokenizer;  // the handle borrows from it
  MlxxStream* handle = nullptr;
  ~Impl() {
    mlxx_stream_free(handle);
  }
};

StreamDecoder::StreamDecoder(
    std::shared_ptr<const Tokenizer> tokenizer,
    bool skip_special_tokens)
    : impl_(std::make_unique<Impl>()) {
  impl_->handle =
      mlxx_stream_new(tokenizer->impl().handle, skip_special_tokens);
  impl_->tokenizer = std::move(tokenizer);
}

StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::step(int32_t token) {
  if (token < 0) {
    fail(
        ErrorKind::invalid_request,
        "decoder",
        "no token has the id {}",
        token);
  }
  MlxxBytes text{}, error{};
  int code = mlxx_stream_step(
      impl_->handle,
      static_cast<uint32_t>(token),
      &text,
      &error);
  check_rust(code, error, ErrorKind::internal, "decoder");
  return take_string(text);
}

std::string StreamDecoder::flush() {
  MlxxBytes text{}, error{};
  int code = mlxx_stream_flush(impl_->handle, &text, &error);
  check_rust(code, error, ErrorKind::internal, "decoder");
  return take_string(text);
}

}  // namespace mlxx::text
