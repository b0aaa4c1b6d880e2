#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/hub/gguf_tokenizer.h"

namespace mlxx::hub {

namespace {

struct NamedPreTokenizer {
  std::string_view name;  // of tokenizer.ggml.pre
  PreTokenizer value;
};

// GPT-2's own split: contractions, letters, digits, others, spaces.
constexpr std::string_view kGpt2 =
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
    R"("use_regex":true})";

// Each digit by itself, then GPT-2's split.
constexpr std::string_view kDigitsGpt2 =
    R"({"type":"Sequence","pretokenizers":[)"
    R"({"type":"Digits","individual_digits":true},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
    R"("use_regex":true}]})";

// Letters of any script with one leading sign, digits in groups of three.
constexpr std::string_view kLlama3 =
    R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
    R"({"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+)"
    R"(|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+)"
    R"(|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,)"
    R"("use_regex":false}]})";

// As Llama 3's, with single digits.
constexpr std::string_view kQwen2 =
    R"({"type":"Sequence","pretokenizers":[{"type":"Split","pattern":)"
    R"({"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+)"
    R"(|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+)"
    R"(|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)"
    R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,)"
    R"("use_regex":false}]})";

constexpr std::string_view kNone = "null";
constexpr std::string_view kNfc = R"({"type":"NFC"})";

constexpr NamedPreTokenizer kPreTokenizers[] = {
    {"gpt-2", {kNone, kGpt2, false}},
    {"phi-2", {kNone, kGpt2, false}},
    {"smollm", {kNone, kDigitsGpt2, false}},
    {"starcoder", {kNone, kDigitsGpt2, false}},
    {"llama-bpe", {kNone, kLlama3, true}},
    {"llama3", {kNone, kLlama3, true}},
    {"llama-v3", {kNone, kLlama3, true}},
    {"qwen2", {kNfc, kQwen2, false}},
};

}  // namespace

PreTokenizer find_pre_tokenizer(const GgufMetadata& metadata) {
  constexpr auto kKey = "tokenizer.ggml.pre";
  auto name = metadata.string_if(kKey);
  std::vector<std::string_view> known;
  for (const auto& entry : kPreTokenizers) {
    if (name && entry.name == *name) {
      return entry.value;
    }
    known.push_back(entry.name);
  }
  fail(
      ErrorKind::unsupported,
      metadata.place(),
      "{}; known: {}",
      name ? fmt::format(
                 "'{}' is '{}', an unknown split into words",
                 kKey,
                 *name)
           : fmt::format(
                 "'{}' is missing, the split into words is unknown",
                 kKey),
      fmt::join(known, ", "));
}

}  // namespace mlxx::hub
