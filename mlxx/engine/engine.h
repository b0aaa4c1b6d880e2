#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mlxx/engine/request.h"
#include "mlxx/engine/runner.h"

namespace mlxx::engine {

struct EngineOptions {
  int max_rows = 32;       // decoded together (--decode-concurrency)
  int max_queue = 256;     // requests that find no place; more are Busy
  int prefill_step = 512;  // tokens of a prompt computed at once, most
};

// Counters since the start, and what is now. Times in seconds.
struct EngineStats {
  int waiting = 0;
  int prefilling = 0;
  int decoding = 0;
  uint64_t finished = 0;
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  uint64_t refused = 0;
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t generated_tokens = 0;
  uint64_t steps = 0;
  double step_seconds = 0;
  double prefill_seconds = 0;
  bool healthy = true;
  std::string problem;  // why not
  SourceStats source;   // half a second old at most while there is work
};

using RequestId = uint64_t;

// Runs the requests of everybody in common steps. One thread of its own owns
// MLX: it makes the source, asks it and destroys it. Every call from any
// thread but from within a Sink.
class Engine {
 public:
  // `make_source` is called on the engine's thread; what it throws comes out
  // of the constructor.
  Engine(
      const EngineOptions& options,
      std::function<std::unique_ptr<ModelSource>()> make_source);
  // Cancels what still runs.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes the request: from then on `sink` gets events until every choice has
  // its finish, errors included. Busy if there is no room to wait or the
  // engine is stopping; invalid_request for options out of range.
  RequestId submit(Request request, Sink sink);
  // At most one more step is computed for it. Its choices finish as cancelled.
  void cancel(RequestId id);

  // Runs `work` on the engine's thread between two steps: embeddings, adapters,
  // anything else with MLX. Must not throw.
  void post(std::function<void(ModelSource&)> work);

  EngineStats stats() const;

  // Takes no more requests; returns when the running ones are done, or, after
  // `patience`, cancelled.
  void drain(std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mlxx::engine
