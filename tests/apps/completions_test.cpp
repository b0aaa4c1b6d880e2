#include "apps/mlxx/completions.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "apps/mlxx/program.h"
#include "mlxx/base/error.h"

namespace mlxx::apps {
namespace {

std::string script(const std::string& shell) {
  CommandContext context;
  auto app = make_app(context);
  return completion_script(*app, shell);
}

// What `command` prints, run by sh.
std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (pipe && fgets(buffer, sizeof(buffer), pipe)) {
    out += buffer;
  }
  if (pipe) {
    pclose(pipe);
  }
  return out;
}

class BashCompletion : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v bash >/dev/null") != 0) {
      GTEST_SKIP() << "there is no bash";
    }
    path_ = std::filesystem::temp_directory_path() /
        ("mlxx_completion_" + std::to_string(getpid()) + ".bash");
    std::ofstream(path_) << script("bash");
  }
  void TearDown() override {
    std::filesystem::remove(path_);
  }

  // The candidates for the last of the words, blanks around each.
  std::string complete(const std::string& words) {
    return " " +
        output_of(
               "bash -c '. " + path_.string() + "; COMP_WORDS=(" + words +
               "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _mlxx; "
               "echo -n \"${COMPREPLY[*]}\"'") +
        " ";
  }

  std::filesystem::path path_;
};

bool offers(const std::string& candidates, const std::string& word) {
  return candidates.find(" " + word + " ") != std::string::npos;
}

TEST_F(BashCompletion, Verbs) {
  EXPECT_EQ(complete("mlxx gen"), " generate ");
  auto all = complete("mlxx \"\"");
  EXPECT_TRUE(offers(all, "chat")) << all;
  EXPECT_TRUE(offers(all, "completions")) << all;
}

TEST_F(BashCompletion, OptionsOfTheVerb) {
  auto flags = complete("mlxx generate --t");
  EXPECT_TRUE(offers(flags, "--temp")) << flags;
  EXPECT_TRUE(offers(flags, "--top-p")) << flags;
  EXPECT_FALSE(offers(flags, "--json")) << flags;
  EXPECT_FALSE(offers(complete("mlxx show --"), "--temp"));
  EXPECT_TRUE(offers(complete("mlxx --v"), "--version"));
}

TEST_F(BashCompletion, AValueIsNoVerb) {
  // "chat" is the model's name here.
  auto flags = complete("mlxx generate -m chat --se");
  EXPECT_TRUE(offers(flags, "--seed")) << flags;
}

TEST(Completions, FollowTheTree) {
  CommandContext context;
  auto app = make_app(context);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    std::string text = completion_script(*app, shell);
    for (const CLI::App* verb : app->get_subcommands({})) {
      EXPECT_NE(text.find(verb->get_name()), std::string::npos) << shell;
      for (const CLI::Option* option : verb->get_options()) {
        for (const std::string& name : option->get_lnames()) {
          EXPECT_NE(text.find(name), std::string::npos) << shell << " " << name;
        }
      }
    }
    EXPECT_EQ(text.find("@tables@"), std::string::npos);
    EXPECT_EQ(text.find("@described@"), std::string::npos);
  }
}

// Shells that are here must at least take the script.
TEST(Completions, AreValidScripts) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    std::string found = std::string("command -v ") + shell + " >/dev/null";
    if (std::system(found.c_str()) != 0) {
      continue;
    }
    auto path = std::filesystem::temp_directory_path() /
        ("mlxx_completion_" + std::to_string(getpid()) + "." + shell);
    std::ofstream(path) << script(shell);
    std::string check = std::string(shell) + " -n " + path.string();
    EXPECT_EQ(std::system(check.c_str()), 0) << shell;
    std::filesystem::remove(path);
  }
}

TEST(Completions, OtherShellsAreRefused) {
  try {
    script("tcsh");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
  }
}

}  // namespace
}  // namespace mlxx::apps
