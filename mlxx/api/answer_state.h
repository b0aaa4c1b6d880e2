#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/api/answer.h"

namespace mlxx::api {

// The error that a request finished with, as it is thrown.
[[noreturn]] void throw_finish(const engine::Finish& finish);

inline bool has_failed(const engine::Event& event) {
  return event.finish &&
      (event.finish->reason == engine::FinishReason::error ||
       event.finish->reason == engine::FinishReason::cancelled);
}

// An answer to one prompt.
class OneRequestAnswer : public Answer {
 public:
  OneRequestAnswer(bool stream, std::vector<std::string> ignored)
      : stream_(stream), ignored_(std::move(ignored)) {}

  std::vector<engine::Request> take_requests() override {
    std::vector<engine::Request> out;
    out.push_back(std::move(request_));
    return out;
  }
  bool streams() const override {
    return stream_;
  }
  const std::vector<std::string>& ignored() const override {
    return ignored_;
  }

 protected:
  const bool stream_;
  engine::Request request_;

 private:
  const std::vector<std::string> ignored_;
};

}  // namespace mlxx::api
