#include "mlxx/server/engine_host.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "mlxx/server/engine_messages.h"

namespace mlxx::server {

namespace {

// How old what the other process knows of the state may be, and of the rest.
constexpr std::chrono::milliseconds kStateAge{20};
constexpr int kStatesPerStatus = 10;

// Messages on their way out: what the engine says must not wait for a reader.
class Outbox {
 public:
  explicit Outbox(EngineChannel& channel)
      : channel_(channel), thread_([this] { write(); }) {}
  ~Outbox() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(Json message) {
    {
      std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    changed_.notify_all();
  }

 private:
  void write() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return ended_ || !messages_.empty(); });
      if (messages_.empty()) {
        return;
      }
      auto messages = std::exchange(messages_, {});
      lock.unlock();
      for (const auto& message : messages) {
        channel_.send(message);
      }
      lock.lock();
    }
  }

  EngineChannel& channel_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Json> messages_;
  bool ended_ = false;
  std::thread thread_;  // last: it uses the others
};

class Host {
  // How an answer goes out; before its first use, because of its type.
  template <typename Answer>
  auto answer_to(uint64_t id) {
    return [this, id](Answer answer, std::exception_ptr problem) {
      {
        std::lock_guard lock(mutex_);
        unwanted_.erase(id);
      }
      if (problem) {
        tell_error(id, "answer", problem);
      } else {
        outbox_.add(
            {{"type", "answer"}, {"id", id}, {"answer", to_message(answer)}});
      }
    };
  }

 public:
  Host(EngineChannel& channel, EnginePort& engine)
      : channel_(channel),
        engine_(engine),
        outbox_(channel),
        status_([this] { tell_status(); }) {}

  ~Host() {
    {
      std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    status_.join();
    for (auto& thread : waiting_) {
      thread.join();
    }
    // Nobody is left to read the rest.
    engine_.drain(std::chrono::milliseconds(0));
  }

  void run() {
    while (auto message = channel_.receive()) {
      auto type = message->at("type").get<std::string>();
      auto id = message->value("id", uint64_t{0});
      if (type == "submit") {
        submit(id, from_message<engine::Request>(message->at("request")));
      } else if (type == "cancel") {
        cancel(id);
      } else if (type == "embed") {
        embed(id, from_message<engine::EmbedRequest>(message->at("request")));
      } else if (type == "rerank") {
        rerank(id, from_message<engine::RerankRequest>(message->at("request")));
      } else if (type == "adapters") {
        engine_.adapters(
            from_message<AdapterCommand>(message->at("request")),
            answer_to<AdapterAnswer>(id));
      } else if (type == "drain") {
        std::chrono::milliseconds patience(message->at("patience").get<int>());
        do_and_tell(id, [this, patience] { engine_.drain(patience); });
      } else if (type == "clear_prefixes") {
        do_and_tell(id, [this] { engine_.clear_prefixes(); });
      }
    }
  }

 private:
  struct Running {
    std::optional<engine::RequestId> id;  // absent: being submitted
    int unfinished = 0;
  };

  void tell_error(uint64_t id, const char* type, std::exception_ptr problem) {
    Json message = {{"type", type}, {"id", id}};
    try {
      std::rethrow_exception(problem);
    } catch (const std::exception& error) {
      message["error"] = error_to_message(error);
    }
    outbox_.add(std::move(message));
  }

  void submit(uint64_t id, engine::Request request) {
    {
      std::lock_guard lock(mutex_);
      running_[id].unfinished = request.n;
    }
    try {
      auto inner = engine_.submit(
          std::move(request),
          [this, id](const engine::Event& event) {
            outbox_.add(
                {{"type", "event"}, {"id", id}, {"event", to_message(event)}});
            if (event.finish) {
              finish_one(id);
            }
          });
      std::lock_guard lock(mutex_);
      auto found = running_.find(id);
      if (found != running_.end()) {
        found->second.id = inner;
      }
    } catch (const std::exception&) {
      {
        std::lock_guard lock(mutex_);
        running_.erase(id);
      }
      tell_error(id, "refused", std::current_exception());
    }
  }

  void finish_one(uint64_t id) {
    std::lock_guard lock(mutex_);
    auto found = running_.find(id);
    if (found != running_.end() && --found->second.unfinished <= 0) {
      running_.erase(found);
    }
  }

  void cancel(uint64_t id) {
    std::optional<engine::RequestId> inner;
    {
      std::lock_guard lock(mutex_);
      auto found = running_.find(id);
      if (found != running_.end()) {
        inner = found->second.id;
      }
      auto asked = unwanted_.find(id);
      if (asked != unwanted_.end()) {
        *asked->second = true;
      }
    }
    if (inner) {
      engine_.cancel(*inner);
    }
  }

  // For a request whose answer is one message: cancel() makes it false.
  std::function<bool()> wanted(uint64_t id) {
    auto is_unwanted = std::make_shared<std::atomic<bool>>(false);
    std::lock_guard lock(mutex_);
    unwanted_[id] = is_unwanted;
    return [is_unwanted] { return !*is_unwanted; };
  }

  void embed(uint64_t id, engine::EmbedRequest request) {
    request.is_wanted = wanted(id);
    try {
      engine_.embed(std::move(request), answer_to<engine::EmbedAnswer>(id));
    } catch (const std::exception&) {
      answer_to<engine::EmbedAnswer>(id)({}, std::current_exception());
    }
  }

  void rerank(uint64_t id, engine::RerankRequest request) {
    request.is_wanted = wanted(id);
    try {
      engine_.rerank(std::move(request), answer_to<engine::RerankAnswer>(id));
    } catch (const std::exception&) {
      answer_to<engine::RerankAnswer>(id)({}, std::current_exception());
    }
  }

  // On a thread of its own: cancellations are heard meanwhile.
  template <typename Work>
  void do_and_tell(uint64_t id, Work work) {
    waiting_.emplace_back([this, id, work] {
      work();
      outbox_.add({{"type", "done"}, {"id", id}});
    });
  }

  void tell_status() {
    std::optional<Json> told;
    std::unique_lock lock(mutex_);
    for (int turn = 0; !ended_; ++turn) {
      lock.unlock();
      auto state = to_message(engine_.state());
      if (turn % kStatesPerStatus == 0 || state != told) {
        told = state;
        outbox_.add(
            {{"type", "status"},
             {"state", std::move(state)},
             {"stats", to_message(engine_.stats())}});
      }
      lock.lock();
      changed_.wait_for(lock, kStateAge, [&] { return ended_; });
    }
  }

  EngineChannel& channel_;
  EnginePort& engine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Running> running_;
  std::map<uint64_t, std::shared_ptr<std::atomic<bool>>> unwanted_;
  bool ended_ = false;
  std::vector<std::thread> waiting_;
  Outbox outbox_;
  std::thread status_;
};

}  // namespace

void host_engine(EngineChannel& channel, EnginePort& engine) {
  Host host(channel, engine);
  host.run();
}

}  // namespace mlxx::server
