#include "apps/mlxx/bench_peer.h"

#include <charconv>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/runtime_install/child_process.h"
#include "mlxx/core/device.h"
#include "mlxx/hub/export_mlx.h"

namespace mlxx::apps {
namespace {

constexpr const char* kPlace = "--peer";

// What the program printed.
std::string run(
    const std::vector<std::string>& arguments,
    const std::filesystem::path& log) {
  auto result = runtime::run_program_and_wait(arguments, log);
  std::ifstream file(log);
  std::stringstream text;
  text << file.rdbuf();
  if (!result.started) {
    fail(
        ErrorKind::invalid_request,
        kPlace,
        "'{}' cannot be run",
        arguments.front());
  }
  if (result.exit_code != 0) {
    std::string all = text.str();
    fail(
        ErrorKind::internal,
        kPlace,
        "{} ended with {}: {}",
        arguments.front(),
        result.exit_code,
        all.substr(all.size() - std::min<size_t>(all.size(), 300)));
  }
  return text.str();
}

// The lines that are JSON objects.
std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> found;
  std::stringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("{")) {
      Json json = Json::parse(line, nullptr, false);
      if (!json.is_discarded()) {
        found.push_back(std::move(json));
      }
    }
  }
  return found;
}

double number_in(const Json& json, const char* key) {
  auto found = json.find(key);
  if (found == json.end() || !found->is_number()) {
    fail(ErrorKind::internal, kPlace, "the peer does not report '{}'", key);
  }
  return found->get<double>();
}

class LlamaCpp : public BenchPeer {
 public:
  LlamaCpp(
      std::filesystem::path bench,
      std::filesystem::path model,
      int threads,
      std::filesystem::path scratch)
      : bench_(std::move(bench)),
        model_(std::move(model)),
        threads_(threads),
        scratch_(std::move(scratch)) {}

  const std::string& name() const override {
    return name_;
  }

  BenchRound measure(const BenchPlan& plan) const override {
    BenchRound round;
    bool batched = plan.decode > 0 && plan.parallel > 1;
    int decode = batched ? 0 : plan.decode;
    if (plan.prompt > 0 || decode > 0) {
      std::vector<std::string> arguments{
          bench_.string(),
          "-m",
          model_.string(),
          "-p",
          std::to_string(plan.prompt),
          "-n",
          std::to_string(decode),
          "-d",
          std::to_string(plan.depth),
          "-r",
          "1",
          "-o",
          "jsonl"};
      add_threads(arguments);
      for (const Json& test : json_lines(run(arguments, log()))) {
        double rate = number_in(test, "avg_ts");
        (number_in(test, "n_gen") > 0 ? round.decode_rate : round.prompt_rate) =
            rate;
      }
    }
    if (batched) {
      round.decode_rate = measure_batch(plan);
    }
    return round;
  }

 private:
  std::filesystem::path log() const {
    return scratch_ / "peer.log";
  }
  void add_threads(std::vector<std::string>& arguments) const {
    if (threads_ > 0) {
      arguments.insert(arguments.end(), {"-t", std::to_string(threads_)});
    }
  }

  double measure_batch(const BenchPlan& plan) const {
    // It needs some prompt.
    int prompt = std::max(plan.depth, 1);
    std::vector<std::string> arguments{
        (bench_.parent_path() / "llama-batched-bench").string(),
        "-m",
        model_.string(),
        "-npp",
        std::to_string(prompt),
        "-ntg",
        std::to_string(plan.decode),
        "-npl",
        std::to_string(plan.parallel),
        "-c",
        std::to_string(plan.parallel * (prompt + plan.decode)),
        "--output-format",
        "jsonl"};
    add_threads(arguments);
    auto tests = json_lines(run(arguments, log()));
    if (tests.empty()) {
      fail(ErrorKind::internal, kPlace, "llama-batched-bench reports nothing");
    }
    return number_in(tests.back(), "speed_tg");
  }

  std::string name_ = "llama.cpp";
  std::filesystem::path bench_;
  std::filesystem::path model_;
  int threads_;
  std::filesystem::path scratch_;
};

// Its llama-bench has the interface of an older llama.cpp: no lines of JSON,
// and a context only before decoding. It prints an array over many lines, after
// whatever else it says.
class IkLlamaCpp : public BenchPeer {
 public:
  IkLlamaCpp(
      std::filesystem::path bench,
      std::filesystem::path model,
      int threads,
      std::filesystem::path scratch)
      : bench_(std::move(bench)),
        model_(std::move(model)),
        threads_(threads),
        scratch_(std::move(scratch)) {}

  const std::string& name() const override {
    return name_;
  }

  BenchRound measure(const BenchPlan& plan) const override {
    if (plan.parallel > 1) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "{} measures one sequence, not {}",
          name_,
          plan.parallel);
    }
    int decode = plan.depth > 0 ? 0 : plan.decode;
    int prompt = plan.depth > 0 ? 0 : plan.prompt;
    std::vector<std::string> arguments{
        bench_.string(),
        "-m",
        model_.string(),
        "-p",
        std::to_string(prompt),
        "-n",
        std::to_string(decode),
        "-r",
        "1",
        "-o",
        "json"};
    if (plan.depth > 0 && plan.decode > 0) {
      arguments.insert(
          arguments.end(),
          {"-gp", fmt::format("{},{}", plan.depth, plan.decode)});
    }
    if (threads_ > 0) {
      arguments.insert(arguments.end(), {"-t", std::to_string(threads_)});
    }
    BenchRound round;
    if (prompt > 0 || plan.decode > 0) {
      for (const Json& test : tests(run(arguments, scratch_ / "peer.log"))) {
        double rate = number_in(test, "avg_ts");
        (number_in(test, "n_gen") > 0 ? round.decode_rate : round.prompt_rate) =
            rate;
      }
    }
    return round;
  }

 private:
  static Json tests(const std::string& text) {
    size_t begin = text.find("[\n  {");
    size_t end = text.rfind("\n]");
    Json json = Json::value_t::discarded;
    if (begin != std::string::npos && end != std::string::npos && begin < end) {
      json = Json::parse(text.substr(begin, end + 2 - begin), nullptr, false);
    }
    if (!json.is_array()) {
      fail(ErrorKind::internal, kPlace, "ik_llama.cpp reports no tests");
    }
    return json;
  }

  std::string name_ = "ik_llama.cpp";
  std::filesystem::path bench_;
  std::filesystem::path model_;
  int threads_;
  std::filesystem::path scratch_;
};

class MlxLm : public BenchPeer {
 public:
  MlxLm(
      std::string python,
      std::filesystem::path model,
      std::filesystem::path scratch)
      : python_(std::move(python)),
        model_(std::move(model)),
        scratch_(std::move(scratch)) {}

  const std::string& name() const override {
    return name_;
  }

  BenchRound measure(const BenchPlan& plan) const override {
    // It decodes after the prompt, so there is no context before it.
    auto text =
        run({python_,
             "-m",
             "mlx_lm.benchmark",
             "--model",
             model_.string(),
             "-p",
             std::to_string(std::max(plan.prompt, 1)),
             "-g",
             std::to_string(std::max(plan.decode, 1)),
             "-b",
             std::to_string(plan.parallel),
             "-n",
             "1"},
            scratch_ / "peer.log");
    BenchRound round;
    if (plan.prompt > 0) {
      round.prompt_rate = averaged(text, "prompt_tps=");
    }
    if (plan.decode > 0) {
      round.decode_rate = averaged(text, "generation_tps=");
    }
    return round;
  }

 private:
  static double averaged(const std::string& text, const std::string& key) {
    size_t line = text.find("Averages:");
    size_t at = line == std::string::npos ? line : text.find(key, line);
    double value = 0;
    if (at != std::string::npos) {
      const char* start = text.data() + at + key.size();
      std::from_chars(start, text.data() + text.size(), value);
    }
    if (value <= 0) {
      fail(ErrorKind::internal, kPlace, "mlx-lm does not report {}", key);
    }
    return value;
  }

  std::string name_ = "mlx-lm";
  std::string python_;
  std::filesystem::path model_;
  std::filesystem::path scratch_;
};

}  // namespace

std::unique_ptr<BenchPeer> make_bench_peer(
    const std::string& peer,
    const hub::Checkpoint& checkpoint,
    int threads,
    const std::filesystem::path& scratch) {
  auto model = checkpoint.path();
  bool is_gguf = model.extension() == ".gguf";
  std::string program = peer.substr(peer.find('=') + 1);
  bool is_ik = peer.starts_with("ik_llama.cpp=");
  if (is_ik || peer.starts_with("llama.cpp=")) {
    if (!is_gguf) {
      fail(
          ErrorKind::invalid_request,
          kPlace,
          "llama.cpp reads GGUF files, and the model is {}",
          model.string());
    }
    if (is_ik) {
      return std::make_unique<IkLlamaCpp>(program, model, threads, scratch);
    }
    return std::make_unique<LlamaCpp>(program, model, threads, scratch);
  }
  if (peer.starts_with("mlx-lm=")) {
    if (is_gguf) {
      model = scratch / "mlx";
      // MLX's CPU code takes half precision number by number, which would make
      // mlx-lm ten times slower than it can be.
      hub::LoadDtype dtype;
      if (backend() == Backend::cpu) {
        dtype.scales = mx::float32;
      }
      hub::write_mlx_checkpoint(checkpoint, model, dtype);
    }
    return std::make_unique<MlxLm>(program, model, scratch);
  }
  fail(
      ErrorKind::invalid_request,
      kPlace,
      "must be llama.cpp=PATH of llama-bench, ik_llama.cpp=PATH of its own or "
      "mlx-lm=PYTHON, found '{}'",
      peer);
}

}  // namespace mlxx::apps
