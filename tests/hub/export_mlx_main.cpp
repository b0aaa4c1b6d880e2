// export_mlx IN OUT_DIR [--dtype float32|float16|bfloat16]: writes a GGUF file
// (or a folder) as a checkpoint that mlx-lm loads, for comparisons with it.
#include <cstdio>
#include <string>

#include "mlxx/base/error.h"
#include "mlxx/core/dtype.h"
#include "mlxx/hub/export_mlx.h"

namespace {

mlxx::mx::Dtype parse_scales_dtype(const std::string& name) {
  mlxx::mx::Dtype dtype = mlxx::parse_dtype(name, "--dtype");
  if (!mlxx::is_float(dtype) || dtype == mlxx::mx::float64) {
    mlxx::fail(
        mlxx::ErrorKind::invalid_request,
        "--dtype",
        "'{}' is not float32, float16 or bfloat16",
        name);
  }
  return dtype;
}

}  // namespace

int main(int argc, char** argv) {
  bool has_dtype = argc == 5 && std::string(argv[3]) == "--dtype";
  if (argc != 3 && !has_dtype) {
    std::fputs("usage: export_mlx IN OUT_DIR [--dtype NAME]\n", stderr);
    return 2;
  }
  try {
    mlxx::hub::LoadDtype dtype;
    if (has_dtype) {
      dtype.scales = parse_scales_dtype(argv[4]);
    }
    auto checkpoint = mlxx::hub::open_checkpoint(argv[1]);
    mlxx::hub::write_mlx_checkpoint(*checkpoint, argv[2], dtype);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
