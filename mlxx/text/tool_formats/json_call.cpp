#include "mlxx/text/tool_formats/json_call.h"

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/text/tool_formats/declared_tools.h"
#include "mlxx/text/tool_formats/markup_scan.h"

namespace mlxx::text {

JsonScan::Step JsonScan::feed(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
      return depth_ == 0 ? Step::ends_after : Step::inside;
    }
    return Step::inside;
  }
  bool closes = c == '}' || c == ']';
  if (depth_ == 0 && begun_ && (closes || c == ',' || is_space(c))) {
    return Step::ended_before;
  }
  begun_ = true;
  if (c == '"') {
    in_string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (closes) {
    if (depth_ == 0) {
      return Step::ended_before;
    }
    return --depth_ == 0 ? Step::ends_after : Step::inside;
  }
  return Step::inside;
}

Closes closes_here(
    std::string_view text,
    std::string_view close,
    std::string_view opening,
    bool in_string,
    bool last) {
  if (close.empty()) {
    return Closes::no;
  }
  Match match = match_marker(text, close, last);
  if (match == Match::may_become) {
    return Closes::unknown;
  }
  if (match == Match::no || !in_string) {
    return match == Match::yes ? Closes::yes : Closes::no;
  }
  text.remove_prefix(close.size());
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  if (text.empty()) {
    return last ? Closes::yes : Closes::unknown;
  }
  match = match_marker(text, opening, last);
  return match == Match::yes ? Closes::yes
      : match == Match::no   ? Closes::no
                             : Closes::unknown;
}

namespace {

// The content of a JSON string, quotes included in `text`; as it is if it is
// not valid.
std::string unquoted(std::string_view text) {
  try {
    Json json = parse_json(text, "tool call");
    if (json.is_string()) {
      return json.get<std::string>();
    }
  } catch (const Error&) {
  }
  text.remove_prefix(text.starts_with('"') ? 1 : 0);
  text.remove_suffix(text.ends_with('"') ? 1 : 0);
  return std::string(text);
}

bool is_object(std::string_view text) {
  try {
    return parse_json(text, "tool call").is_object();
  } catch (const Error&) {
    return false;
  }
}

class JsonCalls : public SectionReader {
 public:
  explicit JsonCalls(JsonCallShape shape) : shape_(std::move(shape)) {}

  Reading read(
      std::string_view text,
      bool last,
      size_t& used,
      CallWriter& calls) override {
    for (char c : std::exchange(shape_.before, "")) {
      feed(c, calls);
    }
    // What belongs to the call before this is its end, and whatever follows.
    while (used < text.size()) {
      std::string_view rest = text.substr(used);
      bool in_string =
          state_ == State::key || (state_ == State::value && scan_.in_string());
      switch (
          closes_here(rest, shape_.close, shape_.opening, in_string, last)) {
        case Closes::unknown:
          return Reading::more;
        case Closes::yes:
          used += shape_.close.size();
          return finish(calls) ? Reading::done : Reading::not_a_call;
        case Closes::no:
          break;
      }
      if (state_ == State::between && shape_.close.empty() && !list_) {
        // Only a separator leads to another call.
        size_t next = 0;
        while (next < rest.size() && is_separator(rest[next])) {
          ++next;
        }
        if (next == rest.size()) {
          return last ? Reading::done : Reading::more;
        }
        if (rest[next] != '{') {
          return Reading::done;
        }
        used += next;
      }
      feed(text[used], calls);
      ++used;
      if (state_ == State::not_a_call) {
        return Reading::not_a_call;
      }
      if (state_ == State::done) {
        return Reading::done;
      }
    }
    if (last && state_ == State::between) {
      return Reading::done;
    }
    if (last) {
      give_held(calls);
    }
    return Reading::more;
  }

 private:
  enum class State {
    before,  // of the first object
    between,
    key_or_end,
    key,
    colon,
    value_start,
    value,
    raw,  // not JSON any more
    done,
    not_a_call,
  };
  enum class Role { name, arguments, other };

  bool is_separator(char c) const {
    return is_space(c) || shape_.separators.find(c) != std::string::npos;
  }

  // The close marker came.
  bool finish(CallWriter& calls) {
    if (state_ == State::between) {
      return true;
    }
    if (calls.open()) {
      give_held(calls);
      calls.end();
      return true;
    }
    return count_ > 0;
  }

  // Arguments that were waiting for something that has not come.
  void give_held(CallWriter& calls) {
    if (calls.open() && !held_.empty()) {
      calls.raw(std::exchange(held_, ""));
    }
  }

  void feed(char c, CallWriter& calls) {
    switch (state_) {
      case State::before:
        if (c == '{') {
          begin_object();
        } else if (c == '[' && !list_ && !shape_.bare) {
          list_ = true;
        } else if (!is_space(c)) {
          state_ = State::not_a_call;
        }
        break;
      case State::between:
        if (c == '{') {
          begin_object();
        } else if (c == ']' && list_) {
          list_ = false;
          state_ = shape_.close.empty() ? State::done : State::between;
        }
        break;
      case State::key_or_end:
        if (c == '"') {
          state_ = State::key;
          key_.clear();
          escaped_ = false;
        } else if (c == '}') {
          end_object(calls);
        } else if (!is_space(c) && c != ',') {
          give_up(c, calls);
        }
        break;
      case State::key:
        if (!escaped_ && c == '"') {
          state_ = State::colon;
        } else {
          escaped_ = !escaped_ && c == '\\';
          key_ += c;
        }
        break;
      case State::colon:
        if (c == ':') {
          state_ = State::value_start;
        } else if (!is_space(c)) {
          give_up(c, calls);
        }
        break;
      case State::value_start:
        if (!is_space(c)) {
          begin_value(c, calls);
        }
        break;
      case State::value:
        feed_value(c, calls);
        break;
      case State::raw:
        calls.raw({&c, 1});
        break;
      case State::done:
      case State::not_a_call:
        break;
    }
  }

  void begin_object() {
    state_ = State::key_or_end;
    nested_ = 0;
    name_.clear();
    named_ = begun_ = arguments_seen_ = false;
    held_.clear();
  }

  void begin_value(char c, CallWriter& calls) {
    bool wraps = key_ == "function" || key_ == "tool";
    if (wraps && c == '{' && nested_ == 0) {
      ++nested_;
      state_ = State::key_or_end;
      return;
    }
    role_ = Role::other;
    if (!named_ &&
        (key_ == "name" || key_ == "function" || key_ == "tool_name")) {
      role_ = Role::name;
    } else if (
        !arguments_seen_ &&
        (key_ == "arguments" || key_ == "parameters" || key_ == "args")) {
      role_ = Role::arguments;
      arguments_seen_ = true;
      begin_call(calls);
    }
    scan_ = {};
    value_.clear();
    state_ = State::value;
    // A string may hold the arguments, and null stands for none.
    streams_ = role_ == Role::arguments && begun_ && c != '"' && c != 'n';
    feed_value(c, calls);
  }

  void feed_value(char c, CallWriter& calls) {
    JsonScan::Step step = scan_.feed(c);
    if (step != JsonScan::Step::ended_before) {
      if (streams_) {
        calls.raw({&c, 1});
      } else if (role_ == Role::arguments) {
        held_ += c;
      } else if (role_ == Role::name) {
        value_ += c;
      }
    }
    if (step != JsonScan::Step::inside) {
      end_value(calls);
    }
    if (step == JsonScan::Step::ended_before) {
      feed(c, calls);
    }
  }

  void end_value(CallWriter& calls) {
    state_ = State::key_or_end;
    if (role_ == Role::name && value_.starts_with('"')) {
      name_ = unquoted(value_);
      named_ = !name_.empty();
      if (arguments_seen_ || !shape_.bare) {
        begin_call(calls);
      }
    } else if (role_ == Role::arguments && !streams_) {
      if (held_ == "null") {
        held_ = "{}";
      } else if (held_.starts_with('"')) {
        std::string text = unquoted(held_);
        held_ = is_object(text) ? text : held_;
      }
      if (begun_) {
        give_held(calls);
      }
    }
  }

  void begin_call(CallWriter& calls) {
    if (!named_ || begun_) {
      return;
    }
    calls.begin(name_);
    begun_ = true;
    ++count_;
    if (state_ == State::key_or_end) {  // arguments came before the name
      give_held(calls);
    }
  }

  void end_object(CallWriter& calls) {
    if (nested_ > 0) {
      --nested_;
      return;
    }
    if (!begun_ && named_ && declared_tool(shape_.tools, name_) != nullptr) {
      begin_call(calls);
    }
    if (begun_) {
      calls.end();
      state_ = State::between;
    } else {
      state_ = count_ > 0 ? State::between : State::not_a_call;
    }
  }

  void give_up(char c, CallWriter& calls) {
    if (!begun_ && !shape_.bare) {
      begin_call(calls);
    }
    if (!begun_) {
      state_ = count_ > 0 ? State::done : State::not_a_call;
    } else if (shape_.close.empty()) {
      calls.end();
      state_ = State::done;
    } else if (!calls.has_arguments()) {
      state_ = State::raw;
      calls.raw({&c, 1});
    } else {
      calls.end();  // what follows up to the marker is no part of it
      state_ = State::between;
    }
  }

  JsonCallShape shape_;
  State state_ = State::before;
  Role role_ = Role::other;
  JsonScan scan_;
  int count_ = 0;
  int nested_ = 0;
  bool list_ = false;
  bool escaped_ = false;
  bool named_ = false;
  bool begun_ = false;  // the call was given out
  bool arguments_seen_ = false;
  bool streams_ = false;
  std::string key_, value_, name_, held_;
};

}  // namespace

std::unique_ptr<SectionReader> read_json_calls(JsonCallShape shape) {
  return std::make_unique<JsonCalls>(std::move(shape));
}

}  // namespace mlxx::text
