#include "mlxx/data/sample_reader.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/data/row_encoder.h"

namespace mlxx::data {
namespace {

// One line, checked.
struct Fields {
  SampleKind kind = SampleKind::text;
  std::string text;    // of a text
  std::string prompt;  // of a completion or pair of texts
  std::string answer;
  std::string rejected;
  OrderedJson messages;  // null for texts
  OrderedJson rejected_messages;
  OrderedJson tools;
  size_t first_answer = 0;
};

class LineFields {
 public:
  LineFields(const OrderedJson& line, const std::string& place)
      : line_(line), place_(place) {
    if (!line.is_object()) {
      fail(
          ErrorKind::bad_file,
          place,
          "must be a JSON object, is {} (one object on each line, no list "
          "around them)",
          line.type_name());
    }
  }

  bool has(const char* key) const {
    auto at = line_.find(key);
    return at != line_.end() && !at->is_null();
  }

  const OrderedJson& at(const char* key) const {
    auto at = line_.find(key);
    if (at == line_.end() || at->is_null()) {
      fail(ErrorKind::bad_file, place_, "has no \"{}\"", key);
    }
    return *at;
  }

  std::string text(const char* key) const {
    const OrderedJson& value = at(key);
    if (!value.is_string()) {
      wrong_type(key, "a text", value);
    }
    return value.get<std::string>();
  }

  bool is_list(const char* key) const {
    const OrderedJson& value = at(key);
    if (!value.is_string() && !value.is_array()) {
      wrong_type(key, "a text or a list of messages", value);
    }
    return value.is_array();
  }

  const OrderedJson& messages(const char* key) const {
    const OrderedJson& list = at(key);
    if (!list.is_array()) {
      wrong_type(key, "a list of messages", list);
    }
    if (list.empty()) {
      fail(ErrorKind::bad_file, place_, "\"{}\" is an empty list", key);
    }
    for (const OrderedJson& message : list) {
      check_message(key, message);
    }
    return list;
  }

  // A text is one message of that role.
  OrderedJson messages_or_text(const char* key, const char* role) const {
    if (is_list(key)) {
      return messages(key);
    }
    OrderedJson message = {{"role", role}, {"content", text(key)}};
    OrderedJson list = OrderedJson::array();
    list.push_back(std::move(message));
    return list;
  }

  OrderedJson tools() const {
    if (!has("tools")) {
      return nullptr;
    }
    const OrderedJson& tools = at("tools");
    if (!tools.is_array()) {
      wrong_type("tools", "a list", tools);
    }
    return tools.empty() ? OrderedJson() : tools;
  }

  [[noreturn]] void no_sample() const {
    std::string keys;
    for (const auto& [key, value] : line_.items()) {
      if (keys.size() > 200) {
        keys += ", ...";
        break;
      }
      keys += fmt::format("{}\"{}\"", keys.empty() ? "" : ", ", key);
    }
    fail(
        ErrorKind::bad_file,
        place_,
        "must have \"messages\", \"prompt\" and \"completion\", \"text\", or "
        "\"prompt\", \"chosen\" and \"rejected\"; has {}",
        keys.empty() ? "nothing" : keys);
  }

 private:
  [[noreturn]] void wrong_type(
      const char* key,
      std::string_view wanted,
      const OrderedJson& found) const {
    fail(
        ErrorKind::bad_file,
        place_,
        "\"{}\" must be {}, is {}",
        key,
        wanted,
        found.type_name());
  }

  void check_message(const char* key, const OrderedJson& message) const {
    if (!message.is_object() || !message.contains("role") ||
        !message["role"].is_string()) {
      fail(
          ErrorKind::bad_file,
          place_,
          "a message of \"{}\" is no object with a \"role\"",
          key);
    }
    auto content = message.find("content");
    if (content != message.end() && !content->is_null() &&
        !content->is_string() && !content->is_array()) {
      wrong_type("content", "a text or a list of parts", *content);
    }
  }

  const OrderedJson& line_;
  const std::string& place_;
};

OrderedJson joined(OrderedJson first, const OrderedJson& second) {
  for (const OrderedJson& message : second) {
    first.push_back(message);
  }
  return first;
}

// Without "prompt", what both conversations begin with.
void read_whole_conversations(const LineFields& line, Fields& out) {
  out.messages = line.messages("chosen");
  out.rejected_messages = line.messages("rejected");
  size_t most = std::min(out.messages.size(), out.rejected_messages.size());
  while (out.first_answer < most &&
         out.messages[out.first_answer] ==
             out.rejected_messages[out.first_answer]) {
    ++out.first_answer;
  }
}

void read_pair(const LineFields& line, bool has_template, Fields& out) {
  out.kind = SampleKind::pair;
  if (!line.has("prompt")) {
    read_whole_conversations(line, out);
    return;
  }
  bool texts = !line.is_list("prompt") && !line.is_list("chosen") &&
      !line.is_list("rejected");
  if (texts && !has_template) {
    out.prompt = line.text("prompt");
    out.answer = line.text("chosen");
    out.rejected = line.text("rejected");
    return;
  }
  OrderedJson prompt = line.messages_or_text("prompt", "user");
  out.first_answer = prompt.size();
  out.messages = joined(prompt, line.messages_or_text("chosen", "assistant"));
  out.rejected_messages =
      joined(prompt, line.messages_or_text("rejected", "assistant"));
}

void read_completion(const LineFields& line, bool has_template, Fields& out) {
  out.kind = SampleKind::completion;
  if (!has_template && !line.is_list("prompt") && !line.is_list("completion")) {
    out.prompt = line.text("prompt");
    out.answer = line.text("completion");
    return;
  }
  OrderedJson prompt = line.messages_or_text("prompt", "user");
  out.first_answer = prompt.size();
  out.messages =
      joined(prompt, line.messages_or_text("completion", "assistant"));
}

Fields read_fields(
    const OrderedJson& json,
    const std::string& place,
    bool preference,
    bool has_template) {
  LineFields line(json, place);
  Fields out;
  out.tools = line.tools();
  bool answers = line.has("chosen") || line.has("rejected");
  if (preference && answers) {
    read_pair(line, has_template, out);
  } else if (line.has("prompt") && line.has("completion")) {
    read_completion(line, has_template, out);
  } else if (line.has("messages")) {
    out.kind = SampleKind::conversation;
    out.messages = line.messages("messages");
  } else if (line.has("text")) {
    out.text = line.text("text");
  } else if (answers) {
    fail(
        ErrorKind::invalid_request,
        place,
        "holds two answers to choose between; the method that learns from "
        "them is dpo or orpo");
  } else {
    line.no_sample();
  }
  if (preference && out.kind != SampleKind::pair) {
    fail(
        ErrorKind::invalid_request,
        place,
        "has no \"chosen\" and \"rejected\" answer, which this method learns "
        "from");
  }
  return out;
}

// The first `count` tokens.
bool cut_end(TokenRow& row, size_t count) {
  if (row.tokens.size() <= count) {
    return false;
  }
  row.tokens.resize(count);
  row.targets.resize(count);
  return true;
}

TokenRow behind(const TokenRow& row, size_t begin) {
  auto at = static_cast<std::ptrdiff_t>(begin);
  return {
      .tokens = {row.tokens.begin() + at, row.tokens.end()},
      .targets = {row.targets.begin() + at, row.targets.end()}};
}

bool any_target(const TokenRow& row) {
  return std::ranges::find(row.targets, 1) != row.targets.end();
}

// Removes what is too much from the prompt's beginning, but for the BOS, and
// if that is not enough from the answers' ends.
void cut_pair(
    TokenizedSample& pair,
    size_t max_length,
    std::optional<int32_t> bos) {
  auto& prompt = pair.prompt;
  size_t longest =
      std::max(pair.row.tokens.size(), pair.rejected.tokens.size());
  if (prompt.size() + longest <= max_length) {
    return;
  }
  pair.cut = true;
  size_t keep = max_length > longest ? max_length - longest : 0;
  keep = std::min(std::max<size_t>(keep, 1), prompt.size());
  bool keep_bos = bos && keep > 1 && prompt.front() == *bos;
  auto gone = static_cast<std::ptrdiff_t>(prompt.size() - keep);
  auto first = prompt.begin() + (keep_bos ? 1 : 0);
  prompt.erase(first, first + gone);
  cut_end(pair.row, max_length - keep);
  cut_end(pair.rejected, max_length - keep);
}

}  // namespace

std::string_view plural(SampleKind kind) {
  switch (kind) {
    case SampleKind::conversation:
      return "conversations";
    case SampleKind::completion:
      return "completions";
    case SampleKind::text:
      return "texts";
    case SampleKind::pair:
      return "pairs";
  }
  return "";
}

bool TokenizedSample::has_targets() const {
  return any_target(row) && (!is_pair() || any_target(rejected));
}

struct SampleReader::Impl {
  const DataOptions& options;
  RowEncoder encoder;

  TokenRow encode(const Fields& fields, bool rejected) const;
  TokenizedSample encode_pair(const Fields& fields) const;
};

TokenRow SampleReader::Impl::encode(const Fields& fields, bool rejected) const {
  if (fields.messages.is_array()) {
    return encoder.conversation(
        rejected ? fields.rejected_messages : fields.messages,
        fields.tools,
        fields.first_answer,
        options.mask_prompt || fields.kind == SampleKind::pair);
  }
  if (fields.kind == SampleKind::text) {
    return encoder.text(fields.text);
  }
  TokenRow row = encoder.completion(
      fields.prompt,
      rejected ? fields.rejected : fields.answer);
  bool all = !options.mask_prompt && fields.kind != SampleKind::pair;
  if (all && !row.targets.empty()) {
    std::fill(row.targets.begin() + 1, row.targets.end(), uint8_t{1});
  }
  return row;
}

TokenizedSample SampleReader::Impl::encode_pair(const Fields& fields) const {
  TokenRow chosen = encode(fields, false);
  TokenRow rejected = encode(fields, true);
  auto is_target = [](uint8_t target) { return target != 0; };
  auto answer_at = [&](const TokenRow& row) {
    return std::ranges::find_if(row.targets, is_target) - row.targets.begin();
  };
  auto differ = std::ranges::mismatch(chosen.tokens, rejected.tokens).in1;
  auto common = static_cast<size_t>(std::min(
      {differ - chosen.tokens.begin(),
       answer_at(chosen),
       answer_at(rejected)}));
  TokenizedSample out{.kind = SampleKind::pair};
  out.row = behind(chosen, common);
  out.rejected = behind(rejected, common);
  chosen.tokens.resize(common);
  out.prompt = std::move(chosen.tokens);
  cut_pair(out, static_cast<size_t>(options.max_length), options.bos_id);
  return out;
}

SampleReader::SampleReader(
    const text::Tokenizer& tokenizer,
    const text::ChatTemplate* chat_template,
    const DataOptions& options,
    int64_t unix_time)
    : impl_(std::make_unique<Impl>(Impl{
          .options = options,
          .encoder =
              RowEncoder(tokenizer, chat_template, options, unix_time)})) {}

SampleReader::~SampleReader() = default;

TokenizedSample SampleReader::read(
    std::string_view line,
    const std::string& place) const {
  const OrderedJson json = parse_ordered_json(line, place);
  Fields fields = read_fields(
      json,
      place,
      impl_->options.preference,
      impl_->encoder.has_template());
  try {
    if (fields.kind == SampleKind::pair) {
      return impl_->encode_pair(fields);
    }
    TokenizedSample out{.kind = fields.kind};
    out.row = impl_->encode(fields, false);
    out.cut = cut_end(out.row, static_cast<size_t>(impl_->options.max_length));
    return out;
  } catch (const Error& error) {
    ErrorKind kind = error.kind() == ErrorKind::invalid_request
        ? ErrorKind::bad_file
        : error.kind();
    fail(kind, place, "{}", error.what());
  }
}

}  // namespace mlxx::data
