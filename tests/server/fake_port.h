#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "mlxx/server/engine_port.h"

namespace mlxx::server {

// An engine that says what the test tells it to.
class FakePort : public EnginePort {
 public:
  engine::RequestId submit(engine::Request request, engine::Sink sink)
      override {
    std::lock_guard lock(mutex);
    if (refuse) {
      throw engine::Busy("[engine] no room", 7, refuse_as_full);
    }
    auto id = ++last_id;
    requests.push_back(std::move(request));
    sinks[id] = std::move(sink);
    return id;
  }
  void cancel(engine::RequestId id) override {
    std::lock_guard lock(mutex);
    cancelled.insert(id);
  }
  // Kept waiting if they are to be.
  void embed(engine::EmbedRequest request, engine::EmbedSink sink) override {
    if (keep_embeds) {
      std::lock_guard lock(mutex);
      embeds.emplace_back(std::move(request), std::move(sink));
      return;
    }
    sink({}, nullptr);
  }
  void rerank(engine::RerankRequest, engine::RerankSink sink) override {
    sink({}, nullptr);
  }
  // Whether one waits for whom nobody waits.
  bool has_unwanted_embed() const {
    std::lock_guard lock(mutex);
    return std::ranges::any_of(embeds, [](const auto& one) {
      return one.first.is_wanted && !one.first.is_wanted();
    });
  }
  size_t waiting_embeds() const {
    std::lock_guard lock(mutex);
    return embeds.size();
  }
  void adapters(AdapterCommand command, AdapterSink sink) override {
    engine::AdapterEntry entry;
    entry.name = command.name;
    sink({{entry}}, nullptr);
  }
  engine::EngineStats stats() const override {
    std::lock_guard lock(mutex);
    return current_stats;
  }
  EngineState state() const override {
    std::lock_guard lock(mutex);
    return current;
  }
  void clear_prefixes() override {
    ++cleared;
  }
  void drain(std::chrono::milliseconds) override {}

  // An event for the newest request, or that of `id`.
  void say(engine::Event event, engine::RequestId id = 0) {
    engine::Sink sink;
    {
      std::lock_guard lock(mutex);
      sink = sinks.at(id ? id : last_id);
    }
    sink(std::move(event));
  }
  void say_text(const std::string& text) {
    engine::Event event;
    event.text = text;
    event.tokens.push_back({});
    say(std::move(event));
  }
  void finish(engine::FinishReason reason, std::shared_ptr<Error> error = {}) {
    engine::Event event;
    event.finish.emplace();
    event.finish->reason = reason;
    event.finish->error = std::move(error);
    event.finish->usage.completion_tokens = 3;
    say(std::move(event));
  }
  size_t submitted() const {
    std::lock_guard lock(mutex);
    return requests.size();
  }
  bool was_cancelled(engine::RequestId id) const {
    std::lock_guard lock(mutex);
    return cancelled.contains(id);
  }

  mutable std::mutex mutex;
  EngineState current;
  engine::EngineStats current_stats;
  bool keep_embeds = false;
  std::vector<std::pair<engine::EmbedRequest, engine::EmbedSink>> embeds;
  bool refuse = false;
  bool refuse_as_full = true;
  engine::RequestId last_id = 0;
  int cleared = 0;
  std::vector<engine::Request> requests;
  std::map<engine::RequestId, engine::Sink> sinks;
  std::set<engine::RequestId> cancelled;
};

}  // namespace mlxx::server
