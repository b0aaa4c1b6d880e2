#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/server/http_handler.h"
#include "mlxx/server/services.h"

namespace mlxx::server {

// A whole answer that another thread will have.
class Later {
 public:
  void set(HttpResponse response) {
    std::function<void()> call;
    {
      std::lock_guard lock(mutex_);
      response_ = std::move(response);
      call = wake_;
    }
    if (call) {
      call();
    }
  }
  void set_wake(std::function<void()> wake) {
    bool has_response = false;
    {
      std::lock_guard lock(mutex_);
      wake_ = wake;
      has_response = response_.has_value();
    }
    if (has_response) {
      wake();
    }
  }
  std::optional<HttpResponse> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(response_, std::nullopt);
  }
  void set_unwanted() {
    std::lock_guard lock(mutex_);
    is_wanted_ = false;
  }
  // Whether the client still waits.
  bool is_wanted() const {
    std::lock_guard lock(mutex_);
    return is_wanted_;
  }

 private:
  mutable std::mutex mutex_;
  bool is_wanted_ = true;
  std::optional<HttpResponse> response_;
  std::function<void()> wake_;
};

class LaterReply : public PendingReply {
 public:
  explicit LaterReply(std::shared_ptr<Later> later)
      : later_(std::move(later)) {}
  void set_wake(std::function<void()> wake) override {
    later_->set_wake(std::move(wake));
  }
  ReplyPiece pull() override {
    ReplyPiece piece;
    piece.head = later_->take();
    piece.done = piece.head.has_value();
    return piece;
  }
  std::optional<HttpResponse> head_so_far() override {
    return std::nullopt;
  }
  std::string keep_alive_data() override {
    return "";
  }
  bool is_overfull() const override {
    return false;
  }
  void cancel() override {
    later_->set_unwanted();
  }

 private:
  std::shared_ptr<Later> later_;
};

// `make_body` turns what the engine says into the body of the answer.
template <typename EngineAnswer, typename MakeBody>
auto answer_into(
    std::shared_ptr<Later> later,
    const HttpRequest& request,
    std::vector<std::string> ignored,
    MakeBody make_body) {
  return [later,
          make_body,
          ignored = std::move(ignored),
          shape = error_shape(request.path),
          id = request.id](EngineAnswer answer, std::exception_ptr problem) {
    HttpResponse response;
    try {
      if (problem) {
        std::rethrow_exception(problem);
      }
      response = json_response(make_body(answer));
      add_ignored(response, ignored);
    } catch (const std::exception& error) {
      response = error_response(shape, api::describe_error(error), id);
    }
    later->set(std::move(response));
  };
}

}  // namespace mlxx::server
