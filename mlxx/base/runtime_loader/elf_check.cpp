#include <fmt/format.h>

#include "mlxx/base/runtime_loader/trusted_path.h"

#ifdef __linux__
#include <cstring>
#include <fstream>

#include <elf.h>
#endif

namespace mlxx::runtime {

#ifdef __linux__

namespace {

#if defined(__x86_64__)
constexpr Elf64_Half kMachine = EM_X86_64;
constexpr const char* kMachineName = "x86-64";
#elif defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
constexpr const char* kMachineName = "aarch64";
#else
#error "mlxx knows x86-64 and aarch64"
#endif

}  // namespace

std::optional<std::string> malformed_library(
    const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return "is a folder, not a library";
  }
  if (!std::filesystem::is_regular_file(path, error)) {
    return "is no file";
  }
  uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) {
    return "cannot be read";
  }
  Elf64_Ehdr header{};
  if (!file.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "is not a shared library (no ELF header)";
  }
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kMachine ||
      header.e_type != ET_DYN) {
    return fmt::format("is not a shared library for {}", kMachineName);
  }
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0 ||
      header.e_phoff > size ||
      uint64_t{header.e_phnum} * sizeof(Elf64_Phdr) > size - header.e_phoff) {
    return "has a damaged ELF header";
  }
  file.seekg(static_cast<std::streamoff>(header.e_phoff));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    if (!file.read(reinterpret_cast<char*>(&segment), sizeof segment)) {
      return "has a damaged ELF header";
    }
    if (segment.p_offset > size || segment.p_filesz > size - segment.p_offset) {
      return fmt::format("is cut off at {} bytes", size);
    }
  }
  return std::nullopt;
}

#else

// The system's loader checks Mach-O files itself.
std::optional<std::string> malformed_library(
    const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return "is a folder, not a library";
  }
  return std::nullopt;
}

#endif

}  // namespace mlxx::runtime
