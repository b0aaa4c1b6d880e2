// The program on a pseudo terminal.
#include <chrono>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <poll.h>
#ifdef __APPLE__
#include <util.h>
#else
#include <pty.h>
#endif
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/apps/child_process.h"
#include "tests/apps/default_model.h"

namespace mlxx::apps {
namespace {

using Clock = std::chrono::steady_clock;

// mlxx with a terminal for stdin, stdout and stderr.
class TerminalProgram {
 public:
  TerminalProgram(
      std::vector<std::string> arguments,
      std::map<std::string, std::string> environment = {}) {
    arguments.insert(arguments.begin(), "mlxx");
    environment.try_emplace("TERM", "xterm");
    auto variables = child_environment(environment);
    std::vector<char*> argument_pointers;
    std::vector<char*> variable_pointers;
    for (auto& text : arguments) {
      argument_pointers.push_back(text.data());
    }
    for (auto& text : variables) {
      variable_pointers.push_back(text.data());
    }
    argument_pointers.push_back(nullptr);
    variable_pointers.push_back(nullptr);
    winsize size{40, 200, 0, 0};
    child_ = forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      alarm(120);
      execve(MLXX_BINARY, argument_pointers.data(), variable_pointers.data());
      _exit(99);
    }
    if (child_ < 0) {
      throw std::runtime_error(std::strerror(errno));
    }
  }
  ~TerminalProgram() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
    close(terminal_);
  }

  void type(const std::string& text) {
    ASSERT_EQ(
        write(terminal_, text.data(), text.size()),
        static_cast<ssize_t>(text.size()));
  }

  // Reads until `text` has come since the last call; false after a minute or
  // at the program's end.
  bool wait_for(const std::string& text) {
    auto end = Clock::now() + std::chrono::seconds(60);
    while (true) {
      auto found = screen_.find(text, seen_);
      if (found != std::string::npos) {
        seen_ = found + text.size();
        return true;
      }
      if (Clock::now() > end || !read_some()) {
        return false;
      }
    }
  }

  int wait_for_end() {
    while (read_some()) {
    }
    int status = 0;
    waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  const std::string& screen() const {
    return screen_;
  }

 private:
  bool read_some() {
    pollfd polled{terminal_, POLLIN, 0};
    if (poll(&polled, 1, 1000) <= 0) {
      return Clock::now() < start_ + std::chrono::seconds(120);
    }
    char buffer[4096];
    ssize_t count = read(terminal_, buffer, sizeof(buffer));
    if (count <= 0) {
      return false;
    }
    screen_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  Clock::time_point start_ = Clock::now();
  pid_t child_ = -1;
  int terminal_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

constexpr const char* kControlC = "\x03";
constexpr const char* kControlD = "\x04";

TEST(Terminal, ErrorsAreColoredUnlessAsked) {
  TerminalProgram colored({"generate", "hi", "--temp", "-1"});
  EXPECT_EQ(colored.wait_for_end(), 2);
  EXPECT_NE(colored.screen().find("\x1b["), std::string::npos)
      << colored.screen();
  for (auto variables : std::vector<std::map<std::string, std::string>>{
           {{"NO_COLOR", "1"}},
           {{"TERM", "dumb"}}}) {
    TerminalProgram plain({"generate", "hi", "--temp", "-1"}, variables);
    EXPECT_EQ(plain.wait_for_end(), 2);
    EXPECT_EQ(plain.screen().find("\x1b"), std::string::npos) << plain.screen();
    EXPECT_NE(plain.screen().find("mlxx: error: "), std::string::npos);
  }
}

class ChatOnATerminal : public DefaultModelTest {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"chat", "-m", model_});
    return more;
  }
};

TEST_F(ChatOnATerminal, AnswersAndLeaves) {
  TerminalProgram chat(arguments({"--max-tokens", "16"}));
  ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  chat.type("What is the capital of France?\r");
  EXPECT_TRUE(chat.wait_for("Paris")) << chat.screen();
  ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  chat.type(kControlD);
  EXPECT_EQ(chat.wait_for_end(), 0) << chat.screen();
}

TEST_F(ChatOnATerminal, ControlCStopsTheAnswerOnly) {
  TerminalProgram chat(
      arguments({"--max-tokens", "4000", "--logit-bias", "{\"2\": -100}"}));
  ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  chat.type("What is the capital of France?\r");
  // Only the answer has this word: the line may be echoed twice, once by the
  // terminal and once by the editor.
  ASSERT_TRUE(chat.wait_for("Paris")) << chat.screen();
  chat.type(kControlC);
  EXPECT_TRUE(chat.wait_for("interrupted")) << chat.screen();
  ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  chat.type("/exit\r");
  EXPECT_EQ(chat.wait_for_end(), 0) << chat.screen();
}

TEST_F(ChatOnATerminal, ControlCAtThePromptForgetsTheLine) {
  TerminalProgram chat(arguments({"--max-tokens", "4"}));
  ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  for (int i = 0; i < 3; ++i) {
    chat.type("half a li");
    ASSERT_TRUE(chat.wait_for("half a li")) << chat.screen();
    chat.type(kControlC);
    ASSERT_TRUE(chat.wait_for("/exit leaves")) << chat.screen();
    ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  }
  chat.type("/help\r");
  EXPECT_TRUE(chat.wait_for("forget the conversation")) << chat.screen();
  chat.type("/exit\r");
  EXPECT_EQ(chat.wait_for_end(), 0) << chat.screen();
}

// Arrow up brings the last line back, backspace edits, letters beyond ASCII
// are letters.
TEST_F(ChatOnATerminal, EditsLines) {
  TerminalProgram chat(arguments({"--max-tokens", "2"}));
  ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  chat.type("/gr\xC3\xBC\xC3\x9Fx\x7F\r");
  EXPECT_TRUE(chat.wait_for("no command /gr\xC3\xBC\xC3\x9F")) << chat.screen();
  ASSERT_TRUE(chat.wait_for("> ")) << chat.screen();
  chat.type("\x1b[A\r");
  EXPECT_TRUE(chat.wait_for("no command /gr\xC3\xBC\xC3\x9F")) << chat.screen();
  chat.type("/exit\r");
  EXPECT_EQ(chat.wait_for_end(), 0) << chat.screen();
}

}  // namespace
}  // namespace mlxx::apps
