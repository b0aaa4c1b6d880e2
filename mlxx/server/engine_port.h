#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mlxx/engine/adapter_list.h"
#include "mlxx/engine/engine.h"
#include "mlxx/engine/vectors.h"

namespace mlxx::server {

struct EngineState {
  bool ready = false;     // what was to be loaded first is loaded
  bool healthy = true;    // false: it cannot answer now
  std::string problem;    // why not
  uint64_t restarts = 0;  // of the process that it runs in
  bool is_final = false;  // it cannot get better: what it needs is not there
};

// What is asked of engine::AdapterList. Names that are not needed are empty.
struct AdapterCommand {
  enum class Action { list, mount, unmount };
  Action action = Action::list;
  std::string model;
  std::string name;
  std::string folder;
};
// All adapters, or the one that was mounted.
struct AdapterAnswer {
  std::vector<engine::AdapterEntry> entries;
};
using AdapterSink = std::function<void(AdapterAnswer, std::exception_ptr)>;

// What the server asks of the engine, which may run in another process. Any
// thread. Sinks are called on a thread that must not be held up.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual engine::RequestId submit(engine::Request, engine::Sink) = 0;
  virtual void cancel(engine::RequestId id) = 0;
  virtual void embed(engine::EmbedRequest, engine::EmbedSink) = 0;
  virtual void rerank(engine::RerankRequest, engine::RerankSink) = 0;
  virtual void adapters(AdapterCommand, AdapterSink) = 0;
  virtual engine::EngineStats stats() const = 0;
  virtual EngineState state() const = 0;
  // Forgets what is kept of prompts, in memory and on disk, and waits for it.
  virtual void clear_prefixes() = 0;
  virtual void drain(std::chrono::milliseconds patience) = 0;
};

// The engine in this process.
std::shared_ptr<EnginePort> make_local_engine(
    const engine::EngineOptions& options,
    std::function<std::unique_ptr<engine::ModelSource>()> make_source,
    // The first one is loaded as soon as the engine runs, the others are
    // checked; if one can't be served, none is. Empty: ready at once.
    const std::vector<std::string>& models);

}  // namespace mlxx::server
