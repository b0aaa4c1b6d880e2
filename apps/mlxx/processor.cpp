#include "apps/mlxx/processor.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

namespace mlxx::apps {

#ifdef __APPLE__

namespace {

bool has(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

}  // namespace

Processor describe_processor() {
  Processor processor;
  char name[256] = {};
  size_t size = sizeof name - 1;
  if (sysctlbyname("machdep.cpu.brand_string", name, &size, nullptr, 0) == 0) {
    processor.name = name;
  }
  processor.threads = static_cast<int>(std::thread::hardware_concurrency());
  processor.instruction_sets = {"neon"};
  if (has("hw.optional.arm.FEAT_DotProd")) {
    processor.instruction_sets.push_back("dotprod");
  }
  if (has("hw.optional.arm.FEAT_BF16")) {
    processor.instruction_sets.push_back("bf16");
  }
  if (has("hw.optional.arm.FEAT_I8MM")) {
    processor.instruction_sets.push_back("i8mm");
  }
  return processor;
}

#else

namespace {

// Flag of /proc/cpuinfo -> what it is called here.
constexpr std::pair<const char*, const char*> kFlags[] = {
    {"avx2", "avx2"},
    {"fma", "fma"},
    {"f16c", "f16c"},
    {"avx_vnni", "avx_vnni"},
    {"avx512f", "avx512f"},
    {"avx512bw", "avx512bw"},
    {"avx512_vnni", "avx512_vnni"},
    {"avx512_bf16", "avx512_bf16"},
    {"avx512_fp16", "avx512_fp16"},
    {"amx_bf16", "amx_bf16"},
    {"amx_int8", "amx_int8"},
    {"asimd", "neon"},
    {"asimddp", "dotprod"},
    {"bf16", "bf16"},
    {"i8mm", "i8mm"},
    {"sve", "sve"},
};

std::string after_colon(const std::string& line) {
  size_t colon = line.find(':');
  size_t from = colon == std::string::npos
      ? colon
      : line.find_first_not_of(" \t", colon + 1);
  return from == std::string::npos ? "" : line.substr(from);
}

}  // namespace

Processor describe_processor() {
  Processor processor;
  processor.threads = static_cast<int>(std::thread::hardware_concurrency());
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> flags;
  for (std::string line; std::getline(file, line);) {
    if (processor.name.empty() && line.starts_with("model name")) {
      processor.name = after_colon(line);
    }
    if (line.starts_with("flags") || line.starts_with("Features")) {
      std::istringstream words(after_colon(line));
      for (std::string word; words >> word;) {
        flags.insert(word);
      }
      break;
    }
  }
  for (auto [flag, name] : kFlags) {
    if (flags.contains(flag)) {
      processor.instruction_sets.emplace_back(name);
    }
  }
  return processor;
}

#endif

}  // namespace mlxx::apps
