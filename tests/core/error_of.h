#pragma once

#include <ostream>
#include <string>

#include "mlxx/base/error.h"

namespace mlxx {

// "kind: message" of the error that `call` throws; "no error" if none. Any
// other exception passes through and fails the test.
template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.kind())) + ": " + error.what();
  }
  return "no error";
}

}  // namespace mlxx

// The error's kind comes first, then whatever the message must contain.
#define EXPECT_ERROR(call, kind, text)                           \
  do {                                                           \
    std::string message = ::mlxx::error_of([&] { call; });       \
    EXPECT_TRUE(message.starts_with(kind ": ")) << message;      \
    EXPECT_NE(message.find(text), std::string::npos) << message; \
  } while (false)
