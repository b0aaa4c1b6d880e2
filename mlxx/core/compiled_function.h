#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "mlxx/core/array_function.h"

namespace mlxx {

struct CompiledFunctionOptions {
  // One graph for each combination of dtypes and numbers of dimensions, which
  // every shape then runs through; else one for each combination of shapes.
  bool shapeless = true;
  // Arrays that the function captures are constants of its graphs. Where they
  // can be swapped (an adapter is mounted, a model replaced), this returns a
  // number that then changes; it is asked at every call.
  std::function<uint64_t()> stamp = {};
  enum class OnChange { retrace, refuse };
  OnChange on_change = OnChange::retrace;
};

// A function that runs once, to record its graph, for every kind of input;
// later calls replay the graph. Reference: mx::compile, which this adds to:
// counters, constants that cannot go stale, memory that comes back, a mode that
// affects only later traces, and graphs that are never another function's.
//
// The function must be pure, may not evaluate what depends on its inputs (MLX
// refuses with "[eval] Attempting to eval an array during function
// transformations...") and, if shapeless, may not build sizes that vary into
// its operations; MLX 0.32 crashes if a graph on the CPU reduces an axis of one
// element that had more when it was traced. Exceptions come out unchanged and
// leave the object usable. Called with tracers (inside another trace or a
// gradient) it is inlined. Compile mode `disabled`, and a machine where MLX
// cannot compile (on the CPU it wants a C++ compiler even to fuse nothing), run
// it without a trace, each time, unless there is a trace already.
//
// Not thread-safe, and of the thread that calls it first, as MLX's graphs are:
// another thread is refused (internal). It may be destroyed on any thread.
class CompiledFunction {
 public:
  // internal if there is no function.
  explicit CompiledFunction(
      ArrayFunction function,
      CompiledFunctionOptions options = {});
  // Gives the memory of the graphs' constants back.
  ~CompiledFunction();
  CompiledFunction(CompiledFunction&&) noexcept;
  CompiledFunction& operator=(CompiledFunction&&) noexcept;

  // Errors besides the function's and MLX's: invalid_request if the stamp has
  // changed and that is to be refused; internal if called with plain arrays
  // while it is being traced.
  std::vector<mx::array> operator()(const std::vector<mx::array>& inputs);

  // Traces so far, those of reset graphs included. A trace that threw counts.
  int trace_count() const;
  // Traces since construction or the last reset that made a graph.
  int fresh_trace_count() const;
  // Whether the last call ran as a graph, not as the plain function.
  bool ran_compiled() const;
  // Drops the graphs and their constants; the next call traces again.
  // internal while tracing.
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Traces of all CompiledFunctions of this process.
uint64_t total_trace_count();

// Whether a shapeless CompiledFunction is being recorded on this thread (the
// innermost that is recorded counts), so that a kernel of fixed shape can
// choose plain operations instead.
bool is_shapeless_tracing();

// For a function that must be traced once only, such as a decode step: says
// whether it was traced again, which costs time silently. A reset, or a changed
// stamp, allows one more.
class ExpectOneTrace {
 public:
  explicit ExpectOneTrace(const CompiledFunction& function)
      : function_(function) {}
  bool holds() const {
    return function_.fresh_trace_count() <= 1;
  }
  // Traces too many; 0 if it holds.
  int surplus() const {
    return holds() ? 0 : function_.fresh_trace_count() - 1;
  }

 private:
  const CompiledFunction& function_;
};

}  // namespace mlxx
