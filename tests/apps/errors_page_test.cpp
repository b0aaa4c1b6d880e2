#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/mlxx/exit_codes.h"

namespace mlxx::apps {
namespace {

struct Row {
  std::string exit_code;
  std::string http_status;
  std::string meaning;
  std::string advice;
};

std::string trimmed(const std::string& text) {
  auto begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// The table's rows, whose first cell is a kind in backquotes.
std::map<std::string, Row> read_page() {
  std::ifstream file(MLXX_ERRORS_PAGE);
  std::map<std::string, Row> rows;
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("| `")) {
      continue;
    }
    std::vector<std::string> cells;
    std::istringstream parts(line);
    std::string cell;
    while (std::getline(parts, cell, '|')) {
      cells.push_back(trimmed(cell));
    }
    EXPECT_EQ(cells.size(), 6u) << line;
    if (cells.size() == 6) {
      std::string kind = cells[1].substr(1, cells[1].size() - 2);
      EXPECT_FALSE(rows.contains(kind)) << kind;
      rows[kind] = {cells[2], cells[3], cells[4], cells[5]};
    }
  }
  return rows;
}

TEST(ErrorsPage, SaysWhatTheProgramDoes) {
  auto rows = read_page();
  EXPECT_EQ(rows.size(), std::size(kErrorMappings));
  for (const auto& mapping : kErrorMappings) {
    std::string kind(to_string(mapping.kind));
    ASSERT_TRUE(rows.contains(kind)) << kind;
    EXPECT_EQ(rows[kind].exit_code, std::to_string(mapping.exit_code)) << kind;
    EXPECT_EQ(rows[kind].http_status, std::to_string(mapping.http_status))
        << kind;
    EXPECT_FALSE(rows[kind].meaning.empty()) << kind;
    EXPECT_FALSE(rows[kind].advice.empty()) << kind;
  }
}

// Kinds are numbered from 0 and `internal` is the last.
TEST(ErrorsPage, EveryKindIsMapped) {
  for (int i = 0; i <= static_cast<int>(ErrorKind::internal); ++i) {
    auto kind = static_cast<ErrorKind>(i);
    int count = 0;
    for (const auto& mapping : kErrorMappings) {
      count += mapping.kind == kind ? 1 : 0;
    }
    EXPECT_EQ(count, 1) << to_string(kind);
  }
  EXPECT_EQ(exit_code(ErrorKind::invalid_request), 2);
  EXPECT_EQ(exit_code(ErrorKind::cancelled), 130);
}

}  // namespace
}  // namespace mlxx::apps
