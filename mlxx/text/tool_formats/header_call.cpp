#include "mlxx/text/tool_formats/header_call.h"

#include <algorithm>
#include <cctype>

#include "mlxx/text/tool_formats/json_call.h"
#include "mlxx/text/tool_formats/markup_scan.h"
#include "mlxx/text/tool_formats/staged_reader.h"

namespace mlxx::text {
namespace {

constexpr size_t kLongestName = 256;

// functions.get_weather:0 is get_weather.
std::string_view without_number(std::string_view name) {
  constexpr std::string_view kPrefix = "functions.";
  if (name.starts_with(kPrefix)) {
    name.remove_prefix(kPrefix.size());
  }
  size_t colon = name.rfind(':');
  if (colon != std::string_view::npos && colon > 0) {
    std::string_view number = name.substr(colon + 1);
    if (!number.empty() &&
        std::all_of(number.begin(), number.end(), [](char c) {
          return std::isdigit(static_cast<unsigned char>(c));
        })) {
      return name.substr(0, colon);
    }
  }
  return name;
}

class HeaderCalls : public StagedReader {
 public:
  HeaderCalls(const HeaderShape& shape, std::string_view opening)
      : shape_(shape), opening_(opening) {
    bool named = shape_.open_call.empty() || shape_.open_call == opening_;
    place_ = named ? Place::name : Place::section;
  }

 private:
  enum class Place { section, name, arguments, json_call };

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
      case Place::arguments:
        return read_arguments(text, last, took, calls);
      case Place::json_call:
        return as_next(json_->read(text, last, took, calls));
    }
    return Next::more;
  }

  Next stop() const {
    return called_ ? Next::done : Next::not_a_call;
  }

  Next read_section(std::string_view text, bool last, size_t& took) {
    size_t at = leading_spaces(text);
    text.remove_prefix(at);
    if (text.empty()) {
      return last && called_ ? Next::done : Next::more;
    }
    for (const std::string* tag : {&shape_.open_call, &shape_.close_section}) {
      if (tag->empty()) {
        continue;
      }
      Match match = match_marker(text, *tag, last);
      if (match == Match::may_become) {
        return Next::more;
      }
      if (match == Match::yes) {
        took = at + tag->size();
        place_ = Place::name;
        return tag == &shape_.open_call ? Next::go_on : stop();
      }
    }
    return stop();
  }

  Next
  read_name(std::string_view text, bool last, size_t& took, CallWriter& calls) {
    size_t lead = leading_spaces(text);
    if (lead == text.size()) {
      return last && called_ ? Next::done : Next::more;
    }
    if (shape_.json_list && !called_ &&
        (text[lead] == '[' || text[lead] == '{')) {
      json_ = read_json_calls({});
      place_ = Place::json_call;
      return Next::go_on;
    }
    // The name's bytes, then what ends it.
    size_t end = lead;
    while (
        end < text.size() && end - lead <= kLongestName &&
        (std::isalnum(static_cast<unsigned char>(text[end])) ||
         std::string_view("_.-:/").find(text[end]) != std::string_view::npos ||
         static_cast<unsigned char>(text[end]) >= 0x80)) {
      ++end;
    }
    if (end == text.size()) {
      return last ? stop() : Next::more;
    }
    std::string_view name = text.substr(lead, end - lead);
    size_t at = end + leading_spaces(text.substr(end));
    if (at == text.size() && !last) {
      return Next::more;
    }
    if (!shape_.id_begin.empty()) {
      Match match = match_marker(text.substr(at), shape_.id_begin, last);
      if (match == Match::may_become) {
        return Next::more;
      }
      if (match == Match::yes) {
        at += shape_.id_begin.size();
        size_t id_end = text.find('[', at);
        if (id_end == std::string_view::npos) {
          return text.size() - at > kLongestName ? stop() : Next::more;
        }
        at = id_end;
      }
    }
    Match match = match_marker(text.substr(at), shape_.name_end, last);
    if (match == Match::may_become) {
      return Next::more;
    }
    if (match == Match::yes) {
      at += shape_.name_end.size();
    } else if (called_ || at >= text.size() || text[at] != '{') {
      return stop();
    }
    if (name.empty()) {
      return stop();
    }
    took = at;
    calls.begin(shape_.numbered ? without_number(name) : name);
    called_ = true;
    scan_ = {};
    place_ = Place::arguments;
    return Next::go_on;
  }

  Next read_arguments(
      std::string_view text,
      bool last,
      size_t& took,
      CallWriter& calls) {
    while (took < text.size()) {
      std::string_view rest = text.substr(took);
      size_t blank = scan_.in_string() ? 0 : leading_spaces(rest);
      if (blank == rest.size() && !last) {
        return Next::more;
      }
      Closes closes = closes_here(
          rest.substr(blank),
          shape_.close_call,
          shape_.open_call.empty() ? opening_ : shape_.open_call,
          scan_.in_string(),
          last);
      // The section may end behind a call whose string never does.
      if (closes == Closes::no && scan_.in_string() &&
          !shape_.close_section.empty()) {
        closes = closes_here(
            rest.substr(blank),
            shape_.close_call,
            shape_.close_section,
            true,
            last);
      }
      if (closes == Closes::unknown) {
        return Next::more;
      }
      if (closes == Closes::yes) {
        took += blank + shape_.close_call.size();
        return end_call(calls);
      }
      if (!scan_.begun() && blank > 0) {
        took += blank;
        continue;
      }
      JsonScan::Step step = scan_.feed(rest.front());
      if (step == JsonScan::Step::ended_before && shape_.close_call.empty()) {
        return end_call(calls);
      }
      calls.raw(rest.substr(0, 1));
      ++took;
      if (step == JsonScan::Step::ends_after && shape_.close_call.empty()) {
        return end_call(calls);
      }
    }
    return Next::more;
  }

  Next end_call(CallWriter& calls) {
    calls.end();
    place_ = shape_.open_call.empty() ? Place::name : Place::section;
    return shape_.open_call == opening_ ? Next::done : Next::go_on;
  }

  HeaderShape shape_;
  std::string opening_;
  Place place_ = Place::section;
  bool called_ = false;
  JsonScan scan_;
  std::unique_ptr<SectionReader> json_;
};

}  // namespace

std::unique_ptr<SectionReader> read_header_calls(
    const HeaderShape& shape,
    std::string_view opening) {
  return std::make_unique<HeaderCalls>(shape, opening);
}

}  // namespace mlxx::text
