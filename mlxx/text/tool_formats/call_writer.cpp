#include "mlxx/text/tool_formats/call_writer.h"

#include <fmt/format.h>

namespace mlxx::text {

void CallWriter::begin(std::string_view name) {
  if (open_) {
    end();
  }
  ToolCallPiece piece;
  piece.index = next_++;
  piece.name = name;
  piece_->calls.push_back(std::move(piece));
  open_ = true;
  added_ = false;
  raw_ = false;
}

void CallWriter::raw(std::string_view text) {
  if (!open_ || text.empty()) {
    return;
  }
  raw_ = true;
  int index = next_ - 1;
  // A first piece brings the name alone.
  if (piece_->calls.empty() || piece_->calls.back().index != index ||
      !piece_->calls.back().name.empty()) {
    ToolCallPiece piece;
    piece.index = index;
    piece_->calls.push_back(std::move(piece));
  }
  piece_->calls.back().arguments.append(text);
}

void CallWriter::add(std::string_view key, std::string_view json) {
  bool first = !added_;
  raw(first ? "{" : ", ");
  raw(json_quote(key));
  raw(": ");
  raw(json);
  added_ = true;
}

void CallWriter::end() {
  if (!open_) {
    return;
  }
  if (added_) {
    raw("}");
  } else if (!raw_) {
    raw("{}");
  }
  open_ = false;
}

std::string json_quote_open(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string json_quote(std::string_view text) {
  return json_quote_open(text) + "\"";
}

}  // namespace mlxx::text
