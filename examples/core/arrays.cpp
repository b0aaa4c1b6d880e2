// Operations and streams are MLX's own. Added are the names of dtypes and a
// checked way from an array to the host's memory.

#include <cstdio>
#include <exception>

#include <mlxx/core/dtype.h>
#include <mlxx/core/host_values.h>

namespace mx = mlx::core;

template <typename Call>
bool refused(Call call) {
  try {
    call();
    return false;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return true;
  }
}

int main() try {
  // By MLX's name or by that of a safetensors file.
  mx::Dtype dtype = mlxx::parse_dtype("BF16", "my option");
  std::printf(
      "%s, %d bytes\n",
      mlxx::dtype_name(dtype).data(),
      mlxx::dtype_info(dtype).size);

  // A second stream of the default device; synchronize() waits for it.
  mx::Stream stream = mx::new_stream(mx::default_device());
  mx::array x = mx::reshape(mx::arange(6, mx::float32, stream), {2, 3}, stream);
  mx::array transposed = mx::transpose(x, stream);  // [3, 2], a view
  mx::async_eval(transposed);
  mx::synchronize(stream);

  // In row order, though the memory is not.
  mlxx::HostValues<float> values(transposed, "example");
  for (float value : values.span()) {
    std::printf("%g ", value);
  }
  std::printf("\n");

  bool all = refused([&] { mlxx::HostValues<int32_t>(x, "example"); }) &&
      refused([&] { mlxx::item_of<float>(x, "example"); }) &&
      refused([&] { mx::matmul(x, x); });
  return all && values.span()[1] == 3 && dtype == mx::bfloat16 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
