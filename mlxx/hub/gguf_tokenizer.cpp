#include "mlxx/hub/gguf_tokenizer.h"

#include <cmath>
#include <span>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/sha256.h"
#include "mlxx/base/utf8.h"

namespace mlxx::hub {

namespace {

constexpr auto kModel = "tokenizer.ggml.model";
constexpr auto kMerges = "tokenizer.ggml.merges";
constexpr auto kScores = "tokenizer.ggml.scores";
constexpr auto kTemplate = "tokenizer.chat_template";

// `text` is valid UTF-8. A tree of 100,000 nodes would take longer than the
// rest of loading, so the JSON is written as text.
void append_string(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_number(std::string& out, size_t number) {
  out += fmt::format_int(number).str();
}

void append_added_tokens(std::string& out, const GgufVocabulary& vocabulary) {
  const char* separator = "";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    auto type = vocabulary.types[id];
    bool is_special =
        type == GgufTokenType::control || type == GgufTokenType::unknown;
    if ((!is_special && type != GgufTokenType::user_defined) ||
        !vocabulary.is_named(id)) {
      continue;
    }
    out += separator;
    out += R"({"id":)";
    append_number(out, id);
    out += R"(,"content":)";
    append_string(out, vocabulary.tokens[id]);
    out += R"(,"single_word":false,"lstrip":false,"rstrip":false,)";
    out += R"("normalized":false,"special":)";
    out += is_special ? "true}" : "false}";
    separator = ",";
  }
}

void append_vocabulary(std::string& out, const GgufVocabulary& vocabulary) {
  const char* separator = "";
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!vocabulary.is_named(id)) {
      continue;
    }
    out += separator;
    append_string(out, vocabulary.tokens[id]);
    out += ':';
    append_number(out, id);
    separator = ",";
  }
}

void append_pair(
    std::string& out,
    std::string_view left,
    std::string_view right) {
  out += '[';
  append_string(out, left);
  out += ',';
  append_string(out, right);
  out += ']';
}

void append_merges(std::string& out, const GgufMetadata& metadata) {
  auto merges = metadata.strings(kMerges);
  if (merges.empty()) {
    metadata.fail_at(kMerges, "is missing or empty");
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    std::string_view merge = merges[i];
    // A part may begin with a space, but is never empty.
    auto space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size() ||
        !is_valid_utf8(merge)) {
      metadata.fail_at(
          kMerges,
          fmt::format("holds '{}' as rule {}, no pair of tokens", merge, i));
    }
    if (i > 0) {
      out += ',';
    }
    append_pair(out, merge.substr(0, space), merge.substr(space + 1));
  }
}

std::string special_piece(std::string_view token) {
  std::string out = R"({"SpecialToken":{"id":)";
  append_string(out, token);
  return out + R"(,"type_id":0}})";
}

// What encoding with special tokens puts around a text.
std::string post_processor(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary) {
  auto bos = gguf_special_token(metadata, vocabulary, "bos");
  auto eos = gguf_special_token(metadata, vocabulary, "eos");
  bool adds_bos = bos && gguf_adds_bos(metadata);
  bool adds_eos = eos && gguf_adds_eos(metadata);
  if (!adds_bos && !adds_eos) {
    return "null";
  }
  std::string before, after, tokens;
  auto describe = [&](int64_t id) {
    auto token = vocabulary.tokens[static_cast<size_t>(id)];
    std::string text;
    append_string(text, token);
    if (!tokens.empty() && tokens.find(text + ":") != std::string::npos) {
      return special_piece(token);
    }
    tokens += fmt::format(
        R"({}{}:{{"id":{},"ids":[{}],"tokens":[{}]}})",
        tokens.empty() ? "" : ",",
        text,
        text,
        id,
        text);
    return special_piece(token);
  };
  if (adds_bos) {
    before = describe(*bos) + ",";
  }
  if (adds_eos) {
    after = "," + describe(*eos);
  }
  auto one = [&](char sequence) {
    return fmt::format(
        R"({}{{"Sequence":{{"id":"{}","type_id":0}}}}{})",
        before,
        sequence,
        after);
  };
  return fmt::format(
      R"({{"type":"TemplateProcessing","single":[{}],"pair":[{},{}],)"
      R"("special_tokens":{{{}}}}})",
      one('A'),
      one('A'),
      one('B'),
      tokens);
}

// The members of tokenizer.json, each a JSON text.
struct Parts {
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string decoder;
  // Of the model, before "vocab".
  std::string options;
  std::string merges;
};

Parts byte_level_parts(const GgufMetadata& metadata) {
  PreTokenizer pre = find_pre_tokenizer(metadata);
  Parts parts;
  parts.normalizer = pre.normalizer;
  parts.pre_tokenizer = pre.pre_tokenizer;
  parts.decoder =
      R"({"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)"
      R"("use_regex":true})";
  parts.options = fmt::format(
      R"("unk_token":null,"fuse_unk":false,"byte_fallback":false,)"
      R"("ignore_merges":{})",
      pre.ignore_merges);
  append_merges(parts.merges, metadata);
  return parts;
}

// SentencePiece writes a space as U+2581 and may put one before each text.
Parts sentence_piece_parts(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary) {
  auto scores = metadata.floats(kScores);
  if (scores.size() != vocabulary.tokens.size()) {
    metadata.fail_at(
        kScores,
        fmt::format(
            "has {} entries for {} tokens",
            scores.size(),
            vocabulary.tokens.size()));
  }
  for (float score : scores) {
    if (!std::isfinite(score)) {
      metadata.fail_at(kScores, "holds a number that is not finite");
    }
  }
  bool adds_space =
      metadata.boolean_if("tokenizer.ggml.add_space_prefix").value_or(true);
  Parts parts;
  parts.normalizer = fmt::format(
      R"({{"type":"Sequence","normalizers":[{}{{"type":"Replace",)"
      R"("pattern":{{"String":" "}},"content":"▁"}}]}})",
      adds_space ? R"({"type":"Prepend","prepend":"▁"},)" : "");
  parts.decoder = fmt::format(
      R"({{"type":"Sequence","decoders":[{{"type":"Replace","pattern":)"
      R"({{"String":"▁"}},"content":" "}},{{"type":"ByteFallback"}},)"
      R"({{"type":"Fuse"}}{}]}})",
      adds_space ? R"(,{"type":"Strip","content":" ","start":1,"stop":0})"
                 : "");
  std::string unknown = "null";
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.types[i] == GgufTokenType::unknown &&
        vocabulary.is_named(i)) {
      unknown.clear();
      append_string(unknown, vocabulary.tokens[i]);
      break;
    }
  }
  parts.options = fmt::format(
      R"("unk_token":{},"fuse_unk":true,"byte_fallback":true,)"
      R"("ignore_merges":false)",
      unknown);
  for (auto [left, right] : merges_from_scores(vocabulary, scores)) {
    if (!parts.merges.empty()) {
      parts.merges += ',';
    }
    append_pair(
        parts.merges,
        vocabulary.tokens[left],
        vocabulary.tokens[right]);
  }
  return parts;
}

std::string make_config_json(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary) {
  Json config = {
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"clean_up_tokenization_spaces", false},
      {"add_bos_token", gguf_adds_bos(metadata)},
      {"add_eos_token", gguf_adds_eos(metadata)}};
  constexpr std::pair<const char*, const char*> kRoles[] = {
      {"bos", "bos_token"},
      {"eos", "eos_token"},
      {"unknown", "unk_token"},
      {"padding", "pad_token"}};
  for (const auto& [role, key] : kRoles) {
    if (auto id = gguf_special_token(metadata, vocabulary, role)) {
      std::string_view token = vocabulary.tokens[static_cast<size_t>(*id)];
      if (!is_valid_utf8(token)) {
        metadata.fail_at(
            "tokenizer.ggml.tokens",
            fmt::format("holds token {}, which is not valid UTF-8", *id));
      }
      config[key] = token;
    }
  }
  return config.dump();
}

std::vector<std::pair<std::string, std::string>> read_chat_templates(
    const GgufMetadata& metadata) {
  std::vector<std::pair<std::string, std::string>> templates;
  if (auto source = metadata.string_if(kTemplate)) {
    templates.emplace_back("default", *source);
  }
  std::string prefix = std::string(kTemplate) + ".";
  for (const auto& [key, value] : metadata.values()) {
    if (key.starts_with(prefix) && key.size() > prefix.size()) {
      std::string name(key.substr(prefix.size()));
      if (name == "default" && !templates.empty()) {
        metadata.fail_at(key, "stands beside 'tokenizer.chat_template'");
      }
      templates.emplace_back(name, metadata.string(key));
    }
  }
  return templates;
}

}  // namespace

std::string make_gguf_tokenizer_json(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary) {
  std::string model = metadata.string(kModel);
  if (model != "gpt2" && model != "llama") {
    fail(
        ErrorKind::unsupported,
        metadata.place(),
        "'{}' is '{}'; known: gpt2, llama",
        kModel,
        model);
  }
  Parts parts = model == "gpt2" ? byte_level_parts(metadata)
                                : sentence_piece_parts(metadata, vocabulary);
  std::string out;
  out.reserve(parts.merges.size() + vocabulary.tokens.size() * 24 + 65536);
  out += R"({"version":"1.0","truncation":null,"padding":null,)";
  out += R"("added_tokens":[)";
  append_added_tokens(out, vocabulary);
  out += R"(],"normalizer":)" + parts.normalizer;
  out += R"(,"pre_tokenizer":)" + parts.pre_tokenizer;
  out += R"(,"post_processor":)" + post_processor(metadata, vocabulary);
  out += R"(,"decoder":)" + parts.decoder;
  out += R"(,"model":{"type":"BPE","dropout":null,)";
  out += R"("continuing_subword_prefix":null,"end_of_word_suffix":null,)";
  out += parts.options;
  out += R"(,"vocab":{)";
  append_vocabulary(out, vocabulary);
  out += R"(},"merges":[)";
  out += parts.merges;
  out += "]}}";
  return out;
}

TextFiles make_gguf_text_beside_tokenizer(
    const GgufMetadata& metadata,
    const GgufVocabulary& vocabulary) {
  return {
      {},
      make_config_json(metadata, vocabulary),
      read_chat_templates(metadata)};
}

TextFiles make_gguf_text(const GgufMetadata& metadata) {
  GgufVocabulary vocabulary = read_gguf_vocabulary(metadata);
  TextFiles text = make_gguf_text_beside_tokenizer(metadata, vocabulary);
  text.tokenizer_json = make_gguf_tokenizer_json(metadata, vocabulary);
  return text;
}

std::string gguf_tokenizer_digest(const GgufMetadata& metadata) {
  Sha256 hash;
  for (const auto& [key, value] : metadata.values()) {
    if (!key.starts_with("tokenizer.")) {
      continue;
    }
    // With the lengths, so that no two lists of values read the same.
    std::string head = fmt::format(
        "{} {} {} {} {} ",
        key,
        static_cast<uint32_t>(value.type),
        static_cast<uint32_t>(value.element),
        value.count,
        value.bytes.size());
    hash.update(std::as_bytes(std::span(head.data(), head.size())));
    hash.update(value.bytes);
  }
  return hash.hex();
}

}  // namespace mlxx::hub
