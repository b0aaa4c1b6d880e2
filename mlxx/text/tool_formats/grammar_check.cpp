#include "mlxx/text/tool_formats/grammar_check.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"
#include "mlxx/text/tokenizer.h"

namespace mlxx::text {
namespace {

// Token b is byte b, 256 ends the text.
std::shared_ptr<const GrammarTokens> byte_tokens() {
  Json vocabulary = Json::object();
  uint32_t stand_in = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    bool printable = (byte >= 0x21 && byte <= 0x7e) ||
        (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    uint32_t code = printable ? byte : stand_in++;
    std::string letter;
    if (code < 0x80) {
      letter += static_cast<char>(code);
    } else {
      letter += static_cast<char>(0xc0 | (code >> 6));
      letter += static_cast<char>(0x80 | (code & 0x3f));
    }
    vocabulary[letter] = byte;
  }
  Json bytes = {
      {"type", "ByteLevel"},
      {"add_prefix_space", false},
      {"trim_offsets", true},
      {"use_regex", false}};
  Json json = {
      {"version", "1.0"},
      {"added_tokens",
       {{{"id", 256},
         {"content", "</s>"},
         {"single_word", false},
         {"lstrip", false},
         {"rstrip", false},
         {"normalized", false},
         {"special", true}}}},
      {"pre_tokenizer", bytes},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", Json::array()}}}};
  auto tokenizer = Tokenizer::from_json(json.dump());
  int32_t end = 256;
  return GrammarTokens::make(*tokenizer, 257, {&end, 1});
}

}  // namespace

void check_grammar(
    GrammarKind kind,
    std::string_view grammar,
    std::string_view place) {
  static const std::shared_ptr<const GrammarTokens> tokens = byte_tokens();
  try {
    GrammarMatcher matcher(tokens, kind, grammar);
  } catch (const Error& error) {
    fail(
        ErrorKind::invalid_request,
        place,
        "the schema can't be enforced: {}",
        error.what());
  }
}

}  // namespace mlxx::text
