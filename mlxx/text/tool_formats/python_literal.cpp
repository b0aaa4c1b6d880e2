#include "mlxx/text/tool_formats/python_literal.h"

#include <cctype>

#include "mlxx/base/error.h"
#include "mlxx/base/json.h"

#include <nlohmann/json.hpp>

#include "mlxx/text/tool_formats/call_writer.h"
#include "mlxx/text/tool_formats/markup_scan.h"

namespace mlxx::text {
namespace {

constexpr int kDeepest = 64;

bool is_number(std::string_view word) {
  try {
    return parse_json(word, "number").is_number();
  } catch (const Error&) {
    return false;
  }
}

void append_utf8(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3f));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3f));
    out += static_cast<char>(0x80 | (code & 0x3f));
  }
}

// Both notations differ in their strings, words and keys only.
class Reader {
 public:
  // `quote` empty: Python.
  Reader(std::string_view text, std::string_view quote)
      : text_(text), quote_(quote) {}

  bool value(int depth) {
    spaces();
    if (at_ >= text_.size() || depth > kDeepest) {
      return false;
    }
    if (std::optional<std::string> string = read_string()) {
      out_ += json_quote(*string);
      return true;
    }
    if (failed_) {
      return false;
    }
    switch (text_[at_]) {
      case '[':
        return items(depth, ']');
      case '(':
        return quote_.empty() && items(depth, ')');
      case '{':
        return members(depth);
      default:
        return word();
    }
  }

  bool at_end() {
    spaces();
    return at_ == text_.size();
  }
  std::string take() {
    return std::move(out_);
  }

 private:
  void spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) {
      ++at_;
    }
  }
  bool next(char c) {
    spaces();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }

  std::optional<std::string> read_string() {
    std::string_view rest = text_.substr(at_);
    if (!quote_.empty()) {
      if (!rest.starts_with(quote_)) {
        return std::nullopt;
      }
      size_t end = rest.find(quote_, quote_.size());
      if (end == std::string_view::npos) {
        failed_ = true;
        return std::nullopt;
      }
      at_ += end + quote_.size();
      return std::string(rest.substr(quote_.size(), end - quote_.size()));
    }
    char quote = rest[0];
    if (quote != '"' && quote != '\'') {
      return std::nullopt;
    }
    std::string out;
    for (size_t i = 1; i < rest.size(); ++i) {
      if (rest[i] == quote) {
        at_ += i + 1;
        return out;
      }
      if (rest[i] == '\\' && i + 1 < rest.size()) {
        ++i;
        escape(rest, i, out);
      } else {
        out += rest[i];
      }
    }
    failed_ = true;
    return std::nullopt;
  }

  // `i` at the letter behind the backslash, then at the last byte of it.
  static void escape(std::string_view text, size_t& i, std::string& out) {
    char c = text[i];
    const char* plain = "n\nt\tr\rb\bf\fa\av\v0";
    for (const char* p = plain; *p != 0 && *p != '0'; p += 2) {
      if (c == *p) {
        out += p[1];
        return;
      }
    }
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (digits > 0 && hex(text, i + 1, digits, code)) {
      i += digits;
      // JSON's two halves of one character.
      uint32_t low = 0;
      if (code >= 0xd800 && code < 0xdc00 &&
          text.substr(i + 1).starts_with("\\u") && hex(text, i + 3, 4, low) &&
          low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        i += 6;
      }
      bool valid = code <= 0x10ffff && (code < 0xd800 || code >= 0xe000);
      append_utf8(out, valid ? code : 0xfffd);
      return;
    }
    if (c == '\n') {
      return;
    }
    if (c != '\\' && c != '"' && c != '\'' && c != '/') {
      out += '\\';
    }
    out += c;
  }

  static bool
  hex(std::string_view text, size_t at, size_t digits, uint32_t& code) {
    if (at + digits > text.size()) {
      return false;
    }
    code = 0;
    for (char c : text.substr(at, digits)) {
      if (!std::isxdigit(static_cast<unsigned char>(c))) {
        return false;
      }
      code = code * 16 +
          static_cast<uint32_t>(
                 std::isdigit(static_cast<unsigned char>(c))
                     ? c - '0'
                     : (c | 0x20) - 'a' + 10);
    }
    return true;
  }

  bool items(int depth, char close) {
    ++at_;
    out_ += '[';
    bool first = true;
    while (!next(close)) {
      if (!first && !next(',')) {
        return false;
      }
      if (!first && next(close)) {
        break;
      }
      out_ += first ? "" : ", ";
      first = false;
      if (!value(depth + 1)) {
        return false;
      }
    }
    out_ += ']';
    return true;
  }

  bool members(int depth) {
    ++at_;
    out_ += '{';
    bool first = true;
    while (!next('}')) {
      if (!first && !next(',')) {
        return false;
      }
      if (!first && next('}')) {
        break;
      }
      out_ += first ? "" : ", ";
      first = false;
      spaces();
      if (at_ >= text_.size()) {
        return false;
      }
      if (std::optional<std::string> key = read_string()) {
        out_ += json_quote(*key);
      } else if (!quote_.empty()) {
        size_t colon = text_.find(':', at_);
        if (colon == std::string_view::npos) {
          return false;
        }
        out_ += json_quote(trim(text_.substr(at_, colon - at_)));
        at_ = colon;
      } else {
        return false;
      }
      out_ += ": ";
      if (!next(':') || !value(depth + 1)) {
        return false;
      }
    }
    out_ += '}';
    return true;
  }

  bool word() {
    size_t end = text_.find_first_of(",]})", at_);
    if (!quote_.empty()) {
      end = text_.find_first_of(",]}", at_);
    }
    end = std::min(end, text_.size());
    std::string_view word = trim(text_.substr(at_, end - at_));
    at_ = end;
    if (word == "True" || word == "true") {
      out_ += "true";
    } else if (word == "False" || word == "false") {
      out_ += "false";
    } else if (word == "None" || word == "null") {
      out_ += "null";
    } else if (is_number(word)) {
      out_ += word;
    } else if (!quote_.empty() && !word.empty()) {
      out_ += json_quote(word);
    } else {
      return false;
    }
    return true;
  }

  std::string_view text_;
  std::string_view quote_;
  size_t at_ = 0;
  bool failed_ = false;
  std::string out_;
};

std::optional<std::string> convert(
    std::string_view text,
    std::string_view quote) {
  Reader reader(text, quote);
  if (!reader.value(0) || !reader.at_end()) {
    return std::nullopt;
  }
  return reader.take();
}

}  // namespace

std::optional<std::string> python_literal_to_json(std::string_view text) {
  return convert(text, "");
}

std::optional<std::string> bare_object_to_json(
    std::string_view text,
    std::string_view quote) {
  return convert(text, quote);
}

}  // namespace mlxx::text
