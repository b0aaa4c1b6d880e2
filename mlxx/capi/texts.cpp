#include "mlxx/capi/texts.h"

#include <span>
#include <string_view>
#include <vector>

#include "mlxx/capi/argument_checks.h"
#include "mlxx/capi/caller_buffer.h"
#include "mlxx/capi/chat_request.h"
#include "mlxx/capi/guarded.h"
#include "mlxx/capi/handles.h"
#include "mlxx/text/special_tokens.h"

namespace mlxx::capi {

namespace {

// Longer counts are a size that was never set.
constexpr size_t kMaxTokens = size_t{1} << 28;

std::vector<int32_t>
encode(const generate::Pipeline& pipeline, std::string_view text, int flags) {
  const auto& tokenizer = *pipeline.tokenizer;
  const bool is_plain = flags & MLXX_PLAIN_TEXT;
  if (!(flags & MLXX_ADD_SPECIAL)) {
    return tokenizer.encode(text, {.parse_special = !is_plain});
  }
  if (!is_plain) {
    return generate::encode_raw_prompt(pipeline, text);
  }
  return text::with_single_bos(
      tokenizer.encode(
          text,
          {.add_special_tokens = true, .parse_special = false}),
      pipeline.bos_id,
      pipeline.add_bos,
      /*text_has_bos=*/false);
}

}  // namespace

mlxx_status tokenize(
    mlxx_model* model,
    const char* text,
    size_t bytes,
    int flags,
    int32_t* tokens,
    size_t capacity,
    size_t* count,
    ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_tokenize";
    const auto opened = open_models().get(model, kPlace);
    if (bytes > 0) {
      require_pointer(text, kPlace, "text");
    }
    if (flags & ~(MLXX_ADD_SPECIAL | MLXX_PLAIN_TEXT)) {
      fail(ErrorKind::invalid_request, kPlace, "unknown flags in {}", flags);
    }
    check_buffer(tokens, capacity, count, kPlace);
    const auto ids = encode(
        opened->pipeline(),
        bytes > 0 ? std::string_view(text, bytes) : std::string_view(),
        flags);
    copy_items<int32_t>(ids, tokens, capacity, count, kPlace);
    return MLXX_OK;
  });
}

mlxx_status detokenize(
    mlxx_model* model,
    const int32_t* tokens,
    size_t token_count,
    int skip_special,
    char* text,
    size_t capacity,
    size_t* count,
    ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_detokenize";
    const auto opened = open_models().get(model, kPlace);
    if (token_count > 0) {
      require_pointer(tokens, kPlace, "tokens");
    }
    if (token_count > kMaxTokens) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "{} tokens, the most are {}",
          token_count,
          kMaxTokens);
    }
    check_buffer(text, capacity, count, kPlace);
    const std::span<const int32_t> ids(tokens, token_count);
    const auto& tokenizer = *opened->pipeline().tokenizer;
    for (int32_t id : ids) {
      if (id < 0 || id >= tokenizer.vocab_size()) {
        fail(
            ErrorKind::invalid_request,
            kPlace,
            "token id {} is outside the tokenizer's {}",
            id,
            tokenizer.vocab_size());
      }
    }
    copy_text(
        tokenizer.decode(ids, read_flag(skip_special, "skip_special")),
        text,
        capacity,
        count,
        kPlace);
    return MLXX_OK;
  });
}

mlxx_status apply_chat_template(
    mlxx_model* model,
    const mlxx_chat* chat,
    char* text,
    size_t capacity,
    size_t* count,
    ErrorText error) {
  return guarded(error, [&] {
    constexpr const char* kPlace = "mlxx_apply_chat_template";
    const auto opened = open_models().get(model, kPlace);
    check_buffer(text, capacity, count, kPlace);
    copy_text(
        render_chat(opened->pipeline(), chat),
        text,
        capacity,
        count,
        kPlace);
    return MLXX_OK;
  });
}

}  // namespace mlxx::capi
