#pragma once

#include <string_view>
#include <vector>

#include "mlxx/base/json.h"
#include "mlxx/engine/request.h"

namespace mlxx::api {

// Adds up what the choices of an answer used: a prompt counts once however many
// choices it has.
class UsageSum {
 public:
  explicit UsageSum(size_t requests) : prompts_(requests) {}

  void add(size_t request, const engine::Usage& usage);
  // {"prompt_tokens", "completion_tokens", "total_tokens", details}.
  OrderedJson json() const;

 private:
  struct Prompt {
    int tokens = 0;
    int cached = 0;
  };
  std::vector<Prompt> prompts_;
  int64_t completion_ = 0;
  int64_t reasoning_ = 0;
};

// What OpenAI's answers call the software that made them.
std::string_view system_fingerprint();

}  // namespace mlxx::api
