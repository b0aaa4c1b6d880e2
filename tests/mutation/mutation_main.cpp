// Reads damaged files of every format: no crash, no exception but mlxx::Error,
// no file that takes a second of the processor, no growth above 256 MB.
// mutation_test [--format NAME] [--count N] [--first N]
// Without --count: MLXX_MUTATIONS, else 10,000 files per format. A failure
// prints the number that --first N --count 1 repeats.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <sys/resource.h>

#include "mlxx/base/error.h"
#include "mlxx/core/memory.h"
#include "tests/mutation/formats.h"
#include "tests/mutation/mutator.h"

namespace mlxx {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMaxSeconds = 1;
constexpr long kMaxGrowthKilobytes = 256L << 10;

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
#ifdef __APPLE__
  return usage.ru_maxrss / 1024;
#else
  return usage.ru_maxrss;
#endif
}

// Of the processor, so that a busy machine does not count; a file that hangs
// without computing is caught by the time limit of the whole test.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
      1e-9 * static_cast<double>(time.tv_nsec);
}

struct Options {
  std::string format;
  size_t first = 0;
  size_t count = 10'000;
};

struct Outcome {
  std::string refusal;  // the message of mlxx::Error
  std::string failure;  // what must not be
};

Outcome try_file(const MutationFormat& format, const std::string& content) {
  Outcome outcome;
  double start = processor_seconds();
  try {
    format.use(content);
  } catch (const Error& error) {
    outcome.refusal = error.what();
  } catch (const std::exception& error) {
    outcome.failure =
        std::string("an exception other than mlxx::Error: ") + error.what();
  }
  double seconds = processor_seconds() - start;
  if (outcome.failure.empty() && seconds > kMaxSeconds) {
    outcome.failure = "took " + std::to_string(seconds) + " s";
  }
  return outcome;
}

bool run_format(const MutationFormat& format, const Options& options) {
  auto start = Clock::now();
  Outcome seed = try_file(format, format.seed);
  if (!seed.refusal.empty() || !seed.failure.empty()) {
    std::printf(
        "%s: the undamaged file: %s%s\n",
        format.name.c_str(),
        seed.refusal.c_str(),
        seed.failure.c_str());
    return false;
  }
  long before = peak_kilobytes();
  size_t refusals = 0;
  for (size_t i = options.first; i < options.first + options.count; ++i) {
    Mutator mutator(i);
    std::string content = format.head > 0
        ? mutator.mutate(format.seed, format.head)
        : mutator.mutate_json(format.seed);
    auto [refusal, failure] = try_file(format, content);
    refusals += refusal.empty() ? 0 : 1;
    long growth = peak_kilobytes() - before;
    if (failure.empty() && growth > kMaxGrowthKilobytes) {
      failure = "memory grew by " + std::to_string(growth / 1024) + " MB";
    }
    if (!failure.empty()) {
      std::printf(
          "%s: file %zu: %s\n",
          format.name.c_str(),
          i,
          failure.c_str());
      return false;
    }
    if (i % 256 == 0) {
      clear_cache();
    }
  }
  std::chrono::duration<double> elapsed = Clock::now() - start;
  std::printf(
      "%-12s %zu files, %zu refused, %.1f s, memory +%ld MB\n",
      format.name.c_str(),
      options.count,
      refusals,
      elapsed.count(),
      (peak_kilobytes() - before) / 1024);
  std::fflush(stdout);
  return true;
}

Options read_options(int argc, char** argv) {
  Options options;
  if (const char* count = std::getenv("MLXX_MUTATIONS")) {
    options.count = std::strtoull(count, nullptr, 10);
  }
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--format") == 0) {
      options.format = argv[i + 1];
    } else if (std::strcmp(argv[i], "--count") == 0) {
      options.count = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (std::strcmp(argv[i], "--first") == 0) {
      options.first = std::strtoull(argv[i + 1], nullptr, 10);
    }
  }
  return options;
}

}  // namespace
}  // namespace mlxx

int main(int argc, char** argv) {
  auto options = mlxx::read_options(argc, argv);
  mlxx::TemporaryFolder folder;
  bool passed = true, ran = false;
  for (const auto& format : mlxx::mutation_formats(folder)) {
    if (options.format.empty() || options.format == format.name) {
      passed = mlxx::run_format(format, options) && passed;
      ran = true;
    }
  }
  return passed && ran ? 0 : 1;
}
