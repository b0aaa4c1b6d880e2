#pragma once

#include "mlxx/text/rust_abi.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {

struct Tokenizer::Impl {
  MlxxTokenizer* handle = nullptr;
  ~Impl() {
    mlxx_tokenizer_free(handle);
  }
};

// 32-bit ids as the crate hands them over -> token ids. Takes the bytes over.
std::vector<int32_t> take_ids(MlxxBytes bytes);

}  // namespace mlxx::text
