#include "mlxx/text/tool_formats/answer_divider.h"

#include "mlxx/text/tool_formats/markup_scan.h"

namespace mlxx::text {

AnswerDivider::AnswerDivider(
    std::optional<ReasoningFormat> reasoning,
    bool reasoning_open,
    Sections sections)
    : reasoning_(std::move(reasoning)), sections_(std::move(sections)) {
  if (reasoning_ && reasoning_open) {
    place_ = Place::reasoning;
  }
  markers_ = sections_.openings;
  if (reasoning_ && reasoning_->anywhere) {
    markers_.push_back(reasoning_->begin);
  }
}

AnswerPiece AnswerDivider::step(std::string_view text) {
  AnswerPiece out;
  text_.append(text);
  advance(false, out);
  return out;
}

AnswerPiece AnswerDivider::flush() {
  AnswerPiece out;
  advance(true, out);
  return out;
}

void AnswerDivider::advance(bool last, AnswerPiece& out) {
  calls_.write_to(out);
  bool going = true;
  while (going) {
    switch (place_) {
      case Place::start:
        going = read_start(last);
        break;
      case Place::reasoning:
        going = read_reasoning(last, out);
        break;
      case Place::content:
        going = read_content(last, out);
        break;
      case Place::section:
        going = read_section(last, out);
        break;
    }
  }
  // Text of a section without a call yet may turn out to be content.
  size_t keep = place_ == Place::section && calls_.count() == calls_before_
      ? section_start_
      : at_;
  text_.erase(0, keep);
  at_ -= keep;
  if (place_ == Place::section) {
    section_end_of_marker_ -= std::min(section_end_of_marker_, keep);
    section_start_ = 0;
  }
}

bool AnswerDivider::read_start(bool last) {
  std::string_view text = rest();
  size_t spaces = 0;
  while (spaces < text.size() && is_space(text[spaces])) {
    ++spaces;
  }
  if (spaces == text.size() && !last) {
    return false;
  }
  if (reasoning_ && reasoning_possible_) {
    Match match = match_marker(text.substr(spaces), reasoning_->begin, last);
    if (match == Match::may_become) {
      return false;
    }
    reasoning_possible_ = false;
    if (match == Match::yes) {
      at_ += spaces + reasoning_->begin.size();
      place_ = Place::reasoning;
      reasoning_began_ = true;
      skip_spaces_ = true;
      return true;
    }
  }
  for (const std::string& opening : sections_.openings_at_start) {
    if (match_marker(text.substr(spaces), opening, true) == Match::yes) {
      section_start_ = at_;
      at_ += spaces + opening.size();
      section_end_of_marker_ = at_;
      calls_before_ = calls_.count();
      reader_ = sections_.open(opening);
      place_ = Place::section;
      return true;
    }
  }
  place_ = Place::content;
  return true;
}

bool AnswerDivider::read_reasoning(bool last, AnswerPiece& out) {
  if (!reasoning_began_) {
    // The model may open again what the prompt opened.
    std::string_view text = rest();
    size_t spaces = 0;
    while (spaces < text.size() && is_space(text[spaces])) {
      ++spaces;
    }
    Match match = match_marker(text.substr(spaces), reasoning_->begin, last);
    if (!last && (match == Match::may_become || spaces == text.size())) {
      return false;
    }
    at_ += spaces + (match == Match::yes ? reasoning_->begin.size() : 0);
    reasoning_began_ = true;
    skip_spaces_ = true;
  }
  if (skip_spaces_) {
    while (at_ < text_.size() && is_space(text_[at_])) {
      ++at_;
    }
    skip_spaces_ = at_ == text_.size();
  }
  std::string_view text = rest();
  Found found = find_marker(text, {reasoning_->end}, last, true);
  out.reasoning.append(text.substr(0, found.certain));
  if (found.at == std::string_view::npos) {
    at_ += found.certain;
    return false;
  }
  at_ += found.at + reasoning_->end.size();
  skip_spaces_ = true;
  reasoning_possible_ = false;
  // A bare call may follow, and with it the rules of a start.
  place_ = sections_.openings_at_start.empty() || content_began_
      ? Place::content
      : Place::start;
  return true;
}

void AnswerDivider::give(AnswerPiece& out, std::string_view content) {
  if (skip_spaces_) {
    while (!content.empty() && is_space(content.front())) {
      content.remove_prefix(1);
    }
    if (content.empty()) {
      return;
    }
    skip_spaces_ = false;
    // Texts around markup stay apart.
    out.content += content_began_ ? "\n" : "";
  }
  content_began_ |= !content.empty();
  out.content.append(content);
}

bool AnswerDivider::read_content(bool last, AnswerPiece& out) {
  std::string_view text = rest();
  Found found = find_marker(text, markers_, last, true);
  give(out, text.substr(0, found.certain));
  if (found.at == std::string_view::npos) {
    at_ += found.certain;
    return false;
  }
  if (found.which >= sections_.openings.size()) {
    at_ += found.at + reasoning_->begin.size();
    place_ = Place::reasoning;
    reasoning_began_ = true;
    skip_spaces_ = true;
    return true;
  }
  section_start_ = at_ + found.certain;
  at_ += found.at + markers_[found.which].size();
  section_end_of_marker_ = at_;
  calls_before_ = calls_.count();
  reader_ = sections_.open(markers_[found.which]);
  place_ = Place::section;
  return true;
}

bool AnswerDivider::read_section(bool last, AnswerPiece& out) {
  size_t used = 0;
  Reading reading = reader_->read(rest(), last, used, calls_);
  at_ += used;
  if (reading == Reading::more && !last) {
    return false;
  }
  bool called = calls_.count() > calls_before_;
  reader_.reset();
  place_ = Place::content;
  if (called) {
    // Cut off, or complete.
    if (reading == Reading::more) {
      calls_.abandon();
      at_ = text_.size();
    } else {
      calls_.end();
    }
    skip_spaces_ = true;
    return true;
  }
  // Prose: the marker is content, and what follows it is looked at anew.
  give(
      out,
      std::string_view(text_).substr(
          section_start_,
          section_end_of_marker_ - section_start_));
  at_ = section_end_of_marker_;
  return true;
}

}  // namespace mlxx::text
