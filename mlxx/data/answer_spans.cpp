#include "mlxx/data/answer_spans.h"

#include <algorithm>
#include <optional>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/chat_template.h"

namespace mlxx::data {
namespace {

using Span = RenderedConversation::Span;

std::string render(
    const ConversationTemplate& with,
    const OrderedJson& messages,
    const OrderedJson& tools,
    bool ask) {
  text::RenderOptions options;
  options.add_generation_prompt = ask;
  options.unix_time = with.unix_time;
  return with.chat_template.render(messages, tools, options);
}

// Many templates refuse parts of conversations that they take as a whole.
std::optional<std::string> try_render(
    const ConversationTemplate& with,
    const OrderedJson& messages,
    const OrderedJson& tools,
    bool ask) {
  if (messages.empty()) {
    return std::nullopt;
  }
  try {
    return render(with, messages, tools, ask);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_request) {
      throw;
    }
    return std::nullopt;
  }
}

size_t common_prefix(std::string_view a, std::string_view b) {
  auto [end, other] = std::ranges::mismatch(a, b);
  return static_cast<size_t>(end - a.begin());
}

OrderedJson first_messages(const OrderedJson& messages, size_t count) {
  OrderedJson part = OrderedJson::array();
  for (size_t i = 0; i < count; ++i) {
    part.push_back(messages[i]);
  }
  return part;
}

// The message with marks around its text, inside of the white space at its
// ends, which templates strip; with one mark if it has no text. nullopt if its
// content is something else.
std::optional<OrderedJson> marked(
    const OrderedJson& message,
    std::string_view mark) {
  constexpr std::string_view kSpace = " \t\r\n";
  auto content = message.find("content");
  if (content == message.end() || !content->is_string()) {
    return std::nullopt;
  }
  std::string text = content->get<std::string>();
  size_t first = text.find_first_not_of(kSpace);
  if (first == std::string::npos) {
    text += mark;
  } else {
    text.insert(text.find_last_not_of(kSpace) + 1, mark);
    text.insert(first, mark);
  }
  OrderedJson out = message;
  out["content"] = std::move(text);
  return out;
}

// Where a message's text is in a rendering.
struct Place {
  size_t begin = 0;
  size_t end = 0;
  std::string after;  // the rendering behind it
};

class SpanFinder {
 public:
  SpanFinder(
      const ConversationTemplate& with,
      const OrderedJson& messages,
      const OrderedJson& tools)
      : with_(with),
        messages_(messages),
        tools_(tools),
        text_(render(with, messages, tools, false)) {}

  const std::string& text() const {
    return text_;
  }

  Span answer(size_t index) const {
    size_t begin = begin_of(index);
    size_t end = std::max(begin, end_of(index, begin));
    return {begin, end};
  }

 private:
  // The text of message `index` in a rendering of the first `count` messages:
  // of the whole conversation only if the mark changes nothing else.
  std::optional<Place> find_text(size_t index, size_t count, bool ask) const {
    auto message = marked(messages_[index], with_.mark);
    if (!message) {
      return std::nullopt;
    }
    OrderedJson part = first_messages(messages_, count);
    part[index] = std::move(*message);
    auto rendered = try_render(with_, part, tools_, ask);
    if (!rendered) {
      return std::nullopt;
    }
    size_t last = rendered->rfind(with_.mark);
    if (last == std::string::npos) {
      return std::nullopt;
    }
    size_t first = rendered->find(with_.mark);
    Place place;
    place.after = rendered->substr(last + with_.mark.size());
    // Of a message whose beginning the template moves or drops, one mark is
    // left: it stands at its end.
    size_t marks = first == last ? 0 : with_.mark.size();
    place.begin = first;
    place.end = last - marks;
    if (count == messages_.size()) {
      std::string plain = *rendered;
      plain.erase(last, with_.mark.size());
      if (marks > 0) {
        plain.erase(first, marks);
      }
      if (plain != text_) {
        return std::nullopt;
      }
    }
    return place;
  }

  // An answer begins behind the texts of all messages before it.
  size_t end_of_text_before(size_t index) const {
    while (index-- > 0) {
      if (auto place = find_text(index, messages_.size(), false)) {
        return place->end;
      }
    }
    return 0;
  }

  // Up to where what follows message `index` in the whole conversation is what
  // follows it in a rendering of the first `count` messages.
  std::optional<size_t> follow(size_t index, size_t count, bool ask) const {
    auto whole = find_text(index, messages_.size(), false);
    auto part = find_text(index, count, ask);
    if (!whole || !part) {
      return std::nullopt;
    }
    return whole->end + common_prefix(whole->after, part->after);
  }

  // With nothing but a mark in place of the answer, what stands behind the
  // mark is how the whole ends behind the answer.
  std::optional<size_t> end_before_the_rest(size_t index) const {
    OrderedJson all = messages_;
    all[index] = {{"role", "assistant"}, {"content", with_.mark}};
    auto tail = [&](size_t count) -> std::optional<std::string> {
      auto text = try_render(with_, first_messages(all, count), tools_, false);
      size_t at = text ? text->rfind(with_.mark) : std::string::npos;
      if (at == std::string::npos) {
        return std::nullopt;
      }
      return text->substr(at + with_.mark.size());
    };
    auto rest = tail(messages_.size());
    auto closing = tail(index + 1);
    if (!rest || !closing || !text_.ends_with(*rest)) {
      return std::nullopt;
    }
    return text_.size() - rest->size() + common_prefix(*rest, *closing);
  }

  size_t begin_of(size_t index) const {
    auto asked =
        try_render(with_, first_messages(messages_, index), tools_, true);
    if (asked && text_.starts_with(*asked)) {
      return asked->size();
    }
    std::optional<size_t> begin;
    if (index > 0) {
      begin = follow(index - 1, index, true);
    }
    if (!begin && asked) {
      size_t common = common_prefix(text_, *asked);
      if (common >= end_of_text_before(index)) {
        begin = common;
      }
    }
    // What the two have in common may go on into the answer's text by chance.
    if (auto own = find_text(index, messages_.size(), false)) {
      begin = std::min(begin.value_or(own->begin), own->begin);
    }
    if (!begin) {
      fail(
          ErrorKind::unsupported,
          "chat template",
          "does not show where the answer of message {} begins",
          index);
    }
    return *begin;
  }

  size_t end_of(size_t index, size_t begin) const {
    if (index + 1 == messages_.size()) {
      return text_.size();
    }
    auto ended =
        try_render(with_, first_messages(messages_, index + 1), tools_, false);
    if (ended && text_.starts_with(*ended) && ended->size() >= begin) {
      return ended->size();
    }
    // The same turn elsewhere than in the whole.
    auto asked =
        try_render(with_, first_messages(messages_, index), tools_, true);
    if (ended && asked && ended->starts_with(*asked)) {
      std::string_view turn = std::string_view(*ended).substr(asked->size());
      if (std::string_view(text_).substr(begin).starts_with(turn)) {
        return begin + turn.size();
      }
    }
    if (auto end = follow(index, index + 1, false)) {
      return *end;
    }
    if (auto end = end_before_the_rest(index); end && *end >= begin) {
      return *end;
    }
    if (auto own = find_text(index, messages_.size(), false)) {
      // Closed as the last answer is.
      size_t last = messages_.size() - 1;
      auto closed = messages_[last].at("role") == "assistant"
          ? find_text(last, messages_.size(), false)
          : std::nullopt;
      bool alike = closed &&
          std::string_view(text_).substr(own->end).starts_with(closed->after);
      return own->end + (alike ? closed->after.size() : 0);
    }
    fail(
        ErrorKind::unsupported,
        "chat template",
        "does not show where the answer of message {} ends",
        index);
  }

  const ConversationTemplate& with_;
  const OrderedJson& messages_;
  const OrderedJson& tools_;
  std::string text_;
};

}  // namespace

RenderedConversation render_conversation(
    const ConversationTemplate& with,
    const OrderedJson& messages,
    const OrderedJson& tools,
    size_t first_answer) {
  SpanFinder finder(with, messages, tools);
  RenderedConversation out;
  for (size_t i = first_answer; i < messages.size(); ++i) {
    if (messages[i].at("role") != "assistant") {
      continue;
    }
    Span span = finder.answer(i);
    if (!out.answers.empty()) {
      span.begin = std::max(span.begin, out.answers.back().end);
    }
    if (span.begin < span.end) {
      out.answers.push_back(span);
    }
  }
  out.text = finder.text();
  return out;
}

std::string render_conversation_text(
    const ConversationTemplate& with,
    const OrderedJson& messages,
    const OrderedJson& tools) {
  return render(with, messages, tools, false);
}

}  // namespace mlxx::data
