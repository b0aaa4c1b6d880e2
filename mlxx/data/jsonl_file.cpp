#include "mlxx/data/jsonl_file.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include "mlxx/base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mlxx::data {
namespace {

constexpr uint64_t kLongestLine = uint64_t{16} << 20;
constexpr size_t kPiece = size_t{1} << 20;
constexpr std::string_view kBlank = " \t\r\n\f\v";

// What a file begins with that is no text of one byte for each character.
void check_encoding(std::string_view head, const std::string& name) {
  if (head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF")) {
    fail(ErrorKind::bad_file, name, "is UTF-16, must be UTF-8");
  }
  if (head.substr(0, 256).find('\0') != std::string_view::npos) {
    fail(
        ErrorKind::bad_file,
        name,
        "holds zero bytes (UTF-16, or no text at all), must be UTF-8");
  }
}

}  // namespace

bool is_blank(std::string_view line) {
  return line.find_first_not_of(kBlank) == std::string_view::npos;
}

JsonlFile::JsonlFile(const std::filesystem::path& path) : name_(path.string()) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    fail(
        errno == ENOENT ? ErrorKind::not_found : ErrorKind::bad_file,
        name_,
        "cannot be read: {}",
        std::strerror(errno));
  }
  try {
    find_lines();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

JsonlFile::~JsonlFile() {
  ::close(descriptor_);
}

JsonlFile::Stamp JsonlFile::current_stamp() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) {
    fail(
        ErrorKind::bad_file,
        name_,
        "cannot be read: {}",
        std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::bad_file, name_, "is not a regular file");
  }
#ifdef __APPLE__
  const auto& changed = status.st_mtimespec;
#else
  const auto& changed = status.st_mtim;
#endif
  return {status.st_size, changed.tv_sec, changed.tv_nsec};
}

size_t JsonlFile::read_at(char* out, size_t bytes, uint64_t offset) const {
  size_t done = 0;
  while (done < bytes) {
    ssize_t got = ::pread(
        descriptor_,
        out + done,
        bytes - done,
        static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      fail(
          ErrorKind::bad_file,
          name_,
          "cannot be read: {}",
          std::strerror(errno));
    }
    if (got == 0) {
      break;
    }
    done += static_cast<size_t>(got);
  }
  return done;
}

void JsonlFile::add_line(uint64_t begin, uint64_t end, uint64_t number) {
  if (end - begin > kLongestLine) {
    fail(
        ErrorKind::bad_file,
        fmt::format("{}: line {}", name_, number),
        "has {} bytes, the limit is {}",
        end - begin,
        kLongestLine);
  }
  if (number > std::numeric_limits<uint32_t>::max()) {
    fail(ErrorKind::bad_file, name_, "has more than {} lines", number - 1);
  }
  lines_.push_back(
      {begin,
       static_cast<uint32_t>(end - begin),
       static_cast<uint32_t>(number)});
}

void JsonlFile::find_lines() {
  stamp_ = current_stamp();
  auto piece = std::make_unique<char[]>(kPiece);
  uint64_t at = 0;
  uint64_t begin = 0;
  uint64_t number = 1;
  bool blank = true;
  while (size_t got = read_at(piece.get(), kPiece, at)) {
    std::string_view rest(piece.get(), got);
    if (at == 0) {
      check_encoding(rest, name_);
      size_t mark = rest.starts_with("\xEF\xBB\xBF") ? 3 : 0;
      rest.remove_prefix(mark);
      begin = mark;
    }
    while (!rest.empty()) {
      size_t end = rest.find('\n');
      blank = blank && is_blank(rest.substr(0, end));
      if (end == std::string_view::npos) {
        break;
      }
      rest.remove_prefix(end + 1);
      uint64_t next = at + got - rest.size();
      if (!blank) {
        add_line(begin, next - 1, number);
      }
      begin = next;
      blank = true;
      ++number;
    }
    at += got;
  }
  if (!blank) {
    add_line(begin, at, number);
  }
  if (lines_.empty()) {
    fail(
        ErrorKind::bad_file,
        name_,
        "is empty ({} bytes), must hold one JSON object on each line",
        at);
  }
}

std::string JsonlFile::read(int64_t index) const {
  const Line& line = lines_.at(static_cast<size_t>(index));
  std::string text(line.bytes, '\0');
  if (read_at(text.data(), text.size(), line.offset) != text.size() ||
      current_stamp() != stamp_) {
    fail(ErrorKind::bad_file, name_, "was changed while it was in use");
  }
  while (text.ends_with('\r')) {
    text.pop_back();
  }
  return text;
}

std::string JsonlFile::place(int64_t index) const {
  return fmt::format(
      "{}: line {}",
      name_,
      lines_.at(static_cast<size_t>(index)).number);
}

}  // namespace mlxx::data
