#pragma once

#include <map>
#include <memory>
#include <vector>

#include "mlxx/engine/runner.h"

namespace mlxx::engine {

struct DrivenRequest {
  std::vector<int32_t> prompt;
  RowSettings settings;
  int tokens = 0;   // of the answer
  int arrival = 0;  // the step before which it joins
};

struct DrivenAnswer {
  std::vector<AnswerToken> tokens;
  int cached = 0;
};

// What a scheduler does, without its rules: a step is begun before the tokens
// of the one before are read, prompts are computed in pieces between steps.
class RunnerDriver {
 public:
  explicit RunnerDriver(Runner& runner, int prefill_step = 16)
      : runner_(runner), prefill_step_(prefill_step) {}

  std::vector<DrivenAnswer> run(const std::vector<DrivenRequest>& requests) {
    answers_.assign(requests.size(), {});
    live_.clear();
    size_t done = 0;
    std::unique_ptr<Step> before;
    std::vector<size_t> of_before;
    for (int step = 0; done < requests.size() || before; ++step) {
      join(requests, step);
      std::vector<size_t> of_now;
      std::vector<Row*> rows;
      for (auto& [index, live] : live_) {
        if (live.begun < requests[index].tokens) {
          ++live.begun;
          of_now.push_back(index);
          rows.push_back(live.row.get());
        }
      }
      std::unique_ptr<Step> now;
      if (!rows.empty()) {
        now = runner_.begin(rows);
        runner_.choose(*now, {});
      }
      if (before) {
        done += read(requests, *before, of_before);
      }
      before = std::move(now);
      of_before = std::move(of_now);
    }
    return answers_;
  }

 private:
  struct Live {
    std::unique_ptr<Row> row;
    int begun = 0;
  };

  void join(const std::vector<DrivenRequest>& requests, int step) {
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].arrival != step) {
        continue;
      }
      auto opened = runner_.open(requests[i].prompt, requests[i].settings);
      answers_[i].cached = opened.cached_tokens;
      while (runner_.prefill(*opened.row, prefill_step_) > 0) {
      }
      live_[i].row = std::move(opened.row);
    }
  }

  size_t read(
      const std::vector<DrivenRequest>& requests,
      Step& step,
      const std::vector<size_t>& indices) {
    auto chosen = runner_.read(step);
    size_t done = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      size_t index = indices[i];
      auto& tokens = answers_[index].tokens;
      tokens.push_back(chosen[i].token);
      if (!chosen[i].finite || std::ssize(tokens) < requests[index].tokens) {
        continue;
      }
      std::vector<int32_t> known = requests[index].prompt;
      for (const auto& token : tokens) {
        known.push_back(token.token);
      }
      runner_.close(std::move(live_[index].row), known);
      live_.erase(index);
      ++done;
    }
    return done;
  }

  Runner& runner_;
  int prefill_step_;
  std::map<size_t, Live> live_;
  std::vector<DrivenAnswer> answers_;
};

}  // namespace mlxx::engine
