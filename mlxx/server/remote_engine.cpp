#include "mlxx/server/remote_engine.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "mlxx/base/log.h"
#include "mlxx/server/engine_channel.h"
#include "mlxx/server/engine_messages.h"

namespace mlxx::server {

namespace {

using std::chrono::milliseconds;

constexpr int kRetrySeconds = 2;
// What a process that lives has for what it is asked to do.
constexpr milliseconds kPatience{20'000};
// An engine that lived so long has its next waits from the beginning.
constexpr std::chrono::seconds kGoodLife{60};

struct Submitted {
  engine::Sink sink;
  std::vector<bool> finished;  // of each choice
};
using Pending = std::variant<
    Submitted,
    engine::EmbedSink,
    engine::RerankSink,
    AdapterSink,
    std::shared_ptr<std::promise<void>>>;

class RemoteEngine : public EnginePort {
 public:
  explicit RemoteEngine(RemoteEngineOptions options)
      : options_(std::move(options)), thread_([this] { supervise(); }) {}

  ~RemoteEngine() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      if (channel_) {
        channel_->shut_down();
      }
    }
    changed_.notify_all();
    thread_.join();
  }

  engine::RequestId submit(engine::Request request, engine::Sink sink)
      override {
    Submitted submitted{
        std::move(sink),
        std::vector<bool>(static_cast<size_t>(std::max(1, request.n)))};
    return ask(
        {{"type", "submit"}, {"request", to_message(request)}},
        std::move(submitted));
  }

  void cancel(engine::RequestId id) override {
    std::shared_ptr<EngineChannel> channel;
    {
      std::lock_guard lock(mutex_);
      channel = pending_.contains(id) ? channel_ : nullptr;
    }
    if (channel) {
      channel->send({{"type", "cancel"}, {"id", id}});
    }
  }

  void embed(engine::EmbedRequest request, engine::EmbedSink sink) override {
    ask({{"type", "embed"}, {"request", to_message(request)}},
        std::move(sink),
        std::move(request.is_wanted));
  }

  void rerank(engine::RerankRequest request, engine::RerankSink sink) override {
    ask({{"type", "rerank"}, {"request", to_message(request)}},
        std::move(sink),
        std::move(request.is_wanted));
  }

  void adapters(AdapterCommand command, AdapterSink sink) override {
    ask({{"type", "adapters"}, {"request", to_message(command)}},
        std::move(sink));
  }

  engine::EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  EngineState state() const override {
    std::lock_guard lock(mutex_);
    return state_;
  }

  void clear_prefixes() override {
    ask_and_wait({{"type", "clear_prefixes"}}, kPatience);
  }

  void drain(milliseconds patience) override {
    try {
      ask_and_wait(
          {{"type", "drain"}, {"patience", patience.count()}},
          patience + kPatience);
    } catch (const engine::Busy&) {
      // There is nothing to wait for.
    }
  }

 private:
  engine::RequestId ask(
      Json message,
      Pending pending,
      std::function<bool()> is_wanted = nullptr) {
    std::shared_ptr<EngineChannel> channel;
    engine::RequestId id = 0;
    {
      std::lock_guard lock(mutex_);
      if (!channel_) {
        auto problem =
            state_.problem.empty() ? "it is being started" : state_.problem;
        throw engine::Busy(
            fmt::format("[engine] {}", problem),
            kRetrySeconds,
            false);
      }
      channel = channel_;
      id = ++last_id_;
      pending_.emplace(id, std::move(pending));
      if (is_wanted) {
        wanted_.emplace(id, std::move(is_wanted));
      }
    }
    message["id"] = id;
    // If it fails the engine is gone, which its reader tells everybody.
    channel->send(message);
    return id;
  }

  void ask_and_wait(Json message, milliseconds patience) {
    auto done = std::make_shared<std::promise<void>>();
    auto future = done->get_future();
    ask(std::move(message), done);
    if (future.wait_for(patience) == std::future_status::timeout) {
      throw engine::Busy(
          "[engine] its process does not answer",
          kRetrySeconds,
          false);
    }
    future.get();
  }

  void supervise() {
    auto wait = options_.first_wait;
    int false_starts = 0;
    for (;;) {
      auto begun = std::chrono::steady_clock::now();
      std::string how = live_once();
      std::unique_lock lock(mutex_);
      false_starts = state_.ready ? 0 : false_starts + 1;
      bool is_final = state_.is_final ||
          (!was_ready_ && false_starts >= options_.most_false_starts);
      if (!state_.is_final) {
        state_.problem =
            fmt::format("the engine's process {} and is started again", how);
      }
      state_.ready = false;
      state_.healthy = false;
      state_.is_final = is_final;
      lock.unlock();
      fail_pending();
      lock.lock();
      if (stopping_ || is_final) {
        return;
      }
      log_warning("[engine] {}", state_.problem);
      if (std::chrono::steady_clock::now() - begun > kGoodLife) {
        wait = options_.first_wait;
      }
      changed_.wait_for(lock, wait, [&] { return stopping_; });
      wait = std::min(2 * wait, options_.longest_wait);
      if (stopping_) {
        return;
      }
      ++restarts_;
    }
  }

  // From the start of a process to its end; says how it ended.
  std::string live_once() {
    EngineProcess process;
    try {
      process = options_.start();
    } catch (const std::exception& error) {
      return fmt::format("cannot be started, {},", error.what());
    }
    auto channel = std::make_shared<EngineChannel>(process.descriptor);
    {
      std::lock_guard lock(mutex_);
      channel_ = channel;
      if (stopping_) {
        channel->shut_down();
      }
    }
    try {
      while (auto message = channel->receive()) {
        take(*message);
      }
    } catch (const std::exception& error) {
      log_warning("[engine] a message cannot be read, {}", error.what());
    }
    {
      std::lock_guard lock(mutex_);
      channel_.reset();
      stats_ = {};
    }
    tell_loaded({});
    channel->shut_down();
    return process.end();
  }

  void take(const Json& message) {
    auto type = message.at("type").get<std::string>();
    if (type == "status") {
      auto state = from_message<EngineState>(message.at("state"));
      auto stats = from_message<engine::EngineStats>(message.at("stats"));
      tell_loaded(stats.source.loaded_models);
      cancel_unwanted();
      std::lock_guard lock(mutex_);
      state.restarts = restarts_;
      was_ready_ = was_ready_ || state.ready;
      state_ = std::move(state);
      stats_ = std::move(stats);
      return;
    }
    auto id = message.at("id").get<engine::RequestId>();
    if (type == "event") {
      take_event(id, from_message<engine::Event>(message.at("event")));
      return;
    }
    std::optional<Pending> pending = remove(id);
    if (!pending) {
      return;
    }
    std::shared_ptr<const Error> error;
    if (message.contains("error")) {
      error = error_from_message(message.at("error"));
    }
    if (error) {
      fail_one(*pending, error);
    } else if (auto* embed = std::get_if<engine::EmbedSink>(&*pending)) {
      (*embed)(
          from_message<engine::EmbedAnswer>(message.at("answer")),
          nullptr);
    } else if (auto* rerank = std::get_if<engine::RerankSink>(&*pending)) {
      (*rerank)(
          from_message<engine::RerankAnswer>(message.at("answer")),
          nullptr);
    } else if (auto* adapters = std::get_if<AdapterSink>(&*pending)) {
      (*adapters)(from_message<AdapterAnswer>(message.at("answer")), nullptr);
    } else if (
        auto* done =
            std::get_if<std::shared_ptr<std::promise<void>>>(&*pending)) {
      (*done)->set_value();
    }
  }

  void tell_loaded(const std::vector<std::string>& models) {
    if (options_.on_loaded) {
      options_.on_loaded(models);
    }
  }

  // Clients that went away, of those whose requests are not cancelled by
  // cancel().
  void cancel_unwanted() {
    std::vector<engine::RequestId> unwanted;
    std::shared_ptr<EngineChannel> channel;
    {
      std::lock_guard lock(mutex_);
      channel = channel_;
      std::erase_if(wanted_, [&](const auto& entry) {
        bool gone = !entry.second();
        if (gone) {
          unwanted.push_back(entry.first);
        }
        return gone;
      });
    }
    for (auto id : unwanted) {
      if (channel) {
        channel->send({{"type", "cancel"}, {"id", id}});
      }
    }
  }

  void take_event(engine::RequestId id, engine::Event event) {
    engine::Sink sink;
    {
      std::lock_guard lock(mutex_);
      auto found = pending_.find(id);
      if (found == pending_.end()) {
        return;
      }
      auto& submitted = std::get<Submitted>(found->second);
      sink = submitted.sink;
      if (event.finish) {
        auto& finished = submitted.finished;
        finished.at(static_cast<size_t>(event.choice)) = true;
        if (std::all_of(finished.begin(), finished.end(), [](bool f) {
              return f;
            })) {
          pending_.erase(found);
        }
      }
    }
    sink(std::move(event));
  }

  std::optional<Pending> remove(engine::RequestId id) {
    std::lock_guard lock(mutex_);
    auto found = pending_.find(id);
    if (found == pending_.end()) {
      return std::nullopt;
    }
    auto pending = std::move(found->second);
    pending_.erase(found);
    wanted_.erase(id);
    return pending;
  }

  static void fail_one(Pending& pending, std::shared_ptr<const Error> error) {
    if (auto* submitted = std::get_if<Submitted>(&pending)) {
      for (size_t i = 0; i < submitted->finished.size(); ++i) {
        if (!submitted->finished[i]) {
          engine::Event event;
          event.choice = static_cast<int>(i);
          event.finish.emplace();
          event.finish->reason = engine::FinishReason::error;
          event.finish->error = error;
          submitted->sink(std::move(event));
        }
      }
    } else if (auto* embed = std::get_if<engine::EmbedSink>(&pending)) {
      (*embed)({}, to_exception(error));
    } else if (auto* rerank = std::get_if<engine::RerankSink>(&pending)) {
      (*rerank)({}, to_exception(error));
    } else if (auto* adapters = std::get_if<AdapterSink>(&pending)) {
      (*adapters)({}, to_exception(error));
    } else {
      std::get<std::shared_ptr<std::promise<void>>>(pending)->set_exception(
          to_exception(error));
    }
  }

  void fail_pending() {
    std::map<engine::RequestId, Pending> pending;
    std::string problem;
    {
      std::lock_guard lock(mutex_);
      pending.swap(pending_);
      wanted_.clear();
      problem = state_.problem;
    }
    auto error = std::make_shared<engine::Busy>(
        fmt::format("[engine] {}", problem),
        kRetrySeconds,
        false);
    for (auto& [id, one] : pending) {
      fail_one(one, error);
    }
  }

  RemoteEngineOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<EngineChannel> channel_;  // null: there is no process
  std::map<engine::RequestId, Pending> pending_;
  // Of those pending, the ones that are asked whether their client waits.
  std::map<engine::RequestId, std::function<bool()>> wanted_;
  engine::RequestId last_id_ = 0;
  EngineState state_;
  engine::EngineStats stats_;
  uint64_t restarts_ = 0;
  bool was_ready_ = false;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

std::shared_ptr<EnginePort> make_remote_engine(RemoteEngineOptions options) {
  return std::make_shared<RemoteEngine>(std::move(options));
}

}  // namespace mlxx::server
