#include <array>
#include <cstdio>
#include <cstdlib>

#include <sys/wait.h>

#include "tests/hub_net/hub_test.h"

// huggingface_hub itself reads what was pulled, and writes the same.

namespace mlxx::hub {

namespace {

using HfLayoutTest = HubTest;

TEST_F(HfLayoutTest, IsTheOneOfHuggingfaceHub) {
  repo_.files.push_back(
      {.name = "chat_template.jinja", .content = "{{ messages }}"});
  serve_repo();
  pull();
  std::string command = "env -u HF_HUB_OFFLINE -u TRANSFORMERS_OFFLINE '" +
      std::string(MLXX_ORACLE_PYTHON) + "' '" + MLXX_HF_CHECK + "' '" +
      settings_.endpoint + "' '" + settings_.cache.string() + "' org/tiny " +
      repo_.commit + " 2>&1";
  FILE* process = popen(command.c_str(), "r");
  ASSERT_NE(process, nullptr);
  std::string said;
  std::array<char, 4096> block{};
  while (size_t count = fread(block.data(), 1, block.size(), process)) {
    said.append(block.data(), count);
  }
  EXPECT_EQ(pclose(process), 0) << said;
}

}  // namespace

}  // namespace mlxx::hub
