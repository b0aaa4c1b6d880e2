// Arrays are written, read one by one, and saved again with changes.

#include <unistd.h>  // mkdtemp() on macOS
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <map>
#include <string>

#include <mlxx/base/error.h>
#include <mlxx/core/host_values.h>
#include <mlxx/core/safetensors.h>
#include <mlxx/core/safetensors_writer.h>

namespace mx = mlx::core;

int run(const std::filesystem::path& path) {
  mlxx::write_safetensors(
      path,
      {{"norm", mx::ones({4}, mx::bfloat16)},
       {"weight", mx::reshape(mx::arange(12, mx::float32), {3, 4})}},
      {{"format", "mlx"}});

  // The names come from the header alone; nothing is read before it is used.
  std::map<std::string, mx::array> arrays;
  mlxx::SafetensorsFile file(path);
  for (const mlxx::SafetensorsEntry& entry : file.entries()) {
    std::printf(
        "%s %s %llu bytes\n",
        entry.name.c_str(),
        entry.dtype.c_str(),
        static_cast<unsigned long long>(entry.nbytes));
    arrays.emplace(entry.name, file.load_lazily(entry));
  }
  arrays.at("weight") = arrays.at("weight") * 2.0f;
  arrays.emplace("bias", mx::zeros({3}));

  auto metadata = file.metadata();
  metadata["made_by"] = "an example";
  // The same path: `file` and what is still lazy read the old content.
  mlxx::write_safetensors(path, {arrays.begin(), arrays.end()}, metadata);

  mlxx::SafetensorsFile again(path);
  mx::array weight = again.map(*again.find("weight"));
  float sum = mlxx::item_of<float>(mx::sum(weight), "example");
  std::printf(
      "%zu arrays, format %s, weight sums up to %g\n",
      again.entries().size(),
      again.metadata().at("format").c_str(),
      sum);

  // A damaged file is refused before anything is read from it.
  std::filesystem::resize_file(path, again.size() - 4);
  try {
    mlxx::SafetensorsFile damaged(path);
    return 1;
  } catch (const mlxx::Error& error) {
    std::printf("damaged: %s\n", mlxx::to_string(error.kind()).data());
  }
  return again.entries().size() == 3 && sum == 132 ? 0 : 1;
}

int main() {
  auto pattern = std::filesystem::temp_directory_path() / "example-XXXXXX";
  std::string folder = pattern.string();
  if (!mkdtemp(folder.data())) {
    std::perror("no temporary folder");
    return 1;
  }
  int result = 1;
  try {
    result = run(std::filesystem::path(folder) / "arrays.safetensors");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::filesystem::remove_all(folder);
  return result;
}
