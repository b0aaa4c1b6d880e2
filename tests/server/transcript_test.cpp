#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/server/raw_client.h"
#include "tests/server/served_fake.h"

// Conversations with the server as data files: tests/data/http/README.md says
// what stands in them.
namespace mlxx::server {

namespace {

struct Exchange {
  int line = 0;
  std::string send;
  std::string status;
  std::vector<std::string> headers;  // "Name: glob" or "!Name"
  std::optional<std::string> body;   // a glob
  bool closes = false;
};

struct Transcript {
  std::vector<std::string> options;
  std::vector<Exchange> exchanges;
};

std::string unescape(const std::string& line) {
  std::string result;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      result += line[i];
      continue;
    }
    char c = line[++i];
    if (c == 'x' && i + 2 < line.size()) {
      result +=
          static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      result += c == 'r' ? '\r' : c == 'n' ? '\n' : c;
    }
  }
  return result;
}

void fill_length(std::string& bytes) {
  auto at = bytes.find("Content-Length: @");
  auto body = bytes.find("\r\n\r\n");
  if (at != std::string::npos && body != std::string::npos) {
    bytes.replace(at + 16, 1, std::to_string(bytes.size() - body - 4));
  }
}

Transcript read_transcript(const std::filesystem::path& path) {
  std::ifstream file(path);
  Transcript transcript;
  std::string line;
  char block = ' ';
  bool in_body = false;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.starts_with("#") || line.empty()) {
      continue;
    }
    if (line.starts_with("option ")) {
      transcript.options.push_back(line.substr(7));
    } else if (line == ">>>") {
      transcript.exchanges.push_back({});
      transcript.exchanges.back().line = number;
      block = '>';
    } else if (line == "<<<") {
      block = '<';
      in_body = false;
      fill_length(transcript.exchanges.back().send);
    } else if (block == '>') {
      transcript.exchanges.back().send += unescape(line);
    } else if (line == "closes") {
      transcript.exchanges.back().closes = true;
    } else if (line.starts_with("body: ") || in_body) {
      auto& body = transcript.exchanges.back().body;
      body = body.value_or("") + unescape(in_body ? line : line.substr(6));
      in_body = true;
    } else if (transcript.exchanges.back().status.empty()) {
      transcript.exchanges.back().status = line;
    } else {
      transcript.exchanges.back().headers.push_back(line);
    }
  }
  return transcript;
}

// '*' stands for anything.
bool matches(std::string_view glob, std::string_view text) {
  auto star = glob.find('*');
  if (star == std::string_view::npos) {
    return glob == text;
  }
  if (text.substr(0, star) != glob.substr(0, star)) {
    return false;
  }
  glob.remove_prefix(star + 1);
  text.remove_prefix(star);
  if (glob.empty()) {
    return true;
  }
  for (size_t i = 0; i <= text.size(); ++i) {
    // The next fixed part decides where it is worth trying.
    auto fixed = glob.substr(0, glob.find('*'));
    i = text.find(fixed, i);
    if (i == std::string_view::npos) {
      return false;
    }
    if (matches(glob, text.substr(i))) {
      return true;
    }
  }
  return false;
}

void set_option(ServedFake& fake, const std::string& option) {
  auto space = option.find(' ');
  auto name = option.substr(0, space);
  auto value = option.substr(space + 1);
  if (name == "key") {
    fake.access.api_keys.push_back(value);
  } else if (name == "origin") {
    fake.access.allowed_origins.push_back(value);
  } else if (name == "host") {
    fake.access.allowed_hosts.push_back(value);
  } else if (name == "strict") {
    fake.services->limits.strict = true;
  } else if (name == "timeout") {
    auto time = std::chrono::milliseconds(std::stoi(value));
    fake.http.limits.header_timeout = time;
    fake.http.limits.body_timeout = time;
  } else {
    FAIL() << "unknown option " << option;
  }
}

void check(const Exchange& exchange, const RawClient::Response& response) {
  SCOPED_TRACE("line " + std::to_string(exchange.line));
  auto first_line = response.head.substr(0, response.head.find("\r\n"));
  EXPECT_EQ(first_line, exchange.status) << response.head << response.body;
  for (const auto& wanted : exchange.headers) {
    if (wanted.starts_with('!')) {
      EXPECT_EQ(response.header(wanted.substr(1)), "") << wanted;
      continue;
    }
    auto colon = wanted.find(": ");
    auto value = response.header(wanted.substr(0, colon));
    EXPECT_TRUE(matches(wanted.substr(colon + 2), value))
        << "wanted " << wanted << "\n"
        << response.head;
  }
  if (exchange.body) {
    EXPECT_TRUE(matches(*exchange.body, response.body))
        << "wanted " << *exchange.body << "\nfound  " << response.body;
  }
}

}  // namespace

class TranscriptTest :
    public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(TranscriptTest, GoesAsWritten) {
  auto transcript = read_transcript(GetParam());
  ASSERT_FALSE(transcript.exchanges.empty());
  ServedFake fake;
  for (const auto& option : transcript.options) {
    set_option(fake, option);
  }
  fake.start();
  std::optional<RawClient> client;
  for (const auto& exchange : transcript.exchanges) {
    ASSERT_FALSE(exchange.status.empty()) << "line " << exchange.line;
    if (!client) {
      client.emplace(fake.server->port());
    }
    client->send(exchange.send);
    check(exchange, client->read_response(exchange.send.starts_with("HEAD ")));
    if (exchange.closes) {
      EXPECT_TRUE(client->is_closed(std::chrono::seconds(3)))
          << "line " << exchange.line;
      client.reset();
    }
  }
}

std::vector<std::filesystem::path> all_transcripts() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(MLXX_TEST_DATA "/http")) {
    if (entry.path().extension() == ".txt") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

INSTANTIATE_TEST_SUITE_P(
    Files,
    TranscriptTest,
    ::testing::ValuesIn(all_transcripts()),
    [](const auto& info) { return info.param.stem().string(); });

}  // namespace mlxx::server
