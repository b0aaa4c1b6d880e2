#include "mlxx/server/answer_reply.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace mlxx::server {

namespace {

using Clock = std::chrono::steady_clock;

// Tokens that a client may be behind.
constexpr size_t kMaxUnsentEvents = 65536;
constexpr int kRetrySeconds = 5;

// Where the engine leaves events. It may outlive the reply.
struct Inbox {
  std::mutex mutex;
  std::vector<std::pair<size_t, engine::Event>> events;
  size_t bytes = 0;
  size_t max_bytes = 0;
  bool overfull = false;
  std::function<void()> wake;

  void add(size_t index, engine::Event event) {
    std::function<void()> call;
    {
      std::lock_guard lock(mutex);
      bytes += event.text.size() + sizeof(event);
      overfull =
          overfull || bytes > max_bytes || events.size() >= kMaxUnsentEvents;
      events.emplace_back(index, std::move(event));
      call = wake;
    }
    if (call) {
      call();
    }
  }
};

class AnswerReply : public PendingReply {
 public:
  AnswerReply(
      Services& services,
      const HttpRequest& request,
      std::unique_ptr<api::Answer> answer)
      : services_(services),
        answer_(std::move(answer)),
        inbox_(std::make_shared<Inbox>()),
        shape_(error_shape(request.path)),
        request_id_(request.id),
        start_(Clock::now()) {
    inbox_->max_bytes = services.max_unsent_bytes;
  }

  ~AnswerReply() override {
    cancel();
  }

  void submit(const HttpRequest& request, const std::string& adapter) {
    auto requests = answer_->take_requests();
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].id = request.id;
      requests[i].tenant = request.tenant;
      if (requests[i].adapter.empty()) {
        requests[i].adapter = adapter;
      }
      unfinished_ += static_cast<size_t>(requests[i].n);
      ids_.push_back(services_.engine->submit(
          std::move(requests[i]),
          [inbox = inbox_, i](engine::Event event) {
            inbox->add(i, std::move(event));
          }));
    }
  }

  void set_wake(std::function<void()> wake) override {
    bool has_events = false;
    {
      std::lock_guard lock(inbox_->mutex);
      inbox_->wake = wake;
      has_events = !inbox_->events.empty();
    }
    if (has_events) {
      wake();
    }
  }

  bool is_overfull() const override {
    std::lock_guard lock(inbox_->mutex);
    return inbox_->overfull;
  }

  void cancel() override {
    for (auto id : std::exchange(ids_, {})) {
      services_.engine->cancel(id);
    }
    if (!figures_counted_ && was_cut_off()) {
      count();
    }
  }

  std::optional<HttpResponse> head_so_far() override {
    if (!answer_->streams()) {
      return std::nullopt;
    }
    head_sent_ = true;
    return stream_head();
  }

  std::string keep_alive_data() override {
    return head_sent_ ? ": waiting\n\n" : "";
  }

  ReplyPiece pull() override {
    std::vector<std::pair<size_t, engine::Event>> events;
    {
      std::lock_guard lock(inbox_->mutex);
      events.swap(inbox_->events);
      inbox_->bytes = 0;
    }
    ReplyPiece piece;
    if (ended_) {
      piece.done = true;
      return piece;
    }
    try {
      for (const auto& [index, event] : events) {
        if (auto error = take(index, event, piece.data)) {
          fail_piece(piece, *error);
          return with_head(std::move(piece));
        }
      }
      if (unfinished_ == 0) {
        finish(piece);
      }
    } catch (const std::exception& error) {
      fail_piece(piece, error);
    }
    return with_head(std::move(piece));
  }

 private:
  bool was_cut_off() const {
    return !ended_ && unfinished_ > 0;
  }

  HttpResponse stream_head() const {
    HttpResponse head;
    head.content_type = "text/event-stream; charset=utf-8";
    head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
    add_ignored(head, answer_->ignored());
    return head;
  }

  // What the request failed with, if it did.
  std::shared_ptr<const Error>
  take(size_t index, const engine::Event& event, std::string& data) {
    if (first_token_seconds_ < 0 && !event.tokens.empty()) {
      first_token_seconds_ = seconds();
    }
    if (event.finish) {
      const auto& finish = *event.finish;
      --unfinished_;
      finishes_.push_back(finish);
      if (finish.error) {
        return finish.error;
      }
      if (finish.reason == engine::FinishReason::error) {
        return std::make_shared<Error>(
            ErrorKind::internal,
            "[engine] the request failed");
      }
      if (finish.reason == engine::FinishReason::cancelled) {
        return std::make_shared<engine::Busy>(
            "[server] the request was ended because the server stops",
            kRetrySeconds,
            false);
      }
    }
    if (!begun_) {
      begun_ = true;
      data += answer_->begin();
    }
    data += answer_->take(index, event);
    return nullptr;
  }

  void finish(ReplyPiece& piece) {
    if (answer_->streams()) {
      piece.data += answer_->end();
      piece.done = true;
    } else {
      piece.head = json_response(answer_->body());
      add_ignored(*piece.head, answer_->ignored());
      piece.done = true;
    }
    ended_ = true;
    ids_.clear();
    count();
  }

  void fail_piece(ReplyPiece& piece, const std::exception& error) {
    cancel();
    ended_ = true;
    piece.done = true;
    if (head_sent_ && answer_->streams()) {
      piece.failed = true;
      if (auto* known = dynamic_cast<const Error*>(&error)) {
        piece.data += answer_->failure(*known);
      } else {
        piece.data += answer_->failure(
            Error(ErrorKind::internal, "[server] the answer failed"));
      }
    } else {
      piece.data.clear();
      piece.head =
          error_response(shape_, api::describe_error(error), request_id_);
    }
    count();
  }

  // The head goes out with the first thing that was heard of the request.
  ReplyPiece with_head(ReplyPiece piece) {
    if (!answer_->streams() && !piece.done) {
      piece.data.clear();
    }
    bool starts = begun_ && answer_->streams() && !head_sent_ && !piece.head;
    if (starts) {
      piece.head = stream_head();
      head_sent_ = true;
    }
    return piece;
  }

  double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }

  void count() {
    if (figures_counted_) {
      return;
    }
    figures_counted_ = true;
    services_.metrics.add_answer({finishes_, first_token_seconds_, seconds()});
  }

  Services& services_;
  std::unique_ptr<api::Answer> answer_;
  std::shared_ptr<Inbox> inbox_;
  ErrorShape shape_;
  std::string request_id_;
  Clock::time_point start_;
  std::vector<engine::RequestId> ids_;
  size_t unfinished_ = 0;
  bool begun_ = false;
  bool head_sent_ = false;
  bool ended_ = false;
  bool figures_counted_ = false;
  double first_token_seconds_ = -1;
  std::vector<engine::Finish> finishes_;
};

}  // namespace

std::unique_ptr<PendingReply> make_answer_reply(
    Services& services,
    const HttpRequest& request,
    std::unique_ptr<api::Answer> answer,
    const std::string& adapter) {
  auto reply =
      std::make_unique<AnswerReply>(services, request, std::move(answer));
  reply->submit(request, adapter);
  return reply;
}

}  // namespace mlxx::server
