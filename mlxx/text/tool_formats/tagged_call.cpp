#include "mlxx/text/tool_formats/tagged_call.h"

#include <algorithm>

#include "mlxx/text/tool_formats/declared_tools.h"
#include "mlxx/text/tool_formats/json_call.h"
#include "mlxx/text/tool_formats/markup_scan.h"
#include "mlxx/text/tool_formats/staged_reader.h"

namespace mlxx::text {
namespace {

constexpr size_t kLongestName = 256;

// "x" or 'x' with attributes behind it, or x.
std::string name_of(std::string_view text) {
  text = trim(text);
  if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
    size_t end = text.find(text.front(), 1);
    return std::string(
        end == std::string_view::npos ? text.substr(1)
                                      : text.substr(1, end - 1));
  }
  return std::string(text);
}

// A value without the line ends that its tags stand on.
std::string_view without_line_ends(std::string_view text) {
  if (text.starts_with('\n')) {
    text.remove_prefix(1);
  }
  if (text.ends_with('\n')) {
    text.remove_suffix(1);
  }
  return text;
}

std::string_view without_cdata(std::string_view text) {
  constexpr std::string_view kBegin = "<![CDATA[";
  constexpr std::string_view kEnd = "]]>";
  std::string_view bare = trim(text);
  if (bare.starts_with(kBegin) && bare.ends_with(kEnd) &&
      bare.size() >= kBegin.size() + kEnd.size()) {
    bare.remove_prefix(kBegin.size());
    bare.remove_suffix(kEnd.size());
    return bare;
  }
  return text;
}

class TaggedCalls : public StagedReader {
 public:
  TaggedCalls(
      const TagShape& shape,
      std::string_view opening,
      const OrderedJson* tools)
      : shape_(shape), opening_(opening), tools_(tools) {
    if (shape_.open_call.empty() || opening_ == shape_.open_call) {
      place_ = Place::name;
    }
  }

 private:
  enum class Place {
    section,
    name,
    parameters,
    parameter,  // its name
    before_value,
    value,
    json,       // arguments
    json_call,  // name and arguments
  };

  Next read_place(
      std::string_view text,
      bool last,
      size_t& took,
      CallWriter& calls) override {
    switch (place_) {
      case Place::section:
        return read_section(text, last, took);
      case Place::name:
        return read_name(text, last, took, calls);
      case Place::parameters:
        return read_parameters(text, last, took, calls);
      case Place::parameter:
        return read_parameter(text, took);
      case Place::before_value:
        return read_before_value(text, last, took);
      case Place::value:
        return read_value(text, last, took, calls);
      case Place::json:
        return read_json(text, last, took, calls);
      case Place::json_call:
        return as_next(json_->read(text, last, took, calls));
    }
    return Next::more;
  }

  Next read_section(std::string_view text, bool last, size_t& took) {
    size_t at = leading_spaces(text);
    text.remove_prefix(at);
    if (text.empty()) {
      return last && called_ ? Next::done : Next::more;
    }
    Match call = match_marker(text, shape_.open_call, last);
    Match close = shape_.close_section.empty()
        ? Match::no
        : match_marker(text, shape_.close_section, last);
    if (call == Match::yes) {
      took = at + shape_.open_call.size();
      place_ = Place::name;
      return Next::go_on;
    }
    if (close == Match::yes) {
      took = at + shape_.close_section.size();
      return called_ ? Next::done : Next::not_a_call;
    }
    if (call == Match::may_become || close == Match::may_become) {
      return Next::more;
    }
    if (!called_ && text.front() == '{') {
      return begin_json_call();
    }
    return called_ ? Next::done : Next::not_a_call;
  }

  Next begin_json_call() {
    JsonCallShape shape;
    shape.opening = opening_;
    shape.close =
        shape_.close_section.empty() ? shape_.close_call : shape_.close_section;
    json_ = read_json_calls(shape);
    place_ = Place::json_call;
    return Next::go_on;
  }

  Next
  read_name(std::string_view text, bool last, size_t& took, CallWriter& calls) {
    size_t lead = leading_spaces(text);
    if (lead == text.size()) {
      return Next::more;
    }
    if (text[lead] == '{' && !called_) {
      return begin_json_call();
    }
    std::string_view stop =
        shape_.name_end.empty() ? "<" : std::string_view(shape_.name_end);
    size_t end = text.find(stop);
    std::string_view name =
        trim(text.substr(0, std::min(end, kLongestName + 1)));
    // A name is short and stands alone on its line.
    bool sound = name.size() <= kLongestName &&
        name.find_first_of(shape_.name_end.empty() ? "\n{>" : "\n<") ==
            std::string_view::npos;
    if (!sound || (end != std::string_view::npos && name_of(name).empty())) {
      return called_ ? Next::done : Next::not_a_call;
    }
    if (end == std::string_view::npos) {
      return Next::more;
    }
    if (shape_.name_end.empty()) {
      // Only the right tags may follow.
      Match parameter =
          match_marker(text.substr(end), shape_.open_parameter, last);
      Match close = match_marker(text.substr(end), shape_.close_call, last);
      if (parameter == Match::may_become || close == Match::may_become) {
        return Next::more;
      }
      if (parameter == Match::no && close == Match::no) {
        return Next::not_a_call;
      }
      took = end;
    } else {
      took = end + stop.size();
    }
    name_ = name_of(name);
    calls.begin(name_);
    parameters_ = declared_parameters(tools_, name_);
    called_ = true;
    place_ = Place::parameters;
    return Next::go_on;
  }

  Next read_parameters(
      std::string_view text,
      bool last,
      size_t& took,
      CallWriter& calls) {
    took = leading_spaces(text);
    text.remove_prefix(took);
    if (text.empty()) {
      return Next::more;
    }
    if (text.front() == '{' && !calls.has_arguments()) {
      scan_ = {};
      place_ = Place::json;
      return Next::go_on;
    }
    const std::string* tags[] = {
        &shape_.open_parameter,
        &shape_.close_call,
        &shape_.close_section,
        &shape_.open_call};
    for (const std::string* tag : tags) {
      if (tag->empty()) {
        continue;
      }
      Match match = match_marker(text, *tag, last);
      if (match == Match::may_become) {
        return Next::more;
      }
      if (match == Match::no) {
        continue;
      }
      took += tag->size();
      if (tag == &shape_.open_parameter) {
        place_ = Place::parameter;
        return Next::go_on;
      }
      calls.end();
      bool another = tag == &shape_.open_call;
      bool ends = tag == &shape_.close_section || shape_.close_section.empty();
      place_ = another ? Place::name : Place::section;
      return !another && ends ? Next::done : Next::go_on;
    }
    ++took;  // no part of a call
    return Next::go_on;
  }

  Next read_parameter(std::string_view text, size_t& took) {
    size_t end = text.find(shape_.parameter_end);
    if (std::min(end, text.size()) > kLongestName) {
      place_ = Place::parameters;  // no name; the next tag is looked for
      return Next::go_on;
    }
    if (end == std::string_view::npos) {
      return Next::more;
    }
    took = end + shape_.parameter_end.size();
    parameter_ = name_of(text.substr(0, end));
    // DeepSeek says so itself.
    is_string_ =
        text.substr(0, end).find(" string=\"true\"") != std::string_view::npos;
    place_ = shape_.open_value.empty() ? Place::value : Place::before_value;
    return Next::go_on;
  }

  Next read_before_value(std::string_view text, bool last, size_t& took) {
    size_t at = leading_spaces(text);
    Match match = match_marker(text.substr(at), shape_.open_value, last);
    if (at == text.size() || match == Match::may_become) {
      return Next::more;
    }
    // Without the tag there is no value, and the next tags are looked for.
    place_ = match == Match::yes ? Place::value : Place::parameters;
    took = at + (match == Match::yes ? shape_.open_value.size() : 0);
    return Next::go_on;
  }

  Next read_value(
      std::string_view text,
      bool last,
      size_t& took,
      CallWriter& calls) {
    size_t end = text.find(shape_.close_parameter, searched_);
    if (end == std::string_view::npos) {
      searched_ = text.size() -
          std::min(text.size(), shape_.close_parameter.size() - 1);
      if (last) {
        give_cut_off(text, calls);
        took = text.size();
      }
      return Next::more;
    }
    searched_ = 0;
    took = end + shape_.close_parameter.size();
    std::string_view value =
        without_cdata(without_line_ends(text.substr(0, end)));
    calls.add(
        parameter_,
        is_string_ ? json_quote(value)
                   : typed_argument(parameters_, parameter_, value));
    place_ = Place::parameters;
    return Next::go_on;
  }

  void give_cut_off(std::string_view text, CallWriter& calls) {
    if (text.starts_with('\n')) {
      text.remove_prefix(1);
    }
    if (!is_string_ && !takes_strings_only(parameters_, parameter_)) {
      calls.add(parameter_, trim(text));
    } else {
      calls.add(parameter_, json_quote_open(text));
    }
  }

  Next
  read_json(std::string_view text, bool last, size_t& took, CallWriter& calls) {
    while (took < text.size()) {
      Closes closes = closes_here(
          text.substr(took),
          shape_.close_call,
          opening_,
          scan_.in_string(),
          last);
      if (closes == Closes::unknown) {
        return Next::more;
      }
      if (closes == Closes::yes) {
        place_ = Place::parameters;
        return Next::go_on;
      }
      JsonScan::Step step = scan_.feed(text[took]);
      calls.raw(text.substr(took, 1));
      ++took;
      if (step != JsonScan::Step::inside) {
        place_ = Place::parameters;
        return Next::go_on;
      }
    }
    return Next::more;
  }

  TagShape shape_;
  std::string opening_;
  const OrderedJson* tools_;
  Place place_ = Place::section;
  bool called_ = false;
  std::string name_, parameter_;
  const OrderedJson* parameters_ = nullptr;
  bool is_string_ = false;
  size_t searched_ = 0;
  JsonScan scan_;
  std::unique_ptr<SectionReader> json_;
};

}  // namespace

std::unique_ptr<SectionReader> read_tagged_calls(
    const TagShape& shape,
    std::string_view opening,
    const OrderedJson* tools) {
  return std::make_unique<TaggedCalls>(shape, opening, tools);
}

}  // namespace mlxx::text
