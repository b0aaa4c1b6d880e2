#include <csignal>
#include <optional>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mlxx/base/json.h"
#include "tests/apps/child_process.h"
#include "tests/apps/default_model.h"
#include "tests/server/raw_client.h"

namespace mlxx::apps {

namespace {

using server::RawClient;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// `mlxx serve` as a process.
class ServeProcess {
 public:
  explicit ServeProcess(std::vector<std::string> arguments) {
    int out[2];
    if (pipe(out) != 0) {
      throw std::runtime_error("no pipe");
    }
    child_ = fork();
    if (child_ == 0) {
      dup2(out[1], 1);
      close(out[0]);
      close(out[1]);
      std::vector<std::string> words =
          {MLXX_BINARY, "serve", "--port", "0", "--log-format", "off"};
      words.insert(words.end(), arguments.begin(), arguments.end());
      std::vector<char*> argv;
      for (auto& word : words) {
        argv.push_back(word.data());
      }
      argv.push_back(nullptr);
      execv(MLXX_BINARY, argv.data());
      _exit(127);
    }
    close(out[1]);
    out_ = out[0];
    std::string line = read_line();
    auto colon = line.rfind(':');
    port_ = line.starts_with("listening on http://127.0.0.1:")
        ? std::atoi(line.c_str() + colon + 1)
        : 0;
  }
  ~ServeProcess() {
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(out_);
  }

  int port() const {
    return port_;
  }
  pid_t pid() const {
    return child_;
  }
  void signal(int number) const {
    ::kill(child_, number);
  }
  // 128 + the signal if one ended it; nothing if it still runs.
  std::optional<int> wait(milliseconds patience) {
    auto end = Clock::now() + patience;
    int status = 0;
    while (waitpid(child_, &status, WNOHANG) == 0) {
      if (Clock::now() > end) {
        return std::nullopt;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    child_ = -1;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }

  RawClient::Response get(const std::string& path) const {
    RawClient client(port_);
    client.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return client.read_response();
  }
  bool wait_until_ready() const {
    auto end = Clock::now() + std::chrono::seconds(60);
    while (get("/ready").status != 200) {
      if (Clock::now() > end) {
        return false;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
    return true;
  }

 private:
  std::string read_line() const {
    std::string line;
    char c = 0;
    while (read(out_, &c, 1) == 1 && c != '\n') {
      line += c;
    }
    return line;
  }

  pid_t child_ = -1;
  int out_ = -1;
  int port_ = 0;
};

std::string completion(int max_tokens) {
  std::string body = fmt::format(
      R"({{"prompt":"Once upon a time","max_tokens":{},"stream":true,)"
      R"("ignore_eos":true}})",
      max_tokens);
  return fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(),
      body);
}

// The process that --supervise started, by its parent.
pid_t child_of(pid_t parent) {
  FILE* list = popen(fmt::format("pgrep -P {}", parent).c_str(), "r");
  int child = 0;
  int read = list ? fscanf(list, "%d", &child) : 0;
  if (list) {
    pclose(list);
  }
  return read == 1 ? child : 0;
}

class ServeTest : public DefaultModelTest {};

}  // namespace

TEST_F(ServeTest, AnswersAndLetsRunningAnswersEnd) {
  ServeProcess serve({"-m", "it=" + model_});
  ASSERT_GT(serve.port(), 0);
  ASSERT_TRUE(serve.wait_until_ready());
  EXPECT_EQ(serve.get("/health").body, "{\"status\": \"ok\"}");
  EXPECT_NE(
      serve.get("/v1/models").body.find("\"id\":\"it\""),
      std::string::npos);
  RawClient client(serve.port());
  client.send(completion(200));
  EXPECT_NE(client.read_until("data: "), "");
  serve.signal(SIGTERM);
  auto rest = client.read_all(std::chrono::seconds(60));
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
  EXPECT_TRUE(rest.ends_with("0\r\n\r\n"));
  EXPECT_EQ(serve.wait(std::chrono::seconds(20)), 0);
}

TEST_F(ServeTest, ATimeIsSetToWhatRuns) {
  ServeProcess serve({"-m", model_, "--drain-timeout", "0.2"});
  ASSERT_TRUE(serve.wait_until_ready());
  RawClient client(serve.port());
  client.send(completion(7000));
  client.read_until("data: ");
  serve.signal(SIGINT);
  auto rest = client.read_all(std::chrono::seconds(60));
  EXPECT_EQ(rest.find("data: [DONE]"), std::string::npos);
  EXPECT_NE(rest.find("\"error\""), std::string::npos);
  EXPECT_EQ(serve.wait(std::chrono::seconds(20)), 0);
}

TEST_F(ServeTest, ASecondSignalEndsItAtOnce) {
  ServeProcess serve({"-m", model_});
  ASSERT_TRUE(serve.wait_until_ready());
  RawClient client(serve.port());
  client.send(completion(7000));
  client.read_until("data: ");
  serve.signal(SIGTERM);
  EXPECT_FALSE(serve.wait(milliseconds(300)));
  serve.signal(SIGTERM);
  EXPECT_EQ(serve.wait(std::chrono::seconds(5)), 130);
}

TEST_F(ServeTest, AnEngineThatIsKilledIsStartedAgain) {
  ServeProcess serve({"-m", model_, "--supervise"});
  ASSERT_TRUE(serve.wait_until_ready());
  RawClient client(serve.port());
  client.send(completion(7000));
  client.read_until("data: ");
  pid_t engine = child_of(serve.pid());
  ASSERT_GT(engine, 0);
  ::kill(engine, SIGKILL);
  auto rest = client.read_all(std::chrono::seconds(20));
  EXPECT_NE(rest.find("was killed by signal 9"), std::string::npos);
  EXPECT_EQ(rest.find("data: [DONE]"), std::string::npos);
  ASSERT_TRUE(serve.wait_until_ready());
  EXPECT_EQ(
      serve.get("/health").body,
      R"({"status":"ok","engine_restarts":1})");
  RawClient again(serve.port());
  again.send(completion(5));
  EXPECT_NE(again.read_response().body.find("[DONE]"), std::string::npos);
  pid_t second = child_of(serve.pid());
  serve.signal(SIGTERM);
  EXPECT_EQ(serve.wait(std::chrono::seconds(20)), 0);
  EXPECT_NE(::kill(second, 0), 0) << "the engine's process outlived it";
}

TEST_F(ServeTest, WhatNobodyCouldServeEndsIt) {
  auto missing = run_mlxx({"serve", "-m", "no-such-model", "--port", "0"});
  EXPECT_NE(missing.exit_code, 0);
  EXPECT_TRUE(is_error_line(missing.err)) << missing.err;
  auto unknown = run_mlxx({"serve", "--pipeline"});
  EXPECT_EQ(unknown.exit_code, 2);
  auto key = run_mlxx({"serve", "-m", model_, "--api-key", "two words"});
  EXPECT_EQ(key.exit_code, 2);
  auto certificate = run_mlxx(
      {"serve", "-m", model_, "--port", "0", "--ssl-certfile", "/none.pem"});
  EXPECT_EQ(certificate.exit_code, 2);
}

}  // namespace mlxx::apps
