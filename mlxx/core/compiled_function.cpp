#include "mlxx/core/compiled_function.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include <mlx/compile_impl.h>

#include "mlxx/base/error.h"

namespace mlxx {
namespace {

constexpr const char* kPlace = "compiled function";

// Process-wide because the question is whether anything was traced at all.
std::atomic<uint64_t>& total_traces() {
  static std::atomic<uint64_t> count{0};
  return count;
}

// Per thread, as MLX's own record of what it traces, which it does not export.
thread_local bool shapeless_tracing = false;

template <typename T>
class ScopedValue {
 public:
  ScopedValue(T& target, T value) : target_(target), previous_(target) {
    target_ = value;
  }
  ~ScopedValue() {
    target_ = previous_;
  }
  ScopedValue(const ScopedValue&) = delete;
  ScopedValue& operator=(const ScopedValue&) = delete;

 private:
  T& target_;
  T previous_;
};

// MLX finds graphs by a number, for which it takes the function's address. On
// threads other than the one that made the function it keeps them for ever, so
// that a later function at the same address would get a stranger's graph.
// These numbers are no addresses and never come again.
std::uintptr_t unique_id() {
  static_assert(sizeof(std::uintptr_t) == 8);
  static std::atomic<std::uintptr_t> next{0};
  constexpr auto kNoAddress = std::uintptr_t{1} << 63;
  return kNoAddress + next++;
}

// What a graph is made for: the default stream, then each input's dtype and
// number of dimensions, and its shape unless the graph is shapeless.
using Signature = std::vector<int64_t>;

Signature signature_of(const std::vector<mx::array>& inputs, bool shapeless) {
  mx::Stream stream = mx::default_stream(mx::default_device());
  Signature signature{stream.index, static_cast<int64_t>(stream.device.type)};
  for (const mx::array& input : inputs) {
    signature.push_back(static_cast<int64_t>(input.dtype().val()));
    signature.push_back(static_cast<int64_t>(input.ndim()));
    if (!shapeless) {
      signature.insert(
          signature.end(),
          input.shape().begin(),
          input.shape().end());
    }
  }
  return signature;
}

}  // namespace

struct CompiledFunction::State {
  // What MLX calls to record; found again in what mx::compile returns if MLX
  // does not compile.
  struct Recorder {
    State* state;
    std::vector<mx::array> operator()(
        const std::vector<mx::array>& inputs) const {
      return state->record(inputs);
    }
  };
  struct Graph {
    Signature signature;
    std::uintptr_t id;
    ArrayFunction run;
  };

  ArrayFunction function;
  CompiledFunctionOptions options;
  std::vector<Graph> graphs;
  std::optional<uint64_t> stamp;  // that the graphs were made under
  std::optional<std::thread::id> owner;
  mx::detail::CompileCacheWeakPtr cache;  // of the owner's
  int traces = 0;
  int traces_before_reset = 0;
  bool recording = false;
  bool compiled = false;

  ~State() {
    drop_graphs();
  }

  void drop_graphs() {
    for (const Graph& graph : graphs) {
      mx::detail::compile_erase(cache, graph.id);
    }
    graphs.clear();
    traces_before_reset = traces;
  }

  std::vector<mx::array> record(const std::vector<mx::array>& inputs) {
    ScopedValue<bool> busy(recording, true);
    ScopedValue<bool> shapeless(shapeless_tracing, options.shapeless);
    ++traces;
    ++total_traces();
    return function(inputs);
  }

  std::vector<mx::array> run_new(
      Signature signature,
      const std::vector<mx::array>& inputs) {
    Graph graph{std::move(signature), unique_id(), {}};
    graph.run =
        mx::detail::compile(Recorder{this}, graph.id, options.shapeless);
    if (graph.run.target<Recorder>()) {
      compiled = false;
      return function(inputs);
    }
    try {
      auto outputs = graph.run(inputs);
      compiled = true;
      graphs.push_back(std::move(graph));
      return outputs;
    } catch (...) {
      mx::detail::compile_erase(cache, graph.id);
      // It made no graph, and is no secret.
      traces_before_reset = std::min(traces_before_reset + 1, traces);
      throw;
    }
  }

  void check_thread() {
    if (!owner) {
      owner = std::this_thread::get_id();
      cache = mx::detail::compile_cache();
    } else if (*owner != std::this_thread::get_id()) {
      fail(
          ErrorKind::internal,
          kPlace,
          "belongs to the thread that called it first, and was called from "
          "another");
    }
  }

  void check_stamp() {
    if (!options.stamp) {
      return;
    }
    uint64_t now = options.stamp();
    if (!graphs.empty() && stamp != now) {
      if (options.on_change == CompiledFunctionOptions::OnChange::refuse) {
        fail(
            ErrorKind::invalid_request,
            kPlace,
            "the arrays that it captured were replaced after it was traced");
      }
      drop_graphs();
    }
    stamp = now;
  }

  std::vector<mx::array> call(const std::vector<mx::array>& inputs) {
    if (std::ranges::any_of(inputs, [](const mx::array& input) {
          return input.is_tracer();
        })) {
      compiled = false;
      return function(inputs);
    }
    check_thread();
    if (recording) {
      fail(
          ErrorKind::internal,
          kPlace,
          "called itself while it was being traced");
    }
    check_stamp();
    auto signature = signature_of(inputs, options.shapeless);
    auto known = std::ranges::find(graphs, signature, &Graph::signature);
    if (known == graphs.end()) {
      return run_new(std::move(signature), inputs);
    }
    compiled = true;
    return known->run(inputs);
  }
};

CompiledFunction::CompiledFunction(
    ArrayFunction function,
    CompiledFunctionOptions options)
    : state_(std::make_unique<State>()) {
  if (!function) {
    fail(ErrorKind::internal, kPlace, "there is no function to compile");
  }
  state_->function = std::move(function);
  state_->options = std::move(options);
}

CompiledFunction::~CompiledFunction() = default;
CompiledFunction::CompiledFunction(CompiledFunction&&) noexcept = default;
CompiledFunction& CompiledFunction::operator=(CompiledFunction&&) noexcept =
    default;

std::vector<mx::array> CompiledFunction::operator()(
    const std::vector<mx::array>& inputs) {
  return state_->call(inputs);
}

int CompiledFunction::trace_count() const {
  return state_->traces;
}

int CompiledFunction::fresh_trace_count() const {
  return state_->traces - state_->traces_before_reset;
}

bool CompiledFunction::ran_compiled() const {
  return state_->compiled;
}

void CompiledFunction::reset() {
  if (state_->recording) {
    fail(ErrorKind::internal, kPlace, "reset while it was being traced");
  }
  state_->drop_graphs();
}

uint64_t total_trace_count() {
  return total_traces();
}

bool is_shapeless_tracing() {
  return shapeless_tracing;
}

}  // namespace mlxx
