// Runs the cases of ops_oracle.py against MLX's C++ API:
// ops_driver CASES.json IN.safetensors OUT.safetensors OUT.json [OP OP]
// Two op names at the end exchange their bindings, so that the oracle can show
// that it notices. OUT.json has for every case its outputs' dtypes and shapes,
// or the error: the bytes are in OUT.safetensors, which cannot hold arrays
// without elements.

#include <dlfcn.h>

#include <cstdio>
#include <fstream>

#include <fmt/format.h>

#include "mlxx/base/mapped_file.h"
#include "op_call.h"

namespace mlxx::ops_oracle {
namespace {

Ops all_ops() {
  Ops ops;
  add_unary_ops(ops);
  add_binary_ops(ops);
  add_reduction_ops(ops);
  add_shape_ops(ops);
  add_index_ops(ops);
  add_matrix_ops(ops);
  add_quantized_ops(ops);
  add_fast_ops(ops);
  add_random_ops(ops);
  return ops;
}

std::string path_of_libmlx() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&mx::version), &info);
  return info.dli_fname ? info.dli_fname : "";
}

std::vector<mx::array>
call_op(const Json& given, const Ops& ops, const Arrays& arrays) {
  auto name = given.at("op").get<std::string>();
  auto op = ops.find(name);
  if (op == ops.end()) {
    throw BrokenCase(fmt::format("no binding for '{}'", name));
  }
  OpCall call(given, arrays);
  auto outputs = op->second(call);
  call.check_all_read();
  mx::eval(outputs);
  return outputs;
}

Json run_case(
    const Json& given,
    const Ops& ops,
    const Arrays& arrays,
    Arrays& results) {
  Json answer;
  try {
    auto outputs = call_op(given, ops, arrays);
    answer["outputs"] = Json::array();
    for (size_t i = 0; i < outputs.size(); ++i) {
      const mx::array& output = outputs[i];
      answer["outputs"].push_back(
          {{"dtype", dtype_name(output.dtype())},
           {"shape",
            std::vector<int>(output.shape().begin(), output.shape().end())}});
      if (output.size() > 0) {
        auto name = given.at("name").get<std::string>();
        results.insert_or_assign(fmt::format("{}.{}", name, i), output);
      }
    }
  } catch (const BrokenCase& error) {
    answer = {{"broken", error.what()}};
  } catch (const Json::exception& error) {
    answer = {{"broken", error.what()}};
  } catch (const std::exception& error) {
    answer = {{"error", error.what()}};
  }
  return answer;
}

void run(char** argv, int argc) {
  mx::set_default_device(mx::Device::cpu);
  Ops ops = all_ops();
  if (argc == 7) {
    std::swap(ops.at(argv[5]), ops.at(argv[6]));
  }
  Arrays arrays = mx::load_safetensors(argv[2]).first;
  Arrays results;
  Json report;
  for (const auto& [name, op] : ops) {
    report["ops"].push_back(name);
  }
  for (const Json& given : parse_json(read_file(argv[1]), argv[1])) {
    auto name = given.at("name").get<std::string>();
    report["cases"][name] = run_case(given, ops, arrays, results);
  }
  report["libmlx"] = path_of_libmlx();
  report["version"] = mx::version();
  mx::save_safetensors(argv[3], results);
  std::ofstream(argv[4]) << report;
}

}  // namespace
}  // namespace mlxx::ops_oracle

int main(int argc, char** argv) {
  if (argc != 5 && argc != 7) {
    std::fprintf(
        stderr,
        "usage: ops_driver CASES.json IN OUT OUT.json [OP OP]\n");
    return 2;
  }
  try {
    mlxx::ops_oracle::run(argv, argc);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
