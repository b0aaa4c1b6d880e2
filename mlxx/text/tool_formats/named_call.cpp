#include "mlxx/text/tool_formats/named_call.h"

#include <cctype>

#include <nlohmann/json.hpp>

#include "mlxx/text/tool_formats/declared_tools.h"
#include "mlxx/text/tool_formats/json_call.h"
#include "mlxx/text/tool_formats/markup_scan.h"
#include "mlxx/text/tool_formats/python_literal.h"

namespace mlxx::text {
namespace {

constexpr size_t kLongestName = 256;

bool is_name_byte(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
      c == '-' || static_cast<unsigned char>(c) >= 0x80;
}

class NamedCalls : public SectionReader {
 public:
  NamedCalls(
      const NamedShape& shape,
      std::string_view opening,
      const OrderedJson* tools)
      : shape_(shape), opening_(opening), tools_(tools) {
    place_ = shape_.list && opening_ != "[" ? Place::list : Place::prefix;
  }

  Reading read(
      std::string_view text,
      bool last,
      size_t& used,
      CallWriter& calls) override {
    while (used < text.size()) {
      std::string_view rest = text.substr(used);
      Closes closes = closes_here(
          rest,
          shape_.close_section,
          opening_,
          in_string_ || in_quote_,
          last);
      if (closes == Closes::unknown) {
        return Reading::more;
      }
      if (closes == Closes::yes) {
        used += shape_.close_section.size();
        if (calls.open()) {
          end_argument(calls);
          calls.end();
        }
        return called_ ? Reading::done : Reading::not_a_call;
      }
      if (place_ == Place::prefix && !shape_.prefix.empty() &&
          !is_space(rest.front()) && rest.front() != ',') {
        Match match = match_marker(rest, shape_.prefix, last);
        if (match == Match::may_become) {
          return Reading::more;
        }
        if (match == Match::no) {
          return called_ ? Reading::done : Reading::not_a_call;
        }
        used += shape_.prefix.size();
        place_ = Place::name;
        continue;
      }
      size_t took = 1;
      if (place_ == Place::value && !shape_.quote.empty()) {
        Match match = match_marker(rest, shape_.quote, last);
        if (match == Match::may_become) {
          return Reading::more;
        }
        if (match == Match::yes) {
          in_quote_ = !in_quote_;
          took = shape_.quote.size();
        }
      }
      if (took > 1) {
        value_.append(rest.substr(0, took));
      } else {
        feed(rest.front(), calls);
      }
      used += took;
      if (place_ == Place::not_a_call) {
        return called_ ? Reading::done : Reading::not_a_call;
      }
      if (place_ == Place::done) {
        return Reading::done;
      }
    }
    if (last && calls.open()) {
      cut_off(calls);
    } else if (last && called_) {
      return Reading::done;
    }
    return Reading::more;
  }

 private:
  enum class Place {
    list,
    prefix,
    name,
    key,
    value,
    behind,  // the calls of a list
    done,
    not_a_call,
  };

  void feed(char c, CallWriter& calls) {
    switch (place_) {
      case Place::list:
        if (!is_space(c)) {
          place_ = c == '[' ? Place::prefix : Place::not_a_call;
        }
        break;
      case Place::prefix:
        if (called_ && c == ']' && shape_.list) {
          place_ = shape_.close_section.empty() ? Place::done : Place::behind;
        } else if (is_name_byte(c)) {
          name_ = c;
          place_ = Place::name;
        } else if (!is_space(c) && !(called_ && c == ',')) {
          place_ = Place::not_a_call;
        }
        break;
      case Place::name:
        if (is_name_byte(c) && name_.size() < kLongestName) {
          name_ += c;
        } else if (c == shape_.open && !name_.empty()) {
          begin_call(calls);
        } else {
          place_ = Place::not_a_call;
        }
        break;
      case Place::key:
        feed_key(c, calls);
        break;
      case Place::value:
        feed_value(c, calls);
        break;
      case Place::behind:
      case Place::done:
      case Place::not_a_call:
        break;
    }
  }

  void begin_call(CallWriter& calls) {
    if (!shape_.method.empty() && name_.ends_with(shape_.method) &&
        name_.size() > shape_.method.size()) {
      name_.resize(name_.size() - shape_.method.size());
    }
    calls.begin(name_);
    parameters_ = declared_parameters(tools_, name_);
    name_.clear();
    called_ = true;
    position_ = 0;
    next_argument();
  }

  void next_argument() {
    place_ = Place::key;
    key_.clear();
    value_.clear();
    depth_ = 0;
    in_string_ = in_quote_ = escaped_ = false;
  }

  void feed_key(char c, CallWriter& calls) {
    if (key_.empty() && (is_space(c) || c == ',')) {
      return;
    }
    if (key_.empty() && c == shape_.close) {
      end_call(calls);
    } else if (c == shape_.assign) {
      place_ = Place::value;
    } else if (is_name_byte(c) || is_space(c)) {
      key_ += c;
    } else if (shape_.assign == '=') {
      // No keyword: the parameter at that position.
      place_ = Place::value;
      std::string start = std::exchange(key_, "");
      positional_ = true;
      for (char one : start + c) {
        feed_value(one, calls);
      }
    } else {
      key_ += c;
    }
  }

  void feed_value(char c, CallWriter& calls) {
    if (in_quote_) {
      value_ += c;
      return;
    }
    if (in_string_) {
      value_ += c;
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == string_quote_) {
        in_string_ = false;
      }
      return;
    }
    if (depth_ == 0 && (c == ',' || c == shape_.close)) {
      end_argument(calls);
      if (c == ',') {
        next_argument();
      } else {
        end_call(calls);
      }
      return;
    }
    if (shape_.quote.empty() && (c == '"' || c == '\'')) {
      in_string_ = true;
      string_quote_ = c;
    } else if (c == '[' || c == '{' || c == '(') {
      ++depth_;
    } else if (c == ']' || c == '}' || c == ')') {
      --depth_;
    }
    value_ += c;
  }

  void end_call(CallWriter& calls) {
    calls.end();
    place_ = Place::prefix;
    key_.clear();
    value_.clear();
    in_string_ = in_quote_ = false;
  }

  std::string key() {
    if (!positional_) {
      return std::string(trim(key_));
    }
    // The declared parameters have an order.
    size_t wanted = position_++;
    if (parameters_ != nullptr && parameters_->is_object() &&
        parameters_->contains("properties")) {
      const OrderedJson& properties = (*parameters_)["properties"];
      if (properties.is_object() && wanted < properties.size()) {
        return std::next(properties.begin(), static_cast<ptrdiff_t>(wanted))
            .key();
      }
    }
    return std::to_string(wanted);
  }

  void end_argument(CallWriter& calls) {
    if (place_ != Place::value) {
      return;
    }
    std::string_view text = trim(value_);
    std::string name = key();
    positional_ = false;
    std::optional<std::string> json = shape_.quote.empty()
        ? python_literal_to_json(text)
        : bare_object_to_json(text, shape_.quote);
    bool quoted = !shape_.quote.empty() && text.starts_with(shape_.quote);
    if (json && !quoted && json->starts_with('"') && !shape_.quote.empty()) {
      json = typed_argument(parameters_, name, text);  // a bare word
    } else if (
        json && !quoted && !json->starts_with('"') &&
        takes_strings_only(parameters_, name)) {
      json = json_quote(text);
    }
    calls.add(name, json ? *json : json_quote(text));
    value_.clear();
    place_ = Place::key;
  }

  // An argument that was cut off, as far as it came.
  void cut_off(CallWriter& calls) {
    if (place_ != Place::value) {
      return;
    }
    std::string_view text = trim(value_);
    std::string name = key();
    if (in_quote_ && depth_ == 0) {
      text.remove_prefix(shape_.quote.size());
      calls.add(name, json_quote_open(text));
    } else if (in_string_ && depth_ == 0) {
      std::string closed = std::string(text) + string_quote_;
      std::optional<std::string> json = python_literal_to_json(closed);
      calls.add(
          name,
          json ? std::string_view(*json).substr(0, json->size() - 1) : text);
    } else {
      calls.add(name, text);
    }
  }

  NamedShape shape_;
  std::string opening_;
  const OrderedJson* tools_;
  const OrderedJson* parameters_ = nullptr;
  Place place_ = Place::prefix;
  bool called_ = false;
  bool positional_ = false;
  size_t position_ = 0;
  bool in_string_ = false;  // a Python string
  bool in_quote_ = false;   // between the shape's quotes
  bool escaped_ = false;
  char string_quote_ = 0;
  int depth_ = 0;
  std::string name_, key_, value_;
};

}  // namespace

std::unique_ptr<SectionReader> read_named_calls(
    const NamedShape& shape,
    std::string_view opening,
    const OrderedJson* tools) {
  return std::make_unique<NamedCalls>(shape, opening, tools);
}

}  // namespace mlxx::text
