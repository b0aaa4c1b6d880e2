#include "mlxx/capi/status.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "mlxx/base/utf8.h"

namespace mlxx::capi {

mlxx_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_request:
      return MLXX_INVALID_REQUEST;
    case ErrorKind::unsupported:
      return MLXX_UNSUPPORTED;
    case ErrorKind::not_found:
      return MLXX_NOT_FOUND;
    case ErrorKind::bad_file:
      return MLXX_BAD_FILE;
    case ErrorKind::out_of_memory:
      return MLXX_OUT_OF_MEMORY;
    case ErrorKind::cancelled:
      return MLXX_CANCELLED;
    case ErrorKind::internal:
      return MLXX_INTERNAL;
  }
  return MLXX_INTERNAL;
}

void copy_message(std::string_view message, ErrorText error) {
  if (!error.text || error.capacity == 0) {
    return;
  }
  size_t count = std::min(message.size(), error.capacity - 1);
  // Not in the middle of a UTF-8 sequence.
  while (count > 0 && count < message.size() &&
         (static_cast<unsigned char>(message[count]) & 0xC0) == 0x80) {
    --count;
  }
  std::memcpy(error.text, message.data(), count);
  error.text[count] = '\0';
}

namespace {

// Of an exception that is not mlxx's: made one line of valid UTF-8.
void copy_foreign_message(const char* what, ErrorText error) {
  try {
    copy_message(escape_line(what), error);
  } catch (...) {
    copy_message("[mlxx] failed, without memory to say why", error);
  }
}

}  // namespace

mlxx_status describe_current_exception(ErrorText error) {
  try {
    throw;
  } catch (const Error& failure) {
    copy_message(failure.what(), error);
    return status_of(failure.kind());
  } catch (const std::bad_alloc&) {
    copy_message("[memory] not enough memory", error);
    return MLXX_OUT_OF_MEMORY;
  } catch (const std::exception& failure) {
    copy_foreign_message(failure.what(), error);
    return MLXX_INTERNAL;
  } catch (...) {
    copy_message("[mlxx] an unknown exception", error);
    return MLXX_INTERNAL;
  }
}

}  // namespace mlxx::capi
