#include "mlxx/hub/safetensors_checkpoint.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <nlohmann/json.hpp>

#include "mlxx/base/error.h"
#include "mlxx/base/log.h"
#include "mlxx/base/mapped_file.h"
#include "mlxx/base/sha256.h"
#include "mlxx/core/safetensors.h"
#include "mlxx/hub/foreign_quantization.h"
#include "mlxx/hub/quantization_config.h"
#include "mlxx/hub/safetensors_shards.h"
#include "mlxx/hub/text_files.h"
#include "mlxx/hub/text_part.h"

namespace mlxx::hub {

namespace {

// Where one tensor lies.
struct Location {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

// The parts of one logical parameter; scales and biases if it is quantized.
struct Source {
  Location weight;
  Location scales = {};
  Location biases = {};
  Location global_scale = {};
};

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kScales = ".scales";
constexpr std::string_view kBiases = ".biases";
constexpr std::string_view kGlobalScale = ".global_scale";

bool is_floating(const std::string& dtype) {
  return dtype == "BF16" || dtype == "F16" || dtype == "F32";
}

class SafetensorsCheckpoint : public Checkpoint {
 public:
  explicit SafetensorsCheckpoint(const std::filesystem::path& folder)
      : path_(folder) {
    config_ = read_json_object(folder / "config.json");
    check_code();
    foreign_ = ForeignQuantization::find(config_, folder);
    if (!foreign_) {
      quantization_ = QuantizationConfig::read(config_);
    }
    auto generation = folder / "generation_config.json";
    if (std::filesystem::exists(generation)) {
      generation_config_ = read_json_object(generation);
    }
    open_files();
    list_tensors();
  }

  const std::filesystem::path& path() const override {
    return path_;
  }
  std::string format() const override {
    return "safetensors";
  }
  const Json& config() const override {
    return config_;
  }
  const Json& generation_config() const override {
    return generation_config_;
  }
  const TextFiles& text() const override {
    std::call_once(text_read_, [this] { text_ = read_text_files(path_); });
    return text_;
  }
  std::string tokenizer_digest() const override {
    auto file = path_ / "tokenizer.json";
    return std::filesystem::is_regular_file(file)
        ? sha256_hex(MappedFile(file).bytes())
        : std::string();
  }
  const TextFiles& text_beside_tokenizer() const override {
    std::call_once(beside_read_, [this] {
      beside_tokenizer_ = read_text_beside_tokenizer(path_);
    });
    return beside_tokenizer_;
  }
  const std::vector<TensorInfo>& tensors() const override {
    return infos_;
  }
  uint64_t file_bytes() const override {
    uint64_t bytes = 0;
    for (const auto& file : files_) {
      bytes += file->size();
    }
    return bytes;
  }

  Weight load(const std::string& name, const LoadDtype&) const override {
    auto found = sources_.find(name);
    if (found == sources_.end()) {
      fail(ErrorKind::not_found, place(), "there is no tensor '{}'", name);
    }
    auto load_part = [](const Location& part) {
      return part.entry ? std::optional(load_entry(part)) : std::nullopt;
    };
    const Source& source = found->second;
    return {
        load_entry(source.weight),
        load_part(source.scales),
        load_part(source.biases),
        load_part(source.global_scale)};
  }

  // Absent: MLX's own, or none. Present: tensors() are those of the files.
  const std::optional<ForeignQuantization>& foreign() const {
    return foreign_;
  }

 private:
  std::string place() const {
    return path_.string();
  }

  // The file's own pages where that is possible: what is packed into another
  // form, or cut, is read once and from there. Eight-bit floats, which MLX has
  // not, as their bytes.
  static mx::array load_entry(const Location& at) {
    constexpr uint64_t kWorthMapping = 64 << 10;
    SafetensorsEntry entry = *at.entry;
    if (entry.dtype.starts_with("F8_")) {
      entry.dtype = "U8";
    }
    return entry.nbytes < kWorthMapping ? at.file->load(entry)
                                        : at.file->map(entry);
  }

  // Code beside the weights is never run. model_file replaces the model by
  // such code, so nothing here can stand for it; auto_map names an
  // alternative to a model_type that may be known.
  void check_code() const {
    if (config_.contains("model_file") && !config_.at("model_file").is_null()) {
      fail(
          ErrorKind::unsupported,
          place(),
          "needs custom code: 'model_file' in config.json names a Python file, "
          "which is never run");
    }
    if (config_.contains("auto_map") && !config_.at("auto_map").is_null()) {
      log_warning(
          "{}: 'auto_map' in config.json names custom code, which is not run",
          place());
    }
  }

  void open_files() {
    SafetensorsShards shards = find_safetensors_shards(path_);
    for (const auto& path : shards.files) {
      files_.push_back(std::make_unique<SafetensorsFile>(path));
      const SafetensorsFile& file = *files_.back();
      for (const auto& entry : file.entries()) {
        auto [at, is_new] = stored_.try_emplace(entry.name);
        if (!is_new) {
          fail(
              ErrorKind::bad_file,
              place(),
              "tensor '{}' stands in '{}' and in '{}'",
              entry.name,
              at->second.file->path().filename().string(),
              path.filename().string());
        }
        at->second = {&file, &entry};
      }
    }
    for (const auto& [tensor, name] : shards.index) {
      auto found = stored_.find(tensor);
      if (found == stored_.end() ||
          found->second.file->path().filename() != name) {
        fail(
            ErrorKind::bad_file,
            place(),
            "the index says that '{}' holds the tensor '{}', it does not",
            name,
            tensor);
      }
    }
  }

  const Location* find_stored(const std::string& name) const {
    auto found = stored_.find(name);
    return found == stored_.end() ? nullptr : &found->second;
  }

  void list_tensors() {
    for (const auto& [name, location] : stored_) {
      if (foreign_) {
        add_dense(name, {.weight = location});
        continue;
      }
      std::string_view view = name;
      bool is_part = false;
      for (auto suffix : {kScales, kBiases, kGlobalScale}) {
        if (view.ends_with(suffix)) {
          auto module =
              std::string(view.substr(0, view.size() - suffix.size()));
          is_part = stored_.contains(module + std::string(kScales)) &&
              stored_.contains(module + std::string(kWeight));
        }
      }
      if (is_part) {
        continue;
      }
      Source source{.weight = location};
      if (view.ends_with(kWeight)) {
        add_weight(name, source);
      } else {
        add_dense(name, source);
      }
    }
  }

  void add_dense(const std::string& name, const Source& source) {
    const SafetensorsEntry& entry = *source.weight.entry;
    // No GPU backend computes with 64-bit floats.
    bool is_known = foreign_ && foreign_->is_converted() &&
        (entry.dtype == "F8_E4M3" || entry.dtype == "F8_E8M0");
    bool is_number = safetensors_mlx_dtype(entry.dtype) && entry.dtype != "F64";
    if (!is_known && !is_number) {
      fail(
          ErrorKind::unsupported,
          source.weight.file->path().string(),
          "tensor '{}' is stored as {}",
          name,
          entry.dtype);
    }
    infos_.push_back(
        {.name = name,
         .shape = entry.shape,
         .stored = entry.dtype,
         .nbytes = entry.nbytes,
         .quantization = std::nullopt});
    sources_[name] = source;
  }

  // Presence of scales decides whether a weight is packed; the config must
  // not contradict it.
  void add_weight(const std::string& name, Source source) {
    std::string module = name.substr(0, name.size() - kWeight.size());
    const Location* scales = find_stored(module + std::string(kScales));
    const Location* biases = find_stored(module + std::string(kBiases));
    auto quantization = quantization_.of(module);
    if (!scales) {
      bool is_packed = source.weight.entry->dtype == "U32";
      if (is_packed || (quantization && quantization_.has_own(module))) {
        fail_module(
            module,
            "the weights are said to be packed, but there are no scales");
      }
      add_dense(name, source);
      return;
    }
    if (!quantization) {
      fail_module(
          module,
          quantization_.is_present()
              ? "there are scales, but config.json says that it is dense"
              : "there are scales, but config.json has no 'quantization'");
    }
    source.scales = *scales;
    if (biases) {
      source.biases = *biases;
    }
    auto* global = find_stored(module + std::string(kGlobalScale));
    if (quantization->is_default) {
      quantization->has_global_scale = global != nullptr;
      guess_form(source, *quantization);
    }
    if (global) {
      source.global_scale = *global;
    }
    TensorInfo info{
        .name = name,
        .shape = {},
        .stored = "U32 " + quantization->mode,
        .nbytes = source.weight.entry->nbytes + scales->entry->nbytes +
            (biases ? biases->entry->nbytes : 0) +
            (global ? global->entry->nbytes : 0),
        .quantization = quantization};
    info.shape = check_packed(module, source, *quantization);
    check_global_scale(module, source, info);
    infos_.push_back(std::move(info));
    sources_[name] = source;
  }

  [[noreturn]] void fail_module(
      const std::string& module,
      const std::string& what) const {
    fail(ErrorKind::bad_file, place(), "'{}': {}", module, what);
  }

  // The shapes say only what bits * group size is. The form that config.json
  // has for all stays where it fits; else one that does and that shares the
  // group size with it, if there is one. Which it is shows when the model knows
  // its shape (models/load_weights.cpp).
  static void guess_form(const Source& source, Quantization& q) {
    const auto& weight = *source.weight.entry;
    const auto& scales = *source.scales.entry;
    if (weight.shape.empty() || scales.shape.empty() ||
        scales.shape.back() <= 0 || weight.shape.back() > INT32_MAX ||
        weight.shape.back() * 32 % scales.shape.back() != 0) {
      return;
    }
    int64_t product = weight.shape.back() * 32 / scales.shape.back();
    bool is_affine = scales.dtype != "U8";
    if (is_affine == (q.mode == "affine") && product == q.bits * q.group_size) {
      return;
    }
    auto fits = [&](int group, int bits, const char* mode) {
      if (product == int64_t{group} * bits) {
        q = {group, bits, mode, q.has_global_scale, true};
        return true;
      }
      return false;
    };
    if (!is_affine) {
      fits(16, 4, "nvfp4") || fits(32, 4, "mxfp4") || fits(32, 8, "mxfp8");
      return;
    }
    for (int group : {q.group_size, 64, 32, 128}) {
      for (int bits : {2, 3, 4, 5, 6, 8}) {
        if (group % 32 == 0 && fits(group, bits, "affine")) {
          return;
        }
      }
    }
  }

  void check_global_scale(
      const std::string& module,
      const Source& source,
      const TensorInfo& info) const {
    const auto* entry = source.global_scale.entry;
    bool is_wanted = info.quantization->has_global_scale;
    if (!entry && !is_wanted) {
      return;
    }
    auto rank = info.shape.size();
    bool fits = entry && is_wanted && info.quantization->mode == "nvfp4" &&
        entry->dtype == "F32" &&
        (rank == 2 ? entry->shape.empty()
                   : rank == 3 &&
                 entry->shape == std::vector<int64_t>{info.shape[0]});
    if (!fits) {
      fail_module(
          module,
          "a global scale must be F32, one for each matrix of nvfp4 numbers, "
          "in config.json and in the file");
    }
  }

  // dtypes and shapes of the parts against bits and group size; returns the
  // logical shape.
  std::vector<int64_t> check_packed(
      const std::string& module,
      const Source& source,
      const Quantization& q) const {
    const auto& weight = *source.weight.entry;
    const auto& scales = *source.scales.entry;
    bool is_affine = q.mode == "affine";
    if (weight.dtype != "U32" || weight.shape.size() < 2) {
      fail_module(
          module,
          fmt::format(
              "packed weights must be a U32 matrix, found {} [{}]",
              weight.dtype,
              fmt::join(weight.shape, ", ")));
    }
    if (is_affine ? !is_floating(scales.dtype) : scales.dtype != "U8") {
      fail_module(
          module,
          fmt::format("{} scales cannot be {}", q.mode, scales.dtype));
    }
    if (is_affine != (source.biases.entry != nullptr)) {
      fail_module(
          module,
          is_affine ? std::string("affine weights need biases")
                    : fmt::format("{} weights have no biases", q.mode));
    }
    if (is_affine &&
        (source.biases.entry->shape != scales.shape ||
         source.biases.entry->dtype != scales.dtype)) {
      fail_module(module, "scales and biases differ in shape or dtype");
    }
    // Header numbers are below 2^63, the file bounds their product.
    auto bits = static_cast<__int128>(weight.shape.back()) * 32;
    auto columns = bits / q.bits;
    bool fits = bits % q.bits == 0 && scales.shape.size() > 0 &&
        static_cast<__int128>(scales.shape.back()) * q.group_size == columns &&
        columns <= INT32_MAX &&
        std::equal(weight.shape.begin(),
                   weight.shape.end() - 1,
                   scales.shape.begin(),
                   scales.shape.end() - 1);
    if (!fits) {
      fail_module(
          module,
          fmt::format(
              "packed shape [{}] and scales [{}] do not fit {} bits in groups "
              "of {}",
              fmt::join(weight.shape, ", "),
              fmt::join(scales.shape, ", "),
              q.bits,
              q.group_size));
    }
    auto shape = weight.shape;
    shape.back() = static_cast<int64_t>(columns);
    return shape;
  }

  std::filesystem::path path_;
  Json config_;
  Json generation_config_ = Json::object();
  std::optional<ForeignQuantization> foreign_;
  QuantizationConfig quantization_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Location> stored_;
  std::vector<TensorInfo> infos_;  // in the order of stored_: by name
  std::map<std::string, Source> sources_;
  mutable std::once_flag text_read_;
  mutable TextFiles text_;
  mutable std::once_flag beside_read_;
  mutable TextFiles beside_tokenizer_;
};

}  // namespace

std::shared_ptr<const Checkpoint> open_safetensors_checkpoint(
    const std::filesystem::path& folder) {
  auto files = std::make_shared<const SafetensorsCheckpoint>(folder);
  const auto& foreign = files->foreign();
  return text_part(
      foreign && foreign->is_converted() ? convert_foreign(files, *foreign)
                                         : files);
}

}  // namespace mlxx::hub
